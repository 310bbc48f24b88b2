"""PyTorch: operators and models as functions that autograd and `torch.func` differentiate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...jacobians import Jacobian, hooks
from ...jacobians.arguments import validated
from ...jacobians.arrays import as_array, untraced
from ...jacobians.base import Wrapper
from ...jacobians.errors import optional
from ...jacobians.placing import placed
from ..model.primal.inputs import Names
from ..model.primal.model import Model
from .functions import Function, ProductFunction, model_function


@hooks.to.register(Jacobian)
def _to(J: Jacobian, device: Any) -> Jacobian:
    """J with its arrays on a device of PyTorch."""
    optional("torch", "torch")
    from ...ops.torch import place

    placed(J, there := place(device))
    part: Jacobian | None = J
    while part is not None:
        part._whereabouts = part.T._whereabouts = there
        part = part.operator if isinstance(part, Wrapper) else None
    return J


@hooks.to_torch.register(Jacobian)
def _operator(J: Jacobian) -> Callable[[Any], Any]:
    apply, product = autograd_function().apply, ProductFunction(J)
    return untraced(lambda v: apply(product, own_tensor(v))[0])


@hooks.to_torch.register(Model)
@validated
def to_torch(
    model: Model, *, of: Names = None, wrt: Names = None, inputs: Mapping[str, Any] | None = None,
    engine: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """x ↦ f(x) as a PyTorch function, computed by ONNX and differentiated by J, to any order.

    The function takes the tensors of `wrt` in order (by default the floating inputs that `inputs`
    does not fix), and any other input by keyword; and returns the tensors of `of`, as a tuple if
    several. Backward is Jᵀ u, forward mode J v; higher derivatives are recorded as ONNX at each
    point. Under `vmap` it runs once per sample. CPU only. Needs `onnxjac[torch]`.

    - `model`: the model, as `load` gives it.
    - `of`: the results, by name; by default all floating outputs.
    - `inputs`: values of inputs that stay as they are, by name.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: tensors in and out have the shapes of the model's tensors. Raises `InputError` without
    PyTorch, for a name in `wrt` that the model computes, and where an argument does not fit.
    """
    torch, apply = optional("torch", "torch"), autograd_function().apply

    def call(primal: Function, operands: list[Any]) -> Sequence[Any]:
        values: Sequence[Any] = apply(primal, *map(own_tensor, operands))
        return values

    return untraced(model_function(call, model, of, wrt, inputs, engine, torch.is_grad_enabled))


@cache
def autograd_function() -> Any:
    """The `torch.autograd.Function` that calls a `Function`; its derivatives call others."""
    torch = optional("torch", "torch")
    Base: Any = torch.autograd.Function

    class Applied(Base):
        @staticmethod
        def forward(function: Function, *tensors: Any) -> tuple[Any, ...]:
            made = tuple(map(own_tensor, function(tuple(map(as_array, tensors)))))
            return record_call(lambda *args: Applied.apply(function, *args), tensors, made)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.function, *tensors = inputs
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)

        @staticmethod
        def backward(ctx: Any, *u: Any) -> tuple[Any, ...]:
            saved = ctx.saved_tensors  # which `checkpoint` unpacks once
            function, args = ctx.function.pull(saved, u)
            cotangents = Applied.apply(function, *args)
            return None, *cotangents, *[None] * (len(saved) - len(cotangents))

        @staticmethod
        def jvp(ctx: Any, _: None, *v: Any) -> tuple[Any, ...]:
            x = ctx.saved_tensors[: ctx.function.n]
            seeds = [torch.zeros_like(a) if t is None else t for a, t in zip(x, v, strict=False)]
            function, args = ctx.function.push(ctx.saved_tensors, seeds)
            return Applied.apply(function, *args)

        @staticmethod
        def vmap(info: Any, dims: tuple[Any, ...], function: Function, *tensors: Any) -> Any:
            pairs = list(zip(tensors, dims[1:], strict=True))
            if function.batched:
                ((v, axis),) = pairs
                return Applied.apply(function, v.movedim(axis, 0)), (0,)
            results = [
                Applied.apply(function, *take_sample(pairs, k)) for k in range(info.batch_size)
            ]
            return tuple(map(torch.stack, zip(*results, strict=True))), (0,) * function.m

    return Applied


def record_call(call: Callable[..., Any], tensors: Sequence[Any], made: tuple[Any, ...]) -> Any:
    """The values of a call, as a node of the graph that `make_fx` traces, if it traces one."""
    proxies = optional("torch.fx.experimental.proxy_tensor", "torch")
    if (mode := proxies.get_proxy_mode()) is None:
        return made
    args = tuple(map(mode.tracer.unwrap_proxy, tensors))
    node = mode.tracer.create_proxy("call_function", call, args, {})
    return proxies.track_tensor_tree(made, node, constant=None, tracer=mode.tracer)


def take_sample(pairs: Sequence[tuple[Any, int | None]], k: int) -> list[Any]:
    """Sample k of the tensors that have a batch axis, and the others unchanged."""
    return [t if axis is None else t.select(axis, k) for t, axis in pairs]


def own_tensor(value: Any) -> Any:
    """An array as a tensor that owns its memory; a tensor as it is."""
    torch = optional("torch", "torch")
    if isinstance(value, torch.Tensor):
        return value
    array = as_array(value)
    if array.dtype.name == "bfloat16":  # which PyTorch cannot read from NumPy
        return torch.tensor(array.astype(np.float32)).bfloat16()
    return torch.tensor(array)
