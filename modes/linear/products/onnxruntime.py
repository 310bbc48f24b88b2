"""ONNX Runtime as the engine of products: one session, whose initializers are the residuals.

Tensors that are contiguous parts of v or y are separate inputs and outputs, bound to their
memory: nothing is sliced or joined. The residuals of a product at any point are bound likewise.

ScatterND copies row by row: if a row is one number, MaxUnpool, or ScatterElements where numbers are
summed, takes a fraction of the time. A large constant on the right of a product is read from memory
in a packed copy; on the left it is read in place. Gemm reads a transposed constant in place, too,
where a Transpose would write it at every product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of, size
from ....jacobians.errors import InputError, first_line
from ....ops.graphs.build import build
from ....ops.graphs.recorder import apart
from ....ops.numbers.indexing import from_start
from ...model.flow.steps import tensor_of
from ...model.primal.engines.onnxruntime import (
    CPU,
    EngineError,
    add_initializers,
    interruptible,
    new_session,
    runtime,
    values_of,
)
from .compiled import Recording, kernels_of, multiplications

LONG = 2**35
"""Multiplications that take a good part of a second on two cores.

Below this number a separate thread does not pay off: a session binds its threads to cores, and a
new thread may start on the core of one of them, where the two wait for each other.
"""


class Session:
    """A program: the session, and the positions of its tensors in v and in y.

    A `long` product runs in another thread, so that Ctrl-C reaches the calling thread meanwhile.
    """

    def __init__(
        self, session: Any, inputs: list[Part], outputs: list[Part], recording: Recording
    ) -> None:
        self.session, self.inputs, self.outputs = session, inputs, outputs
        self.residuals = {key: str(x.name) for key, x in recording.residuals.items()}
        self.shape, self.dtype = shape_of(recording.y), dtype_of(recording.y)
        self.long = sum(map(multiplications, kernels_of(recording))) > LONG

    def __call__(self, v: np.ndarray) -> np.ndarray:
        """y, where the residuals are initializers."""
        return self.run(self.session.here.io_binding(), v)

    def at(self, residuals: Mapping[str, np.ndarray]) -> Bound:
        """The program for these residuals, contiguous arrays by key, whose memory it reads."""
        return Bound(self, {name: residuals[key] for key, name in self.residuals.items()})

    def run(self, binding: Any, v: np.ndarray) -> np.ndarray:
        """y, where a binding has the residuals, if there are any."""
        flat, y = v.ravel(), np.empty(self.shape, self.dtype)  # reshape may leave gaps
        made = y.reshape(-1)
        for bind, array, parts in (
            (binding.bind_input, flat, self.inputs), (binding.bind_output, made, self.outputs)
        ):  # fmt: skip
            item, start = array.itemsize, array.ctypes.data
            for part in parts:
                where = start + part.start * item
                bind(part.name, "cpu", 0, array.dtype, part.shape, where)
        session = self.session.here
        if self.long:
            interruptible(session.run_with_iobinding, binding, alive=(flat, y))
        else:
            session.run_with_iobinding(binding)
        return y


class Bound:
    """v ↦ y for residuals at a point, bound once: a hundred of them take half a millisecond.

    Threads do not share a binding: a product takes one that is free, or makes one.
    """

    def __init__(self, program: Session, residuals: Mapping[str, np.ndarray]) -> None:
        self.program, self.values = program, values_of(residuals)
        self.free: dict[Any, list[Any]] = {}  # by session: a forked process has its own

    def __call__(self, v: np.ndarray) -> np.ndarray:
        free = self.free.setdefault(self.program.session.here, [])
        try:
            binding = free.pop()
        except IndexError:
            binding = self.binding()
        y = self.program.run(binding, v)
        free.append(binding)
        return y

    def binding(self) -> Any:
        """A new binding of the residuals."""
        binding = self.program.session.here.io_binding()
        for name, value in self.values.items():
            binding.bind_ortvalue_input(name, value)
        return binding


def compile(recording: Recording, provider: str = CPU) -> Session:
    """The session of a recorded product, on an execution provider.

    Raises `EngineError` where ONNX Runtime has no kernel for it.
    """
    check_provider(provider)
    recording = peephole(recording)
    outputs = outputs_of(recording)
    inputs = inputs_of(recording, outputs)
    results = {part.name: part.value for part in outputs}
    given = [*(part.value for part in inputs), *recording.residuals.values()]
    model = build(recording.recorder, given, results, "product")
    held = {name: tensor_of(value) for name, value in model.graph.initializers.items()}
    model.graph.initializers.clear()
    proto = ir.to_proto(model)
    shared = add_initializers(proto.graph, {name: (x.numpy(), x) for name, x in held.items()})
    try:
        session = new_session(proto, shared, provider=provider)
    except Exception as error:  # its exceptions have no common base class
        raise EngineError(
            f"ONNX Runtime cannot run this product: {first_line(error)} Try engine='numpy'."
        ) from error
    return Session(session, inputs, outputs, recording)


def check_provider(provider: str) -> None:
    """Raises `InputError` for an execution provider that this ONNX Runtime does not have."""
    known = runtime().get_available_providers()
    if provider not in known:
        shown = ", ".join(f"'onnxruntime:{name}'" for name in known)
        raise InputError(f"ONNX Runtime has no {provider!r} here; engine= may be {shown}.")


@dataclass(frozen=True)
class Part:
    """A tensor that is a part of a flat vector, from entry `start` on."""

    name: str
    start: int
    value: ir.Value

    @property
    def shape(self) -> Shape:
        return shape_of(self.value)


def inputs_of(recording: Recording, outputs: list[Part]) -> list[Part]:
    """New inputs in place of the slices of a flat v; and v itself if it is read whole, or if a
    slice of it is a part of y.
    """
    v, ends = recording.v, {id(recording.y), *(id(part.value) for part in outputs)}
    parts = [Part("v", 0, v)] if recording.y is v else []
    for node, k in users_of(recording, v):
        start = beginning(recording, node) if k == 0 and len(shape_of(v)) == 1 else None
        cuts = [] if start is None else reshaped(recording, node)
        if start is None or any(id(cut) in ends for cut in (node.outputs[0], *cuts)):
            if all(part.value is not v for part in parts):
                parts.append(Part("v", 0, v))
            continue
        for cut in cuts:
            value = recording.recorder.new(shape_of(cut), dtype_of(v), f"v_{len(parts)}")
            for user, place in users_of(recording, cut):
                user.replace_input_with(place, value)
            parts.append(Part(value.name or "", start, value))
    return parts


def beginning(recording: Recording, node: ir.Node) -> int | None:
    """The start of a contiguous slice of a vector; None if the node is no such slice."""
    if node.op_type == "Reshape":
        return 0
    if node.op_type != "Slice":
        return None
    start, _, *more = (None if x is None else recording.array(x) for x in node.inputs[1:])
    stepped = len(more) > 1 and more[1] is not None and more[1].item() != 1
    return None if start is None or stepped else int(start.item())


def reshaped(recording: Recording, node: ir.Node) -> list[ir.Value]:
    """The tensors that a slice is used as: its reshapes if it is only reshaped, else itself."""
    cut = node.outputs[0]
    users = [user for user, _ in users_of(recording, cut)]
    only = users and cut is not recording.y and all(u.op_type == "Reshape" for u in users)
    return [user.outputs[0] for user in users] if only else [cut]


def users_of(recording: Recording, value: ir.Value) -> list[tuple[ir.Node, int]]:
    """The recorded nodes that read a value, each with the index of the input."""
    return [(use.node, use.idx) for use in value.uses() if id(use.node) in recording.present]


def outputs_of(recording: Recording) -> list[Part]:
    """The tensors that a flat y is concatenated from; y alone if it is no concatenation."""
    y = recording.y
    node = y.producer()
    if node is None or node.op_type != "Concat" or len(shape_of(y)) != 1:
        return [Part("y_0", 0, unshaped(y))]
    parts: list[Part] = []
    start = 0
    for x in filter(None, node.inputs):
        parts.append(Part(f"y_{len(parts)}", start, unshaped(x)))
        start += size(shape_of(x))
    return parts


def unshaped(x: ir.Value) -> ir.Value:
    """The tensor before a Reshape, if there is one."""
    node = x.producer()
    before = node.inputs[0] if node is not None and node.op_type == "Reshape" else None
    return x if before is None else before


LARGE = 1 << 22
"""Bytes of a constant that does not stay in a core's cache from product to product."""

