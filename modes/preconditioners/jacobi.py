"""Jacobi: the inverse of a diagonal that is known exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Diagonal, Jacobian
from ...jacobians.errors import InputError
from ..estimators.exact import column_squares, exact_diagonal
from ..estimators.probes import probing, square


def jacobi(A: Any, *, damping: float = 0.0) -> Diagonal:
    """M = diag(A + λI)⁻¹ for a symmetric A with a positive diagonal, λ the damping.

    The diagonal is exact: by structure, which for A = JᵀDJ with a diagonal D squares J factor by
    factor; by sparse entries; or by n products. For `M=` of `cg` and `minres`.

    Shapes: A and M are (n, n). Raises `InputError` where A is not square or not real, and where an
    entry of the damped diagonal is not positive.

    >>> from onnxjac.jacobians import Dense
    >>> J = Dense(np.array([[1.0, 2.0], [1.0, 0.0]]))
    >>> jacobi(J.T @ J).d
    array([0.5 , 0.25])
    """
    with probing(A, "Jacobi") as P:
        square(P)
        entries, _ = exact_diagonal(P)
    return Diagonal((1 / positive(entries + damping)).reshape(in_shape(A)))


def column_scaling(J: Any, *, damping: float = 0.0) -> Diagonal:
    """R = diag(JᵀJ + λI)^(-1/2), with which J R has columns of norm one, up to the damping λ.

    For least squares: solve min ‖J R y - b‖, then x = R y. `R @ R` is the `M=` of `cg` on the
    normal equations. The column norms are exact: see `jacobi`; or by min(m, n) products.

    Shapes: J is (m, n), R is (n, n). Raises `InputError` where J is complex, and where a column is
    zero without damping.
    """
    with probing(J, "column norms") as P:
        squares, _ = column_squares(P)
    return Diagonal((positive(squares + damping) ** -0.5).reshape(in_shape(J)))


def in_shape(A: Any) -> tuple[int, ...]:
    """The shape of what an operator takes."""
    return A.in_shape if isinstance(A, Jacobian) else (A.shape[1],)


def positive(entries: np.ndarray) -> np.ndarray:
    """The entries, if all are."""
    if not np.all(entries > 0):
        k = int(np.argmin(np.where(np.isnan(entries), -np.inf, entries)))
        raise InputError(f"entry {k} of the diagonal is {entries[k]:g}, not > 0: give damping=")
    return entries
