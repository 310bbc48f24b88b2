"""Last: a function of the point that remembers where it was asked last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from ...ops.registry import version

Value = TypeVar("Value")


class Last(Generic[Value]):
    """x ↦ f(x), computed again only where x is another than last time; `count` says how often.

    Declarations of operators that changed since count as another x.

    >>> square = Last(lambda x: x @ x)
    >>> [square(np.array(x)) for x in ([1.0, 2.0], [1.0, 2.0], [0.0, 3.0])]
    [np.float64(5.0), np.float64(5.0), np.float64(9.0)]
    >>> square.count
    2
    """

    def __init__(self, compute: Callable[[np.ndarray], Value]) -> None:
        self.compute, self.count = compute, 0
        self.x: np.ndarray | None = None

    def __call__(self, x: np.ndarray) -> Value:
        if not self.knows(x):
            self.declared = version()
            self.value, self.x = self.compute(x), np.array(x)
            self.count += 1
        return self.value

    def knows(self, x: np.ndarray) -> bool:
        """Whether x is where it was asked last."""
        if self.x is None or self.declared != version():
            return False
        return np.array_equal(self.x, x)
