"""Sessions: how sessions of ONNX Runtime are created, and the nodes that it cannot run safely."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from threading import Thread
from typing import Any
from weakref import WeakSet

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper, shape_inference

from .....jacobians.errors import OnnxJacError, first_line
from .....ops.node import Step
from ...flow.protos import nodes, opset, subgraphs
from ...threads import Lock

CPU = "CPUExecutionProvider"
UPGRADE = "`pip install -U 'onnxjac[runtime]'` brings the newest"

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
        return self._made or self._made_here()

    def _made_here(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._make()
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
    safe = without_traps(proto, shared).SerializeToString()
    return Session(partial(_session, safe, dict(shared), lean, pooled, provider))


def values_of(shared: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays as values of ONNX Runtime, which share the memory of contiguous arrays."""
    made = runtime().OrtValue.ortvalue_from_numpy
    return {name: made(np.asarray(array, order="C")) for name, array in shared.items()}


def _session(
    model: bytes, shared: Mapping[str, np.ndarray], lean: bool, pooled: bool, provider: str
) -> Any:
    """A session of ONNX Runtime.

    A `lean` session keeps nothing between runs; a session with `LARGE` matrices does not copy them.
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
        share(options, values)
    if lean:
        keep_nothing(options)
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


def share(options: Any, values: Mapping[str, Any]) -> None:
    """Let a session read weights in place, neither copied nor prepacked.

    Graph optimisation is disabled, since it may replace a weight under the same name.
    """
    for name, value in values.items():
        options.add_initializer(name, value)
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.graph_optimization_level = runtime().GraphOptimizationLevel.ORT_DISABLE_ALL


def keep_nothing(options: Any) -> None:
    """No arena, no packed weights, and no threads that spin: for many sessions side by side."""
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")


TRAPPED = (TensorProto.INT32, TensorProto.INT64, TensorProto.UNDEFINED)
"""Types of a quotient at which the processor may trap, and the unknown type."""

GUARD = "onnxjac.guard"
"""The domain of the functions that replace operators of ONNX Runtime."""

DIVISION = """
<domain: "onnxjac.guard", opset_import: ["": 21]>
Div (a, b) => (y) {
    minus_one = Constant<value_int = -1>()
    zero = Constant<value_int = 0>()
    minus_one_like_b = CastLike(minus_one, b)
    zero_like_b = CastLike(zero, b)
    equal = Equal(b, minus_one_like_b)
    negative = Less(b, zero_like_b)
    by_minus_one = And(equal, negative)
    product = Mul(a, b)
    one = Mul(b, b)
    divisor = Where(by_minus_one, one, b)
    quotient = Div(a, divisor)
    y = Where(by_minus_one, product, quotient)
}
"""
"""a / b, but a b where b = -1; no unsigned b is negative."""

REDUCTION = """
<domain: "onnxjac.guard", opset_import: ["": 21]>
ScatterND <reduction> (x, at, updates) => (y) {
    none = Constant<value_int = 0>()
    step = Constant<value_int = 1>()
    first = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    end = Constant<value_ints = [9223372036854775807]>()
    shape = Shape(x)
    depth = Shape<start = -1>(at)
    sizes = Slice(shape, first, depth)
    rest = Slice(shape, depth, end)
    rest_or_one = Concat<axis = 0>(rest, one)
    width = ReduceProd(rest_or_one)
    count = ReduceProd<keepdims = 0>(sizes)
    places = Range(none, count, step)
    numbered = Reshape<allowzero = 1>(places, sizes)
    index = GatherND(numbered, at)
    rows = Size(index)
    rows_alone = Reshape(rows, one)
    count_alone = Reshape(count, one)
    column_shape = Concat<axis = 0>(rows_alone, one)
    rows_shape = Concat<axis = 0>(rows_alone, width)
    flat_shape = Concat<axis = 0>(count_alone, width)
    column = Reshape<allowzero = 1>(index, column_shape)
    columns = Expand(column, rows_shape)
    flat_x = Reshape<allowzero = 1>(x, flat_shape)
    moved = Reshape<allowzero = 1>(updates, rows_shape)
    flat_y = ScatterElements<axis = 0, reduction: string = @reduction>(flat_x, columns, moved)
    y = Reshape<allowzero = 1>(flat_y, shape)
}
"""
"""y[at] = reduction(x[at], updates), one update after the other; slices of x as rows."""

FUNCTIONS = {"Div": DIVISION, "ScatterND": REDUCTION}


def is_fatal(step: Step, inputs: Sequence[Any]) -> bool:
    """Whether ONNX Runtime 1.31 is known to crash the process for operands of these shapes.

    ONNX Runtime crashes for a transposed convolution with three or more spatial axes, one of them
    empty, and for an STFT with frames of length 0.
    """
    if step.domain:
        return False
    if step.op_type == "ConvTranspose":
        space = np.shape(inputs[0])[2:]
        return len(space) > 2 and 0 in space
    if step.op_type == "STFT":
        _, _, window, length = (*inputs, None, None)[:4]
        return np.shape(window) == (0,) or (length is not None and not np.any(length))
    return False


def without_traps(model: onnx.ModelProto, shared: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with functions in place of the operators that are traps; itself if it has none.

    The least integer divided by -1 overflows, which crashes the process: the division here wraps
    around to the least integer, as NumPy does. The threads of ScatterND reduce several updates for
    one place at the same time, so that some updates are lost.
    """
    if not any(map(may_be_trap, nodes(model))):
        return model
    try:
        typed = shape_inference.infer_shapes(model)
    except Exception:  # then the types of few tensors are known
        typed = model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    guarded = _guard(made.graph, typed.graph, shared)
    if not guarded:
        return model
    for op_type in sorted(guarded):
        made.functions.append(onnx.parser.parse_function(FUNCTIONS[op_type]))
        made.functions[-1].opset_import[0].version = opset(model) or 1
    made.opset_import.add(domain=GUARD, version=1)
    return made


