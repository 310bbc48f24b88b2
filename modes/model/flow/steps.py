"""Steps: a graph as a flat list, which steps a result needs, how large they make it, and how large
they may: the limits of what a model, even an untrusted one, may use.

If, Loop and Scan can be steps with bodies, whose inputs include all tensors that the bodies read.

For sizes, ONNX's shape inference does the work for one step at a time, from the shapes of its
inputs and from the numbers of small inputs, such as shapes, axes and counts. The padding around a
tensor, and the intermediate products of an Einsum, may take far more memory than the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper

from ....jacobians import dtype_of, shape_of, size
from ....jacobians.arguments import Natural, validated
from ....jacobians.arrays import host, zeros
from ....jacobians.base import DENSE_LIMIT
from ....jacobians.errors import InputError, LimitError, OnnxJacError
from ....jacobians.readings import is_kept, library_of
from ....jacobians.symint import at
from ....ops.graphs.infer import Kind, inferred, shape_in
from ....ops.graphs.shapes import sizes_by_formula
from ....ops.node import SURROGATE, Node, Step
from ....ops.registry import traits_of

SHAPES = frozenset({"Shape", "Size"})
"""Operators that read only the shape of their input."""


def steps_of(graph: ir.Graph, opsets: Mapping[str, int]) -> tuple[Step, ...]:
    """The nodes of a graph in the order they run."""
    numbered = enumerate(graph)
    return tuple(step_of(node, opsets, f"{node.op_type}_{index}") for index, node in numbered)


def reads(step: Step) -> Iterator[str]:
    """The names of the tensors a step uses, including those that its subgraphs capture."""
    for name in step.inputs:
        if name is not None:
            yield name
    for value in step.attrs.values():
        if type(value) is ir.Graph:
            yield from outer_names(value)


def outer_names(graph: ir.Graph) -> set[str]:
    """The names of outer tensors that a subgraph uses."""
    used = _names(graph.outputs)
    own = _names(graph.inputs) | set(graph.initializers)
    for node in graph:
        used |= _names(node.inputs)
        own |= _names(node.outputs)
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH:
                used |= outer_names(attribute.value)
    return used - own


def steps_needed(
    steps: tuple[Step, ...], wanted: Iterable[str], given: Collection[str] = ()
) -> tuple[list[int], set[str]]:
    """The indices of the steps that the wanted tensors need, and all names that are used.

    A given tensor needs no steps, whether or not it is an input of the model.
    """
    used = set(wanted)
    kept = []
    for index in range(len(steps) - 1, -1, -1):
        if any(name in used and name not in given for name in steps[index].outputs):
            kept.append(index)
            used.update(reads(steps[index]))
    return kept[::-1], used


def moving(steps: Iterable[Step], names: Iterable[str], *, shapes: bool = False) -> set[str]:
    """The tensors that depend on the numbers, or also on the `shapes`, of named tensors."""
    found = set(names)
    for step in steps:
        seen = shapes or step.op_type not in SHAPES
        if traits_of(step).random or (seen and not found.isdisjoint(reads(step))):
            found.update(name for name in step.outputs if name is not None)
    return found


def last_uses(steps: Sequence[Step], names: Iterable[str]) -> list[list[str]]:
    """For each step, the values that are not needed after it."""
    seen, finished = set(names), []
    for step in reversed(steps):
        now = {*reads(step), *filter(None, step.outputs)} - seen
        seen |= now
        finished.append(list(now))
    return finished[::-1]


def stored_tensor(value: ir.Value) -> ir.TensorProtocol:
    """The data of an initializer; loading has checked that it is there."""
    assert value.const_value is not None
    return value.const_value


def array_of(value: ir.Value) -> np.ndarray:
    """The numbers of an initializer."""
    return stored_numbers(stored_tensor(value))


def stored_numbers(tensor: ir.TensorProtocol) -> np.ndarray:
    """The numbers of a tensor; strings as an object array of `str`, as in ONNX's reference."""
    array = tensor.numpy()
    if tensor.dtype is not ir.DataType.STRING:
        return array
    return np.char.decode(array.astype(np.bytes_), "utf-8", "surrogateescape").astype(object)


def _names(values: Iterable[ir.Value | None]) -> set[str]:
    return {value.name for value in values if value is not None and value.name}


