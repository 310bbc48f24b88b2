"""Incomplete LU: the sparse factors of an operator, but for what is small in them."""

from __future__ import annotations

from typing import Any

from scipy.sparse.linalg import LinearOperator, spilu

from ...jacobians import Jacobian
from ..sparse import sparse


def ilu(A: Jacobian, **options: Any) -> LinearOperator:
    """M = (LU)⁻¹ with LU ≈ A, for a square A that has few entries in every row.

    The entries of A are those of its structure, found with as few products as a colouring needs.
    Options are those of `scipy.sparse.linalg.spilu`: `drop_tol`, `fill_factor`. For `M=` of `gmres`
    and `bicgstab`.

    Shapes: A and M are (n, n). Raises `LimitError` where the entries of A take more than 2 GiB.
    What `spilu` raises comes as it is: `RuntimeError` for a pivot that is zero, `ValueError` where
    A is not square. Source: Li and Shao, "A supernodal approach to incomplete LU factorization with
    partial pivoting", 2011.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Diagonal
    >>> ilu(Diagonal(np.array([2.0, 4.0]))) @ np.ones(2)
    array([0.5 , 0.25])
    """
    factors = spilu(sparse(A, "csc"), **options)
    return LinearOperator(A.shape, factors.solve, dtype=A.dtype)
