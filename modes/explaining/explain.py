"""Explain: what a Jacobian is made of, how its products go and why, what is met at its point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..products.compiled import Compiled
from ..tape.active import cuts
from ..tape.checkpoint import Checkpointed
from ..tape.record import vertex_names
from .blocks import Row, held_in, row_of
from .choices import choices_of
from .explanation import Cut, Explanation
from .met import kinks_at
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
        kinks_at(J),
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