def step_of(node: ir.Node, opsets: Mapping[str, int], name: str = "") -> Step:
    """A node as a step; its values have names, and a node without a name gets the given one."""
    return Step(
        op_type=node.op_type,
        domain=node.domain,
        version=opsets.get(node.domain, 1),
        name=node.name or name,
        inputs=tuple(value.name or None if value is not None else None for value in node.inputs),
        outputs=tuple(value.name or None for value in node.outputs),
        attrs=attributes_of(node),
        surrogate=node.meta.get(SURROGATE) if node.op_type == "CastLike" else None,
    )


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {name: python_of(attribute) for name, attribute in node.attributes.items()}


def python_of(attribute: ir.Attr) -> Any:
    """An attribute as int, float, str, tuple, array or graph."""
    match attribute.type:
        case ir.AttributeType.TENSOR:
            return stored_numbers(attribute.value)
        case ir.AttributeType.INTS | ir.AttributeType.FLOATS | ir.AttributeType.STRINGS:
            return tuple(attribute.value)
    return attribute.value


# -- bodies: If, Loop and Scan as steps whose inputs include all tensors that the bodies read ------


@dataclass(frozen=True, eq=False)
class Body:
    """A subgraph: its steps by name, and zeros of the shape of every tensor in it.

    `moved` are its tensors whose numbers may differ at another turn or point. Where it `estimates`,
    derivatives pass its roundings.
    """

    formals: tuple[str, ...]
    results: tuple[str, ...]
    steps: tuple[Step, ...]
    captured: tuple[str, ...]
    like: Mapping[str, np.ndarray]
    moved: frozenset[str]
    name: str
    opsets: Mapping[str, int]
    estimates: bool = False


def bodies_of(step: Step) -> dict[str, Body]:
    """The bodies of a step, by attribute."""
    return {key: value for key, value in step.attrs.items() if isinstance(value, Body)}


def explicit(step: Step) -> int:
    """The number of inputs of a step with bodies that are not captured tensors."""
    return 1 if step.op_type == "If" else len(step.attrs["body"].formals)


def fixed_turns(step: Step, constants: Callable[[str], Any]) -> bool:
    """Whether the trip count of a Loop is the same at every point; `constants` looks up arrays."""
    limit, go = (*step.inputs, None, None)[:2]
    known = limit is not None and constants(limit) is not None
    body: Body = step.attrs["body"]
    stops = may_stop(body.steps, body.results[0], body.formals[1], body.moved.__contains__)
    return known and (go is None or constants(go) is not None) and not stops


def may_stop(
    steps: Iterable[Step], result: str | None, go: str, moves: Callable[[str | None], bool]
) -> bool:
    """Whether the body of a Loop computes when to stop, as its first `result`: not if that is its
    condition `go`, or does not move.
    """
    copies = {s.outputs[0]: s.inputs[0] for s in steps if s.op_type == "Identity"}
    while result in copies:
        result = copies[result]
    return result != go and moves(result)


def closed(step: Step, opsets: Mapping[str, int], moved: Iterable[str]) -> Step:
    """The step with bodies in place of subgraphs, and the captured tensors among its inputs.

    The explicit inputs are first, then the captured tensors, under their names in the bodies.
    """
    graphs = {key: value for key, value in step.attrs.items() if isinstance(value, ir.Graph)}
    if not graphs:
        return step
    bodies = {key: flat_body(graph, opsets, moved) for key, graph in graphs.items()}
    taken = dict.fromkeys(name for made in bodies.values() for name in made.captured)
    return replace(step, attrs={**step.attrs, **bodies}, inputs=(*step.inputs, *taken))


def flat_body(graph: ir.Graph, opsets: Mapping[str, int], moved: Iterable[str]) -> Body:
    """A flat subgraph, whose tensors all have shapes."""
    steps = steps_of(graph, opsets)
    formals = tuple(str(value.name) for value in graph.inputs)
    inside = frozenset(moving(steps, {*formals, *moved}))
    made = (*graph.inputs, *(value for node in graph for value in node.outputs))
    return Body(
        formals, tuple(str(value.name) for value in graph.outputs),
        tuple(closed(step, opsets, inside) for step in steps), tuple(sorted(outer_names(graph))),
        {str(value.name): zeros_for(value) for value in made if value.name}, inside,
        graph.name or "body", opsets,
    )  # fmt: skip


def zeros_for(value: ir.Value) -> np.ndarray:
    """Zeros of the shape of a value."""
    assert value.dtype is not None
    return zeros(at(shape_of(value)), value.dtype.numpy())


