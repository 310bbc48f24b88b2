"""Frameworks: what other libraries call a model, as something that `read` reads."""

from __future__ import annotations

from typing import Any

from ...jacobians.errors import LoadError
from .examples import Batch
from .jax import function_proto
from .torch import is_module, module_proto


def exported(source: Any, examples: Any, batch: Batch) -> Any:
    """The export of a module or function; of a program that PyTorch exported, the ONNX in it."""
    source = getattr(source, "model_proto", source)
    if is_module(source):
        return module_proto(source, examples, batch)
    if callable(source) and not isinstance(source, type):
        return function_proto(source, examples, batch)
    if examples is not None or batch:
        kind = type(source).__name__
        raise LoadError(
            f"example_inputs and dynamic_batch are for a module or a function, not for a {kind}."
        )
    return source
