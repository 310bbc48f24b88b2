"""Template: the tape read once over graph values, to be filled at one point after the other.

The model is recorded with its integers followed symbolically, which proves that no shape depends
on numbers. What the operators of the steps hold, residuals such as 1 - y², becomes nodes beside its
own, so that one run of the engine computes all of it and gives away nothing else. A step whose rule
asks for numbers that only a point knows is left to be read there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from ...jacobians import Jacobian, dtype_of, shape_of
from ...jacobians.cached import cached_property
from ...jacobians.errors import OnnxJacError
from ...jacobians.symint import is_symbolic
from ...ops import numbers
from ...ops.graphs import build
from ...ops.graphs.shapes import CONTENT, STILL
from ...ops.node import AT, NAN
from ..flow.steps import array_of, needed
from ..model import Model
from ..support.once import Once
from .active import ActiveStep, Slot
from .bodies import bodies_of
from .mold import Fill, mold, values_in
from .record import Entry, Past, Values, blocks_of, entry_of, shapes_in
from .reuse import Basis, seen_of
from .trace import Trace, shaped_as_here, trace
from .views import Seen, View, multiplied, view_of

Signature = tuple[Any, ...]


@dataclass(frozen=True)
class Form:
    """The entry of a step, but for its numbers: what fills its blocks, and what they depend on.

    `fills` is None where the step is read at every point.
    """

    active: ActiveStep
    blocks: Mapping[Slot, Jacobian]
    fills: Mapping[Slot, Fill] | None
    basis: Basis

    def at(self, arrays: Mapping[int, Any]) -> Entry:
        """The entry where the graph values are these arrays."""
        if not self.fills:
            return self.entry
        made = {slot: fill(arrays) for slot, fill in self.fills.items()}
        return Entry(self.active.step, {**self.blocks, **made}, self.basis)

    @cached_property
    def entry(self) -> Entry:
        """The entry without what is filled, which for most steps is all of it."""
        return Entry(self.active.step, self.blocks, self.basis)


@dataclass(frozen=True)
class Template:
    """All entries of a tape without their numbers.

    `model` computes, beside what it did, the residuals; `fetched` are those of its tensors that
    are needed, and `views` how the arrays of the operators are seen in them. `few` is whether the
    residuals alone are so little of the work that the rest is left until somebody looks at it, and
    `at_hand` whether the point holds all of them, so that no engine is asked.
    """

    model: Model
    types: Mapping[str, Any]
    forms: tuple[Form, ...]
    views: Mapping[int, View]
    fetched: tuple[str, ...]
    residuals: tuple[str, ...]
    few: bool
    at_hand: bool
    known: dict[str, Any] = field(default_factory=dict, compare=False)
    """What was worked out of all this once, by name."""

    @cached_property
    def closed(self) -> bool:
        """Whether `views` shows all that points differ in, so that no rule is asked there."""
        return all(form.fills is not None for form in self.forms)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the floating tensors."""
        return shapes_in(self.types)

    @cached_property
    def rigid(self) -> bool:
        """Whether points differ in nothing but floating numbers, all of which `views` shows."""
        blocks = (J for form in self.forms for J in form.blocks.values())
        floats = (dtype_of(value).kind == "f" for J in blocks for value in values_in(J))
        return self.closed and all(floats)

    def entries(
        self, arrays: Mapping[int, Any], values: Values, past: Past | None
    ) -> tuple[Entry, ...]:
        """The entries where the graph values are these arrays, the fetched tensors these values."""
        return tuple(self._entry(form, arrays, values, past) for form in self.forms)

    def _entry(
        self, form: Form, arrays: Mapping[int, Any], values: Values, past: Past | None
    ) -> Entry:
        step = form.active.step
        if form.fills is None:
            known = past.entry(step, seen_of(step, values)) if past else None
            return known or entry_of(form.active, values, numbers)
        known = past.entry(step, form.basis.seen) if past else None
        return known or form.at(arrays)


class Filled:
    """A template at a point: a tape whose entries are made at the first look."""

    def __init__(
        self, form: Template, values: Values, primal: Mapping[str, Any], past: Once[Past | None]
    ) -> None:
        self.template, self.types, self.primal, self.past = form, form.types, primal, past
        self._values = values
        self.read_by: Any = None  # what is known to fit its arrays, which is not compared again

    @cached_property
    def arrays(self) -> Seen:
        """What the operators of the entries hold, by the identity of the graph value."""
        return Seen(self.template.views, self._values)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries, those of the past that are the same here among them."""
        return self.template.entries(self.arrays, self._values, self.past.value)


def template(
    model: Model, point: Mapping[str, Any], active: Iterable[ActiveStep], ends: Iterable[str],
    types: Mapping[str, Any], signature: Signature, engine: str | None,
) -> Template | None:  # fmt: skip
    """The template of the steps for all points of the same shapes, types and names as this one.

    None where numbers decide the shapes of tensors that the steps read or make.
    """
    symbols = shaped_as_here(model)
    given = point.keys() - model.inputs
    t = trace(model, point, types, engine, given=given, symbols=symbols, types=types)
    unknown = (is_symbolic(shape_of(t.values[name])) for name in types)
    if symbols.guards or symbols.pinned or any(unknown):
        return None
    values = leaves(t)
    forms = tuple(form_of(a, t, values, signature) for a in active)
    held = {id(v): v for form in forms if form.fills for J in form.blocks.values()
            for v in values_in(J)}  # fmt: skip
    known = set(map(id, t.values.values()))
    asked = {key: view_of(value, lambda v: id(v) in known) for key, value in held.items()}
    extended = recorded(model, t, ends, [view.base for view in asked.values()])
    direct = tuple(name for f in forms if f.fills is None for name in names_of(f.active))
    views = asked if direct else multiplied(asked, point.keys())
    bases = (name for view in views.values() for name in view.names)
    residuals = tuple(dict.fromkeys((*bases, *direct)))
    fetched = tuple(dict.fromkeys((*ends, *residuals)))
    some, all_ = (len(needed(extended.steps, names, point)[0]) for names in (residuals, fetched))
    few, at_hand = 2 * some <= all_, point.keys() >= set(residuals)
    return Template(extended, types, forms, views, fetched, residuals, few, at_hand)


def leaves(t: Trace) -> dict[str, Any]:
    """The tensors as rules may read them for all points: constants as arrays, no other numbers."""
    t.recorder.symbols = None
    for value in t.values.values():
        if STILL not in value.meta and value.const_value is None:
            value.meta.pop(AT, None)
            value.meta.pop(CONTENT, None)
            value.meta[NAN] = None
    return {n: v if v.const_value is None else array_of(v) for n, v in t.values.items()}


def recorded(
    model: Model, t: Trace, ends: Iterable[str], residuals: Iterable[ir.Value]
) -> Model:
    """The model that computes residuals beside its own tensors."""
    kept = [*residuals, *t.values.values()]
    outputs = {name: t.values[name] for name in ends if t.values[name].producer() is not None}
    made = Model(build(t.recorder, t.inputs, outputs, model.name, kept), model.limits)
    made.lean = model.lean
    return made


def names_of(active: ActiveStep) -> Iterator[str]:
    """The tensors of a step."""
    yield from (n for n in (*active.step.inputs, *active.step.outputs) if n is not None)


def form_of(
    active: ActiveStep, t: Trace, values: Mapping[str, Any], signature: Signature
) -> Form:
    """The form of a step: its rule read over graph values, where that is possible."""
    unread = Form(active, {}, None, Basis(frozenset(), signature))
    if active.step.domain not in ("", "ai.onnx") or bodies_of(active.step):  # it may do anything
        return unread
    try:
        blocks = blocks_of(active, values, t.recorder)
    except OnnxJacError:
        return unread
    if not all(map(is_open, blocks.values())):
        return unread
    fills = {slot: fill for slot, J in blocks.items() if (fill := mold(J))}
    names = names_behind(t, (v for J in blocks.values() for v in values_in(J)))
    return Form(active, blocks, fills, Basis(names, signature))


def names_behind(t: Trace, values: Iterable[ir.Value]) -> frozenset[str]:
    """The tensors of the model from which values are made."""
    names = {id(value): name for name, value in t.values.items()}
    found, seen, stack = set(), set(), list(values)
    while stack:
        value = stack.pop()
        if id(value) in names:
            found.add(names[id(value)])
        elif id(value) not in seen and (node := value.producer()) is not None:
            seen.add(id(value))
            stack.extend(x for x in node.inputs if x is not None)
    return frozenset(found)


def is_open(operator: Jacobian) -> bool:
    """Whether all graph values that an operator holds are where a mold finds them."""
    found = set(map(id, values_in(operator)))
    return all(id(a) in found for a in operator.arrays() if isinstance(a, ir.Value))
