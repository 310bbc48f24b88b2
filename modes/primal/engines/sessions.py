"""Sessions of ONNX Runtime: how all of them are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

CPU = "CPUExecutionProvider"


def new_session(
    proto: onnx.ModelProto,
    shared: Mapping[str, np.ndarray],
    *,
    lean: bool = False,
    provider: str = CPU,
) -> Any:
    """A session of a model, which is given the shared arrays as initializers.

    Its threads spin while it runs, and stop with it: else those of one session would take the
    cores from the next one, as where J and Jᵀ take turns. A `lean` one keeps nothing between runs.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions, not on stderr too
    options.add_session_config_entry("session.force_spinning_stop", "1")
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in shared.values()]
    options.add_external_initializers(list(shared), values)
    if lean:
        keep_nothing(options)
    providers = list(dict.fromkeys((provider, CPU)))
    return ort.InferenceSession(proto.SerializeToString(), options, providers=providers)


def keep_nothing(options: Any) -> None:
    """No arena, no packed weights, and no threads that spin: for many sessions side by side."""
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
