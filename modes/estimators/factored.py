"""Factored: what K-FAC and its kin tell exactly, of themselves and with damping added."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from ...jacobians import Jacobian, Sum
from ..curvature.damped import undamped
from ..curvature.kronecker import KroneckerFactored
from ..sparse.unwrap import unwrap
from .diagonals import diagonal_of
from .spectra import Solve, eigenvalues, spectrum


@diagonal_of.register
def _(operator: KroneckerFactored) -> np.ndarray:
    return operator.diagonal()


@spectrum.register
def _(operator: KroneckerFactored, solve: Solve) -> np.ndarray | None:
    """λ ≥ 0 are singular values too; none where the uses of a tensor overlap."""
    return operator.eigenvalues() if operator.tiled else None


@spectrum.register
def _(operator: Sum, solve: Solve) -> np.ndarray | None:
    """|λ + δ| or λ + δ, of a symmetric operator plus δ I."""
    found = undamped(operator)
    values = None if found is None else spectrum(found[0], eigenvalues)
    if found is None or values is None:
        return None
    return values + found[1] if solve is eigenvalues else np.abs(values + found[1])


@singledispatch
def gram_diagonal(operator: Any) -> np.ndarray | None:
    """diag(AᵀA) by structure, or None where structure does not tell."""
    behind = unwrap(operator) if isinstance(operator, Jacobian) else operator
    return None if behind is operator else gram_diagonal(behind)


@gram_diagonal.register
def _(operator: KroneckerFactored) -> np.ndarray | None:
    """diag(Q Λ² Qᵀ)."""
    return operator.function(np.square).diagonal() if operator.tiled else None


@gram_diagonal.register
def _(operator: Sum) -> np.ndarray | None:
    """diag(AᵀA + 2 δ A + δ² I)."""
    found = undamped(operator)
    if found is None:
        return None
    square, own = gram_diagonal(found[0]), diagonal_of(found[0])
    return None if square is None or own is None else square + found[1] * (2 * own + found[1])
