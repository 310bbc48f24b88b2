"""JAX: operators and models as functions that `jit`, `vmap`, `jvp` and `grad` transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ...jacobians import Jacobian, hooks
from ...jacobians.foreign import as_array
from ..model.optional import optional
from ..model.primal.model import Model
from ..model.primal.names import Names
from .functions import Function, Product, Signature


@hooks.to_jax.register(Jacobian)
def _operator(J: Jacobian) -> Callable[[Any], Any]:
    bind, product, jnp = primitive().bind, Product(J), optional("jax.numpy", "jax")
    return lambda v: bind(jnp.asarray(v), function=product)[0]


@hooks.to_jax.register(Model)
def to_jax(
    model: Model,
    *,
    of: Names = None,
    wrt: Names = None,
    inputs: Mapping[str, Any] | None = None,
    engine: str | None = None,
) -> Callable[..., Any]:
    """x ↦ f(x) as a JAX function, computed by ONNX and differentiated by J at x, to any order.

    It takes the tensors of `wrt` in order (by default the floating inputs that `inputs` does not
    fix), and any other input by keyword; it returns the tensors of `of`, as a tuple if several.
    Forward mode is J v, reverse mode Jᵀ u; higher derivatives are recorded as ONNX at each point.
    A jitted function calls back to the CPU; under `vmap` it runs once per sample. Results have 32
    bits unless 64-bit types are enabled in JAX. Needs `onnxjac[jax]`.

    Shapes: arrays in and out have the shapes of the model's tensors. Raises `InputError` without
    JAX, for a name in `wrt` that the model computes, and where an argument does not fit.
    """
    bind, jnp = primitive().bind, optional("jax.numpy", "jax")
    signature = Signature(model, of, wrt, inputs, engine)

    def function(*args: Any, **others: Any) -> Any:
        primal, operands = signature.bind(args, others)
        return signature.result(bind(*map(jnp.asarray, operands), function=primal))

    return function


@cache
def primitive() -> Any:
    """The primitive that calls a `Function`; its derivatives bind it to other functions."""
    p = optional("jax.extend.core", "jax").Primitive("onnxjac")
    ad, batching, mlir = (optional(f"jax.interpreters.{name}", "jax") for name in INTERPRETERS)
    rules = Rules(p, optional("jax", "jax"), ad)
    p.multiple_results = True
    p.def_impl(rules.now)
    p.def_abstract_eval(rules.shaped)
    mlir.register_lowering(p, mlir.lower_fun(rules.later, multiple_results=True))
    ad.primitive_jvps[p], ad.primitive_transposes[p] = rules.jvp, rules.transpose
    batching.primitive_batchers[p] = rules.batch
    return p


INTERPRETERS = ("ad", "batching", "mlir")


class Rules:
    """The rules of the primitive p, whose parameter is the `Function` to call."""

    def __init__(self, p: Any, jax: Any, ad: Any) -> None:
        self.p, self.jax, self.ad = p, jax, ad

    def now(self, *args: Any, function: Function) -> list[Any]:
        """The values at concrete arrays."""
        made = called(function, self.structs(args, function), *args)
        return list(map(self.jax.numpy.asarray, made))

    def later(self, *args: Any, function: Function) -> Any:
        """The values in a compiled program, by a callback."""
        made = self.structs(args, function)
        return self.jax.pure_callback(partial(called, function, made), made, *args)

    def shaped(self, *args: Any, function: Function) -> list[Any]:
        """Shapes and dtypes of the values, as abstract arrays."""
        shaped = self.jax.core.ShapedArray
        return [shaped(s.shape, s.dtype) for s in self.structs(args, function)]

    def structs(self, args: Sequence[Any], function: Function) -> list[Any]:
        """Shapes and dtypes of the values in JAX, which has 64 bits only if they are enabled."""
        specs = function.specs([(a.shape, np.dtype(a.dtype)) for a in args])
        known = self.jax.dtypes.canonicalize_dtype
        return [self.jax.ShapeDtypeStruct(shape, known(dtype)) for shape, dtype in specs]

    def jvp(self, args: Any, tangents: Any, *, function: Function) -> Any:
        """The values and their tangents."""
        v = [self.ad.instantiate_zeros(t) for t in tangents[: function.n]]
        pushed, seeded = function.push(args, v)
        return self.p.bind(*args, function=function), self.p.bind(*seeded, function=pushed)

    def transpose(self, u: Any, *args: Any, function: Function) -> list[Any]:
        """Cotangents of the arguments in which the function is linear; the others are known."""
        u = [self.ad.instantiate_zeros(t) for t in u]
        pulled, seeded = function.transposed(args, u)
        made = self.p.bind(*seeded, function=pulled)
        found = dict(zip(range(*function.linear.indices(len(args))), made, strict=False))
        asked = map(self.ad.is_undefined_primal, args)
        return [found.get(k) if undefined else None for k, undefined in enumerate(asked)]

    def batch(self, args: Any, axes: Any, *, function: Function) -> Any:
        """The values of a batch: in one call if the function is batched, else one by one."""
        pairs = list(zip(args, axes, strict=True))
        moved = [a if k is None else self.jax.numpy.moveaxis(a, k, 0) for a, k in pairs]
        if function.batched:
            return self.p.bind(*moved, function=function), [0] * function.m

        def one(parts: Sequence[Any]) -> Any:
            left = iter(parts)
            every = [a if k is None else next(left) for a, k in zip(moved, axes, strict=True)]
            return self.p.bind(*every, function=function)

        many = [a for a, k in zip(moved, axes, strict=True) if k is not None]
        return self.jax.lax.map(one, many), [0] * function.m


def called(function: Function, structs: Sequence[Any], *args: Any) -> list[np.ndarray]:
    """The values as arrays of the dtypes that JAX expects."""
    values = function(tuple(map(as_array, args)))
    return [np.asarray(value, s.dtype) for value, s in zip(values, structs, strict=True)]
