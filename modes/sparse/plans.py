"""Plans: the parts of a model's sparse Jacobians that are the same at all points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from weakref import finalize

import numpy as np

from ...jacobians import Dag, Jacobian
from ..linear.linearization import Linearization
from ..linear.tape.active import moving
from .choice import method
from .program import products
from .sweep import everything_in

PLANS: dict[int, dict[Any, Plan]] = {}
"""id of a route -> (codomain, domain, transposed, symmetric) -> the last plan."""


class Plan:
    """The method for a sparse Jacobian, and the properties that another point must share."""

    def __init__(self, J: Linearization, limit: int, *, symmetric: bool) -> None:
        constant = constants(J)
        operators = enumerate(edge.operator for edge in J.dag.edges)
        self.fixed = {k: operator for k, operator in operators if id(operator) in constant}
        sides = ((J, J.T) for J in self.fixed.values())
        known = {id(part) for pair in sides for side in pair for part in everything_in(side)}
        self.skeleton = self._skeleton(J.dag)
        self.method = method(
            J.dag, known, limit, symmetric=symmetric, known=products(J.entries)
        )
        self.method.learn(J.dag, J.tape)

    def fits(self, J: Linearization) -> bool:
        """Whether J, at another point, differs only in values that may change."""
        if self.method.knows(J.tape):
            return True
        if self._skeleton(J.dag) != self.skeleton or not self.method.fits(J.dag):
            return False
        now = {k: J.dag.edges[k].operator for k in self.fixed}
        if any(kept is not now[k] and skeleton(kept, whole=True) != skeleton(now[k], whole=True)
               for k, kept in self.fixed.items()):  # fmt: skip
            return False
        self.fixed = now  # the next comparison is by identity
        self.method.learn(J.dag, J.tape)
        return True

    def _skeleton(self, dag: Dag) -> Any:
        moving = ((e.start, e.end, skeleton(e.operator))
                  for k, e in enumerate(dag.edges) if k not in self.fixed)  # fmt: skip
        return dag.shapes, dag.sources, dag.sinks, len(dag.edges), tuple(moving)


def plan(J: Linearization, limit: int, *, symmetric: bool) -> Plan:
    """The plan for J: the plan of another point of the same model if it fits."""
    known = PLANS.get(id(J.route))
    if known is None:
        known = PLANS[id(J.route)] = {}
        finalize(J.route, PLANS.pop, id(J.route), None)
    key = J.codomain, J.domain, J.transposed, symmetric
    found = known.get(key)
    if found is None or not found.fits(J):
        found = known[key] = Plan(J, limit, symmetric=symmetric)
    return found


def constants(J: Linearization) -> set[int]:
    """The ids of the edges' operators that depend on no input of the model."""
    steps = J.route.model.steps
    stale, known = moving(steps, J.point, shapes=True), set(map(id, steps))
    kept = (e.blocks.values() for e in J.entries
            if id(e.step) in known and e.behind.isdisjoint(stale))  # fmt: skip
    return {id(b.T if J.transposed else b) for blocks in kept for b in blocks}


def skeleton(thing: Any, *, whole: bool = False) -> Any:
    """The data that determine the positions of the entries; with `whole`, also their values."""
    if isinstance(thing, np.ndarray):
        told = whole or thing.dtype.kind not in "fV"
        return thing.shape, thing.dtype, thing.tobytes() if told else None
    if isinstance(thing, Jacobian):
        return type(thing), *_held(vars(thing), whole)
    if isinstance(thing, tuple | list):
        return tuple(skeleton(part, whole=whole) for part in thing)
    if isinstance(thing, dict):
        return tuple(_held(thing, whole))
    if is_dataclass(thing):
        return type(thing), *(skeleton(getattr(thing, f.name), whole=whole) for f in fields(thing))
    return thing


def _held(named: Mapping[str, Any], whole: bool) -> Iterator[tuple[str, Any]]:
    """The skeletons of attributes by name, without the transpose and private ones."""
    kept = (name for name in sorted(named) if name != "T" and not name.startswith("_"))
    return ((name, skeleton(named[name], whole=whole)) for name in kept)
