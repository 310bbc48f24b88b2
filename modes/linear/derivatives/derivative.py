"""Derivative: ∂of/∂wrt of a model at all points of the same shapes, recorded once as one graph.

The model is recorded with its integers followed symbolically, which proves that no shape depends on
numbers. Its rules, read over the values of the graph, add what operators hold, such as 1 - y²;
products add theirs, and are cut off where the graph meets the tangent: see `products.cut`. A step
whose rule asks for numbers that only a point knows is read at every point.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Jacobian, Joint, dtype_of, reading, shape_of, size
from ....jacobians.arrays import is_recorded, wide
from ....jacobians.base import Holder, arrays_of, flat
from ....jacobians.conditions import Condition
from ....jacobians.dag import has_choices, is_surely_finite, numbers_in
from ....jacobians.errors import OnnxJacError
from ....jacobians.placing import Place
from ....jacobians.symint import is_symbolic
from ....jacobians.threads import Lock, cached_property, remembered
from ....ops.graphs.build import give_all_names, part
from ....ops.graphs.shapes import CONTENT, STILL
from ....ops.node import AT, Step
from ....ops.numbers.table import QUICK
from ...model.flow.steps import array_of, bodies_of, python_of, steps_needed
from ...model.primal.evaluate import evaluate, evaluate_there
from ...model.primal.model import Model
from ...model.programs import onnxruntime as ort
from ..products.compiled import ResidualRecorder
from .record import JOINTS, Ends, Entry, Names, blocks_of, shapes_in, slots_of, specs_at_ends
from .trace import Trace, trace_model
from .unroll import shaped_as_here

FITS, FINITE = "NaNs where rules ask for them", "infinities where entries are left out"
"""What there must be none of where a derivative holds, and where its programs do: tensors that
count it.
"""

RECENT = 3
"""What one of the last points was asked for, the next point computes at once."""


@dataclass(eq=False)
class Derivative:
    """∂of/∂wrt of a model at all points of the same shapes.

    `ends` are the tensors behind columns and rows. `op` records products beside the model, from
    `inputs`. `parts` are the entries of the steps without their numbers; a step that is read at
    every point in place of its entry. `held` are the graph values that the operators hold, and
    `views` the tensors that their arrays are views of, both by identity. `bases` are the tensors
    behind all of these; `checks` compute the tensors of `conditions` alone. `read` are the tensors
    that points were asked for, with the number of the last one: see `wanted`.
    """

    source: Model
    of: Names
    types: Mapping[str, Any]
    ends: Ends
    op: ResidualRecorder
    inputs: tuple[ir.Value, ...]
    values: dict[str, ir.Value]
    parts: tuple[Entry | Step, ...]
    held: Mapping[int, ir.Value]
    views: Mapping[int, tuple[str, View]]
    bases: tuple[str, ...]
    conditions: Mapping[str, Condition]
    checks: frozenset[str | None]
    engine: str | None = None
    place: Place | None = None
    read: dict[str, int] = field(default_factory=dict)
    known: dict[Any, Any] = field(default_factory=dict)
    """The cache of results for all points, by name or ends."""
    lock: Lock = field(default_factory=Lock)
    residuals: set[str] = field(default_factory=set)
    """The names of the tensors that programs of products read."""
    _model: Model | None = None

    @cached_property
    def closed(self) -> bool:
        """Whether points differ in the arrays of `views` alone, so that no rule is read there."""
        return all(isinstance(part, Entry) for part in self.parts)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the floating tensors."""
        return shapes_in(self.types)

    @cached_property
    def rigid(self) -> bool:
        """Whether points differ in floating numbers of the `views` alone."""
        return self.closed and all(dtype_of(v).kind == "f" for v in self.held.values())

    @property
    def model(self) -> Model:
        """(inputs) ↦ (of, and all tensors that points are asked for)."""
        with self.lock:
            if self._model is None:
                outputs = [self.values[n] for n in self.of if self.values[n].producer() is not None]
                made = part(self.op, self.inputs, outputs, self.values.values())
                self._model = Model(made, self.source.limits)
                self._model.lean = self.source.lean
            return self._model

    def keep(self, values: Iterable[ir.Value]) -> Names:
        """The names of values that points are asked for from now on."""
        with self.lock:
            found = {str(value.name): value for value in values}
            self.residuals |= found.keys()
            if found.keys() - self.values.keys():
                self.values |= found
                self._model = None
            return tuple(found)

    def wanted(self) -> Names:
        """The tensors that a point computes at once, but for `of`."""
        with self.lock:
            last = max(self.read.values(), default=0)
            recent = sorted(name for name, k in self.read.items() if k > last - RECENT)
        if self.compiles:
            return *self.conditions, *self.residuals
        return *self.conditions, *(recent or self.bases)

    def note(self, names: Names, point: int) -> int:
        """Note that a point, by its number, 0 for a new one, gave these tensors; its number."""
        with self.lock:
            point = point or 1 + max(self.read.values(), default=0)
            self.read |= dict.fromkeys(names, point)
            return point

    def leaves_out(self, names: Iterable[str]) -> bool:
        """Whether tensors take so little of the work that the outputs are left until needed."""
        wanted = tuple(names)
        if self.compiles:
            return False

        def steps_behind(some: Names) -> int:
            found, steps = steps_needed(self.model.steps, some, self.given)[0], self.model.steps
            return sum(self.checks.isdisjoint(steps[k].outputs) for k in found)

        def ask() -> bool:
            return 2 * steps_behind(wanted) <= steps_behind((*wanted, *self.of))

        return remembered(self.known, ("left out", wanted), ask)

    @property
    def compiles(self) -> bool:
        """Whether each set of tensors that a point computes is compiled."""
        return self.place is not None and self.place.compiles

    @cached_property
    def given(self) -> frozenset[str]:
        """The names of the inputs."""
        return frozenset(str(value.name) for value in self.inputs)

    def evaluate(self, point: Mapping[str, Any], names: Names) -> dict[str, Any]:
        """Tensors of the recorded model, whose shapes are static, at a point."""
        inputs = {name: point[name] for name in self.given}  # others may have names that are new
        if self.compiles:  # few sets of tensors
            names = tuple(sorted({*names, *self.conditions, *self.residuals, *self.of}))
        if self.place is not None:
            return evaluate_there(self.model, inputs, names, str(self.engine))
        return evaluate_static(self.model, inputs, names, self.engine)


