"""Kernels: loops compiled by numba, once for each text and layout of the arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numba
import numpy as np

from ...support.locks import Lock

LARGE = 1 << 17
"""The least number of entries for which threads are worth it.

Those of OpenMP go on spinning for a while after a loop, and what BLAS or ONNX Runtime computes
between two products, the dot products of GMRES for one, then waits for a processor.
"""

HOME = os.getpid()
"""The process that imported numba."""

LAUNCH = Lock()
"""One parallel loop at a time: not every threading layer of numba can run several."""


def kernel(source: str, arrays: list[np.ndarray]) -> Callable[..., Any]:
    """The compiled loop for arrays like these; the last one is written."""
    *reads, y = arrays
    signature = (*(reading_type(x) for x in reads), numba.typeof(y))
    if y.size < LARGE:
        return compiled(source, signature, parallel=False)
    compiled(source, signature, parallel=os.getpid() == HOME)  # now, not at the first product
    return partial(alone, source, signature)


def reading_type(x: np.ndarray) -> Any:
    """The type of an array that is only read, so that it may be read-only."""
    return numba.typeof(x).copy(readonly=True)


@lru_cache(maxsize=512)
def compiled(source: str, signature: tuple[Any, ...], *, parallel: bool) -> Callable[..., Any]:
    """A loop for types of arrays. Contraction is allowed, reordering of sums is not."""
    names: dict[str, Any] = {"prange": numba.prange if parallel else range}
    exec(source, names)
    jit = numba.njit(
        numba.void(*signature), parallel=parallel, nogil=True, error_model="numpy",
        fastmath={"contract"},
    )  # fmt: skip
    made: Callable[..., Any] = jit(names["loop"])
    return made


def alone(source: str, signature: tuple[Any, ...], *arrays: np.ndarray) -> None:
    """A parallel loop, while no other one runs; in a forked process one without threads.

    OpenMP ends a process that was forked from one in which it had threads.
    """
    with LAUNCH:
        compiled(source, signature, parallel=os.getpid() == HOME)(*arrays)
