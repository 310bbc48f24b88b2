"""Draws that `onnx.reference` lacks."""

from __future__ import annotations

import numpy as np

from ...jacobians.arrays import Array
from .constants import numpy_dtype
from .table import kernel


@kernel("Multinomial")
def multinomial(
    x: Array, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Array:
    """Classes drawn with probabilities in proportion to exp(x), for every row of x."""
    rng = np.random.default_rng(None if seed is None else int(seed))
    noise = rng.gumbel(size=(len(x), sample_size, x.shape[1]))
    return np.argmax(x[:, None] + noise, axis=2).astype(numpy_dtype(dtype))
