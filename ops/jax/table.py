"""The table of kernels over arrays of JAX, and how arrays come from NumPy.

Shapes, axes and other numbers that a kernel decides by stay on the host, as Python's or NumPy's. So
does an array of a dtype that these kernels do not compute with, a constant of this reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from ..library import KernelTable
from ..numbers import table as numbers_table

Array = Any

TABLE = KernelTable()
KERNELS, HOSTED = TABLE.kernels, TABLE.hosted
kernel = TABLE.kernel

DTYPES = frozenset(map(np.dtype, (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
    "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16,
)))  # fmt: skip


NARROW: ContextVar[bool] = ContextVar("NARROW", default=False)
"""Whether 32 bits are the most: for a function that JAX may transpose, outside of our scope, where
a program has not told it to use 64.
"""


def types() -> Any:
    """The scope of the types that are known: of 64 bits, whatever the program has chosen."""
    return jax.enable_x64(not NARROW.get())


@contextmanager
def as_chosen() -> Iterator[None]:
    """Inside, the types are those that the program has chosen for JAX."""
    before = NARROW.set(NARROW.get() or known(np.float64) != np.float64)
    try:
        yield
    finally:
        NARROW.reset(before)


def known(dtype: Any) -> np.dtype:
    """A dtype, or the one that stands for it where 32 bits are the most."""
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def to_jax_array(x: Any) -> Any:
    """An array as one of JAX, concrete also where a function is traced; one of strings, say, as it
    is.
    """
    if not isinstance(x, jax.Array) and np.asarray(x).dtype not in DTYPES:
        return x
    with types(), nullcontext() if has_tracers([x]) else jax.ensure_compile_time_eval():
        made = x if isinstance(x, jax.Array) else jnp.asarray(np.asarray(x))
        return made if made.dtype == known(made.dtype) else made.astype(known(made.dtype))


def has_tracers(inputs: Iterable[Any]) -> bool:
    """Whether some of these, or of the arrays in lists of them, stand for numbers to come."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(list(inputs)))


for name in numbers_table.TENSORS:
    TABLE.share(name)
