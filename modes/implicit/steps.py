"""Steps: u − Σⱼ aⱼ u₋ⱼ − c f(t, u, p) = 0, solved one after the other, with checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Any, NamedTuple, final

import numpy as np

from ...jacobians import Block, Identity, Jacobian, shape_of, size
from ...jacobians.errors import NotConverged
from ...jacobians.threads import cached_property
from ..linear.derivatives.route import Route, route_of
from ..linear.linearization import Linearization, linearized
from ..model.primal.inputs import check_inputs
from ..model.primal.model import Model
from ..solvers.problem import split_vector
from ..solvers.roots import STEP
from .linear_solves import LinearSolves

METHODS = {"implicit_euler": ((1.0,), 1.0), "bdf2": ((4 / 3, -1 / 3), 2 / 3)}
"""method -> the coefficients aⱼ of the states before, and c / h. The first step is Euler's."""

History = tuple[np.ndarray, ...]
"""The last one or two states, flat, the latest first."""


class Solved(NamedTuple):
    """A step that is solved: its number, u, the Jacobian of its equations there, and the aⱼ."""

    number: int
    u: np.ndarray
    J: Linearization
    past: tuple[float, ...]


@final
@dataclass(frozen=True, eq=False)
class Steps:
    """`count` steps of length h of a `method` through time, from `start` at the inputs `point`; the
    last `totals` of the states are integrals.

    `model` has the equations of Euler's step, with ∂(equations)/∂(states, `wrt`); `t` names the
    input for the time, which is at `begin`. Newton's method ends where
    ‖equations‖ ≤ rtol max(√n, ‖u‖).
    """

    model: Model
    wrt: tuple[str, ...]
    point: Mapping[str, Any]
    start: Mapping[str, np.ndarray]
    totals: int
    method: str
    h: float
    count: int
    segments: int | None
    t: str | None
    begin: float
    rtol: float
    maxiter: int
    solves: LinearSolves
    engine: str | None

    @cached_property
    def equations(self) -> tuple[str, ...]:
        """The names of the equations, one tensor for each state."""
        return tuple(self.model.outputs)

    @cached_property
    def route(self) -> Route:
        """The part of all linearisations that is the same."""
        return route_of(self.model, self.equations, (*self.start, *self.wrt), self.engine)

    @cached_property
    def first(self) -> np.ndarray:
        """The states at the start, flat."""
        return np.concatenate([np.ravel(u) for u in self.start.values()])

    @cached_property
    def sizes(self) -> list[int]:
        """The number of entries of each state."""
        return [size(shape_of(u)) for u in self.start.values()]

    def named(self, u: np.ndarray, suffix: str = "") -> dict[str, np.ndarray]:
        """Flat states by name."""
        parts = split_vector(u, self.sizes)
        return {f"{name}{suffix}": part.reshape(x.shape).astype(x.dtype, copy=False)
                for (name, x), part in zip(self.start.items(), parts, strict=True)}  # fmt: skip

    def run(self, history: History, begin: int, end: int) -> Iterator[Solved]:
        """The steps `begin` + 1 to `end`, from the states before them."""
        for number in range(begin + 1, end + 1):
            past, c = METHODS["implicit_euler" if number == 1 else self.method]
            before = sum(a * u for a, u in zip(past, history, strict=False))
            solved = Solved(number, *self._solved(number, before, c * self.h, history[0]), past)
            yield solved
            history = (solved.u, *history)[:2]

    def _solved(
        self, number: int, before: Any, c: float, u: np.ndarray
    ) -> tuple[np.ndarray, Linearization]:
        """u after a step, and the Jacobian there, by Newton's method from this u on."""
        known = {**self.point, **self.named(before, "_before"), STEP: np.asarray(c, u.dtype)}
        if self.t is not None:
            known[self.t] = np.full_like(self.point[self.t], self.begin + self.h * number)
        n = sum(self.sizes[: len(self.sizes) - self.totals])
        for _ in range(self.maxiter):
            point = check_inputs(self.model, {**known, **self.named(u)}, engine=self.engine)
            J = linearized(self.route, point, checked=True)
            F = np.concatenate([J.primal[name].ravel() for name in self.equations])
            norm, size = (float(np.linalg.norm(part)) for part in (F[:n], u[:n]))
            if norm <= self.rtol * max(n**0.5, size):
                return np.concatenate([u[:n], u[n:] - F[n:]]), J
            if not np.isfinite(norm):
                break
            u = np.concatenate([u[:n] - self.own_inverse(J) @ F[:n], u[n:]])
        raise NotConverged(
            f"{self.method}, step {number} of {self.count}: Newton's method ends with ‖F‖ = "
            f"{norm:.2g} after {self.maxiter} iterations: take a shorter step than {self.h:g}, or "
            "a larger maxiter= or rtol="
        )

    def own_inverse(self, J: Linearization) -> Jacobian:
        """(∂equations/∂u)⁻¹ without the integrals, on which nothing depends."""
        n = len(self.start) - self.totals
        return self.solves(J.block(self.equations[:n], tuple(self.start)[:n]))

    def inverse(self, J: Linearization) -> Jacobian:
        """(∂equations/∂u)⁻¹ = [A 0; G I]⁻¹ = [I 0; −G I] [A⁻¹ 0; 0 I], integrals last."""
        A, (states, rows) = self.own_inverse(J), (tuple(self.start), self.equations)
        if not self.totals:
            return A
        n = len(states) - self.totals
        G = J.block(rows[n:], states[:n])
        one, same = Identity(G.out_shape, J.dtype), Identity(G.in_shape, J.dtype)
        return Block([[same, None], [-G, one]]) @ Block([[A, None], [None, one]])


@final
class Checkpoints:
    """The states at the ends of segments, by default √steps; the steps between are taken again.

    >>> cut_steps(10, 3)
    [(0, 4), (4, 8), (8, 10)]
    """

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.segments = cut_steps(steps.count, steps.segments or isqrt(steps.count))
        self.kept: dict[int, History] = {0: (steps.first,)}

    def walk(self) -> Iterator[Solved]:
        """All steps in order; the first walk keeps the checkpoints."""
        for begin, end in self.segments:
            history = self.kept[begin]
            for solved in self.steps.run(history, begin, end):
                history = (solved.u, *history)[:2]
                yield solved
            self.kept[end] = history

    def backwards(self) -> Iterator[Solved]:
        """All steps from the last to the first, segment by segment."""
        for begin, end in reversed(self.segments):
            segment = [*self.steps.run(self.kept[begin], begin, end)]
            while segment:
                yield segment.pop()


def cut_steps(steps: int, count: int) -> list[tuple[int, int]]:
    """The steps in at most `count` segments of one length, and maybe a shorter last one."""
    length = max(1, -(-steps // count))
    return [*pairwise([*range(0, steps, length), steps])]
