"""Template: the tape read once over graph values, to be filled with numbers at each point.

The model is recorded with its integers followed symbolically, which proves that no shape depends
on numbers. Residuals such as 1 - y² become nodes beside the model's own, so that one run of the
engine computes them all and returns nothing else. A step whose rule asks for numbers that only a
point knows is read at every point.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Jacobian, dtype_of, shape_of
from ...jacobians.cached import cached_property
from ...jacobians.errors import OnnxJacError
from ...jacobians.symint import is_symbolic
from ...ops import numbers
from ...ops.graphs import build
from ...ops.graphs.shapes import CONTENT, STILL
from ...ops.node import AT, NAN
from ..flow.steps import array_of, needed, python_of
from ..model import Model
from .active import ActiveStep, Slot
from .bodies import bodies_of
from .record import Entry, Values, blocks_of, entry_of, shapes_in
from .trace import Trace, shaped_as_here, trace

Signature = tuple[Any, ...]


@dataclass(frozen=True)
class Form:
    """The entry of a step without its numbers: what fills the blocks, and the tensors behind them.

    `fills` is None where the step is read at every point.
    """

    active: ActiveStep
    blocks: Mapping[Slot, Jacobian]
    fills: Mapping[Slot, Fill] | None
    behind: frozenset[str] = frozenset()

    def at(self, arrays: Mapping[int, Any]) -> Entry:
        """The entry where the graph values are these arrays."""
        if not self.fills:
            return self.entry
        made = {slot: fill(arrays) for slot, fill in self.fills.items()}
        return Entry(self.active.step, {**self.blocks, **made}, self.behind)

    @cached_property
    def entry(self) -> Entry:
        """The entry without filled blocks, which for most steps is the whole entry."""
        return Entry(self.active.step, self.blocks, self.behind)


@dataclass(frozen=True)
class Template:
    """All entries of a tape without their numbers.

    `model` computes the residuals beside its own outputs; `fetched` are the tensors needed from it.
    `held` are the graph values that the operators hold and `views` the views of their arrays in the
    fetched tensors, both by identity. The template is for points where the arrays of `not_nan` have
    no NaN. `few` says that the residuals take so little of the model's work that the outputs are
    left until they are needed, and `at_hand` that the point itself holds all residuals, so that no
    engine runs.
    """

    model: Model
    types: Mapping[str, Any]
    forms: tuple[Form, ...]
    held: Mapping[int, ir.Value]
    views: Mapping[int, View]
    fetched: tuple[str, ...]
    residuals: tuple[str, ...]
    not_nan: tuple[int, ...]
    few: bool
    at_hand: bool
    known: dict[Any, Any] = field(default_factory=dict, compare=False)
    """The cache of results for all points, by name or ends."""

    @cached_property
    def closed(self) -> bool:
        """Whether points differ in the arrays of `views` alone, so that no rule is read there."""
        return all(form.fills is not None for form in self.forms)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the floating tensors."""
        return shapes_in(self.types)

    @cached_property
    def has_integers(self) -> bool:
        """Whether operators hold integers, such as places, that differ from point to point."""
        return any(dtype_of(value).kind in "iu" for value in self.held.values())

    @cached_property
    def rigid(self) -> bool:
        """Whether points differ in floating numbers of the `views` alone."""
        return self.closed and all(dtype_of(v).kind == "f" for v in self.held.values())

    def entries(self, arrays: Mapping[int, Any], values: Values) -> tuple[Entry, ...]:
        """The entries where the graph values are these arrays, the fetched tensors these values."""
        return tuple(entry_of(form.active, values, numbers) if form.fills is None
                     else form.at(arrays) for form in self.forms)  # fmt: skip


def template(
    model: Model, point: Mapping[str, Any], active: Iterable[ActiveStep], ends: Iterable[str],
    types: Mapping[str, Any], engine: str | None, *, nan: bool = False,
) -> Template | None:  # fmt: skip
    """The template of the steps for all points with the shapes, types and names of this point.

    None where numbers decide the shapes of tensors that the steps read or make. With `nan`, rules
    that ask for NaN are left to be read at the points.
    """
    symbols = shaped_as_here(model)
    given = point.keys() - model.inputs
    t = trace(model, point, types, engine, given=given, symbols=symbols, types=types)
    unknown = (is_symbolic(shape_of(t.values[name])) for name in types)
    if symbols.guards or symbols.pinned or any(unknown):
        return None
    asked_for_nan: list[ir.Value] = []
    values = leaves(t, None if nan else asked_for_nan)
    forms = tuple(form_of(a, t, values) for a in active)
    blocks = (J for form in forms for J in form.blocks.values())
    held = {id(value): value for J in blocks for value in values_in(J)}
    not_nan = {id(value): value for value in asked_for_nan}
    known = set(map(id, t.values.values()))
    asked = {key: view_of(value, lambda v: id(v) in known)
             for key, value in {**held, **not_nan}.items()}  # fmt: skip
    extended = recorded(model, t, ends, [view.base for view in asked.values()])
    direct = tuple(name for f in forms if f.fills is None for name in names_of(f.active))
    views = asked if direct else multiplied(asked, point.keys())
    bases = (name for view in views.values() for name in view.names)
    residuals = tuple(dict.fromkeys((*bases, *direct)))
    fetched = tuple(dict.fromkeys((*ends, *residuals)))
    some, all_ = (len(needed(extended.steps, names, point)[0]) for names in (residuals, fetched))
    few, at_hand = 2 * some <= all_, point.keys() >= set(residuals)
    return Template(
        extended, types, forms, held, views, fetched, residuals, tuple(not_nan), few, at_hand
    )


