"""Density: the distribution of the eigenvalues of a symmetric operator, by Lanczos quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians.arguments import Natural, Positive, validated
from ...jacobians.errors import InputError
from ...jacobians.hooks import Shown
from ..interop.operators import asoperator
from ..resume import ResumeFile
from .estimate import Estimate, check_symmetric, mean_and_error, probing, square
from .exact import STRUCTURE, exact_spectrum, of_spectrum
from .lanczos import Rule, ritz


@dataclass(frozen=True)
class SpectralDensity(Shown):
    """φ(t) = (1/n) Σᵢ δ(t - λᵢ), so that ∫ φ = 1, as `nodes` and `weights`, a row for each probe.

    `rho(grid)` is φ smoothed by a Gaussian, with its error, and `rho.quadrature(f)` is
    tr f(A) = n ∫ f φ. An exact density has all n eigenvalues in one row.

    Both errors are the standard error over probes plus an estimate of the quadrature error from the
    last two thirds of the steps. The errors are not bounds: they do not see an eigenvalue that the
    steps missed.

    - `n`: the number of eigenvalues.
    - `products`: the products that it took.
    - `method`: how it was found.
    - `shorter`: the nodes and weights after a third and two thirds of the steps.
    - `eps`: the relative rounding error of one product.
    """

    nodes: np.ndarray
    weights: np.ndarray
    n: int
    products: int
    method: str
    shorter: tuple[Rule, ...] = ()
    eps: float = 0.0

    def __call__(self, grid: Any, *, width: float | None = None) -> Estimate:
        """φ(t) ≈ Σⱼ τⱼ² exp(-(t - θⱼ)²/2σ²) / √(2πσ²) for t on the grid, σ the width.

        The default width is a hundredth of the range of the nodes.
        """
        t = np.asarray(grid, float)
        sigma = width or max(float(np.ptp(self.nodes)), 1e-12) / 100

        def smoothed(nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
            z = (t[:, None, None] - nodes) / sigma
            bumps = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi * sigma**2)
            return np.asarray(np.sum(weights * bumps, axis=-1))

        return self._over_probes(smoothed)

    def quadrature(self, f: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        """tr f(A) = Σᵢ f(λᵢ) = n ∫ f φ: a sum over all eigenvalues.

        `f` takes an array of eigenvalues and is evaluated only at nodes with a nonzero weight.
        """

        def integral(nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
            reached = weights > np.finfo(float).eps
            values = np.zeros_like(nodes)
            values[reached] = f(nodes[reached])
            return np.asarray(self.n * np.sum(weights * values, axis=-1))

        return self._over_probes(integral)

    def _over_probes(self, sampled: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Estimate:
        """The mean over probes, with its error; an exact density has no error."""
        value, error = mean_and_error(sampled(self.nodes, self.weights))
        if self.method.startswith("exact"):
            return Estimate(value, np.zeros_like(value), self.products, self.method)
        first, second = (sampled(*rule).mean(axis=-1) for rule in self.shorter)
        error = error + remaining(first, second, value) + 64 * self.eps * np.abs(value)
        return Estimate(value, error, self.products, self.method)

    def __repr__(self) -> str:
        low, high = self.nodes.min(), self.nodes.max()
        return (f"density of {self.n} eigenvalues, {low:.3g} … {high:.3g} "
                f"({self.method}, {self.products} products)")  # fmt: skip


def remaining(first: Any, second: Any, last: Any) -> Any:
    """An estimate of |Iₖ - I|, from the quadratures after k/3, 2k/3 and k steps; not a bound.

    If |Iⱼ - I| decays as C j^(-p), the two differences to Iₖ determine p and C. For a quadrature
    that converges geometrically, or oscillates, the estimate is too large. If p is below 1/2, or
    cannot be determined, the estimate is four times the larger difference.
    """
    wide, near = np.abs(first - last), np.abs(second - last)
    powers = np.linspace(0.5, 20, 400)
    ratios, parts = (1.5**powers - 1) / (3**powers - 1), 1 / (1.5**powers - 1)
    ratio = np.divide(near, wide, out=np.ones_like(wide), where=wide > 0)
    left = near * np.maximum(np.interp(-ratio, -ratios, parts), 1)
    to_and_fro = (first - last) * (second - last) < 0
    left = np.where(to_and_fro, np.maximum(wide, near), left)
    return np.where(ratio > ratios[0], 4 * np.maximum(wide, near), left)


@validated
def spectral_density(
    A: Any, *, steps: Positive = 50, probes: Positive = 10, exact: bool | None = None,
    seed: Natural = 0, progress: bool | None = None, resume: ResumeFile | None = None,
) -> SpectralDensity:  # fmt: skip
    """φ(t) ≈ mean over v of Σⱼ τⱼ² δ(t - θⱼ): stochastic Lanczos quadrature of a symmetric A.

    Takes steps · probes products, with at least three steps; the basis is fully reorthogonalised,
    so that no eigenvalue appears twice. `exact=True` computes all eigenvalues, `exact=False` an
    estimate; by default they are exact if structure, or at most as many products, determine them.
    Raises `InputError` where A is empty, or not square and symmetric. Sources: Ubaru, Chen and
    Saad, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature", 2017; Lin, Saad and Yang,
    "Approximating spectral densities of large matrices", 2016.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `steps`: the number of Lanczos steps for each probe.
    - `probes`: the number of random vectors.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which the work goes on after an interruption.

    Shapes: A is (n, n), nodes and weights are (probes, steps), or (1, n) if the density is exact.
    """
    told = {"steps": steps, "probes": probes, "exact": exact}
    with probing(A, "spectral density", progress, seed, resume, **told) as P:
        n, most = square(P), np.inf if exact else steps * probes
        if not n:
            raise InputError("an empty operator has no spectral density: it has no eigenvalues")
        found = None if exact is False else exact_spectrum(P, "eigenvalues", most)
        if found:
            values, how = found
            return SpectralDensity(values[None], np.full((1, n), 1 / n), n, P.products, how)
        check_symmetric(P)
        starts = P.signs(n, probes) / n**0.5
        most = min(max(steps, 3), n)
        thirds = (max(most // 3, 1), max(2 * most // 3, 1), most)
        *shorter, (nodes, weights) = ritz(P, starts, thirds)
        return SpectralDensity(
            nodes, weights, n, P.products, "Lanczos quadrature", tuple(shorter), P.eps
        )


@validated
def logdet(
    A: Any, *, steps: Positive = 50, probes: Positive = 10, exact: bool | None = None,
    seed: Natural = 0, progress: bool | None = None, resume: ResumeFile | None = None,
) -> Estimate:  # fmt: skip
    """log det A = tr log A = Σᵢ log λᵢ of a symmetric positive definite operator.

    The natural logarithm; for A + λI of a curvature matrix write `logdet(A + λ * I)`. Products and
    `exact` are as for `spectral_density`. `error` is the standard error over probes plus an
    estimate of the quadrature error, see `SpectralDensity`: the quadrature overestimates log det A,
    by much with few steps at a high condition number.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `steps`: the number of Lanczos steps for each probe.
    - `probes`: the number of random vectors.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which the work goes on after an interruption.

    Shapes: A is (n, n), the value a number. Raises `InputError` where A is not square, real,
    symmetric and positive definite.

    >>> from onnxjac.jacobians import Kron
    >>> logdet(Kron(np.diag([1.0, 2.0]), np.diag([3.0, 5.0]), ()))
    6.80239 (exact by structure, 0 products)
    """
    if getattr(A, "shape", None) == (0, 0):
        return Estimate(0.0, 0.0, 0, STRUCTURE)  # det of an empty matrix is 1
    rho = spectral_density(
        A, steps=steps, probes=probes, exact=exact, seed=seed, progress=progress, resume=resume
    )
    found = rho.quadrature(_log)
    if found.exact:
        of_spectrum(asoperator(A), rho.nodes.ravel())
    return Estimate(float(found.value), float(found.error), found.products, found.method)


def _log(values: np.ndarray) -> np.ndarray:
    """log λ; raises `InputError` where some λ ≤ 0."""
    if values.min() <= 0:
        raise InputError(f"log det needs a positive definite operator: it has λ ≤ {values.min():g}."
                         " Add damping, A + λ * identity_like(A)")  # fmt: skip
    return np.log(values)
