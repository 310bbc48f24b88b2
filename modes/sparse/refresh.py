"""Refresh: a sparse matrix given away, and its numbers at the next point.

All matrices of one plan share the arrays that say where entries stand. These are read-only: what
would change them in place, as `eliminate_zeros` does, needs a `copy()` of the matrix first.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Jacobian
from ...jacobians.arrays import wide
from ...jacobians.errors import InputError
from .choice import Method


def fresh(method: Method, J: Jacobian) -> csr_array[Any]:
    """A new matrix, whose numbers are its own."""
    pattern = method.pattern
    pattern.indices.flags.writeable = pattern.indptr.flags.writeable = False
    matrix = copy(pattern)  # of the object, not of its arrays
    matrix.data = method.values(J)
    return matrix


def refreshed(method: Method, J: Jacobian, out: Any) -> csr_array[Any]:
    """`out` with the numbers of J; those that are the same at all points are not written again.

    Raises `InputError` where `out` does not have the shape, dtype and pattern of J.
    """
    problem = mismatch(out, method.pattern, wide(J.dtype))
    if problem:
        m, n = J.shape
        raise InputError(
            f"tosparse(out=...) cannot write the Jacobian of shape {m}×{n} ({J.dtype}): {problem}. "
            f"Take a result of tosparse() of this Jacobian at another point, or leave out= away."
        )
    method.values(J, out.data)
    matrix: csr_array[Any] = out
    return matrix


def mismatch(out: Any, pattern: csr_array[Any], dtype: Any) -> str | None:
    """What of a matrix does not fit; None if it fits."""
    if not isinstance(out, csr_array):
        return f"out is of type {type(out).__name__}, not csr_array"
    if (out.shape, out.dtype) != (pattern.shape, dtype):
        return f"out has shape {out.shape[0]}×{out.shape[1]} and dtype {out.dtype}"
    pairs = (out.indices, pattern.indices), (out.indptr, pattern.indptr)
    if not all(a is b or np.array_equal(a, b) for a, b in pairs):
        return f"out has another pattern, of {out.nnz} entries instead of {pattern.nnz}"
    if not (out.data.flags.c_contiguous and out.data.flags.writeable):
        return "the numbers of out cannot be written in place"
    return None
