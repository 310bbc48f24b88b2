"""Operators and models as functions of other libraries, one file per library."""

from .functions import to_pylops
from .jax import to_jax
from .torch import to_torch

__all__ = ["to_jax", "to_pylops", "to_torch"]
