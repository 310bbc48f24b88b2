"""Sweep: du/dp of implicit steps, tangents forward and adjoints back."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import Any, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, lead, shape_of, size
from ...jacobians.errors import InputError
from ...ops import numbers
from ..model.primal.inputs import Specs
from .steps import Checkpoints, Solved


@final
class Sweep(Jacobian):
    """du/dp from the tensors of `domain`, starts and parameters, to the states that are `wanted`.

    With A = ∂(equations)/∂u and B = ∂(equations)/∂p of each step, forward A s = Σⱼ aⱼ s₋ⱼ − B v,
    and backward Aᵀ λ = μ with the adjoints μ₋ⱼ += aⱼ λ and the gradient −Σ Bᵀ λ.
    """

    def __init__(
        self, checkpoints: Checkpoints, domain: Specs, wanted: tuple[int, ...], dtype: Any,
        transposed: bool = False,
    ) -> None:  # fmt: skip
        self.checkpoints, self.steps, self.domain = checkpoints, checkpoints.steps, domain
        self.wanted, self.transposed = wanted, transposed
        self.places = ranges_of({s.name: size(shape_of(s)) for s in domain})
        self.entries = ranges_of(dict(zip(self.steps.start, self.steps.sizes, strict=True)))
        n, m = sum(size(shape_of(s)) for s in domain), len(wanted) * len(self.steps.first)
        super().__init__(*(((n,), (m,)) if transposed else ((m,), (n,))), dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        if op is not numbers:
            raise InputError("a trajectory is an iteration, which no graph records: apply it to "
                             "numbers")  # fmt: skip
        columns = v.reshape(-1, self.shape[1]).T
        found = self.pulled(columns) if self.transposed else self.pushed(columns)
        return found.T.reshape(*lead(v, self.in_shape), *self.out_shape)

    def _transpose(self) -> Jacobian:
        return Sweep(self.checkpoints, self.domain, self.wanted, self.dtype, not self.transposed)

    def pushed(self, v: np.ndarray) -> np.ndarray:
        """J v, for columns v."""
        s: Any = np.zeros((len(self.steps.first), v.shape[1]), v.dtype)
        for name in self.starts:
            s[self.entries[name]] = v[self.places[name]]
        direct, history, found = self.of_parameters(v), (s,), {0: s}
        for solved in self.checkpoints.walk():
            right = sum(a * s for a, s in zip(solved.past, history, strict=False))
            if self.parameters:
                right = right - self.by_parameters(solved) @ direct
            s = self.steps.inverse(solved.J) @ right
            history = (s, *history)[: self.steps.depth]
            if solved.number in self.wanted:
                found[solved.number] = s
        return self.by_tensor(np.stack([found[k] for k in self.wanted]))

    def pulled(self, u: np.ndarray) -> np.ndarray:
        """Jᵀ u, for columns u."""
        adjoint: dict[int, Any] = defaultdict(float)
        for number, row in zip(self.wanted, self.by_step(u), strict=True):
            adjoint[number] += row
        found = np.zeros((self.shape[0], u.shape[1]), u.dtype)
        total: Any = 0.0
        for solved in self.checkpoints.backwards():
            if solved.number not in adjoint:  # after the last that is wanted
                continue
            multiplier = self.steps.inverse(solved.J).T @ adjoint.pop(solved.number)
            for j, a in enumerate(solved.past, 1):
                adjoint[solved.number - j] = adjoint[solved.number - j] + a * multiplier
            if self.parameters:
                total = total - self.by_parameters(solved).T @ multiplier
        for name in self.starts:
            found[self.places[name]] = (adjoint[0] + np.zeros_like(u[:1]))[self.entries[name]]
        if self.parameters:
            parts = ranges_of({name: len(found[self.places[name]]) for name in self.parameters})
            for name, place in parts.items():
                found[self.places[name]] = total[place]
        return found

    @property
    def starts(self) -> tuple[str, ...]:
        """The tensors of p that are states at the start."""
        return tuple(name for name in self.places if name in self.entries)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The tensors of p that the equations of all steps have."""
        return tuple(name for name in self.places if name not in self.entries)

    def of_parameters(self, v: np.ndarray) -> np.ndarray:
        """The rows of the parameters, in the order of `parameters`."""
        return np.concatenate([v[:0], *(v[self.places[name]] for name in self.parameters)])

    def by_parameters(self, solved: Solved) -> Jacobian:
        """B of a step."""
        return solved.J.block(self.steps.equations, self.parameters)

    def by_tensor(self, rows: np.ndarray) -> np.ndarray:
        """States (wanted, n, K) as tensors one after the other, (wanted · n, K)."""
        parts = [rows[:, place].reshape(-1, rows.shape[2]) for place in self.entries.values()]
        return np.concatenate(parts)

    def by_step(self, u: np.ndarray) -> np.ndarray:
        """Tensors one after the other as states (wanted, n, K)."""
        count, ends = len(self.wanted), list(accumulate(len(self.wanted) * n
                                                        for n in self.steps.sizes))  # fmt: skip
        parts = [part.reshape(count, -1, u.shape[1]) for part in np.split(u, ends[:-1])]
        return np.concatenate(parts, axis=1)

    def __repr__(self) -> str:
        return f"du/dp of {self.steps.count} steps"


def ranges_of(sizes: dict[str, int]) -> dict[str, slice]:
    """The entries of each tensor, one after the other.

    >>> ranges_of({"a": 2, "b": 3})
    {'a': slice(0, 2, None), 'b': slice(2, 5, None)}
    """
    starts = accumulate(sizes.values(), initial=0)
    return {name: slice(k, k + n) for (name, n), k in zip(sizes.items(), starts, strict=False)}
