"""Write `<name>.onnx` and `<name>.npz` here: `cd tests; python -m models.export [name ...]`.

The ONNX file comes from PyTorch's exporter, unoptimised, so that every weight keeps its PyTorch
name. The npz file holds, for the input `x` and every weight, in double precision, keys

    x, y                    the input and the logits there
    tangent/<tensor>        a direction v in the space of that tensor
    jvp/<tensor>            (∂y/∂tensor) v, by torch.func.jvp
    cotangent               a direction u in the space of the logits
    vjp/<tensor>            (∂y/∂tensor)ᵀ u, by torch.func.vjp

where the weights are those in single precision, cast to double. The joint JVP is the
sum of the single ones.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.func import functional_call, jvp, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

from .networks import INPUTS, SEEDS, seeded

HERE = Path(__file__).parent
OPSET = 21


def build(name):
    """The network `name` in double precision, with the weights of the committed ONNX file."""
    graph = onnx.load(HERE / f"{name}.onnx").graph
    weights = {w.name: torch.tensor(numpy_helper.to_array(w)) for w in graph.initializer}
    network = seeded(name)
    kept = {key: weights[key] for key in differentiable(network)}
    network.load_state_dict(kept, strict=False)
    return network.double()


def differentiable(network):
    """The floating tensors of the network by name: its parameters and its running statistics."""
    return {k: t for k, t in network.state_dict().items() if t.is_floating_point()}


def pure(network):
    """The network as a function of one dict: the input `x` and the weights."""

    def function(tensors):
        tensors = dict(tensors)
        x = tensors.pop("x")
        # The fused kernels for attention and for a whole layer have no forward mode.
        torch.backends.mha.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH):
            return functional_call(network, tensors, (x,))

    return function


def derivatives(network, x, rng):
    """Everything that the npz file holds, as NumPy arrays."""
    point = {"x": x, **differentiable(network)}
    tangents = {name: draw(rng, tensor.shape) for name, tensor in point.items()}
    y, pullback = vjp(pure(network), point)
    cotangent = draw(rng, y.shape)
    forward = {name: _jvp(network, point, name, tangent) for name, tangent in tangents.items()}
    (backward,) = pullback(cotangent)
    record = {"x": x, "y": y, "cotangent": cotangent}
    for kind, tensors in (("tangent", tangents), ("jvp", forward), ("vjp", backward)):
        record |= {f"{kind}/{name}": tensor for name, tensor in tensors.items()}
    return {key: tensor.detach().numpy() for key, tensor in record.items()}


def _jvp(network, point, name, tangent):
    """(∂y/∂tensor) v for one of the tensors, the others held fixed."""
    function = pure(network)
    return jvp(lambda t: function({**point, name: t}), (point[name],), (tangent,))[1]


def draw(rng, shape):
    """Standard normal numbers that half precision holds exactly, so that the files stay small."""
    return torch.tensor(rng.standard_normal(tuple(shape)).astype(np.float16)).double()


def export(name, path):
    """The exporter's own graph, without metadata about the machine it ran on."""
    x = torch.zeros(INPUTS[name])
    batch = None if name == "cnn" else {0: torch.export.Dim("batch")}
    settings = {"opset_version": OPSET, "dynamo": True, "optimize": False, "verbose": False}
    names = {"input_names": ["x"], "output_names": ["logits"], "dynamic_shapes": (batch,)}
    model = torch.onnx.export(seeded(name), (x,), **settings, **names).model_proto
    for part in (model, model.graph, *everything(model.graph)):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def everything(graph):
    """The nodes and tensors of a graph, which may carry metadata."""
    return (*graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output)


def main(names):
    for name in names or INPUTS:
        export(name, HERE / f"{name}.onnx")
        rng = np.random.default_rng(SEEDS[name])
        record = derivatives(build(name), draw(rng, INPUTS[name]), rng)
        np.savez_compressed(HERE / f"{name}.npz", **record)


if __name__ == "__main__":
    main(sys.argv[1:])
