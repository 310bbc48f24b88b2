"""Record: the active steps between some tensors, their Jacobian blocks, and the DAG of these.

A model can be recorded as it stands where it is flat: without control flow, operators that others
define, and random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    Op,
    Zero,
    between_types,
    chosen,
    common,
    dtype_of,
    shape_of,
    size,
)
from ....jacobians.arrays import buffer_of, on_host
from ....jacobians.base import arrays_of
from ....jacobians.errors import OnnxJacError, UnsupportedOp, warn
from ....jacobians.placing import Place, placed
from ....jacobians.symint import agree
from ....ops import Node, Step, find, numbers
from ....ops.graphs.recorder import Recorder
from ....ops.node import remedy
from ....ops.registry import Declaration, traits_of
from ....ops.rules.quantization import DOMAIN as ESTIMATORS
from ...model.flow.control import CONTROL, SEQUENCES, reason_of
from ...model.flow.steps import Body, bodies_of, reads
from ...model.primal.inputs import Specs, is_float, not_floating
from ...model.primal.model import Model, TensorSpec

Names = tuple[str, ...]

Values = dict[str, Any]

Ends = tuple[Specs, Specs, np.dtype]
"""The tensors behind the columns and the rows of a Jacobian, and their common dtype."""

JOINTS: dict[type, Callable[[Any, Step, Mapping[str, Any]], Joint]] = {}
"""Reading, or `Derivative`, -> the function that makes the derivative of a step with bodies; see
`recording`.
"""

Tensors = tuple[Any, ...]

Slot = tuple[int, int]
"""(output, input) of a step."""

Exact = Callable[[str], bool]

NAMED_STEPS = 2
"""How many of the steps that cut the same paths are named."""


# -- active steps: those on a differentiable path --------------------------------------------------


def without(steps: Iterable[Step], given: Collection[str]) -> tuple[Step, ...]:
    """The steps, without the outputs that are given instead of computed."""
    if not given:
        return tuple(steps)
    return tuple(
        replace(step, outputs=tuple(None if name in given else name for name in step.outputs))
        for step in steps
    )


def active_steps(
    steps: Iterable[Step], wrt: Iterable[str], of: Iterable[str]
) -> tuple[Step, ...]:
    """The steps on a differentiable path from a tensor of `wrt` to one of `of`, in order, with the
    blocks that are `wanted` of them.
    """
    order = tuple(steps)
    reached = reach_forward(order, wrt)
    needed = reach_backward(order, of)
    found = []
    for step in order:
        if is_declared_zero(step):
            continue
        outs = [o for o, name in enumerate(step.outputs) if name in needed]
        ins = [i for i, name in enumerate(step.inputs) if name in reached]
        if outs and not reached.isdisjoint(carriers(step)):
            found.append(replace(step, wanted=frozenset((o, i) for o in outs for i in ins)))
    return tuple(found)


def carriers(step: Step) -> Iterable[str | None]:
    """The tensors whose tangents the outputs may take."""
    return reads(step) if step.surrogate is None else (step.inputs[step.surrogate],)


def is_declared_zero(step: Step | ir.Node) -> bool:
    """Whether the operator is declared to have no derivative."""
    declared = find(step.op_type, step.domain)
    return declared is not None and declared.zero is not None


def reach_forward(steps: Iterable[Step], names: Iterable[str]) -> set[str | None]:
    """The tensors that depend differentiably on some of the named ones."""
    reached: set[str | None] = set(names)
    for step in steps:
        if not is_declared_zero(step) and not reached.isdisjoint(carriers(step)):
            reached.update(step.outputs)
    return reached - {None}


def reach_backward(steps: tuple[Step, ...], names: Iterable[str]) -> set[str | None]:
    """The tensors on which some of the named ones depend differentiably."""
    needed: set[str | None] = set(names)
    for step in reversed(steps):
        if not is_declared_zero(step) and not needed.isdisjoint(step.outputs):
            needed.update(carriers(step))
    return needed - {None}


def cuts(
    steps: tuple[Step, ...], wrt: Iterable[str], of: Iterable[str], exact: Exact = lambda _: False
) -> tuple[tuple[Step, str], ...]:
    """The steps without a derivative on the paths between tensors, each with the reason.

    `exact` tells which tensors hold no floating-point numbers.
    """
    reached, behind = reach_forward(steps, wrt), set(of)
    for step in reversed(steps):
        if not behind.isdisjoint(step.outputs):
            behind.update(reads(step))
    found = []
    for step in steps:
        declared = find(step.op_type, step.domain)
        met = not reached.isdisjoint(reads(step)) and not behind.isdisjoint(step.outputs)
        if declared and declared.zero and met:
            found.append((step, declared.zero))
        elif met and is_rounded(reached.intersection(reads(step)), behind & {*step.outputs}, exact):
            found.append((step, "its result is not floating"))
    return tuple(found)


def is_rounded(read: Collection[Any], made: Collection[Any], exact: Exact) -> bool:
    """Whether a step makes other numbers than floating ones of floating ones."""
    return all(map(exact, made)) and not all(map(exact, read))


def unjoined(
    steps: tuple[Step, ...], dag: Dag, wrt: tuple[str, ...], of: tuple[str, ...],
    exact: Exact = lambda _: False,
) -> tuple[str, ...]:
    """The pairs of source and sink that no path of a DAG joins, and the steps that cut the paths.

    Pairs with an empty tensor are left out.
    """
    return tuple(
        f"{o!r} does not depend differentiably on {w!r}{because(steps, w, o, exact)}"
        for o, sink, behind in zip(of, dag.sinks, map(dag.behind, dag.sinks), strict=True)
        for w, source in zip(wrt, dag.sources, strict=True)
        if o != w and source not in behind and all(size(dag.shapes[i]) for i in (sink, source))
    )


def roundings(
    steps: tuple[Step, ...], dag: Dag, wrt: tuple[str, ...], of: tuple[str, ...], exact: Exact
) -> str:
    """The roundings between tensors that other paths join, as text; empty where there is none."""
    if not any(s.op_type in ROUNDINGS and not s.domain for s in steps):
        return ""
    ends = [(w, o) for o, behind in zip(of, map(dag.behind, dag.sinks), strict=True)
            for w, source in zip(wrt, dag.sources, strict=True) if source in behind]  # fmt: skip
    starts, stops = zip(*ends, strict=True) if ends else ((), ())
    found = [f"{s.op_type} {s.name!r}" for s, _ in cuts(steps, starts, stops, exact)
             if s.op_type in ROUNDINGS and not s.domain]  # fmt: skip
    return listed_steps(found)


def warn_roundings(found: str) -> None:
    """Warn of roundings that cut some paths, where others remain."""
    if found:
        warn(f"the derivative is of other paths alone, as rounding cuts some at {found}: "
             "straight_through=True passes roundings")  # fmt: skip


def warn_zeros(zeros: tuple[str, ...]) -> None:
    """Warn of pairs of tensors that no path joins."""
    if zeros:
        shown = "; ".join(zeros[:3]) + (f"; and {len(zeros) - 3} more" if zeros[3:] else "")
        warn(f"{shown}: zero blocks")


ROUNDINGS = frozenset({"Round", "QuantizeLinear", "QLinearMatMul", "QLinearConv"})
"""The operators that round to few numbers, for which there are estimators."""


def because(steps: tuple[Step, ...], wrt: str, of: str, exact: Exact) -> str:
    """The first steps that cut all paths between two tensors, as text; empty where none does."""
    found = [f"{s.op_type} {s.name!r} ({why})" for s, why in cuts(steps, [wrt], [of], exact)]
    return f" (cut by {listed_steps(found)})" if found else ""


def listed_steps(found: Sequence[str]) -> str:
    """The first of some texts, and how many more there are."""
    rest = len(found) - NAMED_STEPS
    return ", ".join(found[:NAMED_STEPS]) + (f" and {rest} more" if rest > 0 else "")


def straight_through(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The same steps; roundings become estimators, and bodies pass those in them."""
    return tuple(map(estimating, steps))


