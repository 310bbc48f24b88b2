"""Det."""

from __future__ import annotations

import numpy as np

from ...jacobians.arrays import Array
from .table import kernel


@kernel("Det")
def det(x: Array) -> Array:
    """The determinant of every matrix."""
    return np.asarray(np.linalg.det(x), x.dtype)
