"""Check of anybody's derivative: products and gradients of any code, against its values alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from ..jacobians import Jacobian
from ..jacobians.arguments import Natural, validated
from ..jacobians.arrays import floating_dtype
from ..jacobians.errors import InputError
from .interop.operators import asoperator
from .interop.structures import Structure, structure_of
from .linear.check import (
    DIFFERENCES,
    Check,
    Comparison,
    Outcome,
    compare_rows,
    decided,
    dot_error,
    epsilon,
    lines,
    outcome_of,
    random,
    relative,
    tolerances,
    typical_size,
)

Function = Callable[..., Any]

TESTED_ARRAYS = 16
"""Up to this many arrays of x have a test of their own."""


@validated
def check_derivative(
    f: Any, *, jvp: Function | None = None, vjp: Function | None = None,
    grad: Function | None = None, hvp: Function | None = None, at: Any = None, seed: Natural = 0,
) -> Check:  # fmt: skip
    """J v, Jᵀ u, ∇f and H v, as any code computes them, against differences of y = f(x).

    The code may use NumPy, PyTorch, JAX or anything that gives arrays; x is one array, or a list,
    tuple or dict of arrays. What is given is tried on random vectors of the same structure:

    | function | is to be | tests |
    |---|---|---|
    | `jvp(x, v)` | J v, like y | differences of f, linear in v |
    | `vjp(x, u)` | Jᵀ u, like x | differences of ⟨u, f⟩, linear in u, ⟨u, J v⟩ = ⟨Jᵀ u, v⟩ |
    | `grad(x)` | ∇f, like x, of a number f | differences of f |
    | `hvp(x, v)` | H v, like x, of a number f | differences of ∇f and f, linear in v, symmetric |

    The result has a line for each test and is true where all are right. Its `verdict` is `"right"`,
    `"wrong"`, or `"not compared"` where f has a kink or jump at x and beside it, or has other
    values at the same x. Where x has several arrays, each has lines of its own, so that the wrong
    one is named. Tolerances follow the lowest precision of x and y: use double precision where the
    code allows it.

    - `f`: the function, or an operator of SciPy, whose `matvec` and `rmatvec` are then the default
      `jvp` and `vjp`.
    - `jvp`, `vjp`, `grad`, `hvp`: what is checked, as the table says.
    - `at`: x, the point; by default random numbers for an operator of SciPy.
    - `seed`: the seed of the random vectors.

    Shapes: any; a complex number is two real ones, so that the adjoint is conjugate. Raises
    `InputError` where nothing is to be checked, where x has no floating numbers, and where f has
    more than one value for `grad` or `hvp`. An exception in what is checked is a failed test.

    >>> x = np.array([1.0, 2.0, 3.0])
    >>> check_derivative(lambda x: x @ x, grad=lambda x: 2 * x, at=x).verdict
    'right'
    >>> check_derivative(lambda x: x @ x, grad=lambda x: x, at=x).verdict
    'wrong'
    """
    if isinstance(f, LinearOperator):
        A, at = f, random_point(f, seed) if at is None else at
        f, jvp = A.matvec, jvp or (lambda _, v: A.matvec(v))
        vjp = vjp or ((lambda _, u: A.rmatvec(u)) if has_adjoint(A) else None)
    if not callable(f):
        raise InputError(f"f is a function or an operator of SciPy, not {type(f).__name__}")
    if not any((jvp, vjp, grad, hvp)):
        raise InputError("there is nothing to check: give jvp=, vjp=, grad= or hvp=")
    if at is None:
        raise InputError("give the point x by at=")
    inside = structure_of(at, "at=")
    outside = structure_of(f(inside.structured(inside.vector())), "f")
    if (grad or hvp) and outside.sizes != (1,):
        raise InputError(f"grad= and hvp= are for one number, but f gives {outside.text}: check "
                         "jvp= or vjp=")  # fmt: skip
    claim = Claim(f, jvp, vjp, grad, hvp, inside, outside, seed)
    return Check(tuple(tests_of(claim, inside.vector())))


def random_point(A: LinearOperator, seed: int) -> np.ndarray:
    """Random numbers of the type of an operator."""
    rng, dtype = random(seed), floating_dtype(A.dtype or float)
    parts = rng.standard_normal((2, A.shape[1]))
    return (parts[0] + 1j * parts[1] if dtype.kind == "c" else parts[0]).astype(dtype)


def has_adjoint(A: LinearOperator) -> bool:
    """Whether an operator states products with its adjoint."""
    try:
        A.rmatvec(np.zeros(A.shape[0], A.dtype or float))
    except (NotImplementedError, RecursionError):
        return False
    except Exception:  # it states them, and they fail: a test says how
        return True
    return True


@dataclass(frozen=True)
class Claim:
    """A function, and what is said of its derivative, between flat vectors."""

    function: Function
    forward: Function | None
    backward: Function | None
    slope: Function | None
    bend: Function | None
    inside: Structure
    outside: Structure
    seed: int

    @property
    def eps(self) -> float:
        """The largest machine epsilon of x and y."""
        dtypes = (*self.inside.dtypes, *self.outside.dtypes)
        return max(epsilon(np.empty(0, dtype).real.dtype) for dtype in dtypes)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.outside.parts), len(self.inside.parts)

    def f(self, x: np.ndarray) -> np.ndarray:
        return self.outside.flat(self.function(self.inside.structured(x)), "f")

    def J(self, x: np.ndarray) -> Jacobian:
        """The Jacobian that `jvp` and `vjp` state; each may be missing."""
        forward = partial(self._product, self.forward, self.inside, self.outside, "jvp", x)
        backward = partial(self._product, self.backward, self.outside, self.inside, "vjp", x)
        return asoperator(forward, self.shape, adjoint=backward if self.backward else None)

    def H(self, x: np.ndarray) -> Jacobian:
        """The Hessian that `hvp` states, which is symmetric if it is one."""
        product = partial(self._product, self.bend, self.inside, self.inside, "hvp", x)
        return asoperator(product, (self.shape[1],) * 2, adjoint=product)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient that `grad` states, or `vjp`."""
        if self.slope:
            return self.inside.flat(self.slope(self.inside.structured(x)), "grad")
        return np.asarray(self.J(x).T @ np.ones(1))

    def _product(
        self, call: Any, of: Structure, to: Structure, name: str, x: np.ndarray, v: np.ndarray
    ) -> np.ndarray:
        return to.flat(call(self.inside.structured(x), of.structured(v)), name)


