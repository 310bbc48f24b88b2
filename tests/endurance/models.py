"""Models of arbitrary size."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from suite.faults.models import model_of

NODES = ("Mul", "Tanh", "Add", "Sigmoid", "Sub")


def long_model(nodes, width=4):
    """A chain of n nodes, of five kinds in turn; every second operand is a weight."""
    made, x = [], "x"
    for k in range(nodes):
        kind = NODES[k % len(NODES)]
        operands = [x, "w"] if kind in ("Mul", "Add", "Sub") else [x]
        made.append(helper.make_node(kind, operands, [f"y{k}"]))
        x = f"y{k}"
    return model_of(made, x, (1, width), {"w": np.full(width, 0.9, np.float32)})


def diamonds(count, width=4):
    """y = x, then n times y ← tanh(y) + sigmoid(y): 2ⁿ paths through 3 n nodes."""
    made, x = [], "x"
    for k in range(count):
        made.append(helper.make_node("Tanh", [x], [f"a{k}"]))
        made.append(helper.make_node("Sigmoid", [x], [f"b{k}"]))
        made.append(helper.make_node("Add", [f"a{k}", f"b{k}"], [f"y{k}"]))
        x = f"y{k}"
    return model_of(made, x, (1, width), {})


def heavy(folder, nbytes, layers=16):
    """A model with `nbytes` of weights in an external file, all of which it multiplies with.

    The weights, (1024, n) each, are written one at a time to save memory.
    """
    n = nbytes // layers // 4096
    graph = onnx.GraphProto(name="heavy")
    with open(folder / "heavy.data", "wb") as file:
        for k in range(layers):
            array = np.full((1024, n), 1e-3 * (k + 1), np.float32)
            graph.initializer.append(tensor(f"w{k}", array, file))
    nodes = [helper.make_node("MatMul", ["x", f"w{k}"], [f"y{k}"]) for k in range(layers)]
    graph.node.extend([*nodes, helper.make_node("Sum", [f"y{k}" for k in range(layers)], ["y"])])
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1024)))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, n)))
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "heavy.onnx")
    return folder / "heavy.onnx"


def tensor(name, array, file):
    """A tensor with its data written to an external file."""
    made = TensorProto(name=name, dims=array.shape, data_type=TensorProto.FLOAT)
    made.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "heavy.data"), ("offset", file.tell()),
                       ("length", array.nbytes)):  # fmt: skip
        made.external_data.add(key=key, value=str(value))
    array.tofile(file)
    return made
