"""Reverse mode: cotangents pulled back through the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Unpack

import numpy as np

from ..jacobians import shape_of
from ..jacobians.arguments import passes_options_to, validated
from ..jacobians.errors import InputError
from ..jacobians.readings import is_kept
from .forward import Tensors
from .gradient import Gradient
from .linear.chained import is_implied
from .linear.linearization import Linearization
from .linearize import Options, linearize
from .model.primal.inputs import Names, names_of
from .model.primal.model import ModelLike, as_model

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The inputs of a model without inputs."""


class Pullback:
    """u ↦ Jᵀ u by name, for a linearised `J`: cotangents of `of` in, cotangents of `wrt` out; any
    number of times.
    """

    def __init__(self, J: Linearization) -> None:
        self.J = J

    def __call__(self, cotangents: Mapping[str, Any] | Any) -> Tensors:
        """A dict by name, or the array alone where there is one output; left-out ones are zero."""
        if not isinstance(cotangents, Mapping):
            names = [spec.name for spec in self.J.codomain]
            if len(names) != 1:
                raise InputError(f"give the cotangents by name, for any of {names}")
            cotangents = {names[0]: cotangents}
        return self.J.T.apply(cotangents)

    def __repr__(self) -> str:
        return f"pullback of {self.J!r}"


@passes_options_to(linearize)
def vjp(
    model: ModelLike,
    primals: Mapping[str, Any] = NOTHING,
    *,
    of: Names = None,
    wrt: Names = None,
    **options: Unpack[Options],
) -> tuple[Tensors, Pullback]:
    """y = f(x) and the pullback u ↦ Jᵀ u, both by name.

    The pullback takes a dict of cotangents u by name, or the array alone where `of` is one tensor.
    A cotangent that is left out is zero. Every call is one product with Jᵀ.

    - `model`: the model, as `load` gives it.
    - `primals`: the point, an array by name for every input; weights may be given too.
    - `of`: the tensors that are differentiated, by name; by default all floating outputs.
    - `wrt`: the tensors to differentiate by, by name; by default all floating inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.
    - `checkpoint`: True, or a number of segments, saves memory by recomputing; see `linearize`.

    Shapes: a cotangent u has the shape of its tensor of `of`, and Jᵀ u has the shapes of the
    tensors of `wrt`. Raises `InputError` where a name, a shape or a dtype does not fit, and
    `UnsupportedOp` for an operator without a rule. The pullback raises `InputError` where a
    cotangent does not fit.
    """
    J = linearize(model, primals, of=of, wrt=wrt, **options)
    return dict(J.primal), Pullback(J)


@dataclass(frozen=True)
class ValueAndGrad:
    """x ↦ f(x), ∇f(x) by the program of a `gradient`: see `value_and_grad`."""

    gradient: Gradient
    over: Callable[..., tuple[Any, Tensors]] | None = None

    def __call__(
        self, inputs: Any = NOTHING, *, reduction: Literal["sum", "mean"] | None = None,
        batch_size: int | None = None, shared: Mapping[str, Any] = NOTHING, comm: Any = None,
    ) -> tuple[Any, Tensors]:  # fmt: skip
        """The number f and ∇f by name, at the point `inputs`, or over data as `hessian` takes it:
        then `reduction` says how the model's loss reduces over samples.
        """
        at_point = isinstance(inputs, Mapping) and batch_size is None and comm is None
        if self.over and not (at_point and not shared):
            return self.over(replace(self, over=None), inputs, reduction, batch_size, shared, comm)
        values, slopes = self.gradient(inputs)
        (f,) = values.values()
        is_number = is_kept(f) and f.shape == ()  # a reshape is a kernel for JAX
        return f if is_number else f.reshape(())[()], slopes

    def __repr__(self) -> str:
        f = self.gradient
        return f"value_and_grad: x ↦ ({f.of[0]}, ∂{f.of[0]}/∂({', '.join(f.wrt)}))"


@validated
def value_and_grad(
    model: ModelLike, *, of: str | None = None, wrt: Names = None, engine: str | None = None,
    straight_through: bool = False,
) -> ValueAndGrad:  # fmt: skip
    """x ↦ (f(x), ∇f(x)), with f the scalar tensor that `of` names: a function of the point.

    Called with the inputs of the model, and the tensors of `wrt` that are no inputs where they
    differ from the model's, it gives f as a number and its gradient by name. The gradient is
    recorded at the first call, as one program for all points of the same shapes; each further call
    is one run of the program. Where control flow that was unrolled, or another choice, depends on
    the numbers of a point, it is recorded at each point.

    - `model`: the model, as `load` gives it.
    - `wrt`: the tensors to differentiate by, by name; by default all floating inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.

    Shapes: each gradient has the shape of its tensor of `wrt`. Raises `InputError` for a name that
    the model does not have; the function raises `InputError` where f has more than one element, for
    which `vjp` takes a cotangent, and where an input does not fit, and `UnsupportedOp` for an
    operator without a rule.
    """
    model = as_model(model, of, wrt=wrt, straight_through=straight_through)
    names = names_of(model, of, model.outputs, "of")
    return ValueAndGrad(
        Gradient(model, names, names_of(model, wrt, model.inputs, "wrt"), None, engine)
    )


@passes_options_to(linearize)
@validated
def grad(
    model: ModelLike,
    inputs: Mapping[str, Any] = NOTHING,
    *,
    of: str | None = None,
    wrt: Names = None,
    **options: Unpack[Options],
) -> Tensors:
    """∇f by name, with f the scalar tensor that `of` names.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `wrt`: the tensors to differentiate by, by name; by default all floating inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.
    - `checkpoint`: True, or a number of segments, saves memory by recomputing; see `linearize`.

    Shapes: each gradient has the shape of its tensor of `wrt`. Raises `InputError` where `of` has
    more than one element, for which `vjp` takes a cotangent, and where a name, a shape or a dtype
    does not fit; `UnsupportedOp` for an operator without a rule.
    """
    if options.keys() <= {"engine"} and not is_implied(inputs):
        return value_and_grad(model, of=of, wrt=wrt, engine=options.get("engine"))(inputs)[1]
    J = linearize(model, inputs, of=of, wrt=wrt, **options)
    if J.shape[0] != 1 or len(J.codomain) != 1:
        shapes = ", ".join(f"{spec.name} {list(spec.shape or ())}" for spec in J.codomain)
        raise InputError(f"grad needs one scalar output, not {shapes}: use vjp with a cotangent")
    (spec,) = J.codomain
    return J.T.apply({spec.name: np.ones(shape_of(spec), J.dtype)})