def differentiated(
    model: Model, point: Mapping[str, Any], active: Iterable[Step], of: Names, wrt: Names,
    types: Mapping[str, Any], engine: str | None, more: Iterable[str] = (), *, nan: bool = False,
    place: Place | None = None,
) -> Derivative | None:  # fmt: skip
    """The derivative of the steps for all points with the shapes, types and names of this point.

    None where numbers decide the shapes of tensors that the steps read or make. Without `nan`,
    rules suppose that there is none. The tensors `more` can be asked for as well.
    """
    symbols = shaped_as_here(model)
    given = point.keys() - model.inputs
    host = engine if place is None else None  # for the few tensors that a recording asks for
    t = trace_model(model, point, (*types, *more), host, given=given, symbols=symbols, types=types)
    unknown = (is_symbolic(shape_of(t.values[name])) for name in types)
    if any(c.kind != "unrolled" for c in symbols.conditions.values()) or any(unknown):
        return None
    values, supposed = leaves(t), list[Condition]()
    t.recorder.supposed = None if nan else supposed
    names = {id(value): name for name, value in t.values.items()}
    parts = tuple(open_entry(a, t, values, names) or a for a in active)
    blocks = [J for part in parts if isinstance(part, Entry) for J in part.blocks.values()]
    held = {id(value): value for value in values_in(blocks)}
    convolves = bool(place and place.op.convolves_samples)
    op = ResidualRecorder.beyond(t.recorder, t.inputs, convolves_samples=convolves)
    before, factors = len(op.nodes), factors_in(blocks) if any(map(has_choices, blocks)) else []
    seen, met = nonempty(c.of for c in supposed), nonempty(factors)
    flags = {FITS: op.Sum(*map(any_nan(op), seen)) if seen else None,
             FINITE: op.Mul(op.Sum(*totals(op, met)), 0) if met else None}  # fmt: skip
    counts = {name: flag for name, flag in flags.items() if flag is not None}
    chains = {key: chain(value, lambda v: id(v) in names) for key, value in held.items()}
    for name, flag in counts.items():
        flag.name = name
    give_all_names(op, t.inputs)
    direct = tuple(name for a in parts if isinstance(a, Step) for name in a.tensors)
    bases = {str(base.name): base for base, _ in chains.values()}
    views = {key: (str(base.name), view_by(nodes)) for key, (base, nodes) in chains.items()}
    return Derivative(
        model, of, types, specs_at_ends(types, of, wrt), op, tuple(t.inputs),
        {**bases, **counts, **t.values}, parts, held, views,
        tuple(dict.fromkeys((*bases, *direct))),
        {name: Condition("none", name) for name in counts},
        frozenset(y.name for node in op.nodes[before:] for y in node.outputs), engine, place,
    )  # fmt: skip


