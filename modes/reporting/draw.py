"""A point at random, where nobody gives one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians import Shape
from ...jacobians.errors import InputError, UnknownTensor, closest
from ..model import Model, TensorSpec
from ..naming.names import is_float
from ..support.limits import Limits

Shapes = Mapping[str, Shape]


def draw_inputs(
    model: Model, given: Mapping[str, Any], shapes: Shapes | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """The given inputs, and a random array for every other input of the model.

    Floats are standard normal. Integers are 0 or 1, so that an index stays in range. A dimension
    that the model leaves open is what `shapes` says of that input; failing that, what the same
    symbol is in another input; failing that, 1.
    """
    shapes = shapes or {}
    for name in shapes:
        known_input(model, name)
    sizes = symbol_sizes(model, {**shapes, **{n: np.shape(a) for n, a in given.items()}})
    rng = np.random.default_rng(seed)
    drawn = dict(given)
    for name, spec in model.inputs.items():
        if name not in given and spec.dtype is not None:  # what is no tensor may be left out
            drawn[name] = draw(spec, shapes.get(name), sizes, rng, model.limits)
    return drawn


def known_input(model: Model, name: str) -> None:
    """A shape may be said of an input only."""
    if name not in model.inputs:
        raise UnknownTensor(f"the model has no input {name!r}.{closest(name, model.inputs)}")


def symbol_sizes(model: Model, shapes: Shapes) -> dict[str, int]:
    """The sizes of symbolic dimensions that are settled by inputs of known shape."""
    return {
        dim: size
        for name, spec in model.inputs.items()
        if name in shapes
        for dim, size in zip(spec.shape or (), shapes[name], strict=False)
        if isinstance(dim, str)
    }


def draw(
    spec: TensorSpec, shape: Shape | None, sizes: Mapping[str, int], rng: np.random.Generator,
    limits: Limits,
) -> np.ndarray:  # fmt: skip
    """A random array for one input."""
    if shape is None:
        if spec.shape is None:
            raise InputError(f"the model does not say how many axes {spec.name!r} has: say it")
        shape = tuple(d if isinstance(d, int) else sizes.get(d or "", 1) for d in spec.shape)
    if any(size < 0 for size in shape):
        raise InputError(f"input {spec} has a negative size")
    limits.check("bytes", math.prod(max(n, 1) for n in shape) * 8, f"a random input {spec}")
    return random_array(spec, shape, rng)


def random_array(spec: TensorSpec, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Standard normal floats, integers and bools in {0, 1}; other types must be given."""
    dtype = np.dtype(spec.dtype)
    if is_float(dtype):
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind in "iub" or "int" in dtype.name:  # the narrow integers of ml_dtypes are kind V
        return rng.integers(0, 2, shape).astype(dtype)
    raise InputError(f"no random {dtype} for input {spec.name!r}: give its values")