@dataclass(frozen=True)
class Moving:
    """δ ↦ g(x + δ), whose entries belong to the arrays that `parts` says."""

    g: Callable[[np.ndarray], np.ndarray]
    x: np.ndarray
    parts: np.ndarray

    def __call__(self, shift: np.ndarray) -> np.ndarray:
        return self.g(self.x + shift)


# -- the tests -------------------------------------------------------------------------------------


def tests_of(claim: Claim, x: np.ndarray) -> Iterator[Outcome]:
    """The tests of all that is stated."""
    fine, _ = tolerances(claim.eps)
    rng = random(claim.seed)
    u, v, w = (rng.standard_normal(n) for n in (*claim.shape, claim.shape[1]))
    if claim.forward:
        yield by_differences(claim, x, DIFFERENCES, partial(of_products, claim, v))
        yield linearity_error("J", claim.J(x), v, w, fine)
    if claim.backward:
        for name, V in directions(claim, v):
            name = f"⟨Jᵀu, v⟩ against differences of ⟨u, f⟩{name}"
            yield by_differences(claim, x, name, partial(of_slopes, claim, u, V))
        yield linearity_error("Jᵀ", claim.J(x).T, u, rng.standard_normal(len(u)), fine)
    if claim.forward and claim.backward:
        name = "dot test ⟨u, Jv⟩ = ⟨Jᵀu, v⟩"
        yield outcome_of(name, lambda: dot_error(claim.J(x), u, v), fine)
    if claim.slope:
        for name, V in directions(claim, v):
            name = f"∇f v against differences of f{name}"
            yield by_differences(claim, x, name, partial(of_slopes, claim, None, V))
    if claim.bend:
        yield from of_hessian(claim, x, v, w)


