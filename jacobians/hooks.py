"""Hooks: what every operator can do, with a meaning that modules beside and above this one give."""

from __future__ import annotations

from functools import singledispatch
from typing import Any


@singledispatch
def multiply(left: Any, right: Any) -> Any:
    """left · right, simplified; `products` gives the meaning."""
    raise TypeError(f"cannot multiply {type(left).__name__} and {type(right).__name__}")


@singledispatch
def add(left: Any, right: Any) -> Any:
    """left + right, simplified; `sums` gives the meaning."""
    raise TypeError(f"cannot add {type(left).__name__} and {type(right).__name__}")


@singledispatch
def scale(operator: Any, factor: float) -> Any:
    """factor · operator, simplified; `products` gives the meaning."""
    raise TypeError(f"cannot scale {type(operator).__name__}")


@singledispatch
def compiled(operator: Any, engine: str | None, products: int, memory: int | None) -> Any:
    """An operator whose products an engine executes; `modes.products` gives the meaning."""
    raise TypeError(f"cannot compile {type(operator).__name__}")


@singledispatch
def sparse(operator: Any, format: str, limit: int) -> Any:
    """The operator as a sparse array of SciPy; `modes.sparse` gives the meaning."""
    raise TypeError(f"cannot make {type(operator).__name__} sparse")


@singledispatch
def submatrix(operator: Any, rows: Any, columns: Any) -> Any:
    """The rows and columns that an index picks; `selection` gives the meaning."""
    raise TypeError(f"cannot index {type(operator).__name__}")


@singledispatch
def inverse(operator: Any, **options: Any) -> Any:
    """The operator whose product solves with this one; `modes.curvature` gives the meaning."""
    raise TypeError(f"cannot invert {type(operator).__name__}")
