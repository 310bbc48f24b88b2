"""Sessions: how sessions of ONNX Runtime are created, run and left by a forked process."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
from collections.abc import Callable, Mapping
from functools import cache, partial
from threading import Thread
from typing import Any
from weakref import WeakSet

import numpy as np
import onnx

from .....jacobians.errors import OnnxJacError, first_line
from .....jacobians.threads import Lock
from .defects import without_traps

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
