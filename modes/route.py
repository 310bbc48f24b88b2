"""Route: the part of a linearisation that is the same at every point, cached with the model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..jacobians import Dag
from ..jacobians.cached import cached_property
from ..jacobians.errors import OnnxJacError
from ..jacobians.symint import Symbols
from ..ops import Step
from ..ops.registry import version
from .flow.failure import NotKept, note
from .model import Model
from .naming.names import is_float
from .primal.evaluate import evaluate
from .primal.finite import Later, warn_nonfinite
from .primal.inputs import check_inputs
from .support.once import known
from .tape.active import ActiveStep, active_steps, straight_through, unjoined, without
from .tape.bodies import closed
from .tape.checkpoint import Segment, chained, checkpointed, segments, shapes_of
from .tape.dependence import moving
from .tape.draws import fixed, is_random, may_draw
from .tape.tapes import Tape, Tapes, described, ends_of, keep, signature_of
from .tape.template import Signature, names_of
from .tape.trace import asked_in, shaped_as_here
from .tape.unroll import is_variable, unrolled

BRANCHES = 4
"""The most unrolled models that are cached for points of the same shapes."""

TURNS = 50
"""The largest trip count that is unrolled; the derivative of a longer loop is one program."""


@dataclass(frozen=True)
class Route:
    """The part of a linearisation that does not depend on the point.

    `given` are the intermediates that the point holds, which are not computed. Where `model` holds
    samples, `source` is the model with the random operators that drew them.
    """

    model: Model
    of: tuple[str, ...]
    wrt: tuple[str, ...]
    engine: str | None
    given: frozenset[str] = frozenset()
    source: Model | None = None
    estimate: bool = False
    checkpoint: bool | int = False
    is_flat: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, without cached results."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def declared(self) -> int:
        """The version of the operator declarations that cached results are based on."""
        return version()

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the model without given tensors, roundings as estimators if asked for."""
        steps = without(self.model.steps, self.given)
        if self.is_flat:
            steps = tuple(closed(s, self.model.ir.opset_imports, self.model.inputs) for s in steps)
        return straight_through(steps) if self.estimate else steps

    @cached_property
    def may_draw(self) -> bool:
        """Whether an operator is random at some point."""
        return any(map(is_random, (self.source or self.model).steps))

    @cached_property
    def active(self) -> tuple[ActiveStep, ...]:
        """The steps between `wrt` and `of`."""
        return active_steps(self.steps, self.wrt, self.of)

    @cached_property
    def _others(self) -> OrderedDict[Any, Route]:
        return OrderedDict()

    @cached_property
    def _flats(self) -> OrderedDict[Any, tuple[Unrolled, ...]]:
        return OrderedDict()

    @cached_property
    def tapes(self) -> Tapes:
        """The tape at one point after the other."""
        return Tapes(self.model, self.active, self.of, self.wrt, self.engine)

    def through(self, inputs: Mapping[str, Any]) -> tuple[Route, Mapping[str, Any]]:
        """The route for these inputs, with samples as constants, and the checked point.

        After a new declaration of an operator, nothing cached is used.
        """
        if self.declared != version():
            return replace(self).through(inputs)
        point = check_inputs(self.model, inputs)
        given = frozenset(point.keys() - self.model.inputs.keys() - self.model.initializers.keys())
        source = self.source or self.model
        model = fixed(source, point, self.engine) if self.may_draw else source
        return self._through(model, given, source), point

    def _through(self, model: Model, given: frozenset[str], source: Model) -> Route:
        """The route for other given intermediates or other samples."""
        if model is self.model and given == self.given:
            return self
        if model is not source:
            return replace(self, given=given, model=model, source=source)
        known = self._others.get(given)
        if known is None:
            known = replace(self, given=given, model=model, source=source)
            keep(self._others, given, known)
        return known

    def tape(self, point: Mapping[str, Any]) -> Tape:
        """The tape at a checked point that gives the intermediates in `given` and no others."""
        signature = signature_of(point)
        flat = self._flat(point, signature)
        if flat is not self:
            try:
                return flat.tape(flat.inside(point))
            except NotKept as reason:
                note(self.model, reason)
                return self.tape(point)
        made = self._segmented(point) if self.checkpoint else self.tapes.at(point, signature)
        if not isinstance(made.primal, Later):
            warn_nonfinite(self.model, made.primal, point)
        return made

    def dag_at(self, point: Mapping[str, Any]) -> Dag:
        """The DAG at a point."""
        return self.tapes.at(point, signature_of(point)).dag.value

    @cached_property
    def lean(self) -> Model:
        """The model with sessions that keep no memory between runs."""
        lean = Model(self.model.ir, self.model.limits)
        lean.lean = True
        return lean

    @cached_property
    def segments(self) -> tuple[tuple[Segment, Route], ...]:
        """The segments of a checkpointed tape, each with its own route."""
        count = 0 if self.checkpoint is True else self.checkpoint
        types = {name: self.model.spec(name).dtype for a in self.active for name in names_of(a)}
        discrete = {name for name, dtype in types.items() if dtype and not is_float(dtype)}
        parts = segments(self.steps, self.active, self.of, self.wrt, count, discrete)
        return tuple(
            (part, Route(self.lean, part.outs, part.ins, self.engine, frozenset(part.given),
                         estimate=self.estimate))
            for part in parts
        )  # fmt: skip

    def _segmented(self, point: Mapping[str, Any]) -> Tape:
        """The tape of the tensors between segments; its DAG recomputes the others."""
        between = (n for part, _ in self.segments for n in (*part.given, *part.ins, *part.outs))
        names = tuple(dict.fromkeys((*between, *self.of, *self.wrt)))
        values = evaluate(self.lean, point, names, engine=self.engine)
        self.lean.sessions.clear()  # which would hold more than the checkpoints save
        types = {name: described(name, value) for name, value in values.items()}
        ends = ends_of(types, self.of, self.wrt)
        held = self.model.constants.keys() - point.keys()
        parts = [(part, checkpointed(part, route.dag_at, values, held))
                 for part, route in self.segments]  # fmt: skip
        dag = chained(parts, shapes_of(values), self.of, self.wrt, ends[2])
        return Tape({name: values[name] for name in self.of}, ends, known(()), known(dag))

    def flat(self, point: Mapping[str, Any]) -> tuple[Route, Mapping[str, Any]]:
        """The route of the unrolled model at a point, and its inputs there."""
        found = self._flat(point, signature_of(point))
        return found, point if found is self else found.inside(point)

    def inside(self, point: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of this model, taken from a point of another model."""
        return {name: point[name] for name in self.model.inputs}

    def settled(self, point: Mapping[str, Any]) -> tuple[Model, Mapping[str, Any]]:
        """The unrolled model and its inputs, if no number of the point decides how it is unrolled;
        else the model itself.
        """
        signature = signature_of(point)
        if self.is_flat or may_draw(self.model):
            return self.model, point
        if signature not in self._flats:
            self._flat(point, signature)
        ways = self._flats.get(signature, ())
        if not ways or any(one.decided for one in ways):
            return self.model, point
        flat = ways[0].route
        return flat.model, point if flat is self else flat.inside(point)

    def _flat(self, point: Mapping[str, Any], signature: Signature | None) -> Route:
        """The route through the unrolled model, a cached one where its decisions hold."""
        if self.is_flat:
            return self
        names = *self.of, *self.wrt
        found: tuple[Unrolled, ...] = self._flats.get(signature, ())
        for one in found:
            if one.holds(point):
                return one.route
        try:
            symbols, unkept = shaped_as_here(self.model), self.model.unkept
            flat = unrolled(self.model, point, names, TURNS, self.engine, unkept, symbols)
        except NotKept as reason:
            note(self.model, reason)
            return self._flat(point, signature)
        same = flat is self.model
        route = self if same else replace(self, model=flat, given=frozenset(), is_flat=True)
        decided = None if may_draw(self.model) else decisions(flat, symbols)
        if decided is not None and all(is_variable(self.model, n, x) for n, x in point.items()):
            at = {} if same else evaluate(flat, route.inside(point), decided, engine=self.engine)
            found = Unrolled(route, at), *found[: BRANCHES - 1]
        keep(self._flats, signature, found)
        return route

    def zeros(self, dag: Dag, of: tuple[str, ...], wrt: tuple[str, ...]) -> tuple[str, ...]:
        """The pairs of tensors that no differentiable path joins, and the steps that cut them."""
        return unjoined(self.steps, dag, wrt, of)


@dataclass(frozen=True)
class Unrolled:
    """A route through an unrolled model, and the tensors that decided how it was unrolled."""

    route: Route
    decided: Mapping[str, np.ndarray]

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Whether the decisions are the same at a point.

        The unrolled model computes them; it is right up to the first decision that differs.
        """
        if not self.decided:
            return True
        model, inputs = self.route.model, self.route.inside(point)
        try:
            found = evaluate(model, inputs, self.decided, engine=self.route.engine)
        except OnnxJacError:  # after another decision the rest may not even fit
            return False
        return all(np.array_equal(found[name], x) for name, x in self.decided.items())


def decisions(flat: Model, symbols: Symbols) -> tuple[str, ...] | None:
    """The tensors whose numbers decided how a model was unrolled; None where one has no name."""
    guards = (atom.tensor for g in symbols.guards.values() for atom in g.expression.roots())
    names = {*asked_in(flat.ir.graph), *symbols.pinned, *guards}
    known = {*flat.inputs, *flat.constants, *(n for step in flat.steps for n in step.outputs)}
    return tuple(sorted(names & moving(flat.steps, [*flat.inputs]))) if names <= known else None


def route_of(
    model: Model, of: tuple[str, ...], wrt: tuple[str, ...], engine: str | None, estimate: bool,
    checkpoint: bool | int,
) -> Route:  # fmt: skip
    """The route between some tensors, cached with the model."""
    key = of, wrt, engine, estimate, checkpoint, type(checkpoint)
    with model.lock:
        route: Route | None = model.routes.get(key)
        if route is None:
            route = Route(model, of, wrt, engine, estimate=estimate, checkpoint=checkpoint)
            keep(model.routes, key, route)
        return route
