"""The primal by ONNX Runtime: one session for each set of given and wanted tensors.

Sessions are also how products run, are left by a forked process, and end at Ctrl-C. What is known
of ONNX Runtime's defects is listed in `ops/graphs/defects.py`; operators that are traps for some
numbers are replaced by functions here.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from math import prod
from threading import Thread
from typing import Any
from weakref import WeakSet

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from .....jacobians.errors import OnnxJacError, first_line
from .....jacobians.threads import Lock
from .....ops.graphs.defects import FUNCTIONS, GUARD, TRAPPED, function, is_trap
from .....ops.graphs.recorder import READING
from .....ops.node import TRAINING, remedy
from ...flow.contents import Contents, lowest_opsets, names_in, nodes, opset, subgraphs, unique
from ...flow.steps import needed, tensor_of

UPGRADE = "`pip install -U 'onnxjac[runtime]'` brings the newest"

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
        found = sessions.get(key)
        if found is None:
            try:
                cut_out = cut(model, given, names)
                found = new_session(*cut_out, lean=model.lean, pooled=pooled)
            except Exception as error:  # `compute` says what it means, also for the next run
                found = error
        sessions[key] = found
    if isinstance(found, Exception):
        raise found.with_traceback(None)  # a traceback would keep the tensors of every run alive
    return found


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
    taken = {*values, *names_in(graph)}
    for node in graph.node:  # a node runs for the outputs that the caller lacks
        node.output[:] = [unique(n, taken) if n in given else n for n in node.output]
    for node in nodes(proto):
        if node.op_type in guests():
            node.domain = ""
    _drop_unread(graph, model, names)
    for node in graph.node:
        _declare(graph, node, values)
    inputs = used & (given | model.inputs.keys())
    graph.input.extend(ir.serde.serialize_value(values[name]) for name in sorted(inputs))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    held = {name: (model.constants[name], tensor_of(values[name]))
            for name in sorted(model.constants.keys() & (used - given))}  # fmt: skip
    return proto, add_initializers(graph, held)


def _declare(
    graph: onnx.GraphProto, node: onnx.NodeProto, values: Mapping[str, ir.Value]
) -> None:
    """Keep the types of halves and of what may be guarded, and the shape of a recorded sum's
    operand: a model may declare others than it has.
    """
    for value in map(values.get, node.output):
        is_half = value is not None and value.dtype == ir.DataType.FLOAT16
        if value is not None and value.dtype and (is_half or node.op_type in FUNCTIONS):
            declared = helper.make_tensor_value_info(str(value.name), value.dtype, None)
            graph.value_info.append(declared)
    summed = values.get(node.input[0]) if node.op_type == "ReduceSum" else None
    if summed is not None and summed.producer() is not None and READING in summed.meta:
        graph.value_info.append(ir.serde.serialize_value(summed))


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
    if any(a.HasField("g") or a.graphs for node in graph.node for a in node.attribute):
        return  # subgraphs may read tensors of the outer graph
    for k in reversed(range(len(graph.node))):
        name = graph.node[k].output[0]
        if name in model.turned and name not in read:
            del graph.node[k]


def add_initializers(
    graph: onnx.GraphProto, held: Mapping[str, tuple[np.ndarray, ir.TensorProtocol]]
) -> dict[str, np.ndarray]:
    """Give a graph initializers by name; returns the large ones, whose numbers stay outside."""
    shared = {}
    for name, (array, tensor) in held.items():
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


FEW = 1024
"""A sum of so few numbers takes no longer than a product with ones."""


def sum_by_products(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Sums over leading axes become products with ones, which take 0.1 to 0.5 of the time.

    Returns the large vectors of ones, whose numbers stay outside the graph.
    """
    if all(node.op_type != "ReduceSum" for node in graph.node):
        return {}
    values = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info)}
    known, taken, made = _stored(graph), names_in(graph), list[onnx.NodeProto]()
    held: dict[str, np.ndarray] = {}
    for node in graph.node:
        made += _product(node, values, known, taken, held) or [node]
    del graph.node[:]
    graph.node.extend(made)
    return add_initializers(graph, {name: (a, ir.Tensor(a)) for name, a in held.items()})


def _product(
    node: onnx.NodeProto, values: Mapping[str, onnx.TypeProto.Tensor],
    known: Mapping[str, np.ndarray], taken: set[str], held: dict[str, np.ndarray],
) -> list[onnx.NodeProto]:  # fmt: skip
    """The nodes that compute a sum over leading axes as a product; none for other nodes.

    Their names are not `taken`, in subgraphs either; their constants are added to `held`.
    """
    if node.op_type != "ReduceSum" or node.domain or len(node.input) < 2:
        return []
    (x, axes), (y,) = node.input, node.output
    if x not in values or axes not in known or not values[x].HasField("shape"):
        return []
    dtype, shape = values[x].elem_type, [size.dim_value for size in values[x].shape.dim]
    first = sorted(axis + len(shape) * (axis < 0) for axis in known[axes].flat)
    rows, columns = prod(shape[: len(first)]), prod(shape[len(first) :])
    if first != [*range(len(first))] or rows < 2 or columns < 2 or rows * columns <= FEW:
        return []  # a size that is not known is 0
    if dtype not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        return []
    keeps = next((a.i for a in node.attribute if a.name == "keepdims"), 1)
    made = [1] * len(first) * keeps + shape[len(first) :]
    ones = np.ones(rows, helper.tensor_dtype_to_np_dtype(dtype))
    constants = (ones, np.array([rows, columns]), np.array(made))
    parts = "ones", "rows", "shape", "matrix", "vector"
    left, flat, whole, matrix, vector = (unique(f"{y}_{part}", taken) for part in parts)
    held.update(zip((left, flat, whole), constants, strict=True))
    return [
        helper.make_node("Reshape", [x, flat], [matrix]),
        helper.make_node("MatMul", [left, matrix], [vector]),
        helper.make_node("Reshape", [vector, whole], [y]),
    ]


# -- sessions --------------------------------------------------------------------------------------

CPU = "CPUExecutionProvider"

SPINNING = "100"
"""Microseconds that a session's threads spin after a run, before they sleep.

The next product of the same operator then finds them awake, while a product of another operator, as
when J and Jᵀ alternate, need not wait long for the cores.
"""

LARGE = 2**28
"""A session with this many bytes of matrices makes no prepacked copies, though they are faster."""


class EngineError(OnnxJacError):
    """ONNX Runtime cannot run this model, or not at this point."""


class OutdatedEngine(EngineError):
    """The installed ONNX Runtime is too old for this model, or cannot be imported."""


class Session:
    """A session, with the function that creates it; a forked process creates its own session.

    The threads of a session exist only in the process that created it. Without its threads, the
    session hangs, or crashes the process when destroyed, so that a fork leaves it untouched.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._made, self._lock = make, make(), Lock()
        SESSIONS.add(self)

    @property
    def here(self) -> Any:
        """The session of this process."""
        if self._made is None:
            with self._lock:
                self._made = self._made or self._make()
        return self._made

    def forsake(self) -> None:
        """Leak the session of the parent process, so that it is never destroyed in this one."""
        if self._made is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._made))
            self._made = None


SESSIONS: WeakSet[Session] = WeakSet()


def _forsake_all() -> None:
    """Leak all sessions, and all arrays that they have computed.

    Freeing such an array would deadlock if a thread that does not exist here held the lock of the
    allocator at the fork.
    """
    if SESSIONS:
        gc.freeze()
    for session in tuple(SESSIONS):
        session.forsake()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forsake_all)


def new_session(
    proto: onnx.ModelProto,
    shared: Mapping[str, np.ndarray],
    *,
    lean: bool = False,
    pooled: bool = True,
    provider: str = CPU,
) -> Session:
    """A session of a model, with the shared arrays as initializers; not `pooled`, without arena."""
    guard_traps(proto, shared)
    round_halves(proto.graph)
    shared = {**shared, **sum_by_products(proto.graph)}
    model = proto.SerializeToString()
    return Session(partial(started, model, shared, lean, pooled, provider))


def values_of(shared: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays as values of ONNX Runtime, which share the memory of contiguous arrays."""
    made = runtime().OrtValue.ortvalue_from_numpy
    return {name: made(np.asarray(array, order="C")) for name, array in shared.items()}


def started(
    model: bytes, shared: Mapping[str, np.ndarray], lean: bool, pooled: bool, provider: str
) -> Any:
    """A session of ONNX Runtime.

    A `lean` session, one of many side by side, keeps nothing between runs and has no threads that
    spin. A session with `LARGE` matrices reads all weights in place, neither copied nor prepacked;
    graph optimisation is disabled, since it may replace a weight under the same name.
    """
    ort = runtime()
    options = ort.SessionOptions()
    options.enable_cpu_mem_arena = pooled
    options.log_severity_level = 4  # errors come as exceptions, not on stderr too
    options.add_session_config_entry("session.intra_op.spin_duration_us", SPINNING)
    values = values_of(shared)
    options.add_external_initializers(list(values), list(values.values()))
    large = sum(array.nbytes for array in shared.values() if array.ndim <= 2) >= LARGE
    if large:
        for name, value in values.items():
            options.add_initializer(name, value)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if lean:
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if large or lean:
        options.add_session_config_entry("session.disable_prepacking", "1")
    providers = list(dict.fromkeys((provider, CPU)))
    made = ort.InferenceSession(model, options, providers=providers)
    if large:
        made.read_where_they_are = values  # kept alive with the session
    return made


