"""The primal by ONNX Runtime: one session for each set of given and wanted tensors."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import numpy as np

from ...jacobians.errors import OnnxJacError
from ..loading.messages import first_line
from ..model import Model
from .cut import cut

KEPT_SESSIONS = 8
Result = TypeVar("Result")


class EngineError(OnnxJacError):
    """ONNX Runtime cannot run this model, or not at this point."""


@cache
def installed() -> bool:
    """Whether ONNX Runtime can be imported."""
    return importlib.util.find_spec("onnxruntime") is not None


def compute(
    model: Model, inputs: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The named tensors at the inputs."""
    if not installed():
        raise EngineError("onnxruntime is not installed: `pip install onnxjac[runtime]`.")
    session = _session(model, frozenset(inputs), names)
    feeds = {value.name: inputs[value.name] for value in session.get_inputs()}
    return _speak(lambda: dict(zip(names, session.run(names, feeds), strict=True)))


def _session(model: Model, given: frozenset[str], names: tuple[str, ...]) -> Any:
    """A session from the model's cache, which drops the one that was not used for longest."""
    sessions, key = model.sessions, (given, names)
    if key in sessions:
        sessions.move_to_end(key)
    else:
        sessions[key] = _speak(lambda: _new_session(model, given, names))
        if len(sessions) > KEPT_SESSIONS:
            sessions.popitem(last=False)
    return sessions[key]


def _new_session(model: Model, given: frozenset[str], names: tuple[str, ...]) -> Any:
    import onnxruntime as ort

    proto, shared = cut(model, given, names)
    options = ort.SessionOptions()
    options.log_severity_level = 4  # its errors come as exceptions, in our words
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in shared.values()]
    options.add_external_initializers(list(shared), values)
    providers = ["CPUExecutionProvider"]
    return ort.InferenceSession(proto.SerializeToString(), options, providers=providers)


def _speak(action: Callable[[], Result]) -> Result:
    """Run an action of ONNX Runtime; its errors carry op and type, but also file names of its own."""
    try:
        return action()
    except Exception as error:
        reason = first_line(error).removeprefix("[ONNXRuntimeError] : ")
        raise EngineError(f"ONNX Runtime refuses: {reason} Try engine='numpy'.") from error