def factors_in(blocks: Iterable[Jacobian]) -> list[ir.Value]:
    """The recorded arrays that multiply entries and may be infinite."""
    held = (a for J in blocks for part in numbers_in(J) for a in part.arrays())
    return [a for a in held if is_recorded(a) and not is_surely_finite(a)]


def nonempty(values: Iterable[ir.Value]) -> list[ir.Value]:
    """The values that have entries, each once."""
    return [x for x in {id(x): x for x in values}.values() if size(shape_of(x))]


def any_nan(op: ResidualRecorder) -> Callable[[ir.Value], Any]:
    """x ↦ 1 if an entry is NaN, else 0."""
    return lambda x: op.ReduceMax(op.CastLike(op.IsNaN(x), np.zeros((), np.float32)), keepdims=0)


def totals(op: ResidualRecorder, values: Iterable[ir.Value]) -> list[Any]:
    """Σ over the values of each shape, infinite or NaN if an entry is; of halves in float32."""
    found = defaultdict[Any, list[Any]](list)
    for x in values:
        kind = wide(dtype_of(x))
        found[shape_of(x), kind].append(op.CastLike(x, np.zeros((), kind)))
    return [op.ReduceSum(op.Sum(*parts), keepdims=0) for parts in found.values()]


def evaluate_static(
    model: Model, point: Mapping[str, Any], names: Iterable[str], engine: str | None = None
) -> dict[str, Any]:
    """The values of tensors of a recorded model, none of whose sizes need to be foreseen.

    Without an engine, ONNX Runtime runs it if it is installed and has the kernels, else NumPy.
    """
    if engine is None and ort.installed():
        with suppress(ort.EngineError):
            return evaluate(model, point, names, engine="onnxruntime")
    return evaluate(model, point, names, engine=engine or "numpy")


def leaves(t: Trace) -> dict[str, Any]:
    """The tensors as rules may read them for all points: only constants have numbers."""
    t.recorder.symbols = None
    for value in t.values.values():
        if STILL not in value.meta and value.const_value is None:
            value.meta.pop(AT, None)
            value.meta.pop(CONTENT, None)
    return {n: v if v.const_value is None else array_of(v) for n, v in t.values.items()}


