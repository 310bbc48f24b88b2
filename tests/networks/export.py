"""Write `<name>.onnx`, `<name>.legacy.onnx` and `<name>.npz` to files/.

    cd tests; python -m networks.export [name ...]

The ONNX files are what the two exporters of PyTorch give, unoptimised, so that every parameter
keeps its PyTorch name; the legacy one is left out where that exporter fails. The npz file holds

    at/<input>              the point
    y                       the output there, in double precision
    tangent/<tensor>        a direction v in the space of every floating input and parameter
    cotangent               a direction u in the space of the output
    jvp                     J v, by torch.func.jvp
    vjp/<tensor>            Jᵀ u, by torch.func.vjp
    hvp/<tensor>            ∇²⟨u, y⟩ v, by torch.func.vjp of torch.func.grad

where the weights are those in single precision, cast to double.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.func import functional_call, grad, jvp, vjp

from .architectures import NETWORKS, seeded

FILES = Path(__file__).parent / "files"
OPSET = 21


def build(name):
    """The network in double precision with the weights of the file, and its point."""
    network, point = seeded(name)
    path = next(FILES.glob(f"{name}.*onnx"))
    stored = {w.name: w for w in onnx.load(path).graph.initializer}
    state = {key: torch.tensor(numpy_helper.to_array(w)) for key, w in stored.items()}
    network.load_state_dict({k: w for k, w in state.items() if k in network.state_dict()}, False)
    doubles = {k: x.double() if x.is_floating_point() else x for k, x in point.items()}
    return network.double(), doubles


def pure(network, point):
    """The network as a function of its floating inputs and parameters, and these at the point."""
    fixed = {name: x for name, x in point.items() if not x.is_floating_point()}
    free = {name: x for name, x in point.items() if name not in fixed}
    weights = {name: w.detach() for name, w in network.named_parameters()}

    def function(tensors):
        given = (tensors.get(name, fixed.get(name)) for name in point)
        return functional_call(network, {name: tensors[name] for name in weights}, tuple(given))

    return function, {**free, **weights}


def derivatives(function, point, v, u):
    """y, J v, Jᵀ u and ∇²⟨u, y⟩ v."""
    y, pushed = jvp(function, (point,), (v,))
    (pulled,) = vjp(function, point)[1](u)
    slope = grad(lambda tensors: (u * function(tensors)).sum())
    (curved,) = vjp(slope, point)[1](v)
    return y, pushed, pulled, curved


def record(name):
    """Everything that the npz file holds."""
    network, point = build(name)
    function, free = pure(network, point)
    rng = np.random.default_rng(sorted(NETWORKS).index(name))
    v = {key: draw(rng, tensor.shape) for key, tensor in free.items()}
    u = draw(rng, function(free).shape)
    y, pushed, pulled, curved = derivatives(function, free, v, u)
    held = {"y": y, "jvp": pushed, "cotangent": u}
    for kind, tensors in (("at", point), ("tangent", v), ("vjp", pulled), ("hvp", curved)):
        held |= {f"{kind}/{key}": tensor for key, tensor in tensors.items()}
    return {key: small(key, tensor.detach().numpy()) for key, tensor in held.items()}


def small(key, array):
    """Tangents and cotangents in half precision, without loss."""
    return array.astype(np.float16) if key.startswith(("tangent", "cotangent")) else array


def draw(rng, shape):
    """Standard normal numbers that half precision holds exactly."""
    return torch.tensor(rng.standard_normal(tuple(shape)).astype(np.float16)).double()


def export(name, path, *, dynamo):
    """The exported model, without metadata about the machine it ran on."""
    network, point = seeded(name)
    names = {"input_names": list(point), "output_names": ["y"], "opset_version": OPSET}
    if dynamo:
        settings = {"dynamo": True, "optimize": False, "verbose": False}
        model = torch.onnx.export(network, (*point.values(),), **names, **settings).model_proto
    else:
        network = torch.jit.script(network) if name == "ode" else network
        names["opset_version"] = 20
        settings = {"dynamo": False, "do_constant_folding": False}
        torch.onnx.export(network, (*point.values(),), path, **names, **settings)
        model = onnx.load(path)
    for part in (model, model.graph, *everything(model.graph)):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def everything(graph):
    """The nodes and tensors of a graph, which may carry metadata."""
    return (*graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output)


def main(names):
    warnings.simplefilter("ignore")
    FILES.mkdir(exist_ok=True)
    for name in names or NETWORKS:
        for suffix, dynamo in ((".onnx", True), (".legacy.onnx", False)):
            path = FILES / f"{name}{suffix}"
            path.unlink(missing_ok=True)
            try:
                export(name, path, dynamo=dynamo)
            except Exception as error:
                path.unlink(missing_ok=True)
                print(f"{path.name} cannot be exported: {str(error).splitlines()[0]}")
        np.savez_compressed(FILES / f"{name}.npz", **record(name))


if __name__ == "__main__":
    main(sys.argv[1:])
