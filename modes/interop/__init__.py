"""Operators and models as what other libraries use, each library in a file of its own."""

from .jax import to_jax
from .pylops import to_pylops
from .torch import to_torch

__all__ = ["to_jax", "to_pylops", "to_torch"]
