"""MaxRoiPool: the greatest pixel of each bin of each region."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .table import Index, tabulate, transcription


@transcription("MaxRoiPool")
def max_roi_pool(x: Any, rois: Any, *, pooled_shape: Any, spatial_scale: float = 1.0) -> Any:
    """y[r, c, i, j] = the greatest x[b, c, h, w] with (h, w) in bin (i, j) of region r, else 0.

    A region (b, x₁, y₁, x₂, y₂) ends with its last pixel; its corners are rounded. The bins, of
    which the specification says nothing, are those of Fast R-CNN.
    """

    def entry(index: Index) -> Any:
        r, c, *place = index
        image, *corners = (float(v) for v in rois[r])
        pixels = [
            bin_of(place[k], pooled_shape[k], scaled(corners[1 - k]), scaled(corners[3 - k]), n)
            for k, n in enumerate(x.shape[2:])
        ]
        met = [x[int(image), c, h, w] for h in pixels[0] for w in pixels[1]]
        return max(met) if met else 0

    def scaled(corner: float) -> int:
        return rounded(corner * spatial_scale)

    return tabulate((np.shape(rois)[0], x.shape[1], *pooled_shape), entry)


def rounded(v: float) -> int:
    """The nearest integer, and of two the one away from zero.

    >>> rounded(0.5), rounded(-0.5), rounded(-1.25)
    (1, -1, -1)
    """
    return int(math.copysign(math.floor(abs(v) + 0.5), v))


def bin_of(i: int, bins: int, first: int, last: int, n: int) -> range:
    """The pixels of bin i of a region along an axis of length n: bins overlap where they must.

    >>> [list(bin_of(i, 2, 1, 3, 5)) for i in range(2)]
    [[1, 2], [2, 3]]
    """
    length = max(last - first + 1, 1)
    start, end = first + i * length // bins, first - (-(i + 1) * length // bins)
    return range(min(max(start, 0), n), min(max(end, 0), n))
