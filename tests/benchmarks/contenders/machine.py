"""The machine: the speed of matrix products and of memory, measured like a contender."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np

from .contender import Contender, Task

ORDER = 1024
"""Rows and columns of the matrices of `gemm`."""

PASSES = 50
"""Sums in one run of `stream`, so that the cost of dispatch to threads is negligible."""


class Machine(Contender):
    """`gemm` is one matrix product, `stream` one sum of vectors by two threads."""

    library: ClassVar[str] = "machine"
    only: ClassVar[tuple[str, ...]] = ("gemm", "stream")

    def gemm(self) -> Task:
        """C = A B, 2·1024³ operations."""
        A, B, C = (np.ones((ORDER, ORDER), self.workload.dtype) for _ in range(3))
        return lambda: np.matmul(A, B, out=C)

    def stream(self, nbytes: int) -> Task:
        """c = a + b, reading a and b and writing c: `nbytes` in all, half per thread."""
        length = max(nbytes // (6 * self.workload.dtype.itemsize), 1024)
        halves = [[np.ones(length, self.workload.dtype) for _ in range(3)] for _ in range(2)]
        pool, often = ThreadPoolExecutor(2), range(PASSES)

        def passes(half: list[np.ndarray]) -> None:
            a, b, c = half
            for _ in often:
                np.add(a, b, out=c)

        return lambda: list(pool.map(passes, halves))


CONTENDERS = {"machine": Machine}
