"""Models of a single node, for the suite and for the tools."""

import numpy as np
import onnx
from onnx import helper


def one_node(op_type, inputs, attrs, outputs, opset):
    """The model (x0, x1, ...) -> (y0, ...) of a single node, `Op` or `domain::Op`."""
    domain, _, op_type = op_type.rpartition("::")
    arrays = [(f"x{i}", np.asarray(x)) for i, x in enumerate(inputs) if x is not None]
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, made, name="node", domain=domain, **attrs)],
        op_type,
        [declared(name, x) for name, x in arrays],
        [onnx.ValueInfoProto(name=name) for name in made],
    )
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1)] * bool(domain)
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    for value in model.graph.output:
        if not value.type.tensor_type.elem_type:  # ONNX's inference has gaps
            value.type.tensor_type.elem_type = model.graph.input[0].type.tensor_type.elem_type
    return model


def declared(name, x):
    """A graph input that takes x."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
