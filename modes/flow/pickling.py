"""Pickling: a model as what a pickle holds, its graph as bytes and its large weights as arrays.

Arrays can leave a pickle out of band, so that no weight is copied on the way to another process;
and a protobuf message cannot be longer than 2 GiB.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from .steps import array_of

SMALL = 1024
"""Bytes of a weight that stays in the graph."""


def packed(model: ir.Model) -> tuple[bytes, dict[str, np.ndarray]]:
    """The graph as bytes, and the weights that it does not hold any more."""
    proto, large = ir.to_proto(model), {}
    for tensor in proto.graph.initializer:
        array = array_of(model.graph.initializers[tensor.name])
        if array.nbytes > SMALL and array.dtype.kind in "fiub":
            large[tensor.name] = np.ascontiguousarray(array)
            hollow = {"name": tensor.name, "data_type": tensor.data_type, "dims": tensor.dims}
            tensor.CopyFrom(onnx.TensorProto(**hollow))
    return proto.SerializeToString(), large


def unpacked(graph: bytes, large: dict[str, np.ndarray]) -> ir.Model:
    """The model of which `packed` made this."""
    model = ir.from_proto(onnx.load_model_from_string(graph))
    for name, array in large.items():
        model.graph.initializers[name].const_value = ir.Tensor(array, name=name)
    return model
