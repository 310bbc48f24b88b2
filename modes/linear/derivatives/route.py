"""Route: the part of a linearisation that is the same at every point, cached with the model.

At the first point all rules are read over the values of all tensors. At another point of the same
shapes a derivative is made: when a Jacobian moves there, or when calls of `linearize` have taken as
long as making a derivative takes. For a model with control flow there is a route for each way in
which the model is unrolled.

What a route gives at a point is a `Point`: the blocks of the active steps, and their DAG.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from ....jacobians import Dag, chosen, dtype_of, shape_of
from ....jacobians.conditions import Condition
from ....jacobians.errors import OnnxJacError
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.readings import is_kept, place_of_engine
from ....jacobians.threads import Latest, Lock, cached_property
from ....ops import Step, numbers
from ....ops.graphs.recorder import has_bodies
from ....ops.registry import version
from ...model.flow.control import NotKept, note
from ...model.flow.steps import closed, steps_needed
from ...model.primal.evaluate import evaluate, evaluate_there, kinds_there
from ...model.primal.inputs import check_inputs, hosted, is_float, may_float, warn_nonfinite
from ...model.primal.model import Model
from .checkpoint import Segment, segmented, segments
from .derivative import FITS, Derivative, differentiated
from .point import Point, given_out, point_of
from .record import (
    active_steps,
    dag_of,
    is_flat,
    may_draw,
    record_entries,
    roundings,
    shapes_in,
    specs_at_ends,
    straight_through,
    types_of,
    unjoined,
    without,
)
from .settled import SETTLED
from .unroll import decisions, fixed, is_variable, shaped_as_here, unrolled

CACHED_DERIVATIVES = 8
"""The most derivatives that are cached for a route."""

POINTS_READ = 5
"""The points that are read by rules before a derivative is made where none moves from the last."""

CACHED_UNROLLINGS = 4
"""The most unrolled models that are cached for points of the same shapes."""

UNROLLED_NODES = 1000
"""The most nodes of a loop that is unrolled, see `unrolled`; the derivative of a longer loop is one
program.
"""


UNROLLED_NODES_OF_XLA = 80
"""The same where an engine compiles whole functions: a loop is compiled once for all its turns."""

HERE = Condition("point", "this point")
"""The condition of a model that was unrolled for one point."""

Signature = tuple[Any, ...]
"""The names, shapes and types of the arrays of a point."""


@dataclass(frozen=True)
class Route:
    """The part of a linearisation that does not depend on the point.

    `given` are the intermediates that the point holds, which are not computed. Where `model` holds
    samples, `source` is the model with the random operators that drew them. Where
    `is_unrolled`, `model` serves all points at which the `conditions` hold.
    """

    model: Model
    of: tuple[str, ...]
    wrt: tuple[str, ...]
    engine: str | None
    given: frozenset[str] = frozenset()
    source: Model | None = None
    estimate: bool = False
    checkpoint: bool | int = False
    is_unrolled: bool = False
    conditions: tuple[Condition, ...] = field(default=(), compare=False)

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
        if self.is_unrolled:
            steps = tuple(closed(s, self.model.ir.opset_imports, self.model.inputs) for s in steps)
        return straight_through(steps) if self.estimate else steps

    @cached_property
    def stands(self) -> bool:
        """Whether the model is flat as it stands, or unrolled already, at every point."""
        if self.is_unrolled:
            return True
        steps = self.model.steps
        order, _ = steps_needed(steps, (*self.of, *self.wrt), self.given)
        return is_flat([steps[k] for k in order], self.model.constants, self.estimate)

    @cached_property
    def may_draw(self) -> bool:
        """Whether an operator is random at some point."""
        return may_draw(self.source or self.model)

    @cached_property
    def active(self) -> tuple[Step, ...]:
        """The steps between `wrt` and `of`."""
        return active_steps(self.steps, self.wrt, self.of)

    @cached_property
    def _others(self) -> Latest[Any, Route]:
        return Latest(CACHED_DERIVATIVES)

    @cached_property
    def _flats(self) -> Latest[Any, tuple[Route, ...]]:
        return Latest(CACHED_DERIVATIVES)

    @cached_property
    def _derivatives(self) -> Latest[Signature | None, Derivative | None]:
        """Signature -> the derivative; None where none can be made."""
        return Latest(CACHED_DERIVATIVES)

    @cached_property
    def _read_at(self) -> Latest[Signature | None, tuple[Mapping[str, Any], int]]:
        """Signature -> the types of tensors, and the number of points that rules were read at."""
        return Latest(CACHED_DERIVATIVES)

    @cached_property
    def known(self) -> dict[Any, Any]:
        """The results of others for all points, such as the plans of sparse matrices."""
        return {}

    @cached_property
    def _lock(self) -> Lock:
        return Lock()

    def through(
        self, inputs: Mapping[str, Any], *, checked: bool = False
    ) -> tuple[Route, Mapping[str, Any]]:
        """The route for these inputs, with samples as constants, and the point, checked here or
        before.

        After a new declaration of an operator, nothing cached is used.
        """
        if self.declared != version():
            return replace(self).through(inputs, checked=checked)
        point = inputs if checked else check_inputs(self.model, inputs, engine=self.engine)
        given = frozenset(point.keys() - self.model.inputs.keys() - self.model.initializers.keys())
        source = (self.source or self.model).literal(given)
        model = fixed(source, point, self.engine) if self.may_draw else source
        if model is self.model and given == self.given:
            return self, point
        other = self._others.get(given) if model is source else None
        if other is None:
            other = replace(self, given=given, model=model, source=source)
            if model is source:
                self._others[given] = other
        return other, point

    def at(self, point: Mapping[str, Any], *, moves: bool = True) -> Point:
        """The model at a checked point that gives the intermediates in `given` and no others.

        Where a Jacobian `moves` here from another point, more points are expected.
        """
        signature = signature_of(point)
        for flat in () if self.checkpoint else self._flats.get(signature, ())[:2]:
            if flat.conditions and (found := flat._decided(flat.inside(point))):
                self._serves(signature, flat)
                return found
        flat = self._flat(point, signature)
        if flat is not self:
            try:
                return flat.at(flat.inside(point), moves=moves)
            except NotKept as reason:
                note(self.model, reason)
                return self.at(point, moves=moves)
        if not self.checkpoint:
            return self._warned(self._at(point, signature, moves), point)
        parts = tuple((part, route.dag_at) for part, route in self.segments)
        made = segmented(self.lean, hosted(point), parts, self.of, self.wrt, self.engine)
        return self._warned(made, point)

    def _decided(self, point: Mapping[str, Any]) -> Point | None:
        """The model there by a derivative, whose run gives the tensors of the conditions too; None
        where one of these does not hold, or where there is no derivative.
        """
        form = self._derivatives.get(signature_of(point))
        made = form and point_of(form, point, self.conditions)
        return self._warned(made, point) if made and made.holds(FITS) else None

    def _warned(self, made: Point, point: Mapping[str, Any]) -> Point:
        """A point, with a warning if a tensor of `of` is not finite."""
        if not made.is_lazy:
            warn_nonfinite(self.model, made.primal, point)
        return made

    def _serves(self, signature: Signature | None, flat: Route) -> None:
        """Put the unrolled model in front, where the next point tries it first."""
        others = (other for other in self._flats.get(signature, ()) if other is not flat)
        self._flats[signature] = flat, *others

    def dag_at(self, point: Mapping[str, Any]) -> Dag:
        """The DAG at a point."""
        made = self._at(point, signature_of(point), moves=True)
        found: Dag = made.dag if self.place is None else placed(made.dag, HOST)
        return found

    def _at(self, point: Mapping[str, Any], signature: Signature | None, moves: bool) -> Point:
        """The model there by the derivative, if there is one that holds here; else by all rules."""
        form = self._derivative(point, signature, moves)
        made = form and point_of(form, point)
        if form and made and not made.holds(FITS):
            form = self._derivatives[signature] = self._recorded(form.types, point, nan=True)
            made = form and point_of(form, point)
        if form and not made:
            self._derivatives[signature] = None
        return made or self._read(point, signature)

    def _derivative(
        self, point: Mapping[str, Any], signature: Signature | None, moves: bool
    ) -> Derivative | None:
        """The derivative of a signature, if there is one or it is time to make it."""
        compiles = signature is not None and self.place is not None and self.place.compiles
        if SETTLED.get() and not compiles:
            return None
        with self._lock:
            if signature not in self._derivatives:
                if compiles and signature not in self._read_at:
                    self._read_at[signature] = self._told(point), POINTS_READ
                types, points = self._read_at.get(signature, (None, 0))
                if types is None or points < (1 if moves else POINTS_READ):
                    return None
                known = types or not compiles  # a traced point cannot tell whether there is a NaN
                form = self._recorded(types, point, nan=compiles) if known else None
                self._derivatives[signature] = form
            return self._derivatives.get(signature)

    def _told(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The types of the tensors without a run; none where only a run tells them."""
        with suppress(OnnxJacError):
            return types_of(kinds_there(self.model, point, self.names, str(self.engine)))
        return {}

    def _recorded(
        self, types: Mapping[str, Any], point: Mapping[str, Any], *, nan: bool = False
    ) -> Derivative | None:
        decided = [c.name for c in self.conditions]
        try:
            return differentiated(self.model, hosted(point), self.active, self.of, self.wrt, types,
                                  self.engine, decided, nan=nan, place=self.place)  # fmt: skip
        except OnnxJacError:  # something cannot be recorded, or not run
            return None
        finally:
            if self.model.lean:
                self.model.sessions.clear()

    def _read(self, point: Mapping[str, Any], signature: Signature | None) -> Point:
        """The model there by all rules; the first point leaves types for a derivative."""
        names = self.names
        if self.place is None:
            values = evaluate(self.model, point, names, engine=self.engine, pooled=False)
        else:
            values = evaluate_there(self.model, point, names, str(self.engine))
        if self.model.lean:
            self.model.sessions.clear()  # the derivative has its own
        types = types_of(values)
        primal = given_out(values, self.of, point, self.place)
        ends = specs_at_ends(types, self.of, self.wrt)
        entries = record_entries(self.active, values, place=self.place)
        op = numbers if self.place is None else self.place.op
        dag = chosen(op, dag_of(entries, shapes_in(types), self.wrt, self.of, ends[2]))
        if signature is not None:
            with self._lock:
                before = self._read_at.get(signature, (types, 0))
                self._read_at[signature] = before[0], before[1] + 1
        return Point(primal, ends, entries=entries, dag=dag, place=self.place)

    @cached_property
    def place(self) -> Place | None:
        """Where the engine computes the residuals, if not over NumPy's arrays."""
        return place_of_engine(self.engine)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All tensors of the active steps."""
        met = (name for a in self.active for name in a.tensors)
        return tuple(dict.fromkeys((*met, *self.of, *self.wrt)))

    @cached_property
    def lean(self) -> Model:
        """The model with sessions that keep no memory between runs."""
        lean = Model(self.model.ir, self.model.limits)
        lean.lean = True
        return lean

    @cached_property
    def segments(self) -> tuple[tuple[Segment, Route], ...]:
        """The segments of a checkpointed model, each with its own route."""
        count = 0 if self.checkpoint is True else self.checkpoint
        types = {name: self.model.spec(name).dtype for a in self.active for name in a.tensors}
        discrete = {name for name, dtype in types.items() if dtype and not is_float(dtype)}
        parts = segments(self.steps, self.active, self.of, self.wrt, count, discrete)
        return tuple(
            (part, Route(self.lean, part.outs, part.ins, self.engine, frozenset(part.given),
                         estimate=self.estimate, is_unrolled=self.is_unrolled))
            for part in parts
        )  # fmt: skip

    def flat(self, point: Mapping[str, Any]) -> tuple[Route, Mapping[str, Any]]:
        """The route of the unrolled model at a point, and its inputs there."""
        found = self._flat(point, signature_of(point))
        return found, point if found is self else found.inside(point)

    def conditions_at(self, point: Mapping[str, Any], made: Point) -> tuple[Condition, ...]:
        """Where the unrolled model and the derivative that `made` a point serve others too."""
        form = made.derivative
        return *self.flat(point)[0].conditions, *(form.conditions.values() if form else ())

    def inside(self, point: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of this model, taken from a point of another model."""
        return {name: point[name] for name in self.model.inputs}

    def _flat(self, point: Mapping[str, Any], signature: Signature | None) -> Route:
        """The route through the unrolled model, a cached one where its decisions hold."""
        if self.stands:
            return self
        names = *self.of, *self.wrt
        found = self._flats.get(signature, ())
        for one in found:
            if one.holds(point):
                self._serves(signature, one)
                return one
        host = self.engine if self.place is None else None
        most = UNROLLED_NODES_OF_XLA if self.place and self.place.compiles else UNROLLED_NODES
        try:
            symbols, unkept = shaped_as_here(self.model), self.model.cache["unkept"]
            flat = unrolled(self.model, hosted(point), names, most, host, unkept, symbols,
                            self.estimate)  # fmt: skip
        except NotKept as reason:
            note(self.model, reason)
            return self._flat(point, signature)
        same = flat is self.model and not any(map(has_bodies, flat.steps))
        route = self if same else replace(self, model=flat, given=frozenset(), is_unrolled=True)
        decided = None if self.may_draw else decisions(flat, symbols)
        if decided is None or not all(is_variable(self.model, n, x) for n, x in point.items()):
            return route if same else replace(route, conditions=(HERE,))
        if not same:
            read = [c.name for c in decided]
            at = hosted(evaluate(flat, route.inside(point), read, engine=self.engine))
            here = (replace(c, here=shape_of(at[c.name]) if c.kind == "shape" else at[c.name])
                    for c in decided)  # fmt: skip
            route = replace(route, conditions=tuple(here))
        self._flats[signature] = route, *found[: CACHED_UNROLLINGS - 1]
        return route

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Whether the conditions hold at a point.

        The unrolled model computes their tensors; it is right up to the first one that differs.
        """
        names = [c.name for c in self.conditions]
        try:
            found = evaluate(self.model, self.inside(point), names, engine=self.engine)
        except OnnxJacError:  # after another decision the rest may not even fit
            return False
        return all(c.holds(found) for c in self.conditions)

    def zeros(self, dag: Dag, of: tuple[str, ...], wrt: tuple[str, ...]) -> tuple[str, ...]:
        """The pairs of tensors that no differentiable path joins, and the steps that cut them."""
        return unjoined(self.steps, dag, wrt, of, self.exact)

    def roundings(self, dag: Dag, of: tuple[str, ...], wrt: tuple[str, ...]) -> str:
        """The roundings that cut some of the paths between tensors, as text."""
        return roundings(self.steps, dag, wrt, of, self.exact)

    def exact(self, name: str) -> bool:
        """Whether a tensor is known to hold no floating-point numbers."""
        return not may_float(self.model.spec(name))


def route_of(
    model: Model, of: tuple[str, ...], wrt: tuple[str, ...], engine: str | None = None,
    estimate: bool = False, checkpoint: bool | int = False,
) -> Route:  # fmt: skip
    """The route between some tensors, cached with the model."""
    model, estimate = model.literal(wrt), estimate or model.estimates
    key = of, wrt, engine, estimate, checkpoint, type(checkpoint)
    with model.lock:
        route: Route | None = model.cache["route"].get(key)
        if route is None:
            route = Route(model, of, wrt, engine, estimate=estimate, checkpoint=checkpoint)
            model.cache["route"][key] = route
        return route


def signature_of(point: Mapping[str, Any]) -> Signature | None:
    """The shapes and types of a point, for which a derivative holds; None where not all arrays."""
    if not all(isinstance(x, np.ndarray) or is_kept(x) for x in point.values()):
        return None
    return tuple((name, shape_of(a), dtype_of(a)) for name, a in sorted(point.items()))