def estimating(step: Step) -> Step:
    """A step as the estimator of its operator, or with bodies in which roundings are passed."""
    if not step.domain and find(step.op_type, ESTIMATORS):
        return replace(step, domain=ESTIMATORS, version=1)
    bodies = {key: replace(body, estimates=True) for key, body in bodies_of(step).items()}
    return replace(step, attrs={**step.attrs, **bodies}) if bodies else step


def differentiated(body: Body) -> tuple[Step, ...]:
    """The steps of a body as they are differentiated, not as they are run."""
    return straight_through(body.steps) if body.estimates else body.steps


def tensors_behind(
    step: Step, blocks: Iterable[Jacobian], values: Mapping[str, Any]
) -> frozenset[str]:
    """The tensors of a step that its blocks depend on.

    A rule never looks at floating numbers, so a block depends on the tensors that it holds and on
    all integer and boolean tensors. A block with arrays that the rule computed depends on all
    tensors of the step, and so does a block of a foreign operator, whose rule may do anything.
    """
    names = frozenset(step.tensors)
    owners = {buffer_of(values.get(name)): name for name in names}
    held = {*map(buffer_of, arrays_of(blocks))}
    if step.domain not in ("", "ai.onnx") or not held <= owners.keys():
        return names
    return frozenset(n for n in names if is_discrete(values.get(n))) | {owners[k] for k in held}


def is_discrete(value: Any) -> bool:
    """Whether a rule may look at the numbers of a value: integers, booleans, sequences."""
    return not isinstance(value, np.ndarray) or value.dtype.kind in "iub"


