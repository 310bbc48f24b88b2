"""Failure: errors that name the step that failed and its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ....jacobians import dtype_of, shape_of
from ....jacobians.errors import LimitError, OnnxJacError, first_line
from ....ops import Step, find
from .contents import Contents


class NotKept(OnnxJacError):
    """Control flow that cannot be recorded as it is; `output` is the first output of its step."""

    def __init__(self, reason: str, step: Step | None = None) -> None:
        super().__init__(reason)
        self.output = None if step is None else next(filter(None, step.outputs))


class LongLoop(Exception):
    """A loop has more iterations than may be unrolled."""


def note(model: Contents, reason: NotKept) -> None:
    """Unroll the control flow of `reason` from now on; raises `reason` if that does not help."""
    if reason.output is None or reason.output in model.unkept:
        raise reason
    model.unkept[reason.output] = str(reason)


@contextmanager
def kept_whole(step: Step) -> Iterator[None]:
    """Errors inside a step with bodies become a `NotKept` for this step."""
    try:
        yield
    except LimitError:
        raise
    except Exception as error:  # whatever a body does, the control flow can be unrolled
        raise NotKept(first_line(error), step) from error


@contextmanager
def explained(step: Step, values: Mapping[str, Any]) -> Iterator[None]:
    """Errors inside become an `OnnxJacError` that names the step and its tensors."""
    try:
        yield
    except (LimitError, NotKept, LongLoop):
        raise
    except OnnxJacError as error:
        raise type(error)(f"{step}: {error}") from error
    except Exception as error:  # of a kernel, or of a definition that a user declared
        raise OnnxJacError(
            f"{step} fails on {_described(step, values)}: {first_line(error).removesuffix('.')}. "
            f"{_advice(step)}"
        ) from error


def _advice(step: Step) -> str:
    """Advice for the user; a definition from outside this package may itself be at fault."""
    declared = find(step.op_type, step.domain)
    told = declared and getattr(declared.definition, "__module__", None)
    if told and told.partition(".")[0] != __name__.partition(".")[0]:
        return "Its definition may only call what op has, and returns a tuple of outputs."
    return "Check what reaches it, or try engine='onnxruntime'."


def _described(step: Step, values: Mapping[str, Any]) -> str:
    names = filter(None, step.inputs)
    return ", ".join(f"{name} {_kind(values.get(name))}" for name in names) or "no inputs"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)}"
    if getattr(value, "dtype", None) is not None and getattr(value, "shape", None) is not None:
        return f"{dtype_of(value)}{list(shape_of(value))}"  # a value of a graph
    return type(value).__name__
