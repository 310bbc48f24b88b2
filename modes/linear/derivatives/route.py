"""Route: the part of a linearisation that is the same at every point, cached with the model.

At the first point all rules are read over the values of all tensors. At another point of the same
shapes a derivative is made: when a Jacobian moves there, or when calls of `linearize` have taken as
long as making a derivative takes. For a model with control flow there is a route for each way in
which the model is unrolled.

What a route gives at a point is a `Point`: the blocks of the active steps, and their DAG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from ....jacobians import Dag, chosen, dtype_of, shape_of
from ....jacobians.arrays import host, is_tensor
from ....jacobians.errors import OnnxJacError
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.symint import Symbols
from ....jacobians.threads import Latest, Lock, cached_property
from ....ops import Step, numbers
from ....ops.graphs.recorder import has_bodies
from ....ops.registry import version
from ...model.flow.control import NotKept, note
from ...model.flow.steps import closed, moving, needed
from ...model.primal.engines.torch import where
from ...model.primal.evaluate import by_torch, evaluate, evaluate_there
from ...model.primal.inputs import check_inputs, finite, hosted, is_float, may_float, warn_nonfinite
from ...model.primal.model import Model, TensorSpec
from .checkpoint import Segment, checkpointed, segments
from .derivative import Derivative, differentiated, evaluate_static
from .point import Point
from .record import (
    ActiveStep,
    Names,
    active_steps,
    dag_of,
    ends_of,
    is_flat,
    may_draw,
    record,
    roundings,
    shapes_in,
    straight_through,
    unjoined,
    without,
)
from .unroll import asked_in, fixed, is_variable, shaped_as_here, unrolled

KEPT = 8
"""The most derivatives that are cached for a route."""

READ = 5
"""The points that are read by rules before a derivative is made where none moves from the last."""

BRANCHES = 4
"""The most unrolled models that are cached for points of the same shapes."""

NODES = 1000
"""The most nodes of a loop that is unrolled, see `unrolled`; the derivative of a longer loop is one
program.
"""


Signature = tuple[Any, ...]
"""The names, shapes and types of the arrays of a point."""


@dataclass
class Readings:
    """The points of a signature without a derivative: the types of tensors, and their number."""

    types: Mapping[str, Any]
    points: int = 1


@dataclass(frozen=True)
class Route:
    """The part of a linearisation that does not depend on the point.

    `given` are the intermediates that the point holds, which are not computed. Where `model` holds
    samples, `source` is the model with the random operators that drew them. Where
    `is_unrolled`, `model` serves all points at which the `decided` tensors have these numbers, or
    those that are `sized` these shapes.
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
    decided: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    sized: frozenset[str] = frozenset()

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
        order, _ = needed(steps, (*self.of, *self.wrt), self.given)
        return is_flat([steps[k] for k in order], self.model.constants, self.estimate)

    @cached_property
    def may_draw(self) -> bool:
        """Whether an operator is random at some point."""
        return may_draw(self.source or self.model)

    @cached_property
    def active(self) -> tuple[ActiveStep, ...]:
        """The steps between `wrt` and `of`."""
        return active_steps(self.steps, self.wrt, self.of)

    @cached_property
    def _others(self) -> Latest[Any, Route]:
        return Latest(KEPT)

    @cached_property
    def _flats(self) -> Latest[Any, tuple[Route, ...]]:
        return Latest(KEPT)

    @cached_property
    def _derivatives(self) -> Latest[Signature | None, Readings | Derivative | None]:
        """Signature -> the readings so far, then the derivative; None where none can be made."""
        return Latest(KEPT)

    @cached_property
    def known(self) -> dict[Any, Any]:
        """The results of others for all points, such as the plans of sparse matrices."""
        return {}

    @cached_property
    def _lock(self) -> Lock:
        return Lock()

    def through(self, inputs: Mapping[str, Any]) -> tuple[Route, Mapping[str, Any]]:
        """The route for these inputs, with samples as constants, and the checked point.

        After a new declaration of an operator, nothing cached is used.
        """
        if self.declared != version():
            return replace(self).through(inputs)
        point = check_inputs(self.model, inputs, engine=self.engine)
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
        if expected := self._expected(point, signature):
            return expected
        flat = self._flat(point, signature)
        if flat is not self:
            try:
                return flat.at(flat.inside(point), moves=moves)
            except NotKept as reason:
                note(self.model, reason)
                return self.at(point, moves=moves)
        made = self._segmented(point) if self.checkpoint else self._at(point, signature, moves)
        if not made.is_lazy:
            warn_nonfinite(self.model, made.primal, point)
        return made

    def _expected(self, point: Mapping[str, Any], signature: Signature | None) -> Point | None:
        """The model there, by one of the two unrolled ones that served last, if that holds."""
        for flat in () if self.checkpoint else self._flats.get(signature, ())[:2]:
            if flat.decided and (made := flat._decided_at(flat.inside(point))):
                self._serves(signature, flat)
                return made
        return None

    def _decided_at(self, point: Mapping[str, Any]) -> Point | None:
        """The model there by the derivative, whose run gives the decisions too; None where they
        differ, or
        where there is no derivative.
        """
        form = self._derivatives.get(signature_of(point))
        if not isinstance(form, Derivative):
            return None
        try:
            values = self._first(form, partial(self._values, form, point), self.decided)
        except OnnxJacError:  # after another decision the rest may not even fit
            return None
        made = self._filled(form, point, values) if self.decides(values) else None
        if made and not made.is_lazy:
            warn_nonfinite(self.model, made.primal, point)
        return made if made and made.fits else None

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
        made = form and self._filled(form, point)
        if form and made and not made.fits:
            form = self._recorded(form.types, point, nan=True)
            self._derivatives[signature] = form
            made = form and self._filled(form, point)
        if form and not made:
            self._derivatives[signature] = None
        return made or self._read(point, signature)

    def _derivative(
        self, point: Mapping[str, Any], signature: Signature | None, moves: bool
    ) -> Derivative | None:
        """The derivative of a signature, if there is one or it is time to make it."""
        with self._lock:
            known = self._derivatives.get(signature)
            if isinstance(known, Readings):
                if not moves and known.points < READ:
                    return None
                known = self._derivatives[signature] = self._recorded(known.types, point)
            return known

    def _recorded(
        self, types: Mapping[str, Any], point: Mapping[str, Any], *, nan: bool = False
    ) -> Derivative | None:
        try:
            return differentiated(
                self.model, hosted(point), self.active, self.of, self.wrt, types, self._recording,
                self.decided, nan=nan, by_torch=self.place is not None,
            )
        except OnnxJacError:  # something cannot be recorded, or not run
            return None
        finally:
            if self.model.lean:
                self.model.sessions.clear()

    def _filled(
        self, form: Derivative, point: Mapping[str, Any], values: Mapping[str, Any] | None = None
    ) -> Point | None:
        """The point from a derivative, or also from the tensors that it needs; None where no engine
        runs the nodes that it adds.
        """
        primal: Any = partial(self._primal, point)
        compute = partial(self._values, form, point)
        try:
            values = self._first(form, compute) if values is None else values
            if values.keys() >= {*self.of}:
                primal = self._given_out(values, point)
            elif not all(map(finite, values.values())):
                primal = evaluate(self.model, point, self.of, engine=self.engine)
            made = Point(primal, form.ends, derivative=form, values=values, compute=compute,
                         place=self.place)  # fmt: skip
            if not form.closed and made.fits:
                made.entries  # noqa: B018 - raises the errors of rules
        except OnnxJacError:  # the model without residuals may run, or its error is clearer
            return None
        return made

    def _first(
        self, form: Derivative, compute: Callable[[Names], dict[str, Any]], more: Iterable[str] = ()
    ) -> dict[str, Any]:
        """What a point computes at once, and `more`."""
        names = tuple(dict.fromkeys((*form.wanted(), *more)))
        return compute(names if form.leaves_out(names) else (*names, *self.of))

    def _primal(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of `of`, with a warning if one is not finite."""
        values = evaluate(self.model, point, self.of, engine=self.engine)
        warn_nonfinite(self.model, values, point)
        return values

    def _values(
        self, form: Derivative, point: Mapping[str, Any], names: Names
    ) -> dict[str, np.ndarray]:
        """Tensors of the recorded model, whose shapes are static, at a point."""
        inputs = {name: point[name] for name in form.given}  # others may have names that are new
        if self.place is not None:
            return evaluate_there(form.model, inputs, names, str(self.engine))
        return evaluate_static(form.model, inputs, names, self.engine)

    def _read(self, point: Mapping[str, Any], signature: Signature | None) -> Point:
        """The model there by all rules; the first point leaves types for a derivative."""
        if self.place is None:
            values = evaluate(self.model, point, self.names, engine=self.engine, pooled=False)
        else:
            values = evaluate_there(self.model, point, self.names, str(self.engine))
        if self.model.lean:
            self.model.sessions.clear()  # the derivative has its own
        types = {name: described(name, value) for name, value in values.items()}
        primal, ends = self._given_out(values, point), ends_of(types, self.of, self.wrt)
        entries = record(self.active, values, place=self.place)
        op = numbers if self.place is None else self.place.op
        dag = chosen(op, dag_of(entries, shapes_in(types), self.wrt, self.of, ends[2]))
        with self._lock:
            known = self._derivatives.get(signature)
            if isinstance(known, Readings):
                known.points += 1
            elif signature is not None and signature not in self._derivatives:
                self._derivatives[signature] = Readings(types)
        return Point(primal, ends, entries=entries, dag=dag, place=self.place)

    @cached_property
    def place(self) -> Place | None:
        """Where PyTorch computes the residuals, if it does."""
        return where(str(self.engine)) if by_torch(self.engine) else None

    @property
    def _recording(self) -> str | None:
        """The engine for the few tensors of the host that a recording asks for."""
        return self.engine if self.place is None else None

    def _given_out(self, values: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of `of` among the values: NumPy arrays, unless the point holds tensors."""
        take = self.place.take if self.place and any(map(is_tensor, point.values())) else host
        return {name: values[name] if self.place is None else take(values[name])
                for name in self.of}  # fmt: skip

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

    def _segmented(self, point: Mapping[str, Any]) -> Point:
        """The model there by the tensors between segments; its DAG recomputes the others."""
        point = hosted(point)
        between = (n for part, _ in self.segments for n in (*part.given, *part.ins, *part.outs))
        names = tuple(dict.fromkeys((*between, *self.of, *self.wrt)))
        values = evaluate(self.lean, point, names, engine=self.engine)
        self.lean.sessions.clear()  # which would hold more than the checkpoints save
        types = {name: described(name, value) for name, value in values.items()}
        ends = ends_of(types, self.of, self.wrt)
        held = self.model.constants.keys() - point.keys()
        entries = tuple(checkpointed(part, route.dag_at, values, held)
                        for part, route in self.segments)  # fmt: skip
        dag = dag_of(entries, shapes_in(types), self.wrt, self.of, ends[2])
        return Point({name: values[name] for name in self.of}, ends, entries=(), dag=dag)

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
        if self.stands or self.may_draw:
            return self.model, point
        signature = signature_of(point)
        if signature not in self._flats:
            self._flat(point, signature)
        ways = self._flats.get(signature, ())
        if not ways or any(one.decided for one in ways):
            return self.model, point
        flat = ways[0]
        return flat.model, point if flat is self else flat.inside(point)

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
        try:
            symbols, unkept = shaped_as_here(self.model), self.model.derived.unkept
            flat = unrolled(
                self.model, hosted(point), names, NODES, self._recording, unkept, symbols,
                self.estimate,
            )  # fmt: skip
        except NotKept as reason:
            note(self.model, reason)
            return self._flat(point, signature)
        same = flat is self.model and not any(map(has_bodies, flat.steps))
        route = self if same else replace(self, model=flat, given=frozenset(), is_unrolled=True)
        decided, sized = (None, frozenset()) if self.may_draw else decisions(flat, symbols)
        if decided is not None and all(is_variable(self.model, n, x) for n, x in point.items()):
            if not same:
                at = evaluate(flat, route.inside(point), decided, engine=self.engine)
                route = replace(route, sized=sized)
                route = replace(route, decided=route.told(at))
            found = route, *found[: BRANCHES - 1]
        self._flats[signature] = found
        return route

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Whether the decisions that unrolled the model are the same at a point.

        The unrolled model computes them; it is right up to the first decision that differs.
        """
        if not self.decided:
            return True
        try:
            found = evaluate(self.model, self.inside(point), self.decided, engine=self.engine)
        except OnnxJacError:  # after another decision the rest may not even fit
            return False
        return self.decides(found)

    def decides(self, found: Mapping[str, Any]) -> bool:
        """Whether the decisions among some tensors are the ones that unrolled the model."""
        made = self.told({name: found[name] for name in self.decided})
        return all(np.array_equal(x, self.decided[name]) for name, x in made.items())

    def told(self, found: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """What some tensors decide: their shapes, or their numbers."""
        return hosted({name: np.array(shape_of(x)) if name in self.sized else x
                       for name, x in found.items()})  # fmt: skip

    def zeros(self, dag: Dag, of: tuple[str, ...], wrt: tuple[str, ...]) -> tuple[str, ...]:
        """The pairs of tensors that no differentiable path joins, and the steps that cut them."""
        return unjoined(self.steps, dag, wrt, of, self.exact)

    def roundings(self, dag: Dag, of: tuple[str, ...], wrt: tuple[str, ...]) -> str:
        """The roundings that cut some of the paths between tensors, as text."""
        return roundings(self.steps, dag, wrt, of, self.exact)

    def exact(self, name: str) -> bool:
        """Whether a tensor is known to hold no floating-point numbers."""
        return not may_float(self.model.spec(name))


def decisions(flat: Model, symbols: Symbols) -> tuple[tuple[str, ...] | None, frozenset[str]]:
    """The tensors that decided how a model was unrolled, None where one has no name; and the
    tensors whose shapes alone decided.
    """
    atoms = {atom for g in symbols.guards.values() for atom in g.expression.roots()}
    numbers = {*asked_in(flat.ir.graph), *symbols.pinned, *(a.tensor for a in atoms if a.is_entry)}
    names = numbers | {atom.tensor for atom in atoms}
    known = {*flat.inputs, *flat.constants, *(n for step in flat.steps for n in step.outputs)}
    found = tuple(sorted(names & moving(flat.steps, [*flat.inputs]))) if names <= known else None
    return found, frozenset(names - numbers)


def route_of(
    model: Model, of: tuple[str, ...], wrt: tuple[str, ...], engine: str | None, estimate: bool,
    checkpoint: bool | int,
) -> Route:  # fmt: skip
    """The route between some tensors, cached with the model."""
    model, estimate = model.literal(wrt), estimate or model.estimates
    key = of, wrt, engine, estimate, checkpoint, type(checkpoint)
    with model.lock:
        route: Route | None = model.derived.routes.get(key)
        if route is None:
            route = Route(model, of, wrt, engine, estimate=estimate, checkpoint=checkpoint)
            model.derived.routes[key] = route
        return route


def described(name: str, value: Any) -> Any:
    """Shape and dtype of a tensor; a sequence stays as it is."""
    return TensorSpec(name, shape_of(value), dtype_of(value)) if hasattr(value, "dtype") else value


def signature_of(point: Mapping[str, Any]) -> Signature | None:
    """The shapes and types of a point, for which a derivative holds; None where not all arrays."""
    if not all(isinstance(x, np.ndarray) or is_tensor(x) for x in point.values()):
        return None
    return tuple((name, shape_of(a), dtype_of(a)) for name, a in sorted(point.items()))
