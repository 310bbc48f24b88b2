"""Named: tangents and cotangents by name, and the tensors that they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...jacobians import Shape, prod_text, shape_of, size
from ...jacobians.errors import InputError, UnknownTensor, closest
from ...jacobians.foreign import as_array
from ...jacobians.text import clipped, joined
from ..model import TensorSpec

Specs = tuple[TensorSpec, ...]
"""Tensors in the order in which they are concatenated."""


def find_tensor(
    name: str, specs: tuple[TensorSpec, ...], vertices: Sequence[int]
) -> tuple[int, TensorSpec]:
    """The vertex and the description of a named tensor of one side of J."""
    for spec, vertex in zip(specs, vertices, strict=True):
        if spec.name == name:
            return vertex, spec
    known = [spec.name for spec in specs]
    raise UnknownTensor(f"{name!r} is not on this side of the Jacobian.{closest(name, known)}")


@lru_cache(maxsize=64)
def flat_shape(specs: tuple[TensorSpec, ...]) -> Shape:
    """The shape of some tensors, ravelled and one after the other."""
    return (sum(size(shape_of(spec)) for spec in specs),)


def check_named(tensors: Any) -> None:
    """Tangents and cotangents come by name."""
    if not isinstance(tensors, Mapping):
        kind = type(tensors).__name__
        raise InputError(f"give tensors by name, as a dict from name to array, not {kind}")


def fitting(spec: TensorSpec, tensor: Any, dtype: np.dtype) -> np.ndarray:
    """A tangent or cotangent as an array of the shape that its tensor has."""
    try:
        array = as_array(tensor)
        array = array.astype(dtype, casting="unsafe" if array.dtype.kind in "biu" else "same_kind")
    except (ValueError, TypeError) as error:
        raise InputError(f"the tensor for {spec.name!r} cannot be made of this: {error}") from error
    shape = shape_of(spec)
    if array.shape != shape:
        raise InputError(
            f"the tensor for {spec.name!r} has shape {list(array.shape)}, not {list(shape)}"
        )
    return array


def listed(specs: tuple[TensorSpec, ...], *, shapes: bool = False) -> str:
    """The names of some tensors in one line, of many the first and the last.

    >>> listed((TensorSpec("x", (2, 3), None), TensorSpec("y", (), None)), shapes=True)
    'x 2×3, y 1'
    """

    def text(spec: TensorSpec) -> str:
        name = clipped(spec.name, 40)
        return f"{name} {prod_text(shape_of(spec))}" if shapes else name

    return joined(specs, ", ", text, 80)
