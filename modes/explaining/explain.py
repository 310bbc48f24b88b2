"""Explain: what a Jacobian is made of, how its products go and why, what is met at its point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...ops import Step
from ..primal.evaluate import evaluate
from ..products.compiled import Compiled
from ..tape.active import cuts
from ..tape.checkpoint import Checkpointed
from ..tape.record import vertex_names
from .blocks import Row, held_in, row_of
from .choices import choices_of
from .explanation import Cut, Explanation
from .kinks import Kink, kinked_steps, kinks_of
from .stretches import Stretch, changes, fates, stretches_of

Linearization = Any
"""A Jacobian at a point, which imports this."""


def explain(J: Linearization) -> Explanation:
    """All that is known of a Jacobian; takes a run of the model where operators have kinks."""
    of, wrt = (tuple(spec.name for spec in side) for side in (J.codomain, J.domain))
    return Explanation(
        repr(J),
        *products_of(J, vertex_names(J.entries, wrt, of)),
        tuple(Cut(s.op_type, s.name, why) for s, why in cuts(J.route.steps, wrt, of)),
        J.route.zeros(J.dag, of, wrt),
        tuple(kinks_at(J, used_steps(J))),
    )


def products_of(
    J: Linearization, names: tuple[str, ...]
) -> tuple[tuple[Row, ...], tuple[Stretch, ...], tuple[str, ...]]:
    """The blocks, what became of them, and why; `names` are those of the vertices."""
    if any(isinstance(edge.operator, Checkpointed) for edge in J.dag.edges):
        return (), (), (CHECKPOINTED,)
    found, held = changes(J.dag), tuple(held_in(J.entries, J.dag))
    after, ops = fates(found), {h.ends: h.step.op_type for h in held}
    rows = tuple(row_of(h, after) for h in held)
    choices = (*choices_of(J.dag), *engine_of(J))
    return rows, tuple(stretches_of(found, names, ops)), choices


CHECKPOINTED = "checkpointed: blocks are made again at every product, and never multiplied out"


def engine_of(J: Linearization) -> Iterator[str]:
    """Which engine takes the products of J and of Jᵀ, where they are compiled."""
    for side, kind in ((J, ""), (vars(J).get("T"), "Jᵀ ")):
        taken = vars(side).get("structure") if side is not None else None
        if isinstance(taken, Compiled):
            yield kind + taken.choice


def used_steps(J: Linearization) -> Iterator[Step]:
    """The steps that a Jacobian has a block of; all between its ends where it holds none."""
    if not J.entries:
        return (active.step for active in J.route.active)
    used = {id(held.step) for held in held_in(J.entries, J.dag)}
    return (entry.step for entry in J.entries if id(entry.step) in used)


def kinks_at(J: Linearization, steps: Iterator[Step]) -> tuple[Kink, ...]:
    """The kinks of some steps at the point of a Jacobian, those first on which most entries lie."""
    kinked = tuple(kinked_steps(steps))
    found = kinks_of(kinked, values_of(J, kinked))
    return tuple(sorted(found, key=lambda kink: -(0.5 if kink.count is None else kink.count)))


def values_of(J: Linearization, steps: tuple[Step, ...]) -> Mapping[str, Any]:
    """The values of all tensors of some steps at the point of a Jacobian."""
    route, point = J.route.flat(J.point)
    names = dict.fromkeys(n for step in steps for n in (*step.inputs, *step.outputs) if n)
    return evaluate(route.model, point, names, engine=J.route.engine)
