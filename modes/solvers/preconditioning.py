"""Preconditioning: what a caller may give as a preconditioner, and what a solver makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...jacobians.errors import InputError

Preconditioner = Callable[[Any], Any] | Any
"""A ↦ M ≈ A⁻¹ for the operator A of an iteration, or one M for all of them."""


def preconditioner_for(A: Any, given: Preconditioner | None) -> Any:
    """M for an operator A, or None where there is none.

    >>> import numpy as np
    >>> A = np.diag([2.0, 4.0])
    >>> preconditioner_for(A, lambda A: np.diag(1 / np.diag(A)))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    if given is None:
        return None
    if not (hasattr(given, "shape") or callable(given)):
        raise InputError(
            f"preconditioner={given!r} is neither an operator nor a function that makes one: "
            "oj.preconditioners has ilu, jacobi, block_jacobi ..."
        )
    M = given if hasattr(given, "shape") else given(A)  # a linear operator can be called too
    n = A.shape[1]
    if getattr(M, "shape", None) != (n, n):
        raise InputError(
            f"the preconditioner has shape {getattr(M, 'shape', None)}, not {(n, n)}: give an "
            "operator of that shape, or a function of the solver's operator that makes one"
        )
    return M
