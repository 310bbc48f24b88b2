"""JAX: operators and models as functions that `jit`, `vmap`, `jvp` and `grad` transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ...jacobians import Jacobian, hooks
from ...jacobians.arguments import validated
from ...jacobians.arrays import as_array
from ...jacobians.errors import optional
from ..model.primal.inputs import Names
from ..model.primal.model import Model
from .functions import Function, Product, function_of


@hooks.to_jax.register(Jacobian)
def _operator(J: Jacobian) -> Callable[[Any], Any]:
    bind, product, jnp = primitive().bind, Product(J), optional("jax.numpy", "jax")
    return lambda v: bind(jnp.asarray(v), function=product)[0]


@hooks.to_jax.register(Model)
@validated
def to_jax(
    model: Model, *, of: Names = None, wrt: Names = None, inputs: Mapping[str, Any] | None = None,
    engine: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """x ↦ f(x) as a JAX function, computed by ONNX and differentiated by J at x, to any order.

    The function takes the tensors of `wrt` in order (by default the floating inputs that `inputs`
    does not fix), and any other input by keyword; and returns the tensors of `of`, as a tuple if
    several. Forward mode is J v, reverse mode Jᵀ u; higher derivatives are recorded as ONNX at each
    point. A jitted function calls back to the CPU; under `vmap` it runs once per sample. Results
    have 32 bits unless 64-bit types are enabled in JAX. Needs `onnxjac[jax]`.

    - `model`: the model, as `load` gives it.
    - `of`: the results, by name; by default all floating outputs.
    - `inputs`: values of inputs that stay as they are, by name.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"` or `"torch"` runs the model.

    Shapes: arrays in and out have the shapes of the model's tensors. Raises `InputError` without
    JAX, for a name in `wrt` that the model computes, and where an argument does not fit.
    """
    bind, jnp = primitive().bind, optional("jax.numpy", "jax")

    def call(primal: Function, operands: list[Any]) -> Sequence[Any]:
        values: Sequence[Any] = bind(*map(jnp.asarray, operands), function=primal)
        return values

    return function_of(call, model, of, wrt, inputs, engine)


@cache
def primitive() -> Any:
    """The primitive that calls a `Function`; its derivatives bind it to other functions."""
    p = optional("jax.extend.core", "jax").Primitive("onnxjac")
    jax, ad, batching, mlir = (
        optional(f"jax{name}", "jax")
        for name in ("", ".interpreters.ad", ".interpreters.batching", ".interpreters.mlir")
    )
    p.multiple_results = True

    def structs(args: Sequence[Any], function: Function) -> list[Any]:
        """Shapes and dtypes of the values in JAX, which has 64 bits only if they are enabled."""
        specs = function.specs([(a.shape, np.dtype(a.dtype)) for a in args])
        known = jax.dtypes.canonicalize_dtype
        return [jax.ShapeDtypeStruct(shape, known(dtype)) for shape, dtype in specs]

    @p.def_abstract_eval
    def shaped(*args: Any, function: Function) -> list[Any]:
        return [jax.core.ShapedArray(s.shape, s.dtype) for s in structs(args, function)]

    @p.def_impl
    def now(*args: Any, function: Function) -> list[Any]:
        """The values at concrete arrays."""
        return list(map(jax.numpy.asarray, called(function, structs(args, function), *args)))

    def later(*args: Any, function: Function) -> Any:
        """The values in a compiled program, by a callback."""
        made = structs(args, function)
        return jax.pure_callback(partial(called, function, made), made, *args)

    def jvp(args: Any, tangents: Any, *, function: Function) -> Any:
        """The values and their tangents."""
        v = [ad.instantiate_zeros(t) for t in tangents[: function.n]]
        pushed, seeded = function.push(args, v)
        return p.bind(*args, function=function), p.bind(*seeded, function=pushed)

    def transpose(u: Any, *args: Any, function: Function) -> list[Any]:
        """Cotangents of the arguments in which the function is linear; the others are known."""
        pulled, seeded = function.transposed(args, [ad.instantiate_zeros(t) for t in u])
        made = p.bind(*seeded, function=pulled)
        found = dict(zip(range(*function.linear.indices(len(args))), made, strict=False))
        return [found.get(k) if ad.is_undefined_primal(a) else None for k, a in enumerate(args)]

    def batch(args: Any, axes: Any, *, function: Function) -> Any:
        """The values of a batch: in one call if the function is batched, else one by one."""
        pairs = list(zip(args, axes, strict=True))
        moved = [a if k is None else jax.numpy.moveaxis(a, k, 0) for a, k in pairs]
        if function.batched:
            return p.bind(*moved, function=function), [0] * function.m

        def one(parts: Sequence[Any]) -> Any:
            left = iter(parts)
            every = [a if k is None else next(left) for a, k in zip(moved, axes, strict=True)]
            return p.bind(*every, function=function)

        many = [a for a, k in zip(moved, axes, strict=True) if k is not None]
        return jax.lax.map(one, many), [0] * function.m

    mlir.register_lowering(p, mlir.lower_fun(later, multiple_results=True))
    ad.primitive_jvps[p], ad.primitive_transposes[p] = jvp, transpose
    batching.primitive_batchers[p] = batch
    return p


def called(function: Function, structs: Sequence[Any], *args: Any) -> list[np.ndarray]:
    """The values as arrays of the dtypes that JAX expects."""
    values = function(tuple(map(as_array, args)))
    return [np.asarray(value, s.dtype) for value, s in zip(values, structs, strict=True)]
