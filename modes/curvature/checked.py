"""Checked: tests of a symmetric operator that do not need to know how it was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...jacobians import Jacobian, hooks
from ...jacobians.conditions import Condition
from ...jacobians.products import Product, factors_of
from ...jacobians.sums import terms_of
from ..hessian import Hessian, by_values
from ..linear import check
from ..linear.linearization import Linearization
from ..linear.symmetric import Curvature
from .gauss_newton import LossHessian

CHECK_VECTORS = 8
"""The number of random vectors that are tried."""


@hooks.check.register(Curvature)
def check_curvature(C: Curvature, seed: int = 0) -> check.Check:
    """Tests with random vectors drawn from `seed`; an exception inside counts as a failure.

    - dot test: ⟨u, C v⟩ = ⟨C u, v⟩;
    - C V against the products of its columns;
    - the matrices C.toarray() and C.tosparse() and the diagonal against products, where C is small;
    - vᵀ C v ≥ 0 where it must hold, before damping: for J Jᵀ and Fisher matrices, and for
      Jᵀ H J where no wᵀ H w was found to be negative;
    - J v against central differences of the model, for every J in C;
    - for a Gauss-Newton matrix, the loss Hessian H against central differences of the gradient,
      and both against differences of the values of the loss.
    """
    rng = check.random(seed)
    u, v = (rng.standard_normal(C.shape[0]).astype(C.dtype) for _ in range(2))
    V = rng.standard_normal((C.shape[1], check.several(C, 3))).astype(C.dtype)
    fine, _ = check.tolerances(check.epsilon(C.dtype))
    tests: list[check.Test] = [
        ("dot test ⟨u, Cv⟩ = ⟨Cu, v⟩", lambda: check.dot_error(C, u, v)),
        ("C V against its columns C v", lambda: check.column_error(C, V)),
    ]
    made = origin(C)
    if is_semidefinite(made, seed):
        tests.append(("vᵀ C v ≥ 0", partial(negativity, made, seed)))
    products = (check.outcome_of(name, error, fine) for name, error in tests)
    models = (check.differences(J, seed) for J in find_linearizations(made))
    found = (
        *products,
        *check.compare_entries(C, seed, fine, "C"),
        *models,
        *against_gradient(made, seed),
    )
    return check.Check(found)


def is_semidefinite(C: Jacobian, seed: int) -> bool:
    """Whether C is known to have no negative eigenvalue."""
    factors, H = factors_of(inner(C)), middle_of(C)
    if maker(C)[0] in ("fisher", "empirical_fisher"):
        return True
    if len(factors) == 2 and (factors[0].T is factors[1] or factors[1].T is factors[0]):
        return True
    return H is not None and negativity(H, seed) <= check.tolerances(check.epsilon(H.dtype))[0]


def negativity(C: Jacobian, seed: int) -> float:
    """The largest -vᵀ C v / ‖v‖ ‖C v‖ over some random v, or 0 if all are negative."""
    shape = C.shape[1], check.several(C, CHECK_VECTORS)
    V = check.random(seed).standard_normal(shape).astype(C.dtype)
    V, images = V.astype(np.float64), np.asarray(C @ V, np.float64)
    sizes = np.linalg.norm(V, axis=0) * np.linalg.norm(images, axis=0)
    forms = np.sum(V * images, axis=0)
    return float(np.max(-forms / np.where(sizes == 0, 1, sizes), initial=0))


def middle_of(C: Jacobian) -> Jacobian | None:
    """H of C = Jᵀ H J; None if C is composed in another way."""
    factors = factors_of(inner(C))
    if len(factors) < 3 or not all(isinstance(factors[k], Linearization) for k in (0, -1)):
        return None
    return Product(factors[1:-1]) if len(factors) > 3 else factors[1]


def against_gradient(C: Any, seed: int) -> Iterator[check.Outcome]:
    """H in Jᵀ H J against the recorded loss Hessian, and the recorded Hessian against differences.

    The recorded Hessian uses no closed form. A reduction only scales H, so products are normalised.
    """
    H, made = middle_of(C), getattr(C.again, "keywords", {}).get("middle")
    if H is None or not isinstance(made, LossHessian):
        return
    J = find_linearizations(C)[0]
    plain = Hessian(made.gradient.linearized(J.point), made.gradient)
    w = check.random(seed).standard_normal(H.shape[1]).astype(H.dtype)
    fine, _ = check.tolerances(check.epsilon(H.dtype))
    yield check.outcome_of("loss Hessian against the recorded one",
                           lambda: check.relative(normalized(H @ w), normalized(plain @ w)),
                           fine)  # fmt: skip
    found = check.differences(plain.J, seed)
    yield replace(found, name=f"H {found.name[2:]} of the gradient")
    yield from by_values(plain, seed)


def normalized(v: np.ndarray) -> np.ndarray:
    """v / ‖v‖, or v if it is 0."""
    norm = float(np.linalg.norm(v.astype(np.float64)))
    return v / norm if norm else v


def origin(C: Jacobian) -> Jacobian:
    """The operator before it was planned, compiled, scaled, cut or damped."""
    again = getattr(C, "again", None)
    while isinstance(again, partial) and again.args and isinstance(again.args[0], Curvature):
        C = again.args[0]
        again = getattr(C, "again", None)
    return C


def inner(C: Jacobian) -> Jacobian:
    """The operator without its names."""
    found = getattr(C, "operator", C)
    return found if isinstance(found, Jacobian) else C


def find_linearizations(C: Jacobian) -> tuple[Linearization, ...]:
    """The Jacobians of a model among the factors, not their transposes."""
    factors = (factor for term in terms_of(inner(C)) for factor in factors_of(term))
    return tuple(J for J in factors if isinstance(J, Linearization) and not J.transposed)


def conditions_of(C: Jacobian) -> Iterator[Condition]:
    """What must be so where the recordings in an operator serve another point."""
    middle = getattr(getattr(C, "again", None), "keywords", {}).get("middle")
    for J in find_linearizations(C):
        yield from J.route.conditions_at(J.point, J.at)
        yield from middle.conditions(J) if isinstance(middle, LossHessian) else ()


def maker(C: Jacobian) -> tuple[str, dict[str, Any]]:
    """The name of the function that made an operator, and its options; empty if unknown."""
    again = getattr(C, "again", None)
    asked = again.keywords.get("asked", {}) if isinstance(again, partial) else {}
    return asked.get("name", ""), {k: x for k, x in asked.items() if k != "name" and x is not None}