def of_hessian(claim: Claim, x: np.ndarray, v: np.ndarray, w: np.ndarray) -> Iterator[Outcome]:
    """The tests of H."""
    H, (fine, _) = claim.H(x), tolerances(claim.eps)
    if claim.slope or claim.backward:
        name = "H v against central differences of ∇f"
        yield by_differences(claim, x, name, partial(of_products, claim, v, second=True))
    for name, V in directions(claim, v):
        name = f"vᵀ H v against second differences of f{name}"
        yield by_differences(claim, x, name, partial(of_bends, claim, V))
    yield linearity_error("H", H, v, w, fine)
    yield outcome_of("dot test ⟨w, Hv⟩ = ⟨Hw, v⟩", lambda: dot_error(H, w, v), fine)


def linearity_error(
    name: str, A: Jacobian, v: np.ndarray, w: np.ndarray, allowed: float
) -> Outcome:
    """A (v + 2 w) = A v + 2 A w."""
    title = f"{name} (v + 2 w) against {name} v + 2 {name} w"
    return outcome_of(title, lambda: relative(A @ (v + 2 * w), A @ v + 2 * (A @ w)), allowed)


def directions(claim: Claim, v: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """A random direction, as a matrix of one row, in each array of x, with its name."""
    names, parts = claim.inside.names, claim.inside.parts
    if not 1 < len(names) <= TESTED_ARRAYS:
        yield "", v[None]
        return
    for k, name in enumerate(names):
        if (parts == k).any():
            yield f", along {name}", (v * (parts == k))[None]


Compare = Callable[[np.ndarray], Comparison]


def by_differences(claim: Claim, x: np.ndarray, name: str, compare: Compare) -> Outcome:
    """The outcome at x, and beside it for what is not decided at x."""
    _, allowed = tolerances(claim.eps)
    if relative(claim.f(x), claim.f(x)) > 100 * claim.eps:
        why = "not compared: f has other values at the same x: fix its random draws"
        return Outcome(name, 0.0, allowed, why, compared=False)

    def beside(k: int) -> tuple[None, Any]:
        shift = 1e-2 * typical_size(x) * random(claim.seed + k).standard_normal(len(x))
        return None, x + shift

    def compared(_: None, there: Any) -> Comparison:
        return compare(there)

    return decided(name, compared, None, x, beside, allowed, [])  # type: ignore[arg-type]


def of_products(claim: Claim, v: np.ndarray, x: np.ndarray, second: bool = False) -> Comparison:
    """J v against slopes of f, or H v against slopes of ∇f."""
    _, allowed = tolerances(claim.eps)
    A = claim.H(x) if second else claim.J(x)
    g, parts = (claim.gradient, claim.inside) if second else (claim.f, claim.outside)
    near: Any = Moving(g, x, parts.parts)
    return compare_rows(A, near, v, claim.eps, allowed, claim.seed)


def of_slopes(claim: Claim, u: np.ndarray | None, V: np.ndarray, x: np.ndarray) -> Comparison:
    """⟨Jᵀ u, v⟩ against slopes of ⟨u, f⟩, or without u ∇f v against slopes of f."""
    _, allowed = tolerances(claim.eps)
    g = claim.gradient(x) if u is None else np.asarray(claim.J(x).T @ u)
    weights = np.ones(1) if u is None else u
    noise = claim.eps * float(abs(weights) @ abs(claim.f(x)) + abs(g) @ abs(x))
    return lines(partial(change_along, claim, weights, V, x), V, g, None, (claim.eps, noise),
                 allowed, typical_size(x) * claim.eps ** (1 / 3))  # fmt: skip


def of_bends(claim: Claim, V: np.ndarray, x: np.ndarray) -> Comparison:
    """vᵀ H v against second differences of f."""
    _, allowed = tolerances(claim.eps)
    f = partial(change_along, claim, np.ones(1), V, x)
    images = np.stack([claim.H(x) @ v for v in V])
    h = typical_size(x) * claim.eps ** (1 / 3)
    slopes = (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)
    steep = float(np.max(abs(slopes) / np.linalg.norm(V, axis=1)))
    noise = claim.eps * float(abs(claim.f(x)).max() + steep * np.linalg.norm(x))
    return lines(f, V, images, slopes, (claim.eps, noise), allowed,
                 typical_size(x) * claim.eps ** (1 / 4))  # fmt: skip


def change_along(claim: Claim, u: np.ndarray, V: np.ndarray, x: np.ndarray, h: float) -> np.ndarray:
    """⟨u, f(x + h v)⟩ for every row v of V."""
    return np.array([u @ claim.f(x + h * v) for v in V])
