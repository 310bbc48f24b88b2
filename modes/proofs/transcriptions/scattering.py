"""Operators that write entries into a copy of a tensor, in place of the old ones or onto them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import replaced, transcription, wrapped

REDUCTIONS: dict[str, Any] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: max(old, new),
    "min": lambda old, new: min(old, new),
}
"""What stands where an entry is written."""


@transcription("ScatterElements")
def scatter_elements(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    """y[i, indices[i, j, k], k] = f(y[…], updates[i, j, k])."""
    y, f = x.copy(), REDUCTIONS[reduction]
    for index in np.ndindex(*indices.shape):
        place = replaced(index, axis, wrapped(indices[index], x.shape[axis]))
        y[place] = f(y[place], updates[index])
    return y


@transcription("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    """y[*indices[i], k] = f(y[…], updates[i, k])."""
    y, f = x.copy(), REDUCTIONS[reduction]
    rank, depth = indices.ndim - 1, indices.shape[-1]
    for index in np.ndindex(*updates.shape):
        lengths = x.shape[:depth]
        outer = (wrapped(i, n) for i, n in zip(indices[index[:rank]], lengths, strict=True))
        place = (*outer, *index[rank:])
        y[place] = f(y[place], updates[index])
    return y
