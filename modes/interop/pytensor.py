"""PyTensor: models as operators that its `grad`, `jacobian` and `pushforward` differentiate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...jacobians.arguments import validated
from ...jacobians.errors import InputError, optional
from ..model.primal.inputs import Names
from ..model.primal.model import Model, ModelLike
from .functions import Function, Primal, model_function


@validated
def to_pytensor(
    model: ModelLike, *, of: Names = None, wrt: Names = None,
    inputs: Mapping[str, Any] | None = None, engine: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """x ↦ f(x) as a function of PyTensor's variables; PyTensor differentiates it to any order.

    The function takes the tensors of `wrt` in order (by default the floating inputs that `inputs`
    does not fix), and any other input by keyword; and returns the tensors of `of`, as a list if
    several. The pullback is Jᵀ u, the pushforward J v; higher derivatives are recorded as ONNX at
    each point. So a model is a part of a likelihood in PyMC. Needs `onnxjac[pytensor]`.

    - `model`: the model, as `load` gives it.
    - `of`: the results, by name; by default all floating outputs.
    - `inputs`: values of inputs that stay as they are, by name.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: variables in and out have the shapes of the model's tensors. Raises `InputError` without
    PyTensor, for a name in `wrt` that the model computes, where an argument does not fit, and for
    an output whose rank or type the model does not declare.
    """
    Applied, pt = operator_class(), optional("pytensor.tensor", "pytensor")

    def call(primal: Primal, operands: list[Any]) -> Sequence[Any]:
        types = [type_of(pt, primal.model, name) for name in primal.of]
        made: Sequence[Any] = Applied(primal, types)(*operands, return_list=True)
        return made

    return model_function(call, model, of, wrt, inputs, engine)


def type_of(pt: Any, model: Model, name: str) -> Any:
    """The type of a tensor of the model, sizes without a number left open."""
    spec = model.spec(name)
    if spec.dtype is None or spec.shape is None:
        raise InputError(f"{spec}: a variable of PyTensor has a type and a rank, which the model "
                         "does not declare")  # fmt: skip
    sizes = [n if isinstance(n, int) else None for n in spec.shape]
    return pt.TensorType(np.dtype(spec.dtype).name, shape=sizes)


@cache
def operator_class() -> Any:
    """The `Op` that calls a `Function`; its derivatives call others."""
    gradient, pt = (optional(f"pytensor.{part}", "pytensor") for part in ("gradient", "tensor"))
    Op: Any = optional("pytensor.graph.op", "pytensor").Op
    Apply: Any = optional("pytensor.graph.basic", "pytensor").Apply

    def known(seeds: Sequence[Any], of: Sequence[Any]) -> list[Any]:
        """Tangents or cotangents, 0 where nothing is connected."""
        return [pt.zeros_like(x) if isinstance(v.type, gradient.DisconnectedType) else v
                for v, x in zip(seeds, of, strict=False)]  # fmt: skip

    class Applied(Op):
        def __init__(self, function: Function, types: Sequence[Any]) -> None:
            self.function, self.types = function, types

        def make_node(self, *args: Any) -> Any:
            operands = list(map(pt.as_tensor_variable, args))
            return Apply(self, operands, [kind() for kind in self.types])

        def perform(self, node: Any, inputs: Sequence[Any], output_storage: Any) -> None:
            found = self.function(tuple(inputs))
            for cell, y, kind in zip(output_storage, found, self.types, strict=True):
                cell[0] = np.asarray(y, kind.dtype)

        def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
            n = self.function.n
            function, args = self.function.pull(inputs, known(cotangents, outputs))
            slopes = Applied(function, [x.type for x in inputs[:n]])(*args, return_list=True)
            rest = [gradient.grad_undefined(self, k, x) for k, x in enumerate(inputs) if k >= n]
            return [*slopes, *rest]

        def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Any]:
            moved = known(tangents[: self.function.n], inputs)
            function, args = self.function.push(inputs, moved)
            made: list[Any] = Applied(function, self.types)(*args, return_list=True)
            return made

    return Applied
