"""ONNX Runtime as the engine of products: one session, whose initializers are the residuals.

Tensors of v and of y that lie one after the other in memory are inputs and outputs of their own,
so that nothing is cut and joined: they are bound to where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import dtype_of, shape_of
from ...jacobians.errors import InputError
from ...ops.graphs.build import build
from ..loading.messages import first_line
from ..primal.engines.cut import placeholder
from ..primal.engines.onnxruntime import EngineError
from ..primal.engines.sessions import CPU, interruptible, new_session, runtime
from .ends import Part, inputs_of, outputs_of
from .light import kernels_of, multiplications
from .quicker import quicker
from .record import Recording
from .results import Results

LONG = 2**35
"""Multiplications that take a good part of a second on two cores.

For less, a thread of its own is not worth it: a session binds its threads to cores, and a new one
may begin on one of these, where it waits for them or they for it.
"""

SMALL = 1024  # bytes; larger residuals are shared with the session, not copied into the model


class Session:
    """A program: the session, and where its tensors lie in v and in y.

    A `long` product runs beside the thread that asks for it, which Ctrl-C reaches in the meantime.
    """

    def __init__(
        self, session: Any, inputs: list[Part], outputs: list[Part], y: ir.Value, *, long: bool
    ) -> None:
        self.session, self.inputs, self.outputs, self.long = session, inputs, outputs, long
        self.results = Results(shape_of(y), dtype_of(y))

    def __call__(self, v: np.ndarray) -> np.ndarray:
        session = self.session.here
        flat, y = v.reshape(-1), self.results.empty()
        made = y.reshape(-1)
        binding = session.io_binding()
        for bind, array, parts in (
            (binding.bind_input, flat, self.inputs), (binding.bind_output, made, self.outputs)
        ):  # fmt: skip
            item, start = array.itemsize, array.ctypes.data
            for part in parts:
                where = start + part.start * item
                bind(part.name, "cpu", 0, array.dtype, part.shape, where)
        if self.long:
            interruptible(session.run_with_iobinding, binding, alive=(v, y))
        else:
            session.run_with_iobinding(binding)
        return y


def compile(recording: Recording, provider: str = CPU) -> Session:
    """The session of a recorded product, by an execution provider.

    Raises `EngineError` where ONNX Runtime has no kernel for it.
    """
    check_provider(provider)
    recording = quicker(recording)
    outputs = outputs_of(recording)
    inputs = inputs_of(recording)
    results = {part.name: part.value for part in outputs}
    model = build(recording.recorder, [part.value for part in inputs], results, "product")
    shared = outsourced(model.graph)
    try:
        session = session_of(ir.to_proto(model), shared, provider)
    except Exception as error:  # its exceptions have no common class
        raise EngineError(
            f"ONNX Runtime cannot run this product: {first_line(error)} Try engine='numpy'."
        ) from error
    long = sum(map(multiplications, kernels_of(recording))) > LONG
    return Session(session, inputs, outputs, recording.y, long=long)


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
    """A session that is given the shared arrays."""
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
