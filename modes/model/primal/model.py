"""The model that `load` gives: its contents, and how to run them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

import numpy as np
import onnx
import onnx_ir as ir

from ....jacobians import hooks
from ....jacobians.arguments import validated
from ....jacobians.errors import InputError
from ..flow.contents import Contents, Dim, TensorSpec
from ..flow.entries import with_entries
from .evaluate import evaluate, own_memory
from .inputs import Names, check_inputs, correct, mentions_parts, warn_nonfinite

__all__ = ["Dim", "Model", "ModelLike", "TensorSpec"]


@final
class Model(Contents):
    """x ↦ y: a model as `load` gives it, with its tensors by name.

    `load` makes it, from a `model` of onnx_ir and its `limits`.

    Shapes: a `TensorSpec` for each of `inputs`, `outputs`, `initializers` and `intermediates` says
    what the model declares of a tensor.
    """

    @validated
    def run(self, inputs: Any, *, engine: str | None = None) -> dict[str, np.ndarray]:
        """All outputs by name, at the point `inputs`: by name, or an array of a model with one
        input, a list of arrays in the order of the inputs, or the path of an npz file. All
        functions of a point take these.

        - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
          the model.

        Shapes: as the model declares its outputs, a free dimension as the inputs make it. Raises
        `InputError` for an input that is missing or does not fit, `UnknownTensor` for a name that
        the model does not have, `LimitError` where the run needs more than the `Limits` of the
        model; another `OnnxJacError` where an operator fails on its inputs.
        """
        point = check_inputs(self, inputs, keep=False, engine=engine)
        outputs = own_memory(evaluate(self, point, self.outputs, engine=engine), point)
        correct(self, outputs)
        warn_nonfinite(self, outputs, point)
        return outputs

    @validated
    def to_torch(
        self, *, of: Names = None, wrt: Names = None, inputs: Mapping[str, Any] | None = None,
        engine: str | None = None,
    ) -> Callable[..., Any]:  # fmt: skip
        """The model as a function of PyTorch: see `onnxjac.to_torch`.

        - `of`, `wrt`: results and arguments; by default all floating outputs and inputs.
        - `inputs`: values of inputs that stay as they are, by name.
        - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
          the model.

        Shapes: as the model declares its tensors. Raises `InputError` without PyTorch, and where a
        name or a tensor does not fit.
        """
        convert: Callable[..., Callable[..., Any]] = hooks.to_torch
        return convert(self, of=of, wrt=wrt, inputs=inputs, engine=engine)

    @validated
    def to_jax(
        self, *, of: Names = None, wrt: Names = None, inputs: Mapping[str, Any] | None = None,
        engine: str | None = None,
    ) -> Callable[..., Any]:  # fmt: skip
        """The model as a function of JAX: see `onnxjac.to_jax`.

        - `of`, `wrt`: results and arguments; by default all floating outputs and inputs.
        - `inputs`: values of inputs that stay as they are, by name.
        - `engine`: `"jax"`, which is the default.

        Shapes: as the model declares its tensors. Raises `InputError` without JAX, and where a name
        or a tensor does not fit.
        """
        convert: Callable[..., Callable[..., Any]] = hooks.to_jax
        return convert(self, of=of, wrt=wrt, inputs=inputs, engine=engine)

    @validated
    def to_casadi(
        self, *, of: Names = None, wrt: Names = None, inputs: Mapping[str, Any] | None = None,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """y = f(x) as a Function of CasADi, with exact sparse derivatives to second order.

        Forward mode is J V, reverse mode Jᵀ U, and the Jacobian and the Hessian have the sparsity
        of the model, for `nlpsol`, `Opti` and expressions. Needs `onnxjac[casadi]`.

        - `of`, `wrt`: results and arguments; by default all floating outputs and inputs.
        - `inputs`: values of inputs that stay as they are, by name; of inputs in `wrt` an example,
          which a free size needs.
        - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
          the model.

        Shapes: a tensor of rank 2 is a matrix of CasADi, any other a column, its entries row by
        row. Raises `InputError` without CasADi, for a free size without an example, and where a
        name or a tensor does not fit.
        """
        convert: Callable[..., Any] = hooks.to_casadi
        return convert(self, of=of, wrt=wrt, inputs=inputs, engine=engine)


ModelLike: TypeAlias = Model | onnx.ModelProto | ir.Model | str | os.PathLike[str] | bytes
"""A model, or what `load` makes one of: a path or what is in a file."""


def as_model(
    model: ModelLike, *names: Names, wrt: Names = None, straight_through: bool = False
) -> Model:  # fmt: skip
    """The model itself, or what `load` makes of a file, with the parts of tensors that are named,
    and maybe with straight-through estimators.
    """
    unknown = hooks.loaded.dispatch(type(model)) is hooks.loaded.dispatch(object)
    if unknown and not isinstance(model, Model):
        kind = type(model).__name__
        raise InputError(f"a model is what `load` gives, not {kind}: load it first")
    whole: Any = model if isinstance(model, Model) else hooks.loaded(model)
    if any(map(mentions_parts, (*names, wrt))):
        whole = with_entries(whole, names, wrt)
    return whole.estimating if straight_through else whole
