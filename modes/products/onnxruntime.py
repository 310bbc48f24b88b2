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
from ...ops.graphs.build import build
from ..loading.messages import first_line
from ..primal.engines.cut import placeholder
from ..primal.engines.onnxruntime import EngineError
from .ends import Part, inputs_of, outputs_of
from .record import Recording

SMALL = 1024  # bytes; larger residuals are shared with the session, not copied into the model


class Session:
    """A program: the session, and where its tensors lie in v and in y."""

    def __init__(self, session: Any, inputs: list[Part], outputs: list[Part], y: ir.Value) -> None:
        self.session, self.inputs, self.outputs = session, inputs, outputs
        self.shape, self.dtype = shape_of(y), dtype_of(y)

    def __call__(self, v: np.ndarray) -> np.ndarray:
        flat, y = v.reshape(-1), np.empty(self.shape, self.dtype)
        made = y.reshape(-1)
        binding = self.session.io_binding()
        for bind, array, parts in (
            (binding.bind_input, flat, self.inputs), (binding.bind_output, made, self.outputs)
        ):  # fmt: skip
            item, start = array.itemsize, array.ctypes.data
            for part in parts:
                where = start + part.start * item
                bind(part.name, "cpu", 0, array.dtype, part.shape, where)
        self.session.run_with_iobinding(binding)
        return y


def compile(recording: Recording) -> Session:
    """The session of a recorded product.

    Raises `EngineError` where ONNX Runtime has no kernel for it.
    """
    outputs = outputs_of(recording)
    inputs = inputs_of(recording)
    results = {part.name: part.value for part in outputs}
    model = build(recording.recorder, [part.value for part in inputs], results, "product")
    shared = outsourced(model.graph)
    try:
        session = session_of(ir.to_proto(model), shared)
    except Exception as error:  # its exceptions have no common class
        raise EngineError(
            f"ONNX Runtime cannot run this product: {first_line(error)} Try engine='numpy'."
        ) from error
    return Session(session, inputs, outputs, recording.y)


def outsourced(graph: ir.Graph) -> dict[str, np.ndarray]:
    """Large initializers taken out of a graph, by name."""
    shared = {}
    for name, value in graph.initializers.items():
        assert value.const_value is not None
        array = value.const_value.numpy()
        if array.nbytes > SMALL and array.dtype.kind in "fiub":
            shared[name] = np.ascontiguousarray(array)
            value.const_value = ir.Tensor(np.zeros(0, array.dtype), name=name)
    return shared


def session_of(proto: onnx.ModelProto, shared: Mapping[str, np.ndarray]) -> Any:
    """A session that is given the shared arrays."""
    import onnxruntime as ort

    for tensor in proto.graph.initializer:
        if tensor.name in shared:
            tensor.CopyFrom(placeholder(tensor.name, shared[tensor.name]))
    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions, not on stderr too
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in shared.values()]
    options.add_external_initializers(list(shared), values)
    providers = ["CPUExecutionProvider"]
    return ort.InferenceSession(proto.SerializeToString(), options, providers=providers)
