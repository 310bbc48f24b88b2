"""``oj.load``: from a file to a model that rules can read."""

from __future__ import annotations

from typing import Any

import onnx

from ....jacobians.errors import LoadError
from ..limits import Limits
from ..primal.model import Model
from .frameworks import Batch, exported
from .precision import to_double
from .read import guard, read, retried
from .tensors import Weights, attach, detach, in_memory
from .upgrade import upgrade

DOUBLE = "float64", "torch.float64"


def load(
    source: Any,
    *,
    dtype: Any = None,
    example_inputs: Any = None,
    dynamic_batch: Batch = False,
    limits: Limits | None = None,
    mmap: bool = False,
) -> Model:
    """The model in a path, bytes, ModelProto or onnx_ir.Model; the source is left as it is.

    Model-local functions are inlined, an opset below 21 is raised to 21, and operators that have a
    function body but no rule are replaced by that body. Every tensor keeps its name.
    ``dtype="float64"`` raises all floating-point tensors, weights and casts to double precision.

    A `torch.nn.Module` or a JAX function is exported first, at ``example_inputs``: a tuple of
    arguments, one array, or a dict by name. Inputs are named as in the function's signature,
    weights as in the module (``"fc1.weight"``), arrays in a nest ``"params.fc1.w"``. A module is
    exported in evaluation mode, with its current weights. Shapes: as in the file, or as in the
    examples, whose first axis is free with ``dynamic_batch=True`` or for the arguments which
    ``dynamic_batch`` names. A ``torch.export.ExportedProgram`` is taken as it is, without examples.

    External weights are read, or with ``mmap=True`` mapped: then they take memory only as far as
    they are needed, and the files must not change while the model is in use.

    `limits` bound the memory and work of the model and its products: see `Limits`.

    - `source`: the path, bytes, model, module or function.

    Raises `LoadError` for a file or module that cannot be read or exported, `LimitError` for one
    that is too large.
    Needs ``onnxjac[torch]``, or ``onnxjac[jax2onnx]``.
    """
    if dtype is not None and getattr(dtype, "__name__", str(dtype)) not in DOUBLE:
        raise LoadError(f"dtype={dtype!r} is not offered: leave it out, or say dtype='float64'.")
    limits = limits or Limits()
    source = exported(source, example_inputs, dynamic_batch)
    proto, weights = retried(source, lambda: parts(source, limits, mmap))
    model = attach(upgrade(proto), weights)
    return Model(model if dtype is None else to_double(model), limits)


def parts(source: Any, limits: Limits, mmap: bool) -> tuple[onnx.ModelProto, Weights]:
    """The model as it is stored, and its weights."""
    proto, weights = detach(read(source, limits))
    guard(proto, limits)
    return proto, weights if mmap else in_memory(weights)
