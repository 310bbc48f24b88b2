"""The primal by ONNX Runtime: one session for each set of given and wanted tensors."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from .....jacobians.errors import first_line
from .....ops.node import TRAINING, remedy
from ...flow.contents import Contents
from ...flow.protos import lowest_opsets, nodes
from ...flow.steps import needed, tensor_of
from .sessions import UPGRADE, EngineError, OutdatedEngine, guests, new_session, runtime

__all__ = ["EngineError", "OutdatedEngine", "compute", "installed"]

TOO_NEW = re.compile(r"guarantees\W+support for models|max supported IR version")
NO_KERNEL = re.compile(r"implementation for (\w+)\(\d+\) node with name '([^']*)'")


@cache
def installed() -> bool:
    """Whether ONNX Runtime can be imported."""
    return importlib.util.find_spec("onnxruntime") is not None


def compute(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...], *, pooled: bool = True
) -> dict[str, np.ndarray]:
    """The named tensors at the inputs."""
    if not installed():
        raise EngineError("onnxruntime is not installed: `pip install 'onnxjac[runtime]'`.")
    try:
        session = _session(model, frozenset(inputs), names, pooled).here
        feeds = {value.name: inputs[value.name] for value in session.get_inputs()}
        return dict(zip(names, session.run(names, feeds), strict=True))
    except EngineError:
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no common class
        if TOO_NEW.search(str(error)):
            raise OutdatedEngine(
                f"ONNX Runtime {runtime().__version__} is older than the operators of the model "
                f"(opset {model.opset}); {UPGRADE}."
            ) from error
        reason = _reason(model, first_line(error))
        way = remedy(TRAINING if TRAINING in reason else "", "Try engine='numpy'")
        raise EngineError(f"ONNX Runtime cannot run this: {reason} {way}.") from error


def _session(model: Contents, given: frozenset[str], names: tuple[str, ...], pooled: bool) -> Any:
    """A session, or a raised error, from the model's cache of the latest ones."""
    sessions, key = model.sessions, (given, names, pooled)
    with model.lock:
        sessions[key] = found = sessions.get(key) or _session_or_error(model, *key)
    if isinstance(found, Exception):
        raise found.with_traceback(None)  # a traceback would keep the tensors of every run alive
    return found


def _session_or_error(
    model: Contents, given: frozenset[str], names: tuple[str, ...], pooled: bool
) -> Any:
    try:
        return _new_session(model, given, names, pooled)
    except Exception as error:  # `compute` says what it means, also for the next run
        return error


def _new_session(
    model: Contents, given: frozenset[str], names: tuple[str, ...], pooled: bool
) -> Any:
    proto, shared = cut(model, given, names)
    return new_session(proto, shared, lean=model.lean, pooled=pooled)


def _reason(model: Contents, message: str) -> str:
    """ONNX Runtime's message; if it has no kernel, for which node and which dtypes."""
    if found := NO_KERNEL.search(message):
        op_type, name = found.groups()
        for step in model.steps:
            if step.op_type == op_type and name in ("", step.name):
                dtypes = {model.spec(tensor).dtype for tensor in step.inputs if tensor}
                return f"it has no kernel for {step} in {', '.join(sorted(map(str, dtypes)))}."
    return message.removeprefix("[ONNXRuntimeError] : ")


SMALL = 1024  # bytes; larger weights are shared with the session, not copied into the model
TURNED = 1 << 22  # bytes; no transposed copy is held of larger matrices


def cut(
    model: Contents, given: frozenset[str], names: tuple[str, ...]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model from the given to the named tensors, and the weights that are left outside it."""
    indices, used = needed(model.steps, names, given)
    opsets = [helper.make_opsetid(*pair) for pair in lowest_opsets(model).items()]
    proto = onnx.ModelProto(ir_version=10, opset_import=opsets)
    graph = proto.graph
    graph.name = model.name or "graph"
    steps = list(model.ir.graph)
    values = ir.convenience.create_value_mapping(model.ir.graph, include_subgraphs=False)
    for index in indices:
        ir.serde.serialize_node_into(graph.node.add(), steps[index])
        _read_as_it_lies(graph.node[-1], model, given, values)
        _yield_to_given(graph.node[-1], given)
    for node in nodes(proto):
        if node.op_type in guests():
            node.domain = ""
    _drop_unread(graph, model, names)
    inputs = used & (given | model.inputs.keys())
    graph.input.extend(ir.serde.serialize_value(values[name]) for name in sorted(inputs))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return proto, _add_initializers(graph, values, model, used - given)


def _yield_to_given(node: onnx.NodeProto, given: frozenset[str]) -> None:
    """Rename the outputs that the caller gives; the node runs for its other outputs."""
    for index, name in enumerate(node.output):
        if name in given:
            node.output[index] = f"{name}_computed"


def _read_as_it_lies(
    node: onnx.NodeProto, model: Contents, given: frozenset[str], values: dict[str, ir.Value]
) -> None:
    """Replace MatMul with a large transposed constant by Gemm, which needs no transposed copy."""
    if node.op_type != "MatMul" or node.domain or node.input[1] not in model.turned:
        return
    (a, turned), (source, order) = node.input, model.turned[node.input[1]]
    held, shape = model.constants[source], values[a].shape
    if not given.isdisjoint((turned, source)) or shape is None or len(shape) != 2:
        return
    if held.ndim == 2 and held.nbytes >= TURNED and held.dtype in (np.float32, np.float64):
        node.op_type = "Gemm"
        node.input[1] = source
        node.attribute.append(helper.make_attribute("transB", int(order in (None, (1, 0)))))


def _drop_unread(graph: onnx.GraphProto, model: Contents, names: tuple[str, ...]) -> None:
    """Remove the transposed constants that no node reads any more."""
    read = {*names, *(name for node in graph.node for name in node.input)}
    if any(map(_has_body, graph.node)):
        return
    for k in reversed(range(len(graph.node))):
        name = graph.node[k].output[0]
        if name in model.turned and name not in read:
            del graph.node[k]


def _has_body(node: onnx.NodeProto) -> bool:
    """Whether a node has subgraphs, which may read tensors of the outer graph."""
    return any(a.HasField("g") or a.graphs for a in node.attribute)


def _add_initializers(
    graph: onnx.GraphProto, values: dict[str, ir.Value], model: Contents, names: Iterable[str]
) -> dict[str, np.ndarray]:
    shared = {}
    for name in sorted(model.constants.keys() & set(names)):
        array, tensor = model.constants[name], tensor_of(values[name])
        if array.nbytes > SMALL and array.dtype.kind in "fiub":
            shared[name] = array
            graph.initializer.append(placeholder(name, array))
        else:
            graph.initializer.append(ir.serde.serialize_tensor(tensor))
            graph.initializer[-1].name = name
    return shared


def placeholder(name: str, array: np.ndarray) -> onnx.TensorProto:
    """A tensor without data: its numbers are in memory that the session is given."""
    dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=dtype)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "memory"), ("offset", 0), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor
