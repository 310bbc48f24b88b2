"""Hooks: operations of every operator that modules beside and above this one implement."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, Protocol, TypeVar, cast, overload

F = TypeVar("F", bound=Callable[..., Any])


class Hook(Protocol):
    """A function of the type of its first argument."""

    def __call__(self, thing: Any, *args: Any, **options: Any) -> Any: ...

    @overload
    def register(self, kind: type) -> Callable[[F], F]: ...

    @overload
    def register(self, kind: F) -> F: ...

    def dispatch(self, kind: type) -> Callable[..., Any]:
        """The function for a type."""


def hook(refusal: str, doc: str) -> Hook:
    """A single-dispatch function, which raises TypeError for types without a registered method."""

    @singledispatch
    def call(thing: Any, *args: Any, **options: Any) -> Any:
        raise TypeError(f"cannot {refusal.format(type(thing).__name__)}")

    call.__doc__ = doc
    return cast(Hook, call)


multiply = hook("multiply {}", "left · right, simplified: `products`.")
add = hook("add {}", "left + right, simplified: `sums`.")
scale = hook("scale {}", "factor · operator, simplified: `products`.")
wrapped = hook("add {}", "A matrix as an operator: `modes.interop.operators`.")
submatrix = hook("index {}", "The rows and columns that an index picks: `layout`.")
compiled = hook("compile {}", "An operator whose products an engine runs: `modes.linear.products`.")
sparse = hook("make {} sparse", "The operator as a sparse array of SciPy: `modes.sparse`.")
inverse = hook("invert {}", "The operator whose product solves with this one: `modes.solvers`.")
diagonal = hook("find the diagonal of {}", "The diagonal: `modes.estimators.exact`.")
slogdet = hook("find det of {}", "Sign and logarithm of det J: `modes.estimators.exact`.")
eigvalsh = hook("find λ of {}", "The eigenvalues: `modes.estimators.exact`.")
function = hook("find a function of {}", "A function of the matrix: `modes.estimators.exact`.")
svdvals = hook("find σ of {}", "The singular values: `modes.estimators.exact`.")
norm = hook("find the norm of {}", "A norm of the matrix: `modes.estimators.exact`.")
explain = hook("explain {}", "What an operator is made of, or one of its steps: `modes.show`.")
check = hook("check {}", "The tests of a symmetric operator: `modes.curvature.checked`.")
to = hook("move {}", "The operator with its arrays on a device of PyTorch: `modes.interop`.")
to_torch = hook("make {} a function of PyTorch", "The thing for PyTorch: `modes.interop`.")
to_jax = hook("make {} a function of JAX", "The thing for JAX: `modes.interop`.")
to_casadi = hook("make {} a Function of CasADi", "The thing for CasADi: `modes.solvers`.")
jax_trees = hook("make trees for {}", "Register operators as trees of JAX: `modes.interop`.")
to_lineax = hook("make {} an operator of lineax", "The operator for lineax: `modes.interop`.")
to_pylops = hook("make {} an operator of PyLops", "The operator for PyLops: `modes.interop`.")
plot = hook("draw {}", "The matrix as a picture: `modes.show.plots`.")
spy = hook("draw {}", "The sparsity as a picture: `modes.show.plots`.")
view = hook("view {}", "The graph of a model as a page: `modes.show.view`.")
loaded = hook("load a {}", "The model in a file: `modes.model.loading`.")
html = hook("show {} as HTML", "What a notebook shows: `modes.show.html`.")

CLASS_OBSERVERS: list[Callable[[type], None]] = []
"""What is called with each class of operators that is defined from now on."""


class Shown:
    """A base class of objects that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return html(self)
