"""ONNX Runtime as an engine: a session for each part of a model, and for each product.

A graph is simplified by the rows of `ops/graphs/simplify.py` for this engine. What is known of its
defects is listed in `ops/graphs/defects.py`; operators that are traps for some numbers are replaced
by functions here. A forked process makes its own sessions, and Ctrl-C ends a long product.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import Thread
from typing import Any
from weakref import WeakSet

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from ....jacobians import Shape, dtype_of, shape_of, size
from ....jacobians.errors import InputError, OnnxJacError, first_line
from ....jacobians.threads import Lock
from ....ops.graphs.build import IR_VERSION, Graph, build, every, simplify_graph
from ....ops.graphs.defects import GUARD, function, is_trap, round_halves
from ....ops.graphs.recorder import Recorder
from ....ops.graphs.simplify import PRODUCTS, RUNTIME
from ....ops.node import TRAINING, remedy
from ..flow.contents import Contents, lowest_opsets, nodes_inside, opset, subgraphs
from ..flow.steps import array_of, steps_needed, stored_tensor
from .work import kernels_of, multiplications

UPGRADE = "`pip install -U 'onnxjac[runtime]'` brings the newest"

TOO_NEW = re.compile(r"guarantees\W+support for models|max supported IR version")
SOURCE = re.compile(r"\S+\.(?:cc|h):\d+ .* was false\. ")
"""Where in its source a condition did not hold, before the sentence for users."""
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
        reason = _reason(model, str(error).strip().partition("\n")[0])
        way = remedy(TRAINING if TRAINING in reason else "", "Try engine='numpy'")
        raise EngineError(f"ONNX Runtime cannot run this: {reason} {way}.") from error


def _session(model: Contents, given: frozenset[str], names: tuple[str, ...], pooled: bool) -> Any:
    """A session, or a raised error, from the model's cache of the latest ones."""
    sessions, key = model.sessions, (given, names, pooled)
    with model.lock:
        found = sessions.get(key)
        if found is None:
            try:
                graph = simplify_graph(cut_graph(model, given, names), RUNTIME)
                found = new_session(*serialized(graph), lean=model.lean, pooled=pooled)
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
    return SOURCE.sub("", message.removeprefix("[ONNXRuntimeError] : "))[:300]


EMBEDDED_BYTES = 1024
"""Larger weights are shared with the session, not copied into the model."""


def cut_graph(model: Contents, given: frozenset[str], names: tuple[str, ...]) -> Graph:
    """The part of a model from the given to the named tensors."""
    indices, used = steps_needed(model.steps, names, given)
    nodes = list(model.ir.graph)
    values = ir.convenience.create_value_mapping(model.ir.graph, include_subgraphs=False)
    inputs = {name: values[name] for name in sorted(used & (given | model.inputs.keys()))}
    outputs = {name: values[name] for name in names}
    return Graph(Recorder, lowest_opsets(model), [nodes[k] for k in indices], inputs, outputs)


def serialized(graph: Graph) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A simplified graph as the runtime reads it, and the weights that are left outside it.

    Functions are in place of the operators that are traps, unless the graph states why not: a
    quotient, for example, that is declared as no whole number. Halves are rounded.
    """
    unnamed = [node for node in graph.nodes if not node.name]
    model = build(graph, graph.inputs.values(), graph.outputs, "graph")
    for node in unnamed:
        node.name = ""  # as in the runtime's messages
    guarded = set[str]()
    for node in every(model.graph):
        if node.op_type in guests():
            node.domain = ""
        elif is_trap(node):
            node.domain = GUARD
            guarded.add(node.op_type)
        round_halves(node)
    for node in model.graph if graph.kind.is_model else ():
        for y in node.outputs:  # a model may declare other shapes than it has
            y.shape = y.type = None
    held = {name: (array_of(x), stored_tensor(x)) for name, x in model.graph.initializers.items()}
    model.graph.initializers.clear()
    model.ir_version = IR_VERSION
    if guarded:
        model.opset_imports[GUARD] = 1
    proto = ir.to_proto(model)
    for op_type in sorted(guarded):
        proto.functions.append(function(op_type))
        proto.functions[-1].opset_import[0].version = opset(proto) or 1
    return proto, add_initializers(proto.graph, held)


def add_initializers(
    graph: onnx.GraphProto, held: Mapping[str, tuple[np.ndarray, ir.TensorProtocol]]
) -> dict[str, np.ndarray]:
    """Give a graph initializers by name; returns the large ones, whose numbers stay outside."""
    shared = {}
    for name, (array, tensor) in held.items():
        if array.nbytes > EMBEDDED_BYTES and array.dtype.kind in "fiub":
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


# -- sessions --------------------------------------------------------------------------------------

CPU = "CPUExecutionProvider"

SPIN_MICROSECONDS = "100"
"""Microseconds that a session's threads spin after a run, before they sleep.

