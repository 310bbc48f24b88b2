"""JAX: a function becomes an ONNX model, by the converter jax2onnx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from ...jacobians.errors import LoadError
from ...jacobians.foreign import as_array
from ..support.optional import optional
from .examples import Batch, arguments_of, batched
from .messages import first_line


def function_proto(function: Callable[..., Any], examples: Any, batch: Batch) -> onnx.ModelProto:
    """The function of its arguments; a nest of arrays becomes inputs such as `params.layer.w`."""
    bound = arguments_of(function, examples)
    dynamic = batched(bound.arguments, batch)
    to_onnx, jax = optional("jax2onnx", "jax2onnx").to_onnx, optional("jax", "jax2onnx")
    paths, tree = jax.tree_util.tree_flatten_with_path(dict(bound.arguments))
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    arrays = [as_array(leaf) for _, leaf in paths]
    double = any(a.dtype == np.float64 for a in arrays) and jax.config.jax_enable_x64

    def flat(*leaves: Any) -> Any:
        bound.arguments.update(tree.unflatten(leaves))
        return function(*bound.args, **bound.kwargs)

    structs = [_struct(jax, name, a, dynamic) for name, a in zip(names, arrays, strict=True)]
    try:
        options = {"input_names": names, "enable_double_precision": double}
        proto: onnx.ModelProto = to_onnx(flat, structs, **options)
        return proto
    except Exception as error:
        name = getattr(function, "__name__", "the function")
        raise LoadError(f"jax2onnx cannot convert {name}: {first_line(error)}") from error


def _struct(jax: Any, name: str, array: np.ndarray, dynamic: frozenset[str]) -> Any:
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    shape: tuple[Any, ...] = array.shape
    if name in dynamic and shape:
        shape = jax.export.symbolic_shape("batch, ...", like=shape)
    return jax.ShapeDtypeStruct(shape, dtype)
