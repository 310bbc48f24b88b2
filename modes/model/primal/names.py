"""Names: the `wrt` and `of` tensors of a derivative, and tangents and cotangents by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import TensorProto

from ....jacobians import Jacobian, Shape, dtype_of, prod_text, reading, reading_of, shape_of, size
from ....jacobians.arrays import as_array, is_tensor, wide
from ....jacobians.errors import InputError, UnknownTensor, closest
from ....jacobians.text import clipped, joined
from .model import Model, TensorSpec

Names = str | Iterable[str] | None


def names_of(
    model: Model, names: Names, default: dict[str, TensorSpec], role: str
) -> tuple[str, ...]:
    """The named tensors, or all floating tensors of the default; checks that each is floating."""
    if names is None:
        chosen = tuple(name for name, spec in default.items() if may_float(spec))
    else:
        chosen = distinct(names, role)
    if not chosen:
        held = (*model.inputs, *model.initializers, *model.intermediates)
        known = [repr(name) for name in held if may_float(model.spec(name))]
        sides = {"output": model.outputs, "initializer": model.initializers}
        side = next((name for name, of_side in sides.items() if default is of_side), "input")
        none = f"the model has no floating {side}"
        none += f", but {', '.join(map(str, default.values()))}" if default else ""
        why = none if names is None else f"{role} is empty"
        if not known:
            raise InputError(f"{why}; no other tensor is floating either: nothing has a derivative")
        raise InputError(f"{why}: name at least one floating tensor by {role}=, such as "
                         f"{', '.join(known[:8])}")  # fmt: skip
    for name in chosen:
        if not may_float(spec := model.spec(name)):
            raise not_floating(role, name, spec.dtype)
    return chosen


PARAMETERS = "onnxjac.parameters"
"""Key of the metadata with the names of the parameters of a module of PyTorch, one a line."""


def weights_of(model: Model) -> dict[str, TensorSpec]:
    """The initializers; in a file of PyTorch those that are parameters, not buffers or numbers."""
    named = frozenset(model.ir.metadata_props.get(PARAMETERS, "").splitlines())
    found = {name: spec for name, spec in model.initializers.items() if name in named}
    return found or model.initializers


def name_of(model: Model, name: str | None, default: dict[str, TensorSpec], role: str) -> str:
    """The one named tensor, or the only floating tensor of the default."""
    found = names_of(model, name, default, role)
    if len(found) > 1:
        raise InputError(f"{role} is one tensor, not {', '.join(map(repr, found[:8]))}: name it "
                         f"with {role}=")  # fmt: skip
    return found[0]


def check_model(model: Any) -> None:
    """Refuse anything but a loaded model: a file, a module, a result of `onnx.load`."""
    if not isinstance(model, Model):
        raise InputError(f"a model is what `load` gives, not {type(model).__name__}: load it first")


def distinct(names: str | Iterable[str], role: str) -> tuple[str, ...]:
    """The names, checked to be distinct: each tensor has one block of rows or columns."""
    several = isinstance(names, Iterable) and not isinstance(names, str)
    given: list[Any] = list(names) if several else [names]
    for name in given:
        if not isinstance(name, str):
            text = clipped(" ".join(repr(name).split()))
            raise InputError(f"{role} must name tensors of the model, not be {text}")
    if twice := [name for name, count in Counter(given).items() if count > 1]:
        raise InputError(f"{role} names {twice[0]!r} twice: name each tensor once")
    return tuple(given)


def may_float(spec: TensorSpec) -> bool:
    """Whether a tensor is floating, or not known to be anything else."""
    return spec.dtype is None or is_float(spec.dtype)


def not_floating(role: str, name: str, dtype: object) -> InputError:
    """The error for a tensor that has no derivatives."""
    return InputError(
        f"{role}={name!r} is a tensor of {dtype}: only floating tensors have derivatives; "
        f"leave it out, or name another"
    )


def is_float(dtype: np.dtype) -> bool:
    """Whether tangents exist: IEEE floats and bfloat16, not the types that only store numbers."""
    return (dtype.kind == "f" and dtype.itemsize > 1) or dtype.name == "bfloat16"


FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
)
"""ONNX's numbers of the types for which `is_float` is true."""


