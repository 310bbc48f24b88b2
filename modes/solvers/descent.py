"""Descent: what minimisers of one scalar have in common, from step to step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .problem import Problem
from .result import OptimizeResult
from .run import GOING, GRADIENT, STUCK, state


@dataclass(kw_only=True)
class Descent(ABC):
    """What stays the same from step to step, and how much was done."""

    problem: Problem
    gtol: float
    nit: int = 0
    products: int = 0
    called: ClassVar[str] = "products"
    """What a result calls the products."""

    def states(self) -> Iterator[OptimizeResult]:
        """The state at the start, and after every iteration, until ‖∇f‖ ≤ gtol."""
        x, status = self.problem.x0, GOING
        while True:
            f, g = self.problem.fun(x), self.problem.gradient(x)
            status = GRADIENT if np.linalg.norm(g) <= self.gtol else status
            counts = {"nit": self.nit, self.called: self.products}
            yield state(self.problem, status, x=x, fun=f, jac=g, **counts)
            self.nit += 1
            moved = self.move(x, f, g)
            x, status = (x, STUCK) if moved is None else (moved, GOING)

    @abstractmethod
    def move(self, x: np.ndarray, f: float, g: np.ndarray) -> np.ndarray | None:
        """The next point, which may be x itself; None where no step makes f smaller."""
