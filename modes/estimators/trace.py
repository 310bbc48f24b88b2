"""Trace and diagonal from products with random vectors, or exactly from structure.

XTrace and XDiag share a randomised basis of the range of A and, at no extra cost, the bases that
leave out one probe each. With Y = A Ω = Q R, let sᵢ be the unit vector along R⁻ᵀ eᵢ: then
Q (I - sᵢ sᵢᵀ) Qᵀ projects onto the range of Y without column i. Source: Epperly, Tropp and Webber,
"XTrace: making the most of every sample in stochastic trace estimation", SIAM J. Matrix Anal. Appl.
45, 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ...jacobians.arguments import Natural, Positive, validated
from ...jacobians.arrays import Array, host
from ...jacobians.readings import library_of
from ..resume import ResumeFile
from .estimate import Estimate, Probed, mean_and_error, probing, square
from .exact import PRODUCTS, exact_diagonal, known_diagonal

Found = tuple[Any, Any]
"""Value and standard error."""


@validated
def trace(
    A: Any, *, method: Literal["exact", "xtrace", "hutch++", "hutchinson"] | None = None,
    products: Positive = 60, seed: Natural = 0, progress: bool | None = None,
    resume: ResumeFile | None = None,
) -> Estimate:  # fmt: skip
    """tr A = Σᵢ Aᵢᵢ of a square operator, estimated from at most `products` products.

    XTrace needs at least 4 products and Hutch++ 6; `method="exact"` may take n.

    `method` is `"exact"`, `"xtrace"`, `"hutch++"` or `"hutchinson"`. By default the trace is exact
    where structure or few sparse entries determine it, or where n products suffice; otherwise it is
    XTrace. With m products the standard error falls as 1/√m for Hutchinson and as 1/m for the other
    two, faster if the spectrum decays. The error is itself an estimate: accurate to a factor of two
    with 30 products, and for XTrace, whose samples share a basis, biased low. The trace is a sum:
    divide by n for the mean eigenvalue.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which the work goes on after an interruption.

    Shapes: A is (n, n), the value a number. Raises `InputError` where A is not square or not real,
    and for an unknown `method`. Sources: Hutchinson, 1990; Meyer et al., "Hutch++: optimal
    stochastic trace estimation", 2021; Epperly, Tropp, Webber, "XTrace: making the most of every
    sample in stochastic trace estimation", 2024.

    >>> from onnxjac.jacobians import Diagonal
    >>> trace(Diagonal(np.array([1.0, 2.0, 4.0])))
    7 (exact by structure, 0 products)
    """
    found = estimated(A, "trace", TRACES, method, products, seed, progress, resume)
    return replace(found, value=float(found.value.sum()), error=float(np.sum(host(found.error))))


def hutchinson(P: Probed, products: int) -> Found:
    """tr A = E ωᵀ A ω for a vector ω of random signs."""
    probes = P.signs(P.shape[1], products)
    return mean_and_error((probes * (P @ probes)).sum(0))


def hutchpp(P: Probed, products: int) -> Found:
    """tr A = tr QᵀAQ + E ωᵀ (I - QQᵀ) A (I - QQᵀ) ω, with Q a basis of the range of a sketch of A.

    A third of the products is spent on each part.
    """
    n, third = P.shape[1], max(products // 3, 2)
    Q, _ = P.xp.linalg.qr(P @ P.signs(n, third))
    probes = P.signs(n, third)
    probes -= Q @ (Q.T @ probes)
    value, error = mean_and_error((probes * (P @ probes)).sum(0))
    return (Q * (P @ Q)).sum() + value, error


def xtrace(P: Probed, products: int) -> Found:
    """The mean over i of tr Qᵢᵀ A Qᵢ + ωᵢᵀ (I - QᵢQᵢᵀ) A (I - QᵢQᵢᵀ) ωᵢ, Qᵢ without probe i.

    Half of the products are with the probes and half with the basis; the remainder of each probe is
    scaled to its expected length.
    """
    n = P.shape[1]
    m = min(max(products // 2, 2), n)
    D = deflated(P, P.normal(n, m))
    Z = P @ D.Q
    H = D.Q.T @ Z
    if D.S is None:  # the basis spans the range of A
        value = H.trace()
        return value, D.left(value, P.eps, n**0.5)  # |tr B| ≤ √n ‖B‖_F
    X = D.Q.T @ D.probes
    X -= D.S * (D.S * X).sum(0)  # column i without its component along sᵢ
    rest, image = D.probes - D.Q @ X, D.Y - Z @ X
    scale = (n - m + 1) / (rest**2).sum(0)
    inside = H.trace() - (D.S * (H @ D.S)).sum(0)
    return mean_and_error(inside + scale * (rest * image).sum(0))


@validated
def diagonal(
    A: Any, *, method: Literal["exact", "xdiag"] | None = None, products: Positive = 60,
    seed: Natural = 0, progress: bool | None = None, resume: ResumeFile | None = None,
) -> Estimate:  # fmt: skip
    """(Aᵢᵢ)ᵢ of a square operator, estimated from at most `products` products.

    XDiag needs at least 4 products; `method="exact"` may take n.

    `method` is `"exact"` or `"xdiag"`. By default the diagonal is exact where structure or few
    sparse entries determine it, or where n products suffice; otherwise it is XDiag, whose error has
    the same shape.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which the work goes on after an interruption.

    Shapes: A is (n, n), the value and its error (n,). Raises `InputError` where A is not square or
    not real, and for an unknown `method`. Source: Epperly, Tropp, Webber, "XTrace: making the most
    of every sample in stochastic trace estimation", 2024.

    >>> from onnxjac.jacobians import Dense
    >>> J = Dense(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> diagonal(J.T @ J).value
    array([10., 20.])
    """
    return estimated(A, "diagonal", DIAGONALS, method, products, seed, progress, resume)


def xdiag(P: Probed, products: int) -> Found:
    """The mean over i of diag(Qᵢ Qᵢᵀ A) + ωᵢ ∘ (I - QᵢQᵢᵀ) A ωᵢ, with Qᵢ without probe i.

    Half of the products are with Aᵀ. (I - QᵢQᵢᵀ) A ωᵢ = Q sᵢ (sᵢᵀ rᵢ), rᵢ column i of R.
    """
    n = P.shape[1]
    D = deflated(P, P.signs(n, min(max(products // 2, 2), n)))
    Z = P.adjoint(D.Q)
    inside = (D.Q * Z).sum(1)
    if D.S is None:  # the basis spans the range of A
        return inside, P.zeros(len(inside)) + D.left(inside, P.eps)
    along = D.Q @ D.S
    rest = D.probes * along * (D.S * D.R).sum(0)
    return mean_and_error(inside[:, None] - along * (Z @ D.S) + rest)


Methods = dict[str, tuple[str, Callable[[Probed, int], Found]]]
"""method -> its name in a result, and the estimator; the first one is the default."""

TRACES: Methods = {
    "xtrace": ("XTrace", xtrace), "hutch++": ("Hutch++", hutchpp),
    "hutchinson": ("Hutchinson", hutchinson),
}  # fmt: skip
DIAGONALS: Methods = {"xdiag": ("XDiag", xdiag)}


def estimated(
    A: Any, label: str, methods: Methods, method: str | None, products: int, seed: int,
    progress: bool | None, resume: ResumeFile | None,
) -> Estimate:  # fmt: skip
    """The exact diagonal where that is asked for or takes few products, else by a method."""
    told = {"method": method, "products": products}
    with probing(A, label, progress, seed, resume, **told) as P:
        n = square(P)
        known = known_diagonal(P) if method in (None, "exact") else None
        if method == "exact" or known or (method is None and n <= products):
            entries, how = known or exact_diagonal(P)
            return Estimate(entries, P.zeros(n), P.products, how)
        name, estimator = methods[method or next(iter(methods))]
        value, error = estimator(P, products)
        how = name if np.any(host(error)) else f"{PRODUCTS}, {name}"
        return Estimate(value, error, P.products, how)


@dataclass(frozen=True)
class Deflated:
    """Ω, Y = A Ω = Q R with a basis Q, and the directions sᵢ as columns of S.

    S is None where Q spans the range of A, because the rank of A is below the number of probes, or
    because there are as many probes as columns.
    """

    probes: Array
    Y: Array
    Q: Array
    R: Array
    S: Array | None

    def left(self, value: Any, eps: float, size: float = 1.0) -> float:
        """An estimate of ‖(I - QQᵀ) A‖_F times `size`, for a full Q; 0 at the rounding level.

        The squared norm is E ‖(I - QQᵀ) A ω‖²; the smallest diagonal entry of R is one sample.
        """
        if self.Q.shape[0] == self.Q.shape[1]:
            return 0.0
        found = size * float(abs(self.R.diagonal()).min())
        return found if found > len(self.R.T) * 10 * eps * float(abs(value).max()) else 0.0


def deflated(P: Probed, probes: Array) -> Deflated:
    """Y = A Ω by one product per probe, with its QR decomposition and S."""
    Y = P @ probes
    Q, R = P.xp.linalg.qr(Y)
    size = abs(R.diagonal())
    if Q.shape[0] == Q.shape[1] or size.min() <= len(Y) * P.eps * size.max():
        return Deflated(probes, Y, Q, R, None)
    S = library_of(R).solve_lower(R, P.units(0, len(R), len(R)))
    return Deflated(probes, Y, Q, R, S / (S**2).sum(0) ** 0.5)
