"""The nine networks in the onnx wheel, with weights that make their derivatives meaningful.

The files compute nearly every weight as ConstantOfShape(0.02), which makes all channels equal, and
keep a few trained ones, which do not fit the others. Here every weight becomes an initializer,
drawn according to its use, and the final Softmax is removed: the output is the logits.

>>> model = light("squeezenet")
>>> {name: x.shape for name, x in draw(model).items()}
{'data_0': (1, 3, 224, 224)}
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = tuple(sorted(path.stem.removeprefix("light_") for path in FOLDER.glob("*.onnx")))

Shape = tuple[int, ...]
Use = tuple[str, int]  # an operator and the position of its input

KERNELS: set[Use] = {("Conv", 1), ("Gemm", 1)}
SCALES: set[Use] = {("BatchNormalization", 1), ("BatchNormalization", 4), ("Mul", 1)}
BRANCH: Use = ("Sum", 1)  # the scale that a residual branch ends in
VIEWS = {"Unsqueeze", "Reshape"}  # operators that pass a weight on as a view


def light(name: str) -> onnx.ModelProto:
    """The network `name`, one of NAMES, with seeded random weights."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph, rng = model.graph, np.random.default_rng(zlib.crc32(name.encode()))
    users = _users(graph)
    shapes = {weight: shape for weight, shape in _weight_shapes(graph) if weight in users}
    _remove_weights(graph, set(shapes))
    for weight, shape in shapes.items():
        value = _weight(rng, _use(weight, users), shape)
        graph.initializer.append(numpy_helper.from_array(value, weight))
        # Before IR version 4 an initializer is also an input of the graph.
        graph.input.append(helper.make_tensor_value_info(weight, onnx.TensorProto.FLOAT, shape))
    _drop_softmax(graph)
    return model


def draw(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Standard normal values for the inputs without an initializer."""
    given = {w.name for w in model.graph.initializer}
    rng = np.random.default_rng(seed)
    free = [value for value in model.graph.input if value.name not in given]
    return {v.name: rng.standard_normal(_shape(v), dtype=np.float32) for v in free}


def _shape(value: onnx.ValueInfoProto) -> Shape:
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


def _weight_shapes(graph: onnx.GraphProto) -> Iterator[tuple[str, Shape]]:
    """Names and shapes of all weights, stored or filled in by a node."""
    stored = {w.name: w for w in graph.initializer}
    for name, tensor in stored.items():
        if tensor.data_type == onnx.TensorProto.FLOAT:
            yield name, tuple(tensor.dims)
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = numpy_helper.to_array(stored[node.input[0]])
            yield node.output[0], tuple(shape.tolist())


def _users(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Tensor -> a node that takes it."""
    return {tensor: node for node in graph.node for tensor in node.input}


def _use(weight: str, users: dict[str, onnx.NodeProto]) -> Use:
    node = users[weight]
    if node.op_type in VIEWS:
        return _use(node.output[0], users)
    slot = list(node.input).index(weight)
    after = users.get(node.output[0])
    if (node.op_type, slot) == ("BatchNormalization", 1) and after and after.op_type == "Sum":
        return BRANCH
    return node.op_type, slot


def _weight(rng: np.random.Generator, use: Use, shape: Shape) -> np.ndarray:
    """He-normal kernels, scales and variances in U(0.5, 1.5), small biases and means.

    Residual branches end in a quarter of that scale, so that sums do not grow with depth.
    """
    if use in SCALES or use == BRANCH:
        scale = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        return scale / 4 if use == BRANCH else scale
    normal = rng.standard_normal(shape, dtype=np.float32)
    if use not in KERNELS:
        return 0.1 * normal
    fan_in = shape[-1] if use[0] == "Gemm" else np.prod(shape[1:])
    normal *= np.float32(np.sqrt(2 / fan_in))
    return normal


def _remove_weights(graph: onnx.GraphProto, weights: set[str]) -> None:
    """Remove the old weights, the nodes that filled them, and the shapes that these read."""
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    used = {tensor for node in kept for tensor in node.input} - weights
    _replace(graph.node, kept)
    _replace(graph.initializer, [w for w in graph.initializer if w.name in used])
    _replace(graph.input, [value for value in graph.input if value.name in used])


def _replace(field: Any, items: list[Any]) -> None:
    del field[:]
    field.extend(items)


def _drop_softmax(graph: onnx.GraphProto) -> None:
    """Make the input of the last Softmax the output; only one network has none."""
    last = graph.node[-1]
    if last.op_type == "Softmax":
        shape = _shape(graph.output[0])
        logits = helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, shape)
        _replace(graph.output, [logits])
        del graph.node[-1]
