"""LpNormalization."""

from __future__ import annotations

import numpy as np

from ...jacobians.arrays import Array
from .table import kernel, wide


@kernel("LpNormalization")
@wide
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """x / ‖x‖ₚ along an axis; 0 where the norm is 0."""
    norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
    return x / np.where(norm == 0, 1, norm)
