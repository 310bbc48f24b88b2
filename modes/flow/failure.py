"""Failure: what a step says that cannot run on what reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...jacobians.errors import LimitError, OnnxJacError
from ...ops import Step
from ..loading.messages import first_line


@contextmanager
def explained(step: Step, values: Mapping[str, Any]) -> Iterator[None]:
    """Whatever goes wrong inside becomes an `OnnxJacError` that names the step and its tensors."""
    try:
        yield
    except LimitError:
        raise
    except OnnxJacError as error:
        raise type(error)(f"{step}: {error}") from error
    except Exception as error:
        raise OnnxJacError(
            f"{step} fails on {_described(step, values)}: {first_line(error)} "
            "Check what reaches it, or try engine='onnxruntime'."
        ) from error


def _described(step: Step, values: Mapping[str, Any]) -> str:
    names = filter(None, step.inputs)
    return ", ".join(f"{name} {_kind(values.get(name))}" for name in names) or "no inputs"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
