"""Scaling: the units in which a solver measures its variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..estimators.probes import Probed, signs

Scale = Callable[[Any], np.ndarray]
"""J ↦ one positive number for each column."""


def column_norms(J: Any, *, probes: int = 32, seed: int = 0) -> np.ndarray:
    """√diag(JᵀJ): exact for up to `probes` rows or columns, else √E (Jᵀ z)² over random signs z.

    The estimate has a relative standard error of at most 1/√(2 probes), enough for a unit. A
    column of zeros counts as 1. Where structure gives the norms, see `column_scaling`.

    >>> from onnxjac.jacobians import Dense
    >>> column_norms(Dense(np.array([[3.0, 0.0], [4.0, 0.0]])))
    array([5., 1.])
    """
    P, (m, n) = Probed(J), J.shape
    if n <= probes:
        squares = np.square(P @ np.eye(n)).sum(axis=0)
    elif m <= probes:
        squares = np.square(P.adjoint(np.eye(m))).sum(axis=1)
    else:
        squares = np.square(P.adjoint(signs(np.random.default_rng(seed), m, probes))).mean(axis=1)
    return np.where(squares > 0, np.sqrt(squares), 1).astype(J.dtype)
