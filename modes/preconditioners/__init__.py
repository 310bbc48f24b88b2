"""Preconditioners: cheap approximations of an inverse, made of what structure tells."""

from .blocks import block_jacobi
from .ilu import ilu
from .jacobi import column_scaling, jacobi
from .kronecker import kronecker
from .nystrom import low_rank_plus_damping

__all__ = [
    "block_jacobi", "column_scaling", "ilu", "jacobi", "kronecker", "low_rank_plus_damping",
]  # fmt: skip
