"""Record: the Jacobian blocks of the steps between some tensors, and the DAG that they make.

`fixed` draws once for a whole model; `drawn` draws for a step inside a loop that is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import (
    Dag,
    Edge,
    Identity,
    Jacobian,
    Joint,
    Zero,
    chosen,
    common,
    dtype_of,
    shape_of,
)
from ....jacobians.arrays import host, is_tensor
from ....jacobians.errors import OnnxJacError, UnsupportedOp
from ....jacobians.placing import Place, placed
from ....jacobians.symint import agree
from ....ops import Node, Step, find, numbers
from ....ops.graphs.recorder import Recorder
from ....ops.node import ASKED, remedy
from ....ops.registry import traits_of
from ...model.primal.evaluate import evaluate
from ...model.primal.model import Model, TensorSpec
from ...model.primal.names import Specs, is_float, not_floating
from .active import ActiveStep, Slot, active_steps, behind
from .bodies import bodies_of

Names = tuple[str, ...]

Values = dict[str, Any]

Ends = tuple[Specs, Specs, np.dtype]
"""The tensors behind the columns and the rows of a Jacobian, and their common dtype."""

JOINTS: dict[type, Callable[[Any, Step, Mapping[str, Any]], Joint]] = {}
"""Reading, or `Template`, -> the function that makes the derivative of a step with bodies; see
`recording`.
"""
Tensors = tuple[Any, ...]


@dataclass(frozen=True)
class Entry:
    """One active step, its blocks, (output, input) -> operator, and the tensors behind these.

    `fills` are functions from arrays to the blocks that hold graph values.
    """

    step: Step
    blocks: Mapping[Slot, Jacobian]
    behind: frozenset[str] = frozenset()
    fills: Mapping[Slot, Callable[[Mapping[int, Any]], Jacobian]] = field(default_factory=dict)

    def at(self, arrays: Mapping[int, Any], place: Place | None = None) -> Entry:
        """The entry where the graph values, by their identity, are these arrays, at a place."""
        found = self
        if self.fills:
            made = {slot: fill(arrays) for slot, fill in self.fills.items()}
            found = Entry(self.step, {**self.blocks, **made}, self.behind)
        return found.placed(place) if place else found

    def placed(self, place: Place) -> Entry:
        """The entry with the arrays of its blocks at a place."""
        return Entry(self.step, {k: placed(J, place) for k, J in self.blocks.items()}, self.behind)


def record(
    active: tuple[ActiveStep, ...], values: Values, op: Any = numbers, place: Place | None = None
) -> tuple[Entry, ...]:
    """The blocks of every active step; a value is released after the last rule that reads it."""
    last = {name: k for k, a in enumerate(active) for name in a.tensors}
    entries = []
    for k, a in enumerate(active):
        entries.append(entry_of(a, values, op, place))
        for name in a.tensors:
            if last[name] == k:
                values.pop(name, None)
    return tuple(entries)


def between(
    op: Any, steps: Iterable[Step], values: Mapping[str, Any], wrt: tuple[str, ...],
    of: tuple[str, ...],
) -> Dag:  # fmt: skip
    """The DAG of recorded steps between some tensors, with graph values as data."""
    entries = record(active_steps(steps, wrt, of), dict(values), op=op)
    met = vertex_names(entries, wrt, of)
    shapes = {name: shape_of(values[name]) for name in met}
    dtypes = [dtype_of(values[name]) for name in (*wrt, *of)]
    return chosen(op, dag_of(entries, shapes, wrt, of, common(*dtypes)))


def entry_of(active: ActiveStep, values: Values, op: Any, place: Place | None = None) -> Entry:
    """The entry of a step, by its rule, at a place where there is one."""
    if place is not None:
        return entry_there(active, values, place)
    blocks = blocks_of(active, values, op)
    known = behind(active.step, blocks.values(), values) if op is numbers else frozenset[str]()
    return Entry(active.step, blocks, known)


def entry_there(active: ActiveStep, values: Values, place: Place) -> Entry:
    """The entry of a step over tensors; a rule that looks at numbers gets NumPy copies."""
    try:
        return entry_of(active, values, place.op).placed(place)
    except OnnxJacError:
        held = {n: host(values[n]) if is_tensor(values[n]) else values[n] for n in active.tensors}
        return entry_of(active, held, numbers).placed(place)


def blocks_of(active: ActiveStep, values: Mapping[str, Any], op: Any) -> dict[Slot, Jacobian]:
    """The wanted blocks of a step between floating tensors, by its rule."""
    step = active.step
    if bodies_of(step):
        kinds = (kind for kind in JOINTS if isinstance(op, kind))
        make = JOINTS[next(kinds, type(numbers))]  # a reading without its own is led through NumPy
        return slots_of(make(op, step, values), active.wanted)
    declared = find(step.op_type, step.domain)
    if declared is None:
        name = (step.domain + "::" if step.domain else "") + step.op_type
        register = f"register one with @onnxjac.jacobian({name!r}), see ops/ for examples"
        raise UnsupportedOp(
            f"{step} has neither a rule nor a function body: {remedy(step.domain, register)}. "
            f"Its tensors: {tensors_text(step, values)}"
        )
    if declared.is_composed:
        raise OnnxJacError(f"{step} stands where the operators that define it are recorded")
    inputs, outputs = (tuple(None if n is None else values[n] for n in names)
                       for names in (step.inputs, step.outputs))  # fmt: skip
    wanted = frozenset(
        (o, i) for o, i in active.wanted if has_tangent(outputs[o]) and has_tangent(inputs[i])
    )
    if not wanted:
        return {}
    if step.surrogate is not None:
        kept = Identity(shape_of(outputs[0]), dtype_of(outputs[0]))
        return {key: kept for key in wanted if key == (0, step.surrogate)}
    symbols = op.symbols if isinstance(op, Recorder) else None
    if symbols is not None:
        symbols.reader = str(step)
    try:
        with np.errstate(all="ignore"):
            blocks = declared.rule(op, Node(step, inputs, outputs, wanted))
        blocks = {key: blocks[key] for key in wanted & blocks.keys()}
        check_blocks(blocks, inputs, outputs)
    except OnnxJacError:
        raise
    except Exception as error:  # a rule may be a user's
        if symbols is not None:
            op.fix(value for value in (*inputs, *outputs) if value is not None)
        raise OnnxJacError(
            f"the rule of {step} failed on {tensors_text(step, values)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return {key: J for key, J in blocks.items() if not isinstance(J, Zero)}


def slots_of(joint: Joint, wanted: Iterable[Slot]) -> dict[Slot, Jacobian]:
    """The blocks of a step with bodies, all of one program."""
    return {(o, i): joint.part(o, i) for o, i in wanted if o in joint.outs and i in joint.ins}


def check_blocks(blocks: Mapping[Slot, Any], inputs: Tensors, outputs: Tensors) -> None:
    """Blocks are Jacobians of the shapes that their tensors have."""
    for (o, i), J in blocks.items():
        if not isinstance(J, Jacobian):
            raise TypeError(f"its block {o, i} is of type {type(J).__name__}, not a Jacobian")
        found, shapes = (J.out_shape, J.in_shape), (shape_of(outputs[o]), shape_of(inputs[i]))
        if not agree(found, shapes):
            raise ValueError(f"its block {o, i} is between shapes {found}, not {shapes}")


def has_tangent(value: Any) -> bool:
    """Whether a value is a floating tensor."""
    return hasattr(value, "dtype") and is_float(dtype_of(value))


def shapes_in(types: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of the floating tensors."""
    return {name: spec.shape for name, spec in types.items() if has_tangent(spec)}


