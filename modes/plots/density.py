"""Density: how the eigenvalues of a symmetric operator are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.progress import progress as watched
from ..estimators.density import SpectralDensity, spectral_density
from .canvas import SMALL, axes, check_jacobian, next_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = 600
"""Points of the curve."""


def plot_density(
    A: Jacobian | SpectralDensity,
    *,
    ax: Axes | None = None,
    label: str = "",
    width: float | None = None,
    steps: int = 40,
    probes: int = 10,
    seed: int = 0,
    progress: bool | None = None,
) -> Axes:
    """φ(λ) = (1/n) Σᵢ δ(λ - λᵢ), smoothed by a Gaussian, with ± 2 standard errors as a band.

    A is symmetric, as a Hessian or a Gauss-Newton matrix is, or what `spectral_density` gave for
    one; `steps`, `probes` and `seed` are for that, and `width` is the standard deviation of the
    Gaussian, by default a hundredth of the range. The density is per unit of λ, and on a log scale,
    since most eigenvalues of a network are nearly zero; the axis ends at a tenth of what a single
    one of the n eigenvalues contributes. Draw several into one `ax`, each with a `label`.
    `progress` is as for `onnxjac.progress`.

    Shape: A is (n, n), with n at least 1. Raises `InputError` without matplotlib, where `ax` is no
    Axes, and where A is not square, real and symmetric.
    """
    with watched(progress):
        rho = A if isinstance(A, SpectralDensity) else density_of(A, steps, probes, seed)
    low, high = float(rho.nodes.min()), float(rho.nodes.max())
    sigma = width or max(high - low, 1e-12) / 100
    grid = np.linspace(low - 5 * sigma, high + 5 * sigma, GRID)
    found = rho(grid, width=sigma)
    floor = 0.1 / (rho.n * sigma * np.sqrt(2 * np.pi))
    ax = axes(ax, 3.6)
    draw(ax, grid, found.value, found.error, floor, label or rho.method)
    return ax


def density_of(A: Jacobian, steps: int, probes: int, seed: int) -> SpectralDensity:
    """The density of an operator."""
    check_jacobian(A)
    return spectral_density(A, steps=steps, probes=probes, seed=seed)


def draw(
    ax: Axes, grid: np.ndarray, value: np.ndarray, error: np.ndarray, floor: float, label: str
) -> None:
    """A curve, and a band where it is an estimate."""
    floor = min([floor, *(ax.get_ylim()[:1] if ax.lines else ())])
    ax.set_yscale("log")
    (line,) = ax.plot(grid, np.maximum(value, floor / 10), label=label, color=next_color(ax))
    if np.any(error):
        band = (np.maximum(value + sign * 2 * error, floor / 10) for sign in (-1, 1))
        ax.fill_between(grid, *band, color=line.get_color(), alpha=0.3, linewidth=0)
    ax.set(xlabel="eigenvalue λ", ylabel="density per unit of λ")
    ax.set_ylim(bottom=floor)
    ax.legend(fontsize=SMALL)
    ax.grid(alpha=0.3)
