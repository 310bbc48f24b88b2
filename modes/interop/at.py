"""At: a model at a point as something that can be differentiated, and so can what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...jacobians.cached import cached_property
from ..linearization import Linearization
from ..model import Model
from ..recording.derive import Draft, Names, jvp_graph, vjp_graph
from ..tape.route import route_of

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class At:
    """`of` as a function of `wrt`, at a point; `order` counts the derivatives in the model."""

    model: Model
    point: Mapping[str, Any]
    of: Names
    wrt: Names
    engine: str | None = None
    order: int = 0

    @cached_property
    def J(self) -> Linearization:
        """∂of/∂wrt at the point, in which blocks may be zero."""
        return route_of(self.model, self.of, self.wrt, self.engine, False, False).at(self.point)

    @property
    def values(self) -> Arrays:
        """The tensors of `of`, which come with J."""
        return tuple(self.J.primal[name] for name in self.of)

    def forward(self, tangents: Sequence[np.ndarray]) -> At:
        """(x, v) ↦ J(x) v as a function of its own, at (x, tangents)."""
        draft = jvp_graph(self.model, self.point, self.of, self.wrt, self.engine)
        return self._next(draft, tangents, tuple(f"{name}_tangent" for name in self.of))

    def reverse(self, cotangents: Sequence[np.ndarray]) -> At:
        """(x, u) ↦ J(x)ᵀ u as a function of its own, at (x, cotangents)."""
        draft = vjp_graph(self.model, self.point, self.of, self.wrt, self.engine)
        return self._next(draft, cotangents, tuple(f"{name}_cotangent" for name in self.wrt))

    def _next(self, draft: Draft, seeds: Sequence[np.ndarray], of: Names) -> At:
        """What was drafted. Its new tensors get names that the next derivative does not give."""
        made, order = draft.model("derivative").ir, self.order + 1
        entries = made.graph.inputs[len(made.graph.inputs) - len(seeds) :]
        results = [value for value in made.graph.outputs if value.name in of]
        for value in (*entries, *results):
            value.name = f"{value.name}@{order}"
        names = tuple(str(value.name) for value in entries)
        point = {**self.point, **dict(zip(names, seeds, strict=True))}
        of = tuple(f"{name}@{order}" for name in of)
        wrt = (*self.wrt, *names)
        model = Model(made, self.model.limits)
        return replace(self, model=model, point=point, of=of, wrt=wrt, order=order)
