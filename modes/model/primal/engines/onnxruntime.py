"""The primal by ONNX Runtime: one session for each set of given and wanted tensors."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from .....jacobians.errors import first_line
from .....ops.node import TRAINING, remedy
from ...flow.contents import Contents
from .cut import cut
from .sessions import UPGRADE, EngineError, OutdatedEngine, new_session, runtime

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
    except Exception as error:
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