def tensors_text(step: Step, values: Mapping[str, Any]) -> str:
    """The tensors of a step with dtype and shape, for a message."""
    names = [n for n in (*step.inputs, *step.outputs) if n is not None]
    return ", ".join(
        f"{n} {values[n].dtype}{list(values[n].shape)}" if hasattr(values.get(n), "shape") else n
        for n in names
    )


def dag_of(
    entries: tuple[Entry, ...],
    shapes: Mapping[str, tuple[int, ...]],
    wrt: tuple[str, ...],
    of: tuple[str, ...],
    dtype: np.dtype,
) -> Dag:
    """The DAG of tensors and blocks between `wrt` and `of`.

    Tensors are numbered in the order of the steps, inputs before outputs, so that edges lead up.
    """
    names = vertex_names(entries, wrt, of)
    number = {name: k for k, name in enumerate(names)}
    edges: list[Edge] = []
    for entry in entries:
        for (o, i), J in entry.blocks.items():
            start, end = entry.step.inputs[i], entry.step.outputs[o]
            edges.append(Edge(number[start or ""], number[end or ""], J))
    sources, sinks = (tuple(number[name] for name in names) for names in (wrt, of))
    return Dag(tuple(shapes[name] for name in names), edges, sources, sinks, dtype)


def vertex_names(entries: tuple[Entry, ...], *ends: tuple[str, ...]) -> tuple[str, ...]:
    """The tensors behind the vertices of a DAG, in order."""
    met = list[str]()
    for entry in entries:
        for names, slot in ((entry.step.inputs, 1), (entry.step.outputs, 0)):
            met += (names[key[slot]] or "" for key in entry.blocks)
    return tuple(dict.fromkeys(chain(met, *ends)))


