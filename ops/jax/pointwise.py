"""y = f(x, ...), entry by entry: arithmetic, logic, comparisons, activations, casts."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..numbers.layout import numpy_dtype
from ..numbers.pointwise import UFUNCS
from ..numbers.table import Kernel
from .table import DTYPES, Array, kernel, known, to_jax_array

for name, ufunc in UFUNCS.items():
    kernel(name)(getattr(jnp, ufunc.__name__))

kernel("Erf", wide=True)(jax.scipy.special.erf)
kernel("Sigmoid", wide=True)(jax.nn.sigmoid)
kernel("Relu")(lambda x: jnp.maximum(x, 0))
kernel("Mod")(lambda a, b, *, fmod=0: jnp.fmod(a, b) if fmod else jnp.mod(a, b))


@kernel("Div")
def div(a: Any, b: Any) -> Array:
    """A / B, rounded towards zero for integers."""
    whole = jnp.issubdtype(jnp.result_type(a, b), jnp.integer)
    return lax.div(*jnp.broadcast_arrays(*meeting(a, b))) if whole else jnp.true_divide(a, b)


@kernel("Pow")
def power(x: Any, y: Any) -> Array:
    """x ** y in the dtype of x; a whole number to a power below 0 by way of a fraction."""
    dtype = jnp.asarray(x).dtype
    if not (jnp.issubdtype(dtype, jnp.integer) and jnp.issubdtype(jnp.result_type(y), jnp.integer)):
        return jnp.power(x, y).astype(dtype)
    fraction = jnp.power(*(jnp.asarray(z, known(np.float64)) for z in (x, y)))
    return jnp.where(y < 0, fraction.astype(dtype), jnp.power(x, jnp.maximum(y, 0)).astype(dtype))


@kernel("Where")
def where(condition: Any, x: Any, y: Any) -> Array:
    """x where the condition holds, else y."""
    return jnp.where(condition, *meeting(x, y))


@kernel("Clip")
def clip(x: Array, low: Any = None, high: Any = None) -> Array:
    """min(max(x, low), high)."""
    above = x if low is None else jnp.maximum(x, low)
    return above if high is None else jnp.minimum(above, high)


def meeting(*operands: Any) -> tuple[Array, ...]:
    """Arrays of one dtype; numbers become arrays of it."""
    dtype = jnp.result_type(*operands)
    return tuple(jnp.asarray(x, dtype) for x in operands)


@kernel("BitShift")
def bit_shift(x: Array, y: Array, *, direction: str) -> Array:
    """x · 2ʸ, or ⌊x / 2ʸ⌋, for numbers without a sign."""
    shift = jnp.left_shift if direction == "LEFT" else jnp.right_shift
    return jnp.where(y < x.dtype.itemsize * 8, shift(x, y), 0)


@kernel("Cast")
def cast(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """x in another dtype; on the host in one that has no kernels here."""
    return converted(x, numpy_dtype(to))


@kernel("CastLike", hosted=True)
def cast_like(x: Array, target: Any, *, saturate: int = 1, round_mode: str = "up") -> Array:
    """x in the dtype of the target, which may be an array on the host."""
    return converted(to_jax_array(x), target.dtype)


def converted(x: Array, dtype: Any) -> Array:
    """x in a dtype that kernels compute with."""
    if np.dtype(dtype) not in DTYPES:
        raise NotImplementedError(f"no kernel over arrays of JAX computes with {dtype}")
    return x.astype(known(dtype))


def folded(pair: Kernel) -> Kernel:
    """The function of two arrays applied to any number of them."""
    return lambda *data: functools.reduce(pair, data)


kernel("Max")(folded(jnp.maximum))
kernel("Min")(folded(jnp.minimum))
kernel("Sum", wide=True)(folded(jnp.add))
kernel("Mean", wide=True)(lambda *data: folded(jnp.add)(*data) / len(data))
