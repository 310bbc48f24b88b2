"""``oj.load``: from a file to a model that rules can read."""

from __future__ import annotations

from typing import Any

from ..jacobians.errors import LoadError
from .loading.precision import to_double
from .loading.read import read
from .loading.upgrade import upgrade
from .loading.weights import attach, detach
from .model import Model


def load(source: Any, *, dtype: Any = None) -> Model:
    """The model in a path, bytes, ModelProto or onnx_ir.Model; the source is left as it is.

    Model-local functions are inlined, an opset below 21 is raised to 21, and operators that have a
    function body but no rule are replaced by that body. Every tensor keeps its name.
    ``dtype="float64"`` raises all floating-point tensors, weights and casts to double precision.
    """
    if dtype is not None and getattr(dtype, "__name__", str(dtype)) != "float64":
        raise LoadError(f"dtype={dtype!r} is not offered: leave it out, or say dtype='float64'.")
    proto, weights = detach(read(source))
    model = attach(upgrade(proto), weights)
    return Model(model if dtype is None else to_double(model))
