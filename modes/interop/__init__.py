"""Interop: operators and models as functions of other libraries, one file per library."""

from .functions import to_pylops
from .jax import to_jax
from .operators import asoperator
from .torch import to_torch

__all__ = ["asoperator", "to_jax", "to_pylops", "to_torch"]
