"""Sweep: du/dp of implicit steps, tangents forward and adjoints back."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, lead
from ...jacobians.errors import InputError
from ...ops import numbers
from .steps import Checkpoints, Solved


@final
class Sweep(Jacobian):
    """du/d(u₀, p) of all `wanted` states, one after the other, flat; p has `count` numbers.

    With A = ∂(equations)/∂u and B = ∂(equations)/∂p of each step, forward A s = Σⱼ aⱼ s₋ⱼ − B v,
    and backward Aᵀ λ = μ with the adjoints μ₋ⱼ += aⱼ λ and the gradient −Σ Bᵀ λ.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        count: int,
        wanted: tuple[int, ...],
        transposed: bool = False,
    ) -> None:
        self.checkpoints, self.steps, self.wanted = checkpoints, checkpoints.steps, wanted
        self.count, self.transposed, self.n = count, transposed, len(self.steps.first)
        ends = (len(wanted) * self.n,), (self.n + count,)
        super().__init__(*(ends[::-1] if transposed else ends), self.steps.first.dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        if op is not numbers:
            raise InputError("a trajectory is an iteration, which no graph records: apply it to "
                             "numbers")  # fmt: skip
        columns = v.reshape(-1, self.shape[1]).T
        found = self._pulled(columns) if self.transposed else self._pushed(columns)
        return found.T.reshape(*lead(v, self.in_shape), *self.out_shape)

    def _transpose(self) -> Jacobian:
        return Sweep(self.checkpoints, self.count, self.wanted, not self.transposed)

    def _pushed(self, v: np.ndarray) -> np.ndarray:
        """J v, for columns v."""
        s: Any = v[: self.n]
        history: tuple[Any, ...] = (s,)
        found = {0: s}
        for solved in self.checkpoints.walk():
            right = sum(a * s for a, s in zip(solved.past, history, strict=False))
            s = self.steps.inverse(solved.J) @ (right - self._by_parameters(solved, v[self.n :]))
            history = (s, *history)[:2]
            if solved.number in self.wanted:
                found[solved.number] = s
        return np.concatenate([found[k] for k in self.wanted])

    def _pulled(self, u: np.ndarray) -> np.ndarray:
        """Jᵀ u, for columns u."""
        adjoint, total = defaultdict[int, Any](float), np.zeros((self.count, u.shape[1]), u.dtype)
        for number, row in zip(self.wanted, np.split(u, len(self.wanted)), strict=True):
            adjoint[number] += row
        for solved in self.checkpoints.backwards():
            if solved.number in adjoint:  # else after the last that is wanted
                multiplier = self.steps.inverse(solved.J).T @ adjoint.pop(solved.number)
                for j, a in enumerate(solved.past, 1):
                    adjoint[solved.number - j] = adjoint[solved.number - j] + a * multiplier
                total = total - self._by_parameters(solved, multiplier)
        return np.concatenate([adjoint[0], total])

    def _by_parameters(self, solved: Solved, v: np.ndarray) -> Any:
        """B v, or Bᵀ v."""
        if not self.count:
            return 0.0 if not self.transposed else v[:0]
        B = solved.J.block(self.steps.equations, self.steps.wrt)
        return (B.T if self.transposed else B) @ v

    def __repr__(self) -> str:
        return f"du/d(u₀, p) of {self.steps.count} steps"
