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
def sparse(operator: Any, format: str, limit: int, out: Any) -> Any:
    """The operator as a sparse array of SciPy; `modes.sparse` gives the meaning."""
    raise TypeError(f"cannot make {type(operator).__name__} sparse")


@singledispatch
def submatrix(operator: Any, rows: Any, columns: Any) -> Any:
    """The rows and columns that an index picks; `selection` gives the meaning."""
    raise TypeError(f"cannot index {type(operator).__name__}")


@singledispatch
def html(thing: Any) -> str:
    """What a notebook shows; `modes.show.html` gives the meaning."""
    raise TypeError(f"cannot show {type(thing).__name__} as HTML")


class Shown:
    """What shows itself in a notebook."""

    def _repr_html_(self) -> str:
        return html(self)


@singledispatch
def explain(operator: Any, name: str | None = None) -> Any:
    """What an operator is made of, or one of its steps; `modes.show` gives the meaning."""
    raise TypeError(f"cannot explain {type(operator).__name__}")


@singledispatch
def check(operator: Any, seed: int) -> Any:
    """The tests of a symmetric operator; `modes.curvature.checked` gives the meaning."""
    raise TypeError(f"cannot check {type(operator).__name__}")


@singledispatch
def inverse(operator: Any, **options: Any) -> Any:
    """The operator whose product solves with this one; `modes.curvature` gives the meaning."""
    raise TypeError(f"cannot invert {type(operator).__name__}")


@singledispatch
def to_torch(thing: Any, **options: Any) -> Any:
    """The operator or model as a function of PyTorch; `modes.interop` gives the meaning."""
    raise TypeError(f"cannot make {type(thing).__name__} a function of PyTorch")


@singledispatch
def to_jax(thing: Any, **options: Any) -> Any:
    """The operator or model as a function of JAX; `modes.interop` gives the meaning."""
    raise TypeError(f"cannot make {type(thing).__name__} a function of JAX")


@singledispatch
def to_pylops(operator: Any) -> Any:
    """The operator as one of PyLops; `modes.interop` gives the meaning."""
    raise TypeError(f"cannot make {type(operator).__name__} an operator of PyLops")


@singledispatch
def plot(operator: Any, **options: Any) -> Any:
    """The matrix as a picture; `modes.show.plots` gives the meaning."""
    raise TypeError(f"cannot draw {type(operator).__name__}")


@singledispatch
def spy(operator: Any, **options: Any) -> Any:
    """The sparsity as a picture; `modes.show.plots` gives the meaning."""
    raise TypeError(f"cannot draw {type(operator).__name__}")
