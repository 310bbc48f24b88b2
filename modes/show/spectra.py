"""Spectra: the largest values from products alone, and pictures of values and of their density."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh, svds

from ...jacobians import Jacobian
from ...jacobians.arguments import Natural, Positive, validated
from ...jacobians.errors import NotConverged
from ...jacobians.progress import Tick, counting
from ...jacobians.progress import progress as watched
from ..estimators import exact
from ..estimators.density import SpectralDensity, spectral_density
from ..estimators.estimate import Probed
from .canvas import TEXT_POINTS, check_jacobian, given_axes, next_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DENSE_SVD_ROWS = 6
"""Up to this many rows or columns the dense SVD is as cheap as the iteration, and takes any k."""

DRAWN_VALUES = 500
"""Up to this many values are all drawn."""


@dataclass(frozen=True)
class Spectrum:
    """Singular values or eigenvalues by magnitude, and how many products with J and Jᵀ they took.

    `why` says what went wrong where there are fewer values than were asked for.
    """

    values: np.ndarray
    products: int
    why: str = ""


def largest_values(
    J: Jacobian, k: int = 5, *, eigenvalues: bool = False, seed: int = 0,
    tick: Tick = lambda n: None,
) -> Spectrum:  # fmt: skip
    """σ₁ ≥ σ₂ ≥ ... ≥ σₖ by `svds`; for a small side, by the dense SVD.

    With `eigenvalues`, for a symmetric J, |λ₁| ≥ |λ₂| ≥ ... ≥ |λₖ| by `eigsh`.

    >>> from onnxjac.jacobians import Diagonal
    >>> largest_values(Diagonal(np.arange(9.0), (9,)), 3).values.round(6)
    array([8., 7., 6.])
    """
    k, n = min(k, *J.shape), min(J.shape)
    if k == 0:
        return Spectrum(np.empty(0), 0)
    P, why, dtype = Probed(J, tick), "", np.result_type(J.dtype, np.float32)  # for ARPACK
    start = np.random.default_rng(seed).standard_normal(max(J.shape)).astype(dtype)
    probe = P @ start[: J.shape[1]]
    if not np.isfinite(probe).all():
        return Spectrum(np.empty(0), P.products, "J holds values that are not finite")
    if not probe.any():  # almost surely J = 0, for which ARPACK finds no Krylov space
        return Spectrum(np.zeros(k), P.products)
    if n > max(DENSE_SVD_ROWS, k):
        values, why = iterated(P, k, eigenvalues, start[:n])
    else:
        values = exact.by_products(P, "eigenvalues" if eigenvalues else "singular values")
    return Spectrum(values[np.argsort(-np.abs(values))][:k], P.products, why)


def iterated(P: Probed, k: int, eigenvalues: bool, v0: np.ndarray) -> tuple[np.ndarray, str]:
    """Values by implicitly restarted Lanczos, and what went wrong."""
    A: Any = LinearOperator(P.shape, P.__matmul__, P.adjoint, P.__matmul__, v0.dtype, P.adjoint)
    try:
        if eigenvalues:
            return np.asarray(eigsh(A, k, v0=v0, return_eigenvectors=False)), ""
        return np.asarray(svds(A, k, v0=v0, return_singular_vectors=False)), ""
    except ArpackNoConvergence as error:
        found = error.eigenvalues if eigenvalues else np.sqrt(np.maximum(error.eigenvalues, 0))
        return found, "the iteration did not converge"
    except ArpackError as error:
        return np.empty(0), str(error)


# -- picture of the values -------------------------------------------------------------------------


@validated
def plot_spectrum(
    J: Jacobian, k: Positive | None = None, *, ax: Axes | None = None, label: str = "",
    seed: Natural = 0, progress: bool | None = None,
) -> Axes:  # fmt: skip
    """σ₁ ≥ σ₂ ≥ … of J, or |λ₁| ≥ |λ₂| ≥ … of a symmetric operator, on a log scale.

    The `k` largest are drawn: by default all where there are at most 500 or where they follow from
    the structure of J, else 20. Negative eigenvalues have their own colour and marker. Values that
    are zero to rounding do not fit on a log scale: the legend counts them. Values are in the units
    of J. Draw several into one `ax`, each with a `label`. `progress` is as for `onnxjac.progress`.

    - `J`: an operator of onnxjac.
    - `seed`: the seed of the start of the iteration.

    Shape: J is (m, n), with m and n at least 1. Raises `InputError` without matplotlib, where `ax`
    is no Axes, for k below 1, and where J is no operator of onnxjac or has no entries;
    `NotConverged` where the iteration for the k largest finds none.
    """
    check_jacobian(J)
    symmetric = J.T is J
    with watched(progress):
        values = found_values(J, k, seed, symmetric)
    ax = given_axes(ax, 3.6)
    from matplotlib.ticker import ScalarFormatter

    draw_values(ax, values, J, "λ" if symmetric else "σ", label)
    name = "magnitude of the eigenvalue |λ|" if symmetric else "singular value σ"
    ax.set(yscale="log", xlabel="index, by magnitude", ylabel=name)
    ax.locator_params(axis="x", integer=True)
    if (limits := ax.get_ylim())[1] < 10 * limits[0]:  # without powers of ten
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.yaxis.set_minor_formatter(ScalarFormatter())
    ax.legend(fontsize=TEXT_POINTS)
    ax.grid(alpha=0.3)
    return ax


def found_values(J: Jacobian, k: int | None, seed: int, symmetric: bool) -> np.ndarray:
    """All values or the k largest, by magnitude."""
    kind: exact.Kind = "eigenvalues" if symmetric else "singular values"
    values, n = exact.spectrum(J, kind), min(J.shape)
    with counting("spectrum", "products") as tick:
        if values is None and n <= max(DRAWN_VALUES, (k or 0) + 1):
            values = exact.by_products(Probed(J, tick), kind)
        if values is None:
            found = largest_values(J, k or 20, eigenvalues=symmetric, seed=seed, tick=tick)
            values = found.values
            if not len(values):
                raise NotConverged(f"no {kind} of {J!r}: {found.why}")
    return values[np.argsort(-np.abs(values), kind="stable")][:k]


def draw_values(ax: Axes, values: np.ndarray, J: Jacobian, symbol: str, label: str) -> None:
    """The positive and the negative values, at their places in the order of magnitude."""
    index = np.arange(1, len(values) + 1)
    rounding = max(J.shape) * float(np.finfo(np.result_type(J.dtype, np.float32)).eps)
    zero = np.abs(values) <= rounding * abs(values[0])
    signs = [(values > 0, "o", "λ > 0"), (values < 0, "v", "λ < 0")]
    for mask, marker, text in [(~zero, "o", "σ")] if symbol == "σ" else signs:
        chosen = mask & ~zero
        if chosen.any():
            ax.plot(index[chosen], np.abs(values[chosen]), marker, color=next_color(ax),
                    markersize=4, label=f"{label} {text}: {chosen.sum()}".strip())  # fmt: skip
    more = [f"{zero.sum()} zero"] * bool(zero.any())
    more += [f"{min(J.shape) - len(values):,} not computed"] * (min(J.shape) > len(values))
    if more:
        ax.plot([], [], " ", label=f"{label} {', '.join(more)}".strip())


# -- picture of the density ------------------------------------------------------------------------


@validated
def plot_density(
    A: Jacobian | SpectralDensity, *, ax: Axes | None = None, label: str = "",
    width: float | None = None, steps: Positive = 40, probes: Positive = 10, seed: Natural = 0,
    progress: bool | None = None,
) -> Axes:  # fmt: skip
    """φ(λ) = (1/n) Σᵢ δ(λ - λᵢ), smoothed by a Gaussian, with ± 2 standard errors as a band.

    `A` is a symmetric operator, like a Hessian or a Gauss-Newton matrix, or the result of
    `spectral_density` for one; `steps`, `probes` and `seed` are options of `spectral_density`, and
    `width` is the standard deviation of the Gaussian, by default a hundredth of the range. The
    density is per unit of λ, and on a log scale, since most eigenvalues of a network are nearly
    zero; the axis starts at a tenth of the peak of a single one of the n eigenvalues. Draw
    several into one `ax`, each with a `label`. `progress` is as for `onnxjac.progress`.

    Shape: A is (n, n), with n at least 1. Raises `InputError` without matplotlib, where `ax` is no
    Axes, and where A is not square, real and symmetric.
    """
    with watched(progress):
        if isinstance(A, SpectralDensity):
            rho = A
        else:
            check_jacobian(A)
            rho = spectral_density(A, steps=steps, probes=probes, seed=seed)
    low, high = float(rho.nodes.min()), float(rho.nodes.max())
    sigma = width or max(high - low, 1e-12) / 100
    grid = np.linspace(low - 5 * sigma, high + 5 * sigma, 600)
    found = rho(grid, width=sigma)
    floor = 0.1 / (rho.n * sigma * np.sqrt(2 * np.pi))
    ax = given_axes(ax, 3.6)
    floor = min([floor, *(ax.get_ylim()[:1] if ax.lines else ())])
    ax.set_yscale("log")
    (line,) = ax.plot(grid, np.maximum(found.value, floor / 10), label=label or rho.method,
                      color=next_color(ax))  # fmt: skip
    if np.any(found.error):  # an estimate
        band = (np.maximum(found.value + k * found.error, floor / 10) for k in (-2, 2))
        ax.fill_between(grid, *band, color=line.get_color(), alpha=0.3, linewidth=0)
    ax.set(xlabel="eigenvalue λ", ylabel="density per unit of λ")
    ax.set_ylim(bottom=floor)
    ax.legend(fontsize=TEXT_POINTS)
    ax.grid(alpha=0.3)
    return ax
