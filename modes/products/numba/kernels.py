"""Kernels: loops compiled by numba, once per source text and layout of the arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numba
import numpy as np

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


def kernel(source: str, arrays: list[np.ndarray]) -> Callable[..., Any]:
    """The compiled loop for arrays of these types and layouts; the last array is the output."""
    *reads, y = arrays
    signature = (*(reading_type(x) for x in reads), numba.typeof(y))
    if y.size < LARGE:
        return compiled(source, signature, parallel=False)
    compiled(source, signature, parallel=os.getpid() == HOME)  # now, not at the first call
    return partial(alone, source, signature)


def reading_type(x: np.ndarray) -> Any:
    """The numba type of an array that is only read: it also accepts read-only arrays."""
    return numba.typeof(x).copy(readonly=True)


@lru_cache(maxsize=512)
def compiled(source: str, signature: tuple[Any, ...], *, parallel: bool) -> Callable[..., Any]:
    """A loop compiled for array types. FMA contraction is allowed, reordering of sums is not."""
    names: dict[str, Any] = {"prange": numba.prange if parallel else range}
    exec(source, names)
    jit = numba.njit(
        numba.void(*signature), parallel=parallel, nogil=True, error_model="numpy",
        fastmath={"contract"},
    )  # fmt: skip
    made: Callable[..., Any] = jit(names["loop"])
    return made


def alone(source: str, signature: tuple[Any, ...], *arrays: np.ndarray) -> None:
    """A parallel loop, run exclusively; in a forked process, a serial loop.

    OpenMP terminates a process that was forked from a process with OpenMP threads.
    """
    with LAUNCH:
        compiled(source, signature, parallel=os.getpid() == HOME)(*arrays)
