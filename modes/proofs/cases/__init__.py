"""The cases of every proof: shapes, axes and attributes, for each operator."""

from . import bodies, classical, elementwise, layout, products, recurrent, reductions, sampling  # noqa: F401  (each adds its own)
from .table import CASES

__all__ = ["CASES"]