def ends_of(types: Mapping[str, Any], of: Names, wrt: Names) -> Ends:
    """The tensors at both ends of J."""
    domain = tuple(floating("wrt", name, types[name]) for name in wrt)
    codomain = tuple(floating("of", name, types[name]) for name in of)
    return domain, codomain, common(*(spec.dtype for spec in (*domain, *codomain)))


def floating(role: str, name: str, value: Any) -> TensorSpec:
    """The spec of a tensor at the point; raises `InputError` for a tensor that is not floating."""
    if not has_tangent(value):
        raise not_floating(role, name, getattr(value, "dtype", type(value).__name__))
    return TensorSpec(name, value.shape, value.dtype)


SEEDS = 2**24
"""The float attribute `seed` represents all integers below this number."""


def draws(step: Step, known: Mapping[str, Any]) -> bool:
    """Whether a step is random, given the tensors whose values are known before anything runs."""
    return traits_of(step).random and (step.op_type != "Dropout" or trains(step, known))


def trains(step: Step, known: Mapping[str, Any]) -> bool:
    """Whether a Dropout is in training mode, as far as constants tell."""
    mode = step.inputs[2] if len(step.inputs) > 2 else None
    return mode is not None and (mode not in known or bool(np.all(known[mode])))


def may_draw(model: Model) -> bool:
    """Whether some node, in a subgraph maybe, is random, at some points at least."""
    inside = (node for node in ir.traversal.RecursiveGraphIterator(model.ir.graph)
              if node.graph is not model.ir.graph)  # fmt: skip
    return (any(draws(step, model.constants) for step in model.steps)
            or any(traits_of(node).random for node in inside))  # fmt: skip


def fixed(model: Model, point: Mapping[str, Any], engine: str | None) -> Model:
    """The model with the samples of one run as constants; the model itself if nothing is random."""
    known = {**model.constants, **point}
    random = {step.outputs[0] for step in model.steps if draws(step, known)} - point.keys()
    if not random:
        return model
    copy = model.ir.clone()
    nodes = [node for node in copy.graph if node.outputs and node.outputs[0].name in random]
    samples = [sample_of(node) for node in nodes]
    sampled = Model(copy, model.limits)
    values = evaluate(sampled, point, [str(s.name) for s in samples], engine=engine)
    for node, sample in zip(nodes, samples, strict=True):
        held = constant(copy.graph, str(sample.name), host(values[str(sample.name)]))
        if node.op_type == "Dropout":
            mode = node.inputs[2]
            assert mode is not None  # as the step is random
            mode.meta[ASKED] = f"Dropout (node {node.name!r})"
            masked(node, held)
        ir.convenience.replace_all_uses_with(sample, held, replace_graph_outputs=True)
        copy.graph.remove(node)
    return Model(copy, model.limits)