def open_entry(
    step: Step, t: Trace, values: Mapping[str, Any], names: Mapping[int, str]
) -> Entry | None:
    """The entry of a step, its rule read over graph values; None where that is not possible."""
    if step.domain not in ("", "ai.onnx"):  # may do anything
        return None
    try:
        if bodies_of(step):
            made = next(s for s in t.active if s.key == step.key)
            blocks = slots_of(JOINTS[Derivative](t.recorder, made, t.values), step.wanted)
        else:
            blocks = blocks_of(step, values, t.recorder)
    except OnnxJacError:
        return None
    if not all(map(is_open, blocks.values())):
        return None
    known: dict[int, Fill | None] = {}
    fills = {slot: fill for slot, J in blocks.items() if (fill := fill_of(J, known))}
    behind = names_behind(values_in(blocks.values()), names)
    return Entry(step, blocks, behind, fills)


def names_behind(values: Iterable[ir.Value], names: Mapping[int, str]) -> frozenset[str]:
    """The tensors of the model, which have `names` by identity, from which values are made."""
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
    """Whether all graph values of an operator are in attributes that its class `holds`."""
    others = vars(operator).keys() - {*operator.holds, "T"}
    hidden = any(type(x) is ir.Value for x in flat(vars(operator)[name] for name in others))
    return not hidden and all(is_open(x) for x in operator.contents() if isinstance(x, Jacobian))


View = Callable[[np.ndarray], np.ndarray]

Chain = tuple[ir.Value, tuple[ir.Node, ...]]


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
    return not node.domain and value.index() in QUICK.get(node.op_type, ())


def fixed(node: ir.Node) -> bool:
    """Whether all operands but the first are constants."""
    return all(x is None or x.const_value is not None for x in node.inputs[1:])


def view_by(nodes: Iterable[ir.Node]) -> View:
    """The function of an array that some nodes compute, one after the other."""
    calls = tuple(map(call_of, nodes))
    return lambda array: reduce(lambda x, call: call(x), calls, array)


def call_of(node: ir.Node) -> View:
    """The node as a function of its first operand; of several outputs the last one."""
    rest = [None if x is None else array_of(x) for x in node.inputs[1:]]
    attrs = {name: python_of(attribute) for name, attribute in node.attributes.items()}
    if (count := len(node.outputs)) > 1:
        attrs["outputs"] = count

    def call(array: Any) -> Any:
        made = getattr(reading(array), node.op_type)(array, *rest, **attrs)
        return made[-1] if count > 1 else made

    return call


Arrays = Mapping[int, Any]
"""The array of every graph value, by its identity."""

Fill = Callable[[Arrays], Any]


def values_in(held: Iterable[Holder]) -> Iterator[ir.Value]:
    """The graph values that operators or programs hold."""
    return (x for x in arrays_of(held) if type(x) is ir.Value)  # `isinstance` takes microseconds


def fill_of(x: Any, known: dict[int, Fill | None]) -> Fill | None:
    """A function that rebuilds x from the arrays at a point; None where x holds no graph value.

    The functions of programs that operators share are `known` from then on.
    """
    if type(x) is ir.Value:
        key = id(x)
        return lambda arrays: arrays[key]
    if type(x) is tuple:
        return _tuple(x, known)
    if not isinstance(x, Holder) or id(x) in known:
        return known.get(id(x))
    holes = {name: hole for name in x.holds if (hole := fill_of(getattr(x, name), known))}
    if isinstance(x, Joint):
        known[id(x)] = (lambda arrays: x.at(holes["read"](arrays))) if holes else None
        return known[id(x)]
    if not holes:
        return None
    kind = type(x)
    kept = {name: part for name, part in vars(x).items() if name not in ("T", "_whereabouts")}

    def fill(arrays: Arrays) -> Any:
        made = object.__new__(kind)
        made.__dict__.update(kept, **{name: hole(arrays) for name, hole in holes.items()})
        return made

    return fill


def _tuple(parts: tuple[Any, ...], known: dict[int, Fill | None]) -> Fill | None:
    fills = [fill_of(part, known) for part in parts]
    if not any(fills):
        return None
    pairs = tuple(zip(fills, parts, strict=True))
    return lambda arrays: tuple(fill(arrays) if fill else part for fill, part in pairs)
