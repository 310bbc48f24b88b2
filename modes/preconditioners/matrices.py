"""Matrices: their inverses, by eigenvalues where they are symmetric, else by elimination."""

from __future__ import annotations

import numpy as np

from ...jacobians.errors import InputError
from ..estimators.probes import is_symmetric


def inverted(matrices: np.ndarray, damping: float = 0.0, eps: float | None = None) -> np.ndarray:
    """(A + λI)⁻¹ for each of (*batch, n, n), whose numbers are right to eps.

    Raises `InputError` where symmetric ones have an eigenvalue that is not positive, and others are
    singular.
    """
    check_square(matrices)
    eps = float(np.finfo(matrices.dtype).eps) if eps is None else eps
    damped = matrices + damping * np.eye(matrices.shape[-1], dtype=matrices.dtype)
    if is_symmetric(matrices, eps):
        Q, values = eigen(damped)
        return np.asarray((Q * reciprocal(values)[..., None, :]) @ Q.swapaxes(-1, -2))
    try:
        found = np.linalg.inv(damped)
    except np.linalg.LinAlgError:
        raise InputError("a matrix is singular: give damping=") from None
    sizes = np.linalg.norm(damped, 1, (-2, -1)) * np.linalg.norm(found, 1, (-2, -1))
    if not np.all(sizes * np.finfo(damped.dtype).eps < 1):
        raise InputError(f"a matrix has the condition number {sizes.max():g}: give damping=")
    return np.asarray(found)


def check_square(matrices: np.ndarray) -> None:
    """Raises `InputError` where matrices have no inverse because they are not square."""
    m, n = matrices.shape[-2:]
    if m != n:
        raise InputError(f"an inverse needs square matrices, not {m}×{n}")


def eigen(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q and Λ of symmetric matrices."""
    values, vectors = np.linalg.eigh((matrices + matrices.swapaxes(-1, -2)) / 2)
    return vectors, values


def reciprocal(values: np.ndarray) -> np.ndarray:
    """1 / λ, where every λ is positive, beyond rounding."""
    if np.iscomplexobj(values):
        raise InputError("the entries of a diagonal are complex: they have no sign")
    if values.min(initial=np.inf) <= np.finfo(values.dtype).eps * values.max(initial=0):
        raise InputError(f"the smallest eigenvalue is {values.min():g}: give damping=")
    return 1 / values
