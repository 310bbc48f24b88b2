"""JAX: each ONNX operator over `jax.Array` and the tracers of JAX.

>>> import jax
>>> from onnxjac.ops.jax import arrays as op
>>> jax.jit(op.MatMul)(jax.numpy.ones((2, 3)), jax.numpy.ones((3, 1))).tolist()
[[3.0], [3.0]]

Numbers of 64 bits are known inside, whatever the program has chosen for itself. An operator that
has no kernel here, or reads numbers to decide a size, runs on the host; while JAX traces there are
no numbers, and `UnsupportedOp` says which operator asks for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
from jax.scipy.linalg import expm, solve_triangular

from ...jacobians import Jacobian, Shape, hooks
from ...jacobians.arrays import Array
from ...jacobians.errors import InputError, UnsupportedOp
from ...jacobians.placing import Place
from ..library import ArrayLibrary
from . import control, layout, pointwise, products  # noqa: F401  (register kernels)
from .table import DTYPES, NARROW, TABLE, as_chosen, has_tracers, known, to_jax_array, types

__all__ = ["Arrays", "arrays"]


def in_double(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method with types of 64 bits, which JAX knows within it only: see `types`."""

    @functools.wraps(method)
    def call(*inputs: Any, **attrs: Any) -> Any:
        with types():
            return method(*inputs, **attrs)

    return call


class Arrays(ArrayLibrary):
    """One method per ONNX operator: inputs by position, attributes by keyword."""

    module, special, kind = jnp, jax.scipy.special, jax.Array
    engine, table, compiles, writes = "jax", TABLE, True, False

    def dtype(self, x: Array) -> np.dtype:
        if x.dtype not in DTYPES:
            raise InputError(f"onnxjac does not compute with arrays of {x.dtype}: convert them")
        return np.dtype(x.dtype)

    def host(self, x: Any) -> np.ndarray:
        if has_tracers([x]):
            raise UnsupportedOp(f"numbers decide here, and {TOLD}")
        return np.asarray(x)

    def knows(self, x: Array) -> bool:
        return not has_tracers([x])

    @contextmanager
    def at_once(self, x: Array) -> Iterator[None]:
        with types(), jax.ensure_compile_time_eval() if self.knows(x) else nullcontext():
            yield

    def is_finite(self, x: Array) -> bool:
        if not self.knows(x):
            return True
        if x.size <= HOST_ENTRIES:
            return bool(np.isfinite(x).all())
        with self.at_once(x):
            return super().is_finite(x)

    @in_double
    def are_finite(self, arrays: Sequence[Array]) -> bool:
        if not all(map(self.knows, arrays)):
            return True
        is_small = sum(x.size for x in arrays) <= HOST_ENTRIES
        return all(map(self.is_finite, arrays)) if is_small else bool(has_finite_sum(arrays))

    @in_double
    def overflows(self, rounded: Array, x: Array) -> bool:
        return not has_tracers([x]) and super().overflows(rounded, x)

    def device(self, x: Array) -> str:
        return ""  # JAX itself moves arrays to those that have a device

    def place_on(self, device: Any) -> Place:
        if device not in ("", PLACE.device):
            raise InputError(f"JAX computes on {PLACE.device!r} here, not on {device!r}: its own "
                             "settings choose the device")  # fmt: skip
        return SINGLE_PLACE if NARROW.get() else PLACE

    def take(self, x: Any, device: Any) -> Any:
        return to_jax_array(x)

    @in_double
    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        try:
            if has_tracers(inputs):
                return super().call(op_type, *inputs, **attrs)
            with jax.ensure_compile_time_eval():  # what is known is no part of a traced function
                return super().call(op_type, *inputs, **attrs)
        except jax.errors.JAXTypeError as error:
            raise UnsupportedOp(f"{op_type} decides by numbers, and {TOLD}") from error

    def by_numbers(
        self, name: str, function: Callable[..., Any], *inputs: Any, **attrs: Any
    ) -> Any:
        if has_tracers(inputs):
            raise UnsupportedOp(f"{name} would run on the host, and {TOLD}")
        return super().by_numbers(name, function, *inputs, **attrs)

    @in_double
    def scanned(self, turn: Any, state: Any, series: Any, backward: bool) -> Any:
        """The final state, and the rows of all iterations; None where no function is traced."""
        is_due = has_tracers((*state, *series))
        return control.scanned(turn, state, series, backward) if is_due else None

    @in_double
    def flow(
        self, op_type: str, attrs: Mapping[str, Any], inputs: Sequence[Any], run: control.Run
    ) -> Any:
        """The outputs of an If, Loop or Scan; None where its bodies are to be run as they are."""
        return control.flow(op_type, attrs, inputs, run)

    def product(self, J: Jacobian, v: Array, columns: Shape) -> Array:
        kind = self.dtype(v)
        dtype = self.promoted(J.dtype, kind)
        if kind == known(kind):  # else v has 64 bits, whatever the program has chosen
            dtype = known(dtype)
        try:
            with as_chosen() if has_tracers([v]) else nullcontext(), types():
                return super().product(J, v, columns).astype(dtype)
        except jax.errors.JAXTypeError as error:
            raise UnsupportedOp(f"a {type(J).__name__} decides by numbers, and {TOLD}") from error

    @in_double
    def cast(self, x: Array, dtype: Any) -> Array:
        return x.astype(known(dtype))

    @in_double
    def full(self, x: Array, shape: Shape, value: Any) -> Array:
        return jnp.full(shape, value, x.dtype)

    @in_double
    def inverse(self, a: Array) -> Array:
        return jnp.linalg.inv(a)

    @in_double
    def exponential(self, a: Array) -> Array:
        return expm(a)

    @in_double
    def solve_lower(self, R: Array, B: Array) -> Array:
        return solve_triangular(R, B, trans=1)


@jax.jit
def has_finite_sum(arrays: Sequence[Array]) -> Array:
    """Whether the sum of all entries is finite."""
    return jnp.isfinite(sum(jnp.sum(x) for x in arrays))


HOST_ENTRIES = 1 << 12
"""The most entries that are looked at on the host: a call of a kernel takes longer."""

TOLD = ("no numbers are known while JAX traces a function: call it outside jit, vmap and grad, or "
        "make what the operator reads a constant of the model")  # fmt: skip


class Generator:
    """Random numbers in double precision, by methods as of NumPy's generators."""

    def __init__(self, seed: int) -> None:
        self.key = jax.random.key(seed)

    @in_double
    def _draw(self, sample: Callable[..., Array], *args: Any) -> Array:
        self.key, key = jax.random.split(self.key)
        return sample(key, *args)

    def standard_normal(self, shape: Shape) -> Array:
        """Independent standard normal numbers."""
        return self._draw(jax.random.normal, shape, np.float64)

    def random(self, shape: Shape) -> Array:
        """Independent numbers, uniform from 0 to 1."""
        return self._draw(jax.random.uniform, shape, np.float64)

    def integers(self, low: int, high: int, shape: Shape) -> Array:
        """Independent whole numbers from low to high, without high."""
        return self._draw(jax.random.randint, shape, low, high, np.int64)


arrays = Arrays()
hooks.jax_trees(arrays)

PLACE = Place("JAX", to_jax_array, arrays, Generator, jnp, jax.default_backend(), to_jax_array)
"""Where JAX computes: the CPU, or whatever it has been told."""

SINGLE_PLACE = replace(PLACE, name="JAX, in 32 bits")
"""The same for arrays of 32 bits at most."""
