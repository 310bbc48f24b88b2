"""Buffer pool: the memory of a large result, reused once its caller has released it.

Pages that `malloc` takes from the system are mapped at their first touch, after every product,
which took a quarter of a Gauss-Newton product with 11 million weights. Callers notice nothing:
while any array refers to the memory, the next product allocates its own.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...jacobians import Shape, size
from ..support.locks import Lock

MAPPED, HELD = 2**25, 2**28
"""Bytes from which glibc's `malloc` keeps no memory, and up to which the pool does."""

COUNTED: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether reference counts are exact, which requires the global interpreter lock."""


class ResultPool:
    """Arrays for the results of one program, which belong to their callers."""

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self.shape, self.dtype, self._lock = shape, np.dtype(dtype), Lock()
        self._kept = np.empty(0)
        self._unused = sys.getrefcount(self._kept)
        nbytes = size(shape) * self.dtype.itemsize
        self.again = COUNTED and MAPPED <= nbytes <= HELD

    def empty(self) -> np.ndarray:
        """An uninitialised array that nobody else refers to."""
        if not self.again:
            return np.empty(self.shape, self.dtype)
        with self._lock:
            if self._kept.shape != self.shape or sys.getrefcount(self._kept) > self._unused:
                self._kept = np.empty(self.shape, self.dtype)
            return self._kept[...]