The next product of the same operator then finds them awake, while a product of another operator, as
when J and Jᵀ alternate, need not wait long for the cores.
"""

UNPACKED_BYTES = 2**28
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
    model, off = proto.SerializeToString(), optimizers_off(proto.graph)
    return Session(partial(start_session, model, shared, lean, pooled, provider, off))


def optimizers_off(graph: onnx.GraphProto) -> list[str]:
    """Constants are not folded where an If is inside another: of a constant condition, a branch
    moves into the graph around it, and for two of them the runtime ends the process.
    """
    outer = (node for node in nodes_inside(graph.node) if node.op_type == "If")
    inner = (n for node in outer for g in subgraphs(node) for n in nodes_inside(g.node))
    return ["ConstantFolding"] if any(node.op_type == "If" for node in inner) else []


def values_of(shared: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays as values of ONNX Runtime, which share the memory of contiguous arrays."""
    made = runtime().OrtValue.ortvalue_from_numpy
    return {name: made(np.asarray(array, order="C")) for name, array in shared.items()}


def start_session(
    model: bytes, shared: Mapping[str, np.ndarray], lean: bool, pooled: bool, provider: str,
    off: list[str],
) -> Any:  # fmt: skip
    """A session of ONNX Runtime.

    A `lean` session, one of many side by side, keeps nothing between runs and has no threads that
    spin. A session with `UNPACKED_BYTES` of matrices reads all weights in place, neither copied nor
    prepacked; graph optimisation is disabled, since it may replace a weight under the same name.
    The optimizers that are `off` are not run.
    """
    ort = runtime()
    options = ort.SessionOptions()
    options.enable_cpu_mem_arena = pooled
    options.log_severity_level = 4  # errors come as exceptions, not on stderr too
    options.add_session_config_entry("session.intra_op.spin_duration_us", SPIN_MICROSECONDS)
    values = values_of(shared)
    options.add_external_initializers(list(values), list(values.values()))
    large = sum(array.nbytes for array in shared.values() if array.ndim <= 2) >= UNPACKED_BYTES
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
    made = ort.InferenceSession(model, options, providers=providers, disabled_optimizers=off)
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


# -- products: programs whose ends and residuals are bound to memory -------------------------------

LONG_MULTIPLICATIONS = 2**35
"""Multiplications that take a good part of a second on two cores.

Below this number a separate thread does not pay off: a session binds its threads to cores, and a
new thread may start on the core of one of them, where the two wait for each other.
"""


class Program:
    """v ↦ J v by a session, given the positions of its tensors in v and in y.

    Tensors that are contiguous parts of v or y are separate inputs and outputs, bound to their
    memory: nothing is sliced or joined. Residuals are bound once, as a hundred of them take half a
    millisecond. Threads do not share a binding: a product takes one that is free, or makes one. A
    `long` product runs in another thread, so that Ctrl-C reaches the calling thread meanwhile.
    """

    def __init__(
        self, session: Session, inputs: list[FlatPart], outputs: list[FlatPart], graph: Graph
    ):
        self.session, self.inputs, self.outputs = session, inputs, outputs
        self.names = {key: str(x.name) for key, x in graph.residuals.items()}
        self.shape, self.dtype = shape_of(graph.y), dtype_of(graph.y)
        self.long = sum(map(multiplications, kernels_of(graph))) > LONG_MULTIPLICATIONS
        self.held: dict[str, Any] = {}
        self.free: dict[Any, list[Any]] = {}  # by session: a forked process has its own

    def bind(self, residuals: Mapping[str, np.ndarray]) -> Program:
        """The program for these residuals, contiguous arrays by key, whose memory it reads."""
        made = copy(self)
        made.free = {}
        made.held = values_of({name: residuals[key] for key, name in self.names.items()})
        return made

    def __call__(self, v: np.ndarray) -> np.ndarray:
        flat, y = v.ravel(), np.empty(self.shape, self.dtype)  # reshape may leave gaps
        made, session = y.reshape(-1), self.session.here
        free = self.free.setdefault(session, [])
        try:
            binding = free.pop()
        except IndexError:
            binding = session.io_binding()
            for name, value in self.held.items():
                binding.bind_ortvalue_input(name, value)
        for bind, array, parts in (
            (binding.bind_input, flat, self.inputs), (binding.bind_output, made, self.outputs)
        ):  # fmt: skip
            item, start = array.itemsize, array.ctypes.data
            for part in parts:
                where = start + part.start * item
                bind(part.name, "cpu", 0, array.dtype, part.shape, where)
        if self.long:
            interruptible(session.run_with_iobinding, binding, alive=(flat, y))
        else:
            session.run_with_iobinding(binding)
        free.append(binding)
        return y