# -- limits: the resources that a model may use, and a meter of their use --------------------------


@validated
@dataclass(frozen=True)
class Limits:
    """Limits on loading, running and linearising one model: `oj.load(..., limits=Limits(...))`.

    Work that would exceed a limit raises `LimitError` before it starts.

    - ``bytes``: bytes of all tensors that a run of the model holds at once, not counting weights
      and inputs.
    - ``dense``: bytes of a dense or sparse matrix of a Jacobian, unless `toarray` or `tosparse` is
      given another limit.
    - ``nodes``: nodes of the model with all functions inlined, including the nodes of subgraphs.
    - ``steps``: steps of one run through the bodies of Loop and Scan, summed over all iterations;
      also the time steps of each recurrent layer.
    - ``depth``: nesting depth of graphs inside graphs, and of functions that call functions.
    """

    bytes: Natural = 16 * 2**30
    dense: Natural = DENSE_LIMIT
    nodes: Natural = 1_000_000
    steps: Natural = 1_000_000
    depth: Natural = 32

    def check(self, name: str, need: int, what: object) -> None:
        """Raises `LimitError` where the `need` of `what` exceeds the limit called `name`."""
        limit = getattr(self, name)
        if need > limit:
            raise LimitError(
                f"{what} needs {amount(name, need)}, more than the limit of {amount(name, limit)}. "
                f"If the model can be trusted: onnxjac.load(..., limits=Limits({name}={need}))."
            )


def amount(name: str, value: int) -> str:
    """An amount of a resource, in words.

    >>> amount("bytes", 3 * 2**29), amount("steps", 1_000_001)
    ('1.5 GiB', '1,000,001 steps')
    """
    if name not in ("bytes", "dense"):
        return f"{value:,} {name}"
    if value < 2**20:
        return f"{value:,} bytes"
    return f"{value / 2**30:,.1f} GiB" if value >= 2**30 else f"{value / 2**20:,.1f} MiB"


class Meter:
    """Counts the steps of all iterations of one run, and the bytes of the tensors it holds."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.steps, self.bytes = limits, 0, 0

    def turn(self, steps: int) -> None:
        """Count one iteration of a body with `steps` steps; the iteration itself is a step, too."""
        self.steps += steps + 1
        self.limits.check("steps", self.steps, "the control flow of the model, turn by turn,")

    def keep(self, values: Iterable[Any], what: str) -> None:
        """Count tensors that are held from now on."""
        self.bytes += sum(map(nbytes_of, values))
        self.limits.check("bytes", self.bytes, what)

    def drop(self, values: Iterable[Any]) -> None:
        """Subtract tensors that are released."""
        self.bytes -= sum(map(nbytes_of, values))


def nbytes_of(value: Any) -> int:
    """Bytes of a tensor, or of the tensors of a sequence; 0 for one number that is broadcast.

    >>> nbytes_of(np.zeros(4)), nbytes_of([np.zeros(4), None]), nbytes_of(np.broadcast_to(1.0, 9))
    (32, 32, 0)
    """
    if isinstance(value, list):
        return sum(map(nbytes_of, value))
    if is_kept(value):
        return int(value.nbytes)
    if not isinstance(value, np.ndarray) or (value.ndim and not any(value.strides)):
        return 0
    return value.nbytes


# -- sizes: the bytes of the outputs of a step, before it runs -------------------------------------

DECIDING_ELEMENTS = 1024
"""Elements of the largest tensor whose numbers may decide a shape."""


def check_step(step: Step, inputs: Sequence[Any], limits: Limits) -> None:
    """Raises `LimitError` where a step's outputs would be too large, or its time steps too many."""
    shapes = [outlined(x) for x in inputs]
    limits.check("steps", turns(step, shapes), step)
    if not may_grow(step, shapes, limits):
        return
    inputs = [outlined(x, numbers=True) for x in inputs]
    check_operands(step, inputs, limits)
    named = {n: x for n, x in zip(step.inputs, inputs, strict=True) if isinstance(x, np.ndarray)}
    found = output_kinds(step, {n: array_kind(x) for n, x in named.items()}, named)
    check_sizes(found)
    for kind in found.values():
        limits.check("bytes", kind_bytes(kind) or 0, step)


