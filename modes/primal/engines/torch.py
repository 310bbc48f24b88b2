"""The primal by PyTorch: the model's steps over tensors of one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def moved(x: Any, there: Place) -> Any:
    """An array as a tensor; few integers may be a shape, and stay."""
    if not hasattr(x, "dtype"):
        return x
    return x if x.dtype.kind in "iu" and x.ndim < 2 and x.size <= SHAPES else there.take(x)
