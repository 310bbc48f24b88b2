"""``oj.load``: from a file to a model that rules can read."""

from __future__ import annotations

from typing import Any

from ..jacobians.errors import LoadError
from .loading.examples import Batch
from .loading.frameworks import exported
from .loading.precision import to_double
from .loading.read import read
from .loading.upgrade import upgrade
from .loading.weights import attach, detach
from .model import Model


def load(
    source: Any, *, dtype: Any = None, example_inputs: Any = None, dynamic_batch: Batch = False
) -> Model:
    """The model in a path, bytes, ModelProto or onnx_ir.Model; the source is left as it is.

    Model-local functions are inlined, an opset below 21 is raised to 21, and operators that have a
    function body but no rule are replaced by that body. Every tensor keeps its name.
    ``dtype="float64"`` raises all floating-point tensors, weights and casts to double precision.

    A `torch.nn.Module` or a JAX function is exported first, at ``example_inputs``: a tuple of
    arguments, one array, or a dict by name. Inputs are named as in the function's signature,
    weights as in the module (``"fc1.weight"``), arrays in a nest ``"params.fc1.w"``. A module is
    exported in evaluation, with its weights as they are now. Shapes are those of the examples, but
    for the first axis with ``dynamic_batch=True``, or that of the arguments which it names.
    Raises `LoadError` for what cannot be read or exported. Needs ``onnxjac[torch]``, or
    ``onnxjac[jax2onnx]``.
    """
    if dtype is not None and getattr(dtype, "__name__", str(dtype)) != "float64":
        raise LoadError(f"dtype={dtype!r} is not offered: leave it out, or say dtype='float64'.")
    proto, weights = detach(read(exported(source, example_inputs, dynamic_batch)))
    model = attach(upgrade(proto), weights)
    return Model(model if dtype is None else to_double(model))
