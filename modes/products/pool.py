"""Pool: the memory of a large result, used again when its caller has given it up.

Pages that `malloc` takes from the system are made anew at the first touch, after every product.
That took a quarter of a Gauss-Newton product with 11 million weights. The caller notices nothing:
as long as any array shows the memory, the next product has its own.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...jacobians import Shape, size
from ..support.locks import Lock

MAPPED, HELD = 2**25, 2**28
"""Bytes from which `malloc` of the GNU library keeps nothing, and up to which we do."""

COUNTED: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether references are counted exactly, as they are not without the global interpreter lock."""


class ResultPool:
    """Arrays for the results of one program, which belong to their callers."""

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self.shape, self.dtype, self._lock = shape, np.dtype(dtype), Lock()
        self._kept = np.empty(0)
        self._unused = sys.getrefcount(self._kept)
        nbytes = size(shape) * self.dtype.itemsize
        self.again = COUNTED and MAPPED <= nbytes <= HELD

    def empty(self) -> np.ndarray:
        """An array that nobody else sees, with any numbers."""
        if not self.again:
            return np.empty(self.shape, self.dtype)
        with self._lock:
            if self._kept.shape != self.shape or sys.getrefcount(self._kept) > self._unused:
                self._kept = np.empty(self.shape, self.dtype)
            return self._kept[...]