def leaves(t: Trace, asked_for_nan: list[ir.Value] | None = None) -> dict[str, Any]:
    """The tensors as rules may read them for all points: only constants have numbers."""
    t.recorder.symbols = None
    for value in t.values.values():
        if STILL not in value.meta and value.const_value is None:
            value.meta.pop(AT, None)
            value.meta.pop(CONTENT, None)
            value.meta[NAN] = asked_for_nan
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


def form_of(active: ActiveStep, t: Trace, values: Mapping[str, Any]) -> Form:
    """The form of a step: its rule read over graph values, where that is possible."""
    unread = Form(active, {}, None)
    if active.step.domain not in ("", "ai.onnx") or bodies_of(active.step):  # may do anything
        return unread
    try:
        blocks = blocks_of(active, values, t.recorder)
    except OnnxJacError:
        return unread
    if not all(map(is_open, blocks.values())):
        return unread
    fills = {slot: fill for slot, J in blocks.items() if (fill := fill_of(J))}
    names = names_behind(t, (v for J in blocks.values() for v in values_in(J)))
    return Form(active, blocks, fills, names)


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
    """Whether all graph values that an operator holds are where `fill_of` finds them."""
    found = set(map(id, values_in(operator)))
    return all(id(a) in found for a in operator.arrays() if isinstance(a, ir.Value))


SEEN = frozenset({"Transpose", "Reshape", "Expand", "Squeeze", "Unsqueeze"})
"""Operators that NumPy executes without touching a number."""

QUICKER = frozenset({("MaxPool", 1)})
"""Outputs, by operator and index, that NumPy finds sooner: ONNX Runtime takes 4 times as long."""

Chain = tuple[ir.Value, tuple[ir.Node, ...]]