def unique(name: str, taken: set[str]) -> str:
    """The name, numbered if it is taken; the result is added to `taken`."""
    chosen, k = name, 1
    while chosen in taken:
        chosen, k = f"{name}_{k}", k + 1
    taken.add(chosen)
    return chosen


Specs = tuple[TensorSpec, ...]
"""Tensors in the order in which they are concatenated."""


def find_tensor(name: str, specs: tuple[TensorSpec, ...]) -> tuple[int, TensorSpec]:
    """The place and the spec of a named tensor on one side of J."""
    for place, spec in enumerate(specs):
        if spec.name == name:
            return place, spec
    known = [spec.name for spec in specs]
    raise UnknownTensor(f"{name!r} is not on this side of the Jacobian, which has the tensors that "
                        f"wrt= or of= named.{closest(name, known)}")  # fmt: skip


@lru_cache(maxsize=64)
def flat_shape(specs: tuple[TensorSpec, ...]) -> Shape:
    """The shape of some tensors, ravelled and concatenated."""
    return (sum(size(shape_of(spec)) for spec in specs),)


def check_named(tensors: Any) -> None:
    """Raises `InputError` unless tangents or cotangents are given by name."""
    if not isinstance(tensors, Mapping):
        kind = type(tensors).__name__
        raise InputError(f"give tensors by name, as a dict from name to array, not {kind}")


def fitting(spec: TensorSpec, tensor: Any, dtype: np.dtype) -> Any:
    """A tangent or cotangent as an array of the shape of its tensor; one of PyTorch stays there."""
    try:
        array = tensor if is_tensor(tensor) else as_array(tensor)
        kind = dtype_of(array)
        if kind.kind not in "biu" and not np.can_cast(kind, dtype, "same_kind"):
            raise TypeError(f"{kind} does not become {dtype}")
        array = reading(array).CastLike(array, np.zeros((), dtype))
    except (ValueError, TypeError) as error:
        raise InputError(f"the tensor for {spec.name!r} cannot be made of this: {error}") from error
    shape = shape_of(spec)
    if tuple(array.shape) != shape:
        raise InputError(
            f"the tensor for {spec.name!r} has shape {list(array.shape)}, not {list(shape)}"
        )
    return array


def applied(
    J: Jacobian, tangents: Mapping[str, Any], domain: Specs, codomain: Specs
) -> dict[str, Any]:  # fmt: skip
    """J v for tensors of PyTorch by name, as tensors; tangents that are left out are zero."""
    given = {}
    for name, tangent in tangents.items():
        place, spec = find_tensor(name, domain)
        given[place] = fitting(spec, tangent, wide(J.dtype))
    op = reading_of(*given.values())
    zero = op.CastLike(0.0, next(filter(is_tensor, given.values())))
    sizes = [size(shape_of(spec)) for spec in domain]
    parts = [op.Reshape(given[k], (n,)) if k in given else op.Expand(zero, (n,))
             for k, n in enumerate(sizes)]  # fmt: skip
    product = op.CastLike(J @ op.Concat(*parts, axis=0), np.zeros((), J.dtype))
    made = op.Split(product, tuple(size(shape_of(spec)) for spec in codomain), axis=0)
    return {s.name: op.Reshape(y, shape_of(s)) for s, y in zip(codomain, made, strict=True)}


def listed(specs: tuple[TensorSpec, ...], *, shapes: bool = False) -> str:
    """The names of some tensors in one line; of many tensors, only the first and last names.

    >>> listed((TensorSpec("x", (2, 3), None), TensorSpec("y", (), None)), shapes=True)
    'x 2×3, y 1'
    """

    def text(spec: TensorSpec) -> str:
        name = clipped(spec.name, 40)
        return f"{name} {prod_text(shape_of(spec))}" if shapes else name

    return joined(specs, ", ", text, 80)
