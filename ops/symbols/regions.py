"""RoiAlign: samples spread evenly over the bins of regions."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import sympy as sp

from .exact import closed_form
from .interpolation import around, border, tent
from .table import kernel


@kernel("RoiAlign")
def roi_align(
    x: Any, rois: Any, batch: Any, *, mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
) -> Any:  # fmt: skip
    """The mean of bilinear samples in each bin, or their greatest weighted neighbour."""
    y = np.empty((len(rois), x.shape[1], output_height, output_width), object)
    shifted = coordinate_transformation_mode == "half_pixel"
    for k, c, *bin_ in np.ndindex(*y.shape):
        corners = rois[k] * closed_form(spatial_scale) - (sp.S.Half if shifted else 0)
        lines = [
            positions(corners[1 - d], corners[3 - d], bin_[d], y.shape[2 + d], sampling_ratio,
                      0 if shifted else 1)
            for d in (0, 1)
        ]  # fmt: skip
        image = x[int(np.ravel(batch)[k]), c]
        samples = [neighbours(image, at) for at in product(*lines)]
        y[k, c, *bin_] = mean(samples) if mode == "avg" else max(map(max, samples))
    return y


def positions(first: Any, last: Any, bin_: int, bins: int, ratio: int, least: int) -> list[Any]:
    """Where the samples of a bin lie: as many as asked for, or one per pixel."""
    length = max(last - first, 0 * first + least) if least else last - first
    count = ratio or int((length / bins).ceil())
    return [first + length * (bin_ + (t + sp.S.Half) / count) / bins for t in range(count)]


def neighbours(image: Any, at: tuple[Any, ...]) -> list[Any]:
    """Four neighbours times their weights: those of the border up to a pixel beyond it, else 0."""
    sizes = list(zip(at, image.shape, strict=True))
    if any(a < -1 or a > n for a, n in sizes):
        return [0]
    inner = [min(max(a, 0), n - 1) for a, n in sizes]
    taps = product(*(around(a, 1) for a in inner))
    return [
        image[tuple(map(border, tap, image.shape))] * prod(map(tent, np.subtract(inner, tap)))
        for tap in taps
    ]


def mean(samples: list[list[Any]]) -> Any:
    """The sum of all neighbours over the number of samples."""
    return sum(map(sum, samples)) / max(len(samples), 1)