def by_seed(
    model: Model, point: Mapping[str, Any], names: Iterable[str], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The named tensors, where the generator gives each random operator a seed of its own."""
    copy = model.ir.clone()
    every = ir.traversal.RecursiveGraphIterator(copy.graph)
    nodes = [node for node in every if traits_of(node).random]
    for node, seed in zip(nodes, rng.choice(SEEDS, len(nodes), replace=False), strict=True):
        whole = node.op_type == "Dropout"
        node.attributes["seed"] = (
            ir.AttrInt64("seed", int(seed)) if whole else ir.AttrFloat32("seed", float(seed))
        )
    if not nodes:
        return evaluate(model, point, names)
    return evaluate(Model(copy, model.limits), point, names, engine="numpy")


def sample_of(node: ir.Node) -> ir.Value:
    """The random output of a node: for Dropout the mask."""
    if node.op_type != "Dropout":
        return node.outputs[0]
    if len(node.outputs) == 1:
        node.resize_outputs(2)
    mask = node.outputs[1]
    mask.name = mask.name or f"{node.outputs[0].name}_mask"
    mask.type, mask.shape = ir.TensorType(ir.DataType.BOOL), node.outputs[0].shape
    return mask


def constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A new initializer."""
    value = ir.Value(name=name, shape=ir.Shape(array.shape))
    value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
    value.const_value = ir.tensor(array, name=name)
    graph.initializers[name] = value
    return value


def masked(node: ir.Node, mask: ir.Value) -> None:
    """Dropout becomes y = x mask / (1 - ratio)."""
    graph, y = node.graph, node.outputs[0]
    assert isinstance(graph, ir.Graph)
    x, ratio = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    ratio = ratio or constant(graph, f"{y.name}_ratio", np.array(0.5, np.float32))
    one = constant(graph, f"{y.name}_one", np.array(1.0, np.float32))
    tape = ir.tape.Tape()
    part, one_x, ratio_x = (tape.op("CastLike", [value, x]) for value in (mask, one, ratio))
    kept, rest = tape.op("Mul", [x, part]), tape.op("Sub", [one_x, ratio_x])
    result = tape.op("Div", [kept, rest])
    for k, value in enumerate((part, one_x, ratio_x, kept, rest, result)):
        value.name, value.type = f"{y.name}_{k}", y.type
    result.shape = y.shape
    graph.insert_before(node, tape.nodes)
    ir.convenience.replace_all_uses_with(y, result, replace_graph_outputs=True)
    y.name, result.name = None, y.name


def drawn(op: Any, step: Step, inputs: Sequence[Any], at: Any) -> list[Any]:
    """The outputs of a random step: constants, or for Dropout a product with a constant."""
    held = [op.number(x) for x in inputs]
    if step.op_type != "Dropout":
        made = numbers.run(step.op_type, held, step.attrs, domain=step.domain,
                           version=step.version, outputs=1)  # fmt: skip
        return [np.asarray(y) for y in made]
    x, ratio, mode = (*inputs, None, None)[:3]
    if mode is None or not np.all(at(mode)):
        return [x, np.ones(shape_of(x), bool)]
    ones = np.ones(shape_of(x), dtype_of(x))
    _, mask = numbers.run("Dropout", [ones, *held[1:]], step.attrs, version=step.version, outputs=2)
    rest = op.Sub(1.0, op.CastLike(np.array(0.5) if ratio is None else ratio, x))
    return [op.Div(op.Mul(x, mask.astype(ones.dtype)), rest), mask]
