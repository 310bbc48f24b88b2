"""Met: what a Jacobian meets at its point, kinks, jumps and derivatives that are not finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians.cached import cached_property
from ...ops import Step
from ..naming.names import is_float
from ..primal.evaluate import evaluate
from ..tape.active import ActiveStep, Slot, active_steps, cuts
from ..tape.unroll import is_defined
from .blocks import Held, held_in
from .jumps import JUMPS
from .kinks import COUNTS, Kink, has_kinks, key, kinks_of, node_of
from .unbounded import not_finite, unbounded

Linearization = Any
"""A Jacobian at a point, which imports this."""

Values = Mapping[str, Any]

Outputs = tuple[str | None, ...]
"""The names of what a step makes, by which it is known."""


def kinks_at(J: Linearization, only: Step | None = None) -> tuple[Kink, ...]:
    """What is met at the point of J, or by one of its steps; those first with most entries.

    Takes a run of the model where there is something to look at.
    """
    found = Met(J, only)
    return tuple(sorted((*found.kinks(), *found.unbounded()), key=lambda kink: -kink.count))


@dataclass(frozen=True)
class Met:
    """The steps that a Jacobian is made of, in the flat model of its point, and their tensors."""

    J: Linearization
    only: Step | None = None

    @cached_property
    def route(self) -> Any:
        """The route through the flat model, and the point of that."""
        return self.J.route.flat(self.J.point)

    @cached_property
    def ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the tensors of wrt, and of those of of."""
        wrt, of = (tuple(s.name for s in side) for side in (self.J.domain, self.J.codomain))
        return wrt, of

    @cached_property
    def owners(self) -> Mapping[Outputs, Step]:
        """A step of the flat model -> the step of the model whose definition it is part of.

        Parts stand in front of the step that makes the last output of the whole.
        """
        made = {name: step for step in self.J.route.steps for name in step.outputs if name}
        found, owner = {}, None
        for step in reversed(self.route[0].steps):
            owner = next((made[n] for n in step.outputs if n in made), owner)
            if owner is not None and is_defined(owner):
                found[step.outputs] = owner
        return found

    def within(self, step: Step) -> str:
        """The node whose definition a step is part of; empty where it is of the model."""
        owner = self.owners.get(step.outputs)
        return owner.name if owner else ""

    def chosen(self, step: Step) -> bool:
        """Whether a step is looked at: all are, or one with its parts."""
        whole = self.owners.get(step.outputs, step)
        return self.only is None or self.only.outputs in (step.outputs, whole.outputs)

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """The blocks."""
        found = held_in(self.J.entries, self.J.dag) if self.J.entries else ()
        return tuple(held for held in found if self.chosen(held.step))

    @cached_property
    def active(self) -> tuple[ActiveStep, ...]:
        """The steps with blocks and the slots of these; a checkpointed J holds none, but has."""
        if not self.J.entries:
            found = active_steps(self.route[0].steps, *self.ends)
            return tuple(a for a in found if self.chosen(a.step))
        steps = {h.step.outputs: h.step for h in self.held}
        slots: dict[Outputs, set[Slot]] = {outputs: set() for outputs in steps}
        for held in self.held:
            slots[held.step.outputs].add(held.key)
        return tuple(ActiveStep(step, frozenset(slots[k])) for k, step in steps.items())

    def values(self, steps: tuple[Step, ...], *, flat: bool = True) -> Values:
        """The tensors of some steps, of the flat model or of the one that was given."""
        route, point = self.route if flat else (self.J.route, self.J.point)
        names = dict.fromkeys(n for s in steps for n in (*s.inputs, *s.outputs) if n)
        return evaluate(route.model, point, names, engine=route.engine) if names else {}

    def kinks(self) -> Iterator[Kink]:
        """Kinks and jumps: of a definition as a whole where that is counted, else of its parts."""
        cut = (ActiveStep(s, frozenset()) for s, _ in cuts(self.route[0].steps, *self.ends)
               if key(s) in JUMPS and self.chosen(s))  # fmt: skip
        found = [*self.active, *cut]
        owned = [self.owners.get(a.step.outputs) for a in found]
        wholes = {o.outputs for o in owned if o is not None and key(o) in COUNTS}
        parts = [a for a, o in zip(found, owned, strict=True)
                 if (o is None or o.outputs not in wholes) and has_kinks(a.step)]  # fmt: skip
        of_model = active_steps(self.J.route.steps, *self.ends) if wholes else ()
        yield from self.counted([a for a in of_model if a.step.outputs in wholes], flat=False)
        yield from self.counted(parts)

    def counted(self, steps: list[ActiveStep], *, flat: bool = True) -> Iterator[Kink]:
        """The kinks of some steps; integers have no jumps."""
        values = self.values(tuple(a.step for a in steps), flat=flat)
        for a in steps:
            node = node_of(a.step, values, a.wanted)
            if is_float(np.asarray(node.x).dtype):
                yield from kinks_of(node, self.within(a.step) if flat else "")

    def unbounded(self) -> Iterator[Kink]:
        """The derivatives that have no finite value."""
        found = [h for h in self.held if key(h.step) == "Pow" or not_finite(h.operator).size]
        values = self.values(tuple(h.step for h in found))
        for held in found:
            yield from unbounded(held, values, self.within(held.step))