@cache
def guests() -> frozenset[str]:
    """Operators of ONNX Runtime that it keeps in the default domain, where ONNX has none."""
    schemas = runtime().capi.onnxruntime_pybind11_state.get_all_operator_schema()
    return frozenset(s.name for s in schemas if not s.domain and not onnx.defs.has(s.name))


def runtime() -> Any:
    """ONNX Runtime; raises `OutdatedEngine` where it is installed and cannot be imported."""
    try:
        return importlib.import_module("onnxruntime")
    except (ImportError, AttributeError) as error:  # AttributeError if built for NumPy 1
        raise OutdatedEngine(
            f"ONNX Runtime cannot be imported: {first_line(error)}; {UPGRADE}."
        ) from error


def interruptible(run: Callable[..., Any], *arguments: Any, alive: Any) -> None:
    """A run in its own thread: Ctrl-C ends the wait at once, and the run after its current kernel.

    The session reads and writes `alive` until then.
    """
    options, failed = runtime().RunOptions(), list[BaseException]()

    def go(_: Any) -> None:
        try:
            run(*arguments, options)
        except BaseException as error:  # raised again by the thread that waits
            failed.append(error)

    thread = Thread(target=go, args=(alive,), daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        options.terminate = True
        raise
    if failed:
        raise failed[0]


# -- traps: operators that are replaced by functions, for some numbers -----------------------------


def guard_traps(model: onnx.ModelProto, shared: Mapping[str, np.ndarray]) -> None:
    """Put functions in place of the operators of a model that are traps, unless it states why not:
    a quotient, for example, that is declared as no whole number.
    """
    guarded = _guard(model.graph, shared)
    for op_type in sorted(guarded):
        model.functions.append(function(op_type))
        model.functions[-1].opset_import[0].version = opset(model) or 1
    if guarded:
        model.opset_import.add(domain=GUARD, version=1)


def _guard(graph: onnx.GraphProto, shared: Mapping[str, np.ndarray]) -> set[str]:
    """Guard the traps in a graph, unless known constants make them safe; the guarded operators.

    Subgraphs may use the same names for other tensors.
    """
    types = {value.name: value.type.tensor_type.elem_type
             for value in (*graph.output, *graph.value_info)}  # fmt: skip
    known = {**_stored(graph), **shared}
    guarded = set()
    for node in graph.node:
        for inner in subgraphs(node):
            guarded |= _guard(inner, {})
        if is_trap(node, types, known):
            node.domain = GUARD
            guarded.add(node.op_type)
    return guarded


def round_halves(graph: onnx.GraphProto) -> None:
    """Put Max of one operand, which has a kernel for halves, behind each step that computes halves.

    The runtime computes most steps in float32 and leaves out the rounding between two of them, so
    that a tensor would depend on which others are asked for.
    """
    types = {value.name: value.type.tensor_type.elem_type
             for value in (*graph.output, *graph.value_info)}  # fmt: skip
    nodes, taken = list[onnx.NodeProto](), names_in(graph)
    for node in graph.node:
        for inner in subgraphs(node):
            round_halves(inner)
        nodes.append(node)
        for k, name in enumerate(node.output) if node.op_type not in MOVES else ():
            if is_half(node) if name not in types else types[name] == onnx.TensorProto.FLOAT16:
                node.output[k] = unique(name, taken)
                nodes.append(helper.make_node("Max", [node.output[k]], [name]))
    if len(nodes) > len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


MOVES = {
    "Concat", "Constant", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements",
    "GatherND", "If", "Identity", "Loop", "Max", "Min", "Relu", "Reshape", "Scan", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators whose results are entries of their operands, and control flow."""


def is_half(node: onnx.NodeProto) -> bool:
    """Whether a node casts to halves."""
    to = onnx.TensorProto.FLOAT16
    return node.op_type == "Cast" and any(a.name == "to" and a.i == to for a in node.attribute)


def _stored(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The integer constants that are stored in a graph itself, by name."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            stored.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in stored.items()
        if tensor.data_type in TRAPPED[:2] and not tensor.external_data
    }