@dataclass(frozen=True)
class View:
    """The calls that show the array of `base` as an operator holds it.

    `factors` are two tensors whose product is the base, if the engine does not compute it.
    """

    base: ir.Value
    calls: tuple[Callable[[np.ndarray], np.ndarray], ...]
    factors: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors from which the array is made."""
        return self.factors or (str(self.base.name),)

    def found(self, values: Mapping[str, Any]) -> Any:
        """The array of the base."""
        array, *others = (values[name] for name in self.names)
        for other in others:
            with np.errstate(all="ignore"):  # as engines do
                array = array * other
        return array

    def shown(self, array: Any) -> Any:
        """The array of the base as the operator holds it."""
        for call in self.calls:
            array = call(array)
        return array


class ResidualsAtPoint(Mapping[int, Any]):
    """The residuals at a point: an array for each graph value that a template's operators hold.

    Keys are the identities of the graph values. An array is made by its view when it is first
    needed. They `fit` the template where no tensor that a rule asked about has a NaN.
    """

    def __init__(self, template: Template, values: Values) -> None:
        self.template, self.views, self._values = template, template.views, values
        self._bases, self._shown = dict[tuple[str, ...], Any](), dict[int, Any]()
        self.read_by: Any = None  # a reading that is known to fit these arrays
        self.fit = not any(np.isnan(self[key]).any() for key in template.not_nan)

    def __getitem__(self, key: int) -> Any:
        # read in the opposite order in which `entries`, in another thread, replaces them
        values, bases, shown = self._values, self._bases, self._shown
        if key not in shown:
            view = self.views[key]
            if view.names not in bases:
                bases.setdefault(view.names, view.found(values))
            shown.setdefault(key, view.shown(bases[view.names]))
        return shown[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)

    @cached_property
    def bound(self) -> Mapping[int, np.ndarray]:
        """The arrays, C-contiguous, as a program for all points is bound to them."""
        return {key: np.asarray(self[key], order="C") for key in self.template.held}

    def entries(self) -> tuple[Entry, ...]:
        """The entries at this point; arrays that none of their operators holds are released."""
        made = self.template.entries(self, self._values)
        self._shown = {key: self[key] for key in self.template.held}
        self.views = {key: self.views[key] for key in self.template.held}
        self._bases, self._values = {}, {}
        return made


def view_of(value: ir.Value, is_leaf: Callable[[ir.Value], bool]) -> View:
    """The view of a value in the tensor from which cheap calls make it."""
    base, nodes = chain(value, is_leaf)
    return View(base, tuple(map(call_of, nodes)))


def multiplied(views: Mapping[int, View], given: Container[str]) -> Mapping[int, View]:
    """The views with their products taken apart, if all factors are given at the point: one
    multiplication takes less time than the call of an engine.
    """
    made = {
        key: view if view.base.name in given else replace(view, factors=factors(view.base))
        for key, view in views.items()
    }
    at_hand = all(name in given for view in made.values() for name in view.names)
    return made if at_hand else views


def factors(base: ir.Value) -> tuple[str, ...]:
    """The tensors whose product a value is."""
    node = base.producer()
    if node is None or node.op_type != "Mul" or node.domain:
        return ()
    return tuple(str(x.name) for x in node.inputs if x is not None)


def chain(value: ir.Value, is_leaf: Callable[[ir.Value], bool]) -> Chain:
    """The value that the engine must compute, and the nodes from there on.

    The chain ends where an array whose axes were moved is reshaped, which takes a copy.
    """
    node = None if is_leaf(value) else value.producer()
    if node is None or not is_quick(node, value) or not fixed(node):
        return value, ()
    assert node.inputs[0] is not None
    base, nodes = chain(node.inputs[0], is_leaf)
    moved = any(before.op_type in ("Transpose", "Expand") for before in nodes)
    return (value, ()) if moved and node.op_type != "Transpose" else (base, (*nodes, node))


def is_quick(node: ir.Node, value: ir.Value) -> bool:
    """Whether NumPy is at least as quick as the engine at this output of the node."""
    quick = node.op_type in SEEN or (node.op_type, value.index()) in QUICKER
    return quick and not node.domain


def fixed(node: ir.Node) -> bool:
    """Whether all operands but the first are constants."""
    return all(x is None or x.const_value is not None for x in node.inputs[1:])


def call_of(node: ir.Node) -> Callable[[np.ndarray], np.ndarray]:
    """The node as a function of its first operand; of several outputs the last one."""
    rest = [None if x is None else array_of(x) for x in node.inputs[1:]]
    attrs = {name: python_of(attribute) for name, attribute in node.attributes.items()}
    kernel = getattr(numbers, node.op_type)
    if (count := len(node.outputs)) == 1:
        return lambda array: kernel(array, *rest, **attrs)
    return lambda array: kernel(array, *rest, **attrs, outputs=count)[-1]


Arrays = Mapping[int, Any]
"""The array of every graph value, by its identity."""

Fill = Callable[[Arrays], Any]


def origin_of(operator: Jacobian) -> object | None:
    """A mark shared by the operators at all points that differ in floating numbers alone."""
    found: object | None = vars(operator).get("_origin")
    return found


def values_in(x: Any) -> Iterator[ir.Value]:
    """The graph values that an operator holds, wherever in it they are."""
    if isinstance(x, Jacobian):
        for part in parts_of(x).values():
            yield from values_in(part)
    elif type(x) is ir.Value:  # `isinstance` of a protocol takes microseconds
        yield x
    elif isinstance(x, tuple):
        for part in x:
            yield from values_in(part)


def fill_of(x: Any) -> Fill | None:
    """A function that rebuilds x from the arrays at a point; None where x holds no graph value."""
    if type(x) is ir.Value:
        key = id(x)
        return lambda arrays: arrays[key]
    if isinstance(x, Jacobian):
        return _operator(x)
    return _tuple(x) if type(x) is tuple else None


def parts_of(operator: Jacobian) -> dict[str, Any]:
    """The attributes of an operator, except for itself as its own transpose."""
    return {name: part for name, part in vars(operator).items() if part is not operator}


def _operator(operator: Jacobian) -> Fill | None:
    kind, kept = type(operator), parts_of(operator)
    holes = {name: hole for name, part in kept.items() if (hole := fill_of(part))}
    if not holes:
        return None

    if all(dtype_of(value).kind == "f" for value in values_in(operator)):
        kept["_origin"] = object()

    def fill(arrays: Arrays) -> Jacobian:
        made: Jacobian = object.__new__(kind)
        made.__dict__.update(kept, **{name: hole(arrays) for name, hole in holes.items()})
        return made

    return fill


def _tuple(parts: tuple[Any, ...]) -> Fill | None:
    fills = [fill_of(part) for part in parts]
    if not any(fills):
        return None
    pairs = tuple(zip(fills, parts, strict=True))
    return lambda arrays: tuple(fill(arrays) if fill else part for fill, part in pairs)
