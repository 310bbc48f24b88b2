"""The slope of a model at the best of some steps, for what is smooth, rough, or single."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxjac.modes.model.primal.inputs import is_float
from onnxjac.modes.model.primal.model import Model
from onnxjac.modes.verify.differences import Run, Tensors, central, mismatch

STEPS = (1e-4, 1e-6, 1e-3, 1e-7, 1.0)
"""For a smooth operator, near a kink, for a rough operator, at a kink, for a linear operator."""

SINGLE = (1e-2, 1.0, 1e-1, 1e-3)
"""For operators that compute in single precision."""


def slope_error(
    run: Run, point: Mapping[str, Any], direction: Tensors, pushed: Tensors,
    steps: tuple[float, ...], enough: float,
) -> float:  # fmt: skip
    """The error of `pushed`, J · direction, against the slope at the best of some steps."""
    best = np.inf
    for h in steps:
        slopes = central(run, point, direction, h)
        best = min(best, max(mismatch(dy, slopes[name]) for name, dy in pushed.items()))
        if best <= enough:
            break
    return best


def is_single(model: Model) -> bool:
    """Whether a model in double precision has single precision inside."""
    specs = {**model.inputs, **model.intermediates, **model.outputs}.values()
    return any(s.dtype is not None and is_float(s.dtype) and s.dtype.itemsize < 8 for s in specs)