LONGER = 8
"""How many times larger than the other factor a constant is that dominates the time."""

MANY = 32
"""The number of rows that repay packing the other factor."""


def peephole(recording: Recording) -> Recording:
    """The recording with other operators where these are faster."""
    found = Rewriting(recording)
    for node in recording.nodes:
        found.node(node)
    recording.recorder.nodes[:] = found.nodes
    return replace(recording, nodes=tuple(found.nodes), constants=found.constants)


class Rewriting:
    """The nodes and constants so far; a rewritten node becomes a Reshape."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.nodes = recording, list[ir.Node]()
        self.constants = dict(recording.constants)

    def node(self, node: ir.Node) -> None:
        """Appends a node, after the nodes that compute its result if it is rewritten."""
        if node.op_type == "ScatterND":
            self.scatter(node)
        elif node.op_type == "MatMul":
            self.matmul(node)
        self.nodes.append(node)

    def scatter(self, node: ir.Node) -> None:
        """y = zeros with the entries of x put at, or added to, some positions."""
        zeros, index, x = operands(node)
        (n, *row), (rows, *depth) = shape_of(zeros), shape_of(index)
        if row != [1] or depth != [1]:
            return
        held, how = self.constants.get(id(index)), node.attributes.get_string("reduction", "none")
        once = how == "none" or (held is not None and apart(tuple(held.ravel().tolist()), n))
        if not once or not self.is_zero(zeros):
            node.op_type = "ScatterElements"
            return
        line, whole = (1, 1, 1, rows), self.constant(np.array([1, 1, 1, n]))
        flat = self.call("Reshape", [x, self.constant(np.array(line))], line)
        if held is None:
            places = self.call("Reshape", [index, self.constant(np.array(line))], line)
        else:
            places = self.constant(from_start(held, n).reshape(line))
        made = self.call("MaxUnpool", [flat, places, whole], (1, 1, 1, n), kernel_shape=(1, 1))
        self.reshapes(node, made)

    def matmul(self, node: ir.Node) -> None:
        """A C = (Cᵀ Aᵀ)ᵀ if C is large: a constant, or the transpose of a computed matrix."""
        a, c = operands(node)
        turned = before_turning(c)
        large = turned is not None and self.is_large_matrix(turned)
        if not is_one_matrix(a) or not is_one_matrix(c):
            if large:
                self.gemm(node)
            return
        (m, k), n = shape_of(a)[-2:], shape_of(c)[-1]
        held = self.constants.get(id(c if turned is None else turned))
        long = turned is not None and k >= n >= LONGER * m and (held is None or k >= LONGER * n)
        if not long and (held is None or not decides(held, m, k, n)):
            if large:
                self.gemm(node)
            return
        if turned is not None:
            left = self.call("Reshape", [turned, self.constant(np.array([n, k]))], (n, k))
        else:
            assert held is not None
            left = self.constant(held.reshape(k, n).T)
        flat = self.call("Reshape", [a, self.constant(np.array([m, k]))], (m, k))
        right = self.call("Transpose", [flat], (k, m), perm=(1, 0))
        made = self.call("MatMul", [left, right], (n, m))
        self.reshapes(node, self.call("Transpose", [made], (m, n), perm=(1, 0)))

    def is_large_matrix(self, value: ir.Value) -> bool:
        """Whether a value is a constant matrix that is too large to be held in two orders."""
        held = self.constants.get(id(value))
        if held is None or held.ndim != 2 or held.nbytes < LARGE:
            return False
        return held.dtype in (np.float32, np.float64)

    def gemm(self, node: ir.Node) -> None:
        """A Cᵀ by Gemm, which reads C in place."""
        a, turned = operands(node)
        c = before_turning(turned)
        assert c is not None
        n, k = shape_of(c)
        rows = size(shape_of(a)) // k
        flat = self.call("Reshape", [a, self.constant(np.array([rows, k]))], (rows, k))
        self.reshapes(node, self.call("Gemm", [flat, c], (rows, n), transB=1))

    def is_zero(self, value: ir.Value) -> bool:
        """Whether a value is known to be zeros of float32, the dtype that MaxUnpool supports."""
        node = value.producer()
        source = operands(node)[0] if node is not None and node.op_type == "Expand" else value
        held = self.constants.get(id(source))
        return held is not None and held.dtype == np.float32 and not held.any()

    def constant(self, array: np.ndarray) -> ir.Value:
        value: ir.Value = self.recording.recorder.initializer(array)
        self.constants[id(value)] = array
        return value

    def call(self, op_type: str, inputs: list[ir.Value], shape: Shape, **attrs: Any) -> ir.Value:
        """The result of a new node, of the dtype of its first input."""
        y = self.recording.recorder.new(shape, dtype_of(inputs[0]))
        attributes = ir.convenience.convert_attributes(attrs)
        self.nodes.append(ir.Node("", op_type, inputs, attributes, outputs=[y]))
        return y

    def reshapes(self, node: ir.Node, x: ir.Value) -> None:
        """Turns the node into a Reshape of x to the node's own shape."""
        shape = self.constant(np.array(shape_of(node.outputs[0]), np.int64))
        node.op_type = "Reshape"
        node.attributes.clear()
        node.resize_inputs(2)
        node.replace_input_with(0, x)
        node.replace_input_with(1, shape)


def operands(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node, without omitted ones."""
    return [x for x in node.inputs if x is not None]


def is_one_matrix(x: ir.Value) -> bool:
    """Whether a value is a matrix, up to leading axes of size 1."""
    shape = shape_of(x)
    return len(shape) > 1 and size(shape) == size(shape[-2:])


def decides(held: np.ndarray, m: int, k: int, n: int) -> bool:
    """Whether C (k, n) is so large, and A (m, k) so small, that reading C dominates the time.

    Products with very few rows pack nothing; many rows repay the packing.
    """
    few = LONGER <= m <= MANY
    return few and held.nbytes >= LARGE and held.size >= LONGER * m * max(k, n)


def before_turning(x: ir.Value) -> ir.Value | None:
    """The matrix that a Transpose turns into x; None if there is none."""
    node = x.producer()
    if node is None or node.op_type != "Transpose":
        return None
    perm = node.attributes["perm"].as_ints()
    rank = len(perm)
    return node.inputs[0] if (*perm,) == (*range(rank - 2), rank - 1, rank - 2) else None
