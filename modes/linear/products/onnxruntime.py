"""ONNX Runtime as the engine of products: one session, whose initializers are the residuals.

Tensors that are contiguous parts of v or y are separate inputs and outputs, bound to their
memory: nothing is sliced or joined. The residuals of a product at any point are bound likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of, size
from ....jacobians.errors import InputError, first_line
from ....ops.graphs.build import build
from ...model.primal.engines.cut import placeholder
from ...model.primal.engines.onnxruntime import EngineError
from ...model.primal.engines.sessions import CPU, interruptible, new_session, runtime, values_of
from .engines import kernels_of, multiplications
from .peephole import peephole
from .record import Recording

LONG = 2**35
"""Multiplications that take a good part of a second on two cores.

Below this number a separate thread does not pay off: a session binds its threads to cores, and a
new thread may start on the core of one of them, where the two wait for each other.
"""

SMALL = 1024  # bytes; larger residuals are shared with the session, not copied into the model


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

    def __call__(
        self, v: np.ndarray, residuals: Mapping[str, Any] = MappingProxyType({})
    ) -> np.ndarray:
        """y for these residuals: values of ONNX Runtime by name."""
        session = self.session.here
        flat, y = v.reshape(-1), np.empty(self.shape, self.dtype)
        made = y.reshape(-1)
        binding = session.io_binding()
        for bind, array, parts in (
            (binding.bind_input, flat, self.inputs), (binding.bind_output, made, self.outputs)
        ):  # fmt: skip
            item, start = array.itemsize, array.ctypes.data
            for part in parts:
                where = start + part.start * item
                bind(part.name, "cpu", 0, array.dtype, part.shape, where)
        for name, value in residuals.items():
            binding.bind_ortvalue_input(name, value)
        if self.long:
            interruptible(session.run_with_iobinding, binding, alive=(v, y, residuals))
        else:
            session.run_with_iobinding(binding)
        return y

    def at(self, residuals: Mapping[int, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """The program for these residuals, contiguous arrays by key, whose memory it reads."""
        values = values_of({name: residuals[key] for key, name in self.residuals.items()})
        return partial(self, residuals=values)


def compile(recording: Recording, provider: str = CPU) -> Session:
    """The session of a recorded product, on an execution provider.

    Raises `EngineError` where ONNX Runtime has no kernel for it.
    """
    check_provider(provider)
    recording = peephole(recording)
    outputs = outputs_of(recording)
    inputs = inputs_of(recording)
    results = {part.name: part.value for part in outputs}
    given = [*(part.value for part in inputs), *recording.residuals.values()]
    model = build(recording.recorder, given, results, "product")
    shared = outsourced(model.graph)
    try:
        session = session_of(ir.to_proto(model), shared, provider)
    except Exception as error:  # its exceptions have no common base class
        raise EngineError(
            f"ONNX Runtime cannot run this product: {first_line(error)} Try engine='numpy'."
        ) from error
    return Session(session, inputs, outputs, recording)


def outsourced(graph: ir.Graph) -> dict[str, np.ndarray]:
    """Large initializers taken out of a graph, by name."""
    shared = {}
    for name, value in graph.initializers.items():
        assert value.const_value is not None
        array = value.const_value.numpy()
        if array.nbytes > SMALL and array.dtype.kind in "fiub":
            shared[name] = array
            value.const_value = ir.Tensor(np.zeros(0, array.dtype), name=name)
    return shared


def session_of(proto: onnx.ModelProto, shared: Mapping[str, np.ndarray], provider: str) -> Any:
    """A session whose large initializers are the shared arrays."""
    for tensor in proto.graph.initializer:
        if tensor.name in shared:
            tensor.CopyFrom(placeholder(tensor.name, shared[tensor.name]))
    return new_session(proto, shared, provider=provider)


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


def inputs_of(recording: Recording) -> list[Part]:
    """New inputs in place of the slices of a flat v; and v itself if it is read whole."""
    v = recording.v
    parts = [Part("v", 0, v)] if recording.y is v else []
    for node, k in users_of(recording, v):
        start = beginning(recording, node) if k == 0 and len(shape_of(v)) == 1 else None
        cuts = [] if start is None else reshaped(recording, node)
        if start is None or any(cut is recording.y for cut in cuts):
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
    """The tensors that a flat y is concatenated from; y itself if it is no concatenation."""
    y = recording.y
    node = y.producer()
    if node is None or node.op_type != "Concat" or len(shape_of(y)) != 1:
        return [Part("y_0", 0, y)]
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
