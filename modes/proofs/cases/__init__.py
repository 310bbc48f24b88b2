"""The cases of every proof: shapes, axes and attributes, for each operator."""

from . import (  # noqa: F401  (each adds its own)
    bodies,
    classical,
    contrib,
    elementwise,
    layout,
    products,
    recurrent,
    reductions,
    sampling,
)
from .table import CASES

__all__ = ["CASES"]
