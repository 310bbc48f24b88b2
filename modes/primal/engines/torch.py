"""The primal by PyTorch: the model's steps over tensors of one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....jacobians.arrays import buffer_of
from ....jacobians.foreign import is_tensor
from ....jacobians.placing import Place
from ...flow.contents import Contents
from ...flow.steps import needed
from ...support.optional import optional
from . import numpy as own

SHAPES = 64
"""The most integers of a vector that are left on the host, where shapes and axes are read."""


def where(engine: str) -> Place:
    """The place of an engine's tensors: `"torch"` is the CPU, `"torch:cuda"` a GPU."""
    optional("torch", "torch")
    from ....ops.torch import place

    return place(engine.partition(":")[2] or "cpu")


def compute(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...], engine: str
) -> dict[str, Any]:
    """The named tensors at the inputs, as tensors; the model keeps its constants on the device."""
    there = where(engine)
    from ....ops.torch import tensors

    held = model.tensors.setdefault(there.name, {})
    for name in needed(model.steps, names, inputs)[1] & model.constants.keys() - held.keys():
        held[name] = moved(model.constants[name], there)
    given = {name: moved(x, there) for name, x in inputs.items()}
    return own.compute(model, given, names, tensors, held)


def results(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...], engine: str
) -> dict[str, Any]:
    """The named tensors as the caller may have them: none shares memory with a constant."""
    there, made = where(engine), compute(model, inputs, names, engine)
    kept = set(map(buffer_of, model.tensors[there.name].values()))
    shared = {name for name, y in made.items() if is_tensor(y) and buffer_of(y) in kept}
    return {name: y.clone() if name in shared else there.take(y) if hasattr(y, "dtype") else y
            for name, y in made.items()}  # fmt: skip


def moved(x: Any, there: Place) -> Any:
    """An array as a tensor; few integers may be a shape, and stay."""
    if not hasattr(x, "dtype"):
        return x
    few = isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.ndim < 2 and x.size <= SHAPES
    return x if few else there.take(x)
