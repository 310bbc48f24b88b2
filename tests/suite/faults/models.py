"""The models of the tests of faults, threads and endurance."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import onnxjac as oj

FOLDER = Path(__file__).parents[2] / "models"
MLP, CNN = FOLDER / "mlp.onnx", FOLDER / "cnn.onnx"


def point_of(model, seed=0):
    """Standard normal inputs; sizes that the model leaves open are 2."""
    rng = np.random.default_rng(seed)
    shapes = {name: [d if isinstance(d, int) else 2 for d in spec.shape]
              for name, spec in model.inputs.items()}  # fmt: skip
    return {n: rng.standard_normal(s).astype(model.inputs[n].dtype) for n, s in shapes.items()}


def chain(layers, width=512, seed=0):
    """y = tanh(… tanh(tanh(x W) W) … W): layers that share one weight."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((width, width), np.float32) / np.float32(width**0.5)
    nodes, x = [], "x"
    for k in range(layers):
        nodes.append(helper.make_node("MatMul", [x, "W"], [f"h{k}"]))
        nodes.append(helper.make_node("Tanh", [f"h{k}"], [f"x{k}"]))
        x = f"x{k}"
    return model_of(nodes, x, (1, width), {"W": weight})


def model_of(nodes, last, shape, weights):
    """The model from x to `last`, both of one shape."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", last)]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def deep(layers=100):
    """J of a chain."""
    model = oj.load(chain(layers))
    return oj.linearize(model, point_of(model))
