"""Line search: how far to go along a direction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

HALVINGS = 40

DESCENT = 1e-4
"""The part of the reduction that the gradient promises, of which a step must keep so much."""


def backtrack(enough: Callable[[float], bool]) -> float | None:
    """t = 1, ½, ¼, …: the first that is enough, or None.

    >>> backtrack(lambda t: (1 - 3 * t) ** 2 < 1)
    0.5
    """
    lengths = (0.5**k for k in range(HALVINGS))
    return next((t for t in lengths if enough(t)), None)


def armijo(
    f: Callable[[np.ndarray], float], x: np.ndarray, direction: np.ndarray, at: float, slope: float
) -> Callable[[float], bool]:
    """Whether f falls enough at x + t δ: f(x + t δ) ≤ f(x) + 10⁻⁴ t ∇fᵀδ, for f(x) and ∇fᵀδ."""
    number = x.dtype.type
    return lambda t: f(x + number(t) * direction) <= at + DESCENT * t * slope
