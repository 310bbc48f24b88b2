"""Interop: operators and models as functions of other libraries, one file per library."""

from .functions import to_pylops
from .jax import to_jax
from .openmdao import to_openmdao
from .operators import asoperator
from .petsc import to_petsc
from .pyomo import to_pyomo
from .pytensor import to_pytensor
from .sundials import to_sundials
from .torch import to_torch

__all__ = [
    "asoperator", "to_jax", "to_openmdao", "to_petsc", "to_pylops", "to_pyomo", "to_pytensor",
    "to_sundials", "to_torch",
]  # fmt: skip