def _guard(
    graph: onnx.GraphProto, typed: onnx.GraphProto, shared: Mapping[str, np.ndarray]
) -> set[str]:
    """Guard the traps in a graph, unless known constants make them safe; the guarded operators.

    Subgraphs may use the same names for other tensors.
    """
    types = {value.name: value.type.tensor_type.elem_type
             for value in (*typed.input, *typed.value_info, *typed.output)}  # fmt: skip
    known = {**_stored(graph), **shared}
    guarded = set()
    for node, its in zip(graph.node, typed.node, strict=True):
        for inner, its_inner in zip(subgraphs(node), subgraphs(its), strict=True):
            guarded |= _guard(inner, its_inner, {})
        if may_be_trap(node) and not is_safe(node, types, known):
            node.domain = GUARD
            guarded.add(node.op_type)
    return guarded


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


def may_be_trap(node: onnx.NodeProto) -> bool:
    """Whether a node is a division, or may reduce several slices for one place."""
    if node.domain:
        return False
    reduces = any(a.name == "reduction" and a.s != b"none" for a in node.attribute)
    return node.op_type == "Div" or (node.op_type == "ScatterND" and reduces)


def is_safe(
    node: onnx.NodeProto, types: Mapping[str, int], known: Mapping[str, np.ndarray]
) -> bool:
    """Whether no integer is divided by -1, or all places differ."""
    operand = known.get(node.input[1])
    if node.op_type == "Div":
        whole = types.get(node.output[0], TensorProto.UNDEFINED) in TRAPPED
        return not whole or (operand is not None and not np.any(operand == -1))
    if operand is None or np.any(operand < 0):
        return False
    places = operand.reshape(-1, operand.shape[-1])
    return len(np.unique(places, axis=0)) == len(places)