def check_sizes(kinds: Mapping[str, Kind | None], where: str = "") -> None:
    """Raises `InputError` where an output would have a negative size that is no overflow."""
    for shape in filter(None, map(shape_in, kinds.values())):
        if -(2**31) < min(shape) < 0:
            raise InputError(f"{where}the input is too small, since the output would have the "
                             f"shape {list(shape)}")  # fmt: skip


def outlined(value: Any, *, numbers: bool = False) -> Any:
    """An array of a library as one of NumPy of its shape, with its `numbers` where they may be
    sizes.
    """
    if not is_kept(value):
        return value
    shape, dtype = shape_of(value), dtype_of(value)
    may_be_sizes = dtype.kind in "iu" and math.prod(shape) <= DECIDING_ELEMENTS
    if numbers and may_be_sizes and library_of(value).knows(value):
        return host(value)
    return zeros(shape, dtype)


def turns(step: Step, inputs: Sequence[Any]) -> int:
    """The time steps of a recurrent layer, which is unrolled like a Loop; 0 for other operators."""
    count = traits_of(step).turns
    return count(Node(step, tuple(inputs), (None,))) if count else 0


def check_operands(step: Step, inputs: Sequence[Any], limits: Limits) -> None:
    """Raises `LimitError` for cases that shape inference does not see: padding, and integers so
    large that their products overflow.
    """
    limits.check("bytes", kernel_bytes(step, inputs), step)
    if traits_of(step).grows and step.op_type != "Range":
        limits.check("bytes", max(map(_largest, (*inputs, *step.attrs.values())), default=0), step)


def kernel_bytes(step: Step, inputs: Sequence[Any]) -> int:
    """Bytes that a kernel needs besides its outputs, or of an output by a declared shape."""
    try:
        memory = traits_of(step).memory
        held = memory(Node(step, tuple(inputs), (None,))) if memory else 0
        made = step.domain and sizes_by_formula(step.op_type, step.domain, inputs, step.attrs)
        sizes = (math.prod(n or 0 for n in shape) for shape in made or ())
        return int(max(held, max(sizes, default=0) * inputs[0].itemsize))
    except (OnnxJacError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
        return 0  # the kernel will say what is wrong


def _largest(value: Any) -> int:
    """The largest absolute value of some integers; 0 for values that cannot be sizes."""
    if isinstance(value, int):
        return abs(value)
    if isinstance(value, tuple):
        return max(map(_largest, value), default=0)
    if (
        isinstance(value, np.ndarray)
        and value.dtype.kind in "iu"
        and 0 < value.size <= DECIDING_ELEMENTS
    ):
        return max(abs(int(value.min())), int(value.max()))
    return 0


def may_grow(step: Step, inputs: Sequence[Any], limits: Limits) -> bool:
    """Whether an output may be too large, judging by the sizes of the inputs alone."""
    if traits_of(step).grows:
        return True
    return math.prod(max(_elements(x), 1) for x in inputs if x is not None) * 16 > limits.bytes


def _elements(value: Any) -> int:
    """The elements of a tensor, or of all tensors of a sequence, whose shapes may differ."""
    return sum(map(_elements, value)) if isinstance(value, list) else size(shape_of(value))


def output_kinds(
    step: Step, types: Mapping[Any, Kind], known: Mapping[Any, np.ndarray]
) -> dict[str, Kind | None]:
    """The types of the outputs by name, as far as ONNX can tell."""
    data = [
        x if x is not None and x.size <= DECIDING_ELEMENTS else None
        for x in map(known.get, step.inputs)
    ]
    try:
        kinds = [None if name is None else types[name] for name in step.inputs]
        found = inferred(step.op_type, step.domain, step.version, step.attrs, kinds, data,
                         len(step.outputs))  # fmt: skip
    except Exception:  # a type is unknown, or the node is invalid, and will fail when it runs
        return {}
    return {name: kind for name, kind in zip(step.outputs, found, strict=True) if name}


def array_kind(array: np.ndarray) -> Kind:
    """The type of an array."""
    return Kind(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def dtype_in(kind: Kind) -> np.dtype[Any]:
    """The dtype of a type; float64 if it has none."""
    return helper.tensor_dtype_to_np_dtype(kind.dtype or TensorProto.DOUBLE)


def kind_bytes(kind: Kind | None) -> int | None:
    """The bytes of a tensor of a type; None if the shape is not fully known."""
    shape = shape_in(kind)
    if kind is None or shape is None:
        return None
    item = dtype_in(kind).itemsize
    return math.prod(size if size >= 0 else 2**63 for size in shape) * item  # they overflowed