# -- steps as they stand: without control flow, definitions and random numbers ---------------------


def is_flat(steps: Iterable[Step], known: Mapping[str, Any], estimate: bool = False) -> bool:
    """Whether a model can be differentiated as it stands."""
    return not any(
        (not step.domain and (step.op_type in CONTROL or step.op_type in SEQUENCES))
        or definition_of(step, estimate)
        or draws(step, known)
        for step in steps
    )


def definition_of(step: Step, estimate: bool) -> Declaration | None:
    """The declaration of an operator by others, or None; an estimator has precedence."""
    held = find(step.op_type, ESTIMATORS) if estimate and not step.domain else None
    held = held or find(step.op_type, step.domain)
    return held if held and held.is_composed else None


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


# -- entries: the blocks of the active steps, and their DAG ----------------------------------------


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


def record_entries(
    active: tuple[Step, ...], values: Values, op: Op = numbers, place: Place | None = None
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


def dag_between(
    op: Op, steps: Iterable[Step], values: Mapping[str, Any], wrt: tuple[str, ...],
    of: tuple[str, ...], *, masked: bool = True,
) -> Dag:  # fmt: skip
    """The DAG of recorded steps between some tensors, with graph values as data: of the entries
    that are `chosen` if `masked`.
    """
    entries = record_entries(active_steps(steps, wrt, of), dict(values), op=op)
    met = vertex_names(entries, wrt, of)
    shapes = {name: shape_of(values[name]) for name in met}
    dtypes = [dtype_of(values[name]) for name in (*wrt, *of)]
    dag = dag_of(entries, shapes, wrt, of, common(*dtypes))
    return chosen(op, dag) if masked else dag


def entry_of(step: Step, values: Values, op: Op, place: Place | None = None) -> Entry:
    """The entry of a step, by its rule, at a place where there is one."""
    if place is not None:
        return entry_there(step, values, place)
    blocks = blocks_of(step, values, op)
    known = tensors_behind(step, blocks.values(), values) if op is numbers else frozenset[str]()
    return Entry(step, blocks, known)


def entry_there(step: Step, values: Values, place: Place) -> Entry:
    """The entry of a step over tensors; a rule that looks at numbers gets NumPy copies."""
    try:
        return entry_of(step, values, place.op).placed(place)
    except OnnxJacError:
        held = {n: on_host(values[n]) for n in step.tensors}
        return entry_of(step, held, numbers).placed(place)


def blocks_of(step: Step, values: Mapping[str, Any], op: Op) -> dict[Slot, Jacobian]:
    """The wanted blocks of a step between floating tensors, by its rule."""
    if bodies_of(step):
        kinds = (kind for kind in JOINTS if isinstance(op, kind))
        make = JOINTS[next(kinds, type(numbers))]  # a reading without its own is led through NumPy
        return slots_of(make(op, step, values), step.wanted)
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
        (o, i) for o, i in step.wanted if has_tangent(outputs[o]) and has_tangent(inputs[i])
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
        if symbols is not None and isinstance(op, Recorder):
            op.fix(value for value in (*inputs, *outputs) if value is not None)
        reason = reason_of(error, inputs, f"{type(error).__name__}: {error}")
        raise OnnxJacError(
            f"the rule of {step} failed on {tensors_text(step, values)}: {reason}"
        ) from error
    return {(o, i): between_types(J, inputs[i], outputs[o]) for (o, i), J in blocks.items()
            if not isinstance(J, Zero)}  # fmt: skip


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


def types_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Shapes and dtypes of tensors; a sequence stays as it is."""
    return {n: TensorSpec(n, shape_of(x), dtype_of(x)) if hasattr(x, "dtype") else x
            for n, x in values.items()}  # fmt: skip


def shapes_in(types: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of the floating tensors."""
    return {name: spec.shape for name, spec in types.items() if has_tangent(spec)}


def tensors_text(step: Step, values: Mapping[str, Any]) -> str:
    """The tensors of a step with dtype and shape, for a message."""
    names = step.tensors
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


def specs_at_ends(types: Mapping[str, Any], of: Names, wrt: Names) -> Ends:
    """The tensors at both ends of J."""
    domain = tuple(floating("wrt", name, types[name]) for name in wrt)
    codomain = tuple(floating("of", name, types[name]) for name in of)
    return domain, codomain, common(*(spec.dtype for spec in (*domain, *codomain)))


def floating(role: str, name: str, value: Any) -> TensorSpec:
    """The spec of a tensor at the point; raises `InputError` for a tensor that is not floating."""
    if not has_tangent(value):
        raise not_floating(role, name, getattr(value, "dtype", type(value).__name__))
    return TensorSpec(name, value.shape, value.dtype)