def compile(graph: Graph, provider: str = CPU) -> Program:
    """The session of a product, on an execution provider.

    Raises `EngineError` where ONNX Runtime has no kernel for it.
    """
    check_provider(provider)
    graph = simplify_graph(graph, PRODUCTS, RUNTIME)
    outputs = outputs_of(graph)
    inputs = inputs_of(graph, outputs)
    given = (*(part.value for part in inputs), *graph.residuals.values())
    ends = replace(graph, inputs={str(x.name): x for x in given},
                   outputs={part.name: part.value for part in outputs})  # fmt: skip
    try:
        session = new_session(*serialized(ends), provider=provider)
    except Exception as error:  # its exceptions have no common base class
        raise EngineError(
            f"ONNX Runtime cannot run this product: {first_line(error)} Try engine='numpy'."
        ) from error
    return Program(session, inputs, outputs, graph)


def check_provider(provider: str) -> None:
    """Raises `InputError` for an execution provider that this ONNX Runtime does not have."""
    known = runtime().get_available_providers()
    if provider not in known:
        shown = ", ".join(f"'onnxruntime:{name}'" for name in known)
        raise InputError(f"ONNX Runtime has no {provider!r} here; engine= may be {shown}.")


@dataclass(frozen=True)
class FlatPart:
    """A tensor that is a part of a flat vector, from entry `start` on."""

    name: str
    start: int
    value: ir.Value

    @property
    def shape(self) -> Shape:
        return shape_of(self.value)


def inputs_of(graph: Graph, outputs: list[FlatPart]) -> list[FlatPart]:
    """New inputs in place of the slices of a flat v; and v itself if it is read whole, or if a
    slice of it is a part of y.
    """
    v, ends = graph.v, {id(graph.y), *(id(part.value) for part in outputs)}
    parts = [FlatPart(str(v.name), 0, v)] if graph.y is v else []
    for node, k in graph.uses(v):
        start = beginning(graph, node) if k == 0 and len(shape_of(v)) == 1 else None
        cuts = [] if start is None else reshaped(graph, node)
        if start is None or any(id(cut) in ends for cut in (node.outputs[0], *cuts)):
            if all(part.value is not v for part in parts):
                parts.append(FlatPart(str(v.name), 0, v))
            continue
        for cut in cuts:
            value = graph.new(shape_of(cut), dtype_of(v), f"v_{len(parts)}")
            for user, place in graph.uses(cut):
                user.replace_input_with(place, value)
            parts.append(FlatPart(value.name or "", start, value))
    return parts


def beginning(graph: Graph, node: ir.Node) -> int | None:
    """The start of a contiguous slice of a vector; None if the node is no such slice."""
    if node.op_type == "Reshape":
        return 0
    if node.op_type != "Slice":
        return None
    start, _, *more = (None if x is None else graph.array(x) for x in node.inputs[1:])
    stepped = len(more) > 1 and more[1] is not None and more[1].item() != 1
    return None if start is None or stepped else int(start.item())


def reshaped(graph: Graph, node: ir.Node) -> list[ir.Value]:
    """The tensors that a slice is used as: its reshapes if it is only reshaped, else itself."""
    cut = node.outputs[0]
    users = [user for user, _ in graph.uses(cut)]
    only = users and cut is not graph.y and all(u.op_type == "Reshape" for u in users)
    return [user.outputs[0] for user in users] if only else [cut]


def outputs_of(graph: Graph) -> list[FlatPart]:
    """The tensors that a flat y is concatenated from; y alone if it is no concatenation."""
    y = graph.y
    node = y.producer()
    if node is None or node.op_type != "Concat" or len(shape_of(y)) != 1:
        return [FlatPart("y_0", 0, unshaped(y))]
    parts: list[FlatPart] = []
    start = 0
    for x in filter(None, node.inputs):
        parts.append(FlatPart(f"y_{len(parts)}", start, unshaped(x)))
        start += size(shape_of(x))
    return parts


def unshaped(x: ir.Value) -> ir.Value:
    """The tensor before a Reshape, if there is one."""
    node = x.producer()
    before = node.inputs[0] if node is not None and node.op_type == "Reshape" else None
    return x if before is None else before
