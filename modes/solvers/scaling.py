"""Scaling: the units in which a solver measures its variables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...jacobians import Jacobian

Scale = Callable[[Jacobian], np.ndarray]
"""J ↦ one positive number for each column."""


def column_norms(J: Jacobian, *, probes: int = 32, seed: int = 0) -> np.ndarray:
    """√diag(JᵀJ): exact for up to `probes` rows or columns, else E (Jᵀ z)² over random signs z.

    The estimate has a relative standard error of at most √(1 / (2 probes)), enough for a unit. A
    column of zeros counts as 1.

    >>> from onnxjac.jacobians import Dense
    >>> column_norms(Dense(np.array([[3.0, 0.0], [4.0, 0.0]])))
    array([5., 1.])
    """
    m, n = J.shape
    if n <= probes:
        squares = np.square(J @ np.eye(n, dtype=J.dtype)).sum(axis=0)
    elif m <= probes:
        squares = np.square(J.T @ np.eye(m, dtype=J.dtype)).sum(axis=1)
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], (m, probes)).astype(J.dtype)
        squares = np.square(J.T @ signs).mean(axis=1)
    return np.where(squares > 0, np.sqrt(squares), np.ones((), J.dtype))
