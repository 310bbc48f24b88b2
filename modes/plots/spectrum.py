"""Spectrum: singular values, or eigenvalues of a symmetric operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from ...jacobians import Jacobian
from ...jacobians.errors import InputError, NotConverged
from ...jacobians.progress import Tick, counting
from ...jacobians.progress import progress as watched
from ..estimators import exact
from ..estimators.estimate import Probed
from ..reporting.spectrum import Counted, largest
from .canvas import SMALL, axes, check_jacobian, next_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALL = 500
"""Up to so many values are all computed."""

SOME = 20
"""So many of the largest, where there are more."""


NAMES = {"σ": "singular value σ", "λ": "magnitude of the eigenvalue |λ|"}


@dataclass(frozen=True)
class Values:
    """Values in order of magnitude, how many there are in all, and what they are."""

    values: np.ndarray
    count: int
    symbol: str
    rounding: float


def plot_spectrum(
    J: Jacobian, k: int | None = None, *, ax: Axes | None = None, label: str = "", seed: int = 0,
    progress: bool | None = None,
) -> Axes:  # fmt: skip
    """σ₁ ≥ σ₂ ≥ … of J, or |λ₁| ≥ |λ₂| ≥ … of a symmetric operator, on a log scale.

    `k` of the largest; by default all where there are no more than 500 or structure tells them,
    else 20. Negative eigenvalues have a colour and a mark of their own. What is zero to
    rounding has no place on a log scale: the legend counts it. Values are in the units of J. Draw
    several into one `ax`, each with a `label`. `progress` is as for `onnxjac.progress`.

    Shape: J is (m, n), with m and n at least 1. Raises `InputError` without matplotlib, where `ax`
    is no Axes, for k below 1, and where J is no operator of onnxjac or has no entries;
    `NotConverged` where the iteration for the k largest does not end.
    """
    check_jacobian(J)
    if k is not None and k < 1:
        raise InputError(f"k={k} values cannot be drawn: it must be 1 or more")
    with watched(progress):
        found = found_values(J, k, seed)
    ax = axes(ax, 3.6)
    draw(ax, found, label)
    ax.set(yscale="log", xlabel="index, by magnitude", ylabel=NAMES[found.symbol])
    ax.locator_params(axis="x", integer=True)
    plain_ticks(ax)
    ax.legend(fontsize=SMALL)
    ax.grid(alpha=0.3)
    return ax


def draw(ax: Axes, found: Values, label: str) -> None:
    """The positive and the negative values, at their places in the order of magnitude."""
    values, index = found.values, np.arange(1, len(found.values) + 1)
    zero = np.abs(values) <= found.rounding * abs(values[0])
    for mask, marker, text in parts(found, zero):
        chosen = mask & ~zero
        if chosen.any():
            ax.plot(index[chosen], np.abs(values[chosen]), marker, color=next_color(ax),
                    markersize=4, label=f"{label} {text}: {chosen.sum()}".strip())  # fmt: skip
    more = [f"{zero.sum()} zero"] * bool(zero.any())
    more += [f"{found.count - len(values):,} not computed"] * (found.count > len(values))
    if more:
        ax.plot([], [], " ", label=f"{label} {', '.join(more)}".strip())


def plain_ticks(ax: Axes) -> None:
    """Numbers as they are, not as powers of ten, within a decade."""
    from matplotlib.ticker import ScalarFormatter

    low, high = ax.get_ylim()
    if high < 10 * low:
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.yaxis.set_minor_formatter(ScalarFormatter())


def parts(found: Values, zero: np.ndarray) -> Iterator[tuple[np.ndarray, str, str]]:
    """Which values have which mark, and what they are."""
    if found.symbol == "σ":
        yield ~zero, "o", "σ"
    else:
        yield found.values > 0, "o", "λ > 0"
        yield found.values < 0, "v", "λ < 0"


def found_values(J: Jacobian, k: int | None, seed: int) -> Values:
    """All values or the largest."""
    symmetric = J.T is J
    solve = exact.eigenvalues if symmetric else exact.singular_values
    values, n = exact.spectrum(J, solve), min(J.shape)
    with counting("spectrum", "products") as tick:
        if values is None and n <= max(ALL, (k or 0) + 1):
            values = exact.by_products(Probed(J, tick), solve)
        if values is None:
            values = (extremes if symmetric else singular)(J, k or SOME, seed, tick)
    values = values[np.argsort(-np.abs(values), kind="stable")][:k]
    rounding = max(J.shape) * float(np.finfo(np.result_type(J.dtype, np.float32)).eps)
    return Values(values, n, "λ" if symmetric else "σ", rounding)


def singular(J: Jacobian, k: int, seed: int, tick: Tick) -> np.ndarray:
    """The k largest singular values."""
    found = largest(J, k, seed=seed, tick=tick)
    if not len(found.values):
        raise NotConverged(f"no singular values of {J!r}: {found.why}")
    return found.values


def extremes(J: Jacobian, k: int, seed: int, tick: Tick) -> np.ndarray:
    """The k eigenvalues of greatest magnitude."""
    counted = Counted(J, tick)
    start = counted.random(J.shape[0], seed)
    if not np.any(counted.operator @ start):
        return np.zeros(k)
    try:
        return np.asarray(eigsh(counted.operator, k=k, v0=start, return_eigenvectors=False))
    except ArpackNoConvergence as error:
        if not len(error.eigenvalues):
            raise NotConverged(f"no eigenvalues of {J!r}: ask for fewer than k={k}") from error
        return np.asarray(error.eigenvalues)
