"""The table of kernels over arrays of JAX, and how arrays come from NumPy.

Shapes, axes and other numbers that a kernel decides by stay on the host, as Python's or NumPy's. So
does an array of a dtype that these kernels do not compute with, a constant of this reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from ..library import Table
from ..numbers import table as numbers_table

Array = Any

TABLE = Table()
KERNELS, HOSTED = TABLE.kernels, TABLE.hosted
kernel = TABLE.kernel

DTYPES = frozenset(map(np.dtype, (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
    "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16,
)))  # fmt: skip


def array(x: Any) -> Any:
    """An array as one of JAX, concrete also where a function is traced; one of strings, say, as it
    is.
    """
    if isinstance(x, jax.Array) or np.asarray(x).dtype not in DTYPES:
        return x
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return jnp.asarray(np.asarray(x))


def is_traced(inputs: Iterable[Any]) -> bool:
    """Whether some of these, or of the arrays in lists of them, stand for numbers to come."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(list(inputs)))


for known in numbers_table.TENSORS:
    TABLE.share(known)
