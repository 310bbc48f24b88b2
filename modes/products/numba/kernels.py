"""Kernels: loops compiled by numba, once per source text and layout of the arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, shape_of, size
from ...support.locks import Lock

LARGE = 1 << 17
"""The least number of entries for which threads pay off.

OpenMP threads keep spinning for a while after a loop, so that BLAS or ONNX Runtime calls between
two products, such as the dot products of GMRES, wait for a processor.
"""

HOME = os.getpid()
"""The process that imported numba."""

LAUNCH = Lock()
"""Serialises parallel loops: not every threading layer of numba can run several at once."""


def kernel(source: str, y: ir.Value) -> Callable[..., np.ndarray]:
    """The loop as a function of the arrays that it reads, compiled once per layout."""
    shape, dtype = shape_of(y), dtype_of(y)
    parallel = size(shape) >= LARGE

    def run(*reads: np.ndarray) -> np.ndarray:
        made = np.empty(shape, dtype)
        if parallel:
            alone(source, *reads, made)
        else:
            compiled(source, parallel=False)(*reads, made)
        return made

    return run


@lru_cache(maxsize=512)
def compiled(source: str, *, parallel: bool) -> Callable[..., Any]:
    """A loop that numba compiles. FMA contraction is allowed, reordering of sums is not."""
    names: dict[str, Any] = {"prange": numba.prange if parallel else range}
    exec(source, names)
    jit = numba.njit(parallel=parallel, nogil=True, error_model="numpy", fastmath={"contract"})
    made: Callable[..., Any] = jit(names["loop"])
    return made


def alone(source: str, *arrays: np.ndarray) -> None:
    """A parallel loop, run exclusively; in a forked process, a serial loop.

    OpenMP terminates a process that was forked from a process with OpenMP threads.
    """
    with LAUNCH:
        compiled(source, parallel=os.getpid() == HOME)(*arrays)
