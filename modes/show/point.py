"""Point: the model and the point of a command, with random inputs where none are given."""

from __future__ import annotations

import math
import zipfile
import zlib
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians import Shape
from ...jacobians.errors import InputError, OnnxJacError, UnknownTensor, closest, first_line
from ..linear.linearization import Linearization
from ..linearize import linearize
from ..model.limits import Limits
from ..model.loading.load import load
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import check_inputs
from ..model.primal.model import Model, TensorSpec
from ..model.primal.names import is_float

Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class At:
    """A model at a point; `given` is the part of the point that a file gave."""

    model: Model
    point: dict[str, Any]
    given: dict[str, Any]


def at_point(args: Namespace) -> At:
    """The model of a command, at its `--input`, and at random values for other inputs."""
    model = load(args.model, dtype=args.dtype)
    given = arrays(args.input) if args.input else {}

    def draw(first: int, inner: int) -> dict[str, Any]:
        drawn = draw_inputs(model, given, dict(args.shape), args.seed, first=first, inner=inner)
        return check_inputs(model, drawn)

    return At(model, fitting(model, draw, args.engine), given)


SIZES = (1, 8, 32, 64, 128, 224)
"""Sizes that are tried for axes whose size a model leaves open: first with 1 sample, then for all
of these axes.
"""


def fitting(model: Model, draw: Callable[..., dict[str, Any]], engine: str | None) -> dict:
    """The first point of growing sizes at which the model runs, as convolutions ask for some.

    Raises `InputError`, naming the sizes that were tried, where it runs at none.
    """
    least, other = draw(SIZES[0], SIZES[0]), draw(SIZES[1], SIZES[1])
    names = [n for n, x in least.items() if np.shape(x) != np.shape(other[n])]
    if not names:  # the model, or the caller, states all sizes
        return least
    failed = None
    for first, inner in (*((1, size) for size in SIZES), *((size, size) for size in SIZES[1:])):
        point = draw(first, inner)
        try:
            made = evaluate(model, point, model.outputs, engine=engine)
            if all(np.size(y) for y in made.values()):
                return point
        except OnnxJacError as error:
            failed = failed or first_line(error)
    if all(np.shape(x) == np.shape(least[n]) for n, x in draw(SIZES[0], SIZES[1]).items()):
        return least  # what follows says better why it fails for one sample
    raise InputError(
        f"the model runs at none of the sizes {', '.join(map(str, SIZES))} for the axes that it "
        f"leaves open: give them, by --shape {' --shape '.join(f'{n}=...' for n in names)}"
        f"; {failed or 'all outputs are empty'}"
    )


def jacobian_at(at: At, args: Namespace) -> Linearization:
    """J of `--of` by `--wrt`."""
    return linearize(at.model, at.point, of=args.of, wrt=args.wrt, engine=args.engine)


def arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name."""
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                file.seek(0)
                return dict(np.load(file))
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from error
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path!r} holds what is not a plain array: {error}") from error
    raise InputError(f"{path!r} is not an npz file: np.savez writes them")


def draw_inputs(
    model: Model, given: Mapping[str, Any], shapes: Shapes | None = None, seed: int = 0, *,
    first: int = 1, inner: int = 1,
) -> dict[str, Any]:
    """The given inputs, and a random array for every other input of the model.

    Floats are standard normal. Integers are 0 or 1, so that an index stays in range. The size of a
    dimension that the model leaves open comes from `shapes`; failing that, from another input whose
    shape has the same symbol; failing that, it is `first` for the first axis of an input, and
    wherever else its symbol stands, and `inner` for others.
    """
    shapes = shapes or {}
    for name in shapes:
        if name not in model.inputs:
            raise UnknownTensor(f"the model has no input {name!r}.{closest(name, model.inputs)}")
    known = {**shapes, **{name: np.shape(array) for name, array in given.items()}}
    leading = {spec.shape[0]: first for spec in model.inputs.values() if spec.shape}
    sizes = leading | {
        dim: size for name, spec in model.inputs.items() if name in known
        for dim, size in zip(spec.shape or (), known[name], strict=False) if isinstance(dim, str)
    }  # fmt: skip
    rng = np.random.default_rng(seed)
    return dict(given) | {
        name: draw(spec, shapes.get(name), sizes, rng, model.limits, first, inner)
        for name, spec in model.inputs.items()
        if name not in given and spec.dtype is not None  # only tensors have a dtype
    }


def draw(
    spec: TensorSpec, shape: Shape | None, sizes: Mapping[str, int], rng: np.random.Generator,
    limits: Limits, first: int = 1, inner: int = 1,
) -> np.ndarray:  # fmt: skip
    """A random array for one input."""
    if shape is None:
        if spec.shape is None:
            raise InputError(f"the model does not say how many axes {spec.name!r} has: say it")
        shape = tuple(d if isinstance(d, int) else sizes.get(d or "", inner if axis else first)
                      for axis, d in enumerate(spec.shape))  # fmt: skip
    if any(size < 0 for size in shape):
        raise InputError(f"input {spec} has a negative size")
    limits.check("bytes", math.prod(max(n, 1) for n in shape) * 8, f"a random input {spec}")
    dtype = np.dtype(spec.dtype)
    if is_float(dtype):
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind in "iub" or "int" in dtype.name:  # the narrow integers of ml_dtypes are kind V
        return rng.integers(0, 2, shape).astype(dtype)
    raise InputError(f"no random {dtype} for input {spec.name!r}: give its values")
