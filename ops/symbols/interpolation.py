"""Interpolation: the value of an image between its entries, by their distance to the place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import sympy as sp

Kernel = Callable[[Any], Any]
"""φ(u), where u = place - neighbour."""

Continued = Callable[[int, int], int | None]
"""(i, n) -> the entry of an axis of length n that stands at i; None where there is a zero."""


KEYS = sp.Rational(-3, 4)
"""The parameter of Keys' kernel where none is given."""


def tent(u: Any) -> Any:
    """1 - |u| near 0, else 0."""
    return max(1 - abs(u), 0)


def cubic(u: Any, a: Any = KEYS) -> Any:
    """Keys' kernel."""
    u = abs(u)
    if u <= 1:
        return (a + 2) * u**3 - (a + 3) * u**2 + 1
    return a * u**3 - 5 * a * u**2 + 8 * a * u - 4 * a if u < 2 else 0 * u


MODES: dict[str, tuple[Kernel, int]] = {"linear": (tent, 1), "cubic": (cubic, 2)}
"""mode -> φ, and how far it reaches."""


def floor(at: Any) -> int:
    """⌊at⌋ at the point."""
    return int(at.floor() if hasattr(at, "floor") else sp.floor(at))


def around(at: Any, reach: int) -> range:
    """The whole numbers that are less than `reach` away, on either side."""
    return range(floor(at) + 1 - reach, floor(at) + 1 + reach)


def zeros(i: int, n: int) -> int | None:
    """Nothing outside of the image."""
    return i if 0 <= i < n else None


def border(i: int, n: int) -> int:
    """The nearest entry."""
    return min(max(i, 0), n - 1)


def interpolated(image: Any, at: Any, phi: Kernel, reach: int, continued: Continued = zeros) -> Any:
    """Σ image[p] ∏ φ(at - p) over the places p around."""
    lines = [
        [(continued(i, n), phi(a - i)) for i in around(a, reach)]
        for a, n in zip(at, image.shape, strict=True)
    ]
    total: Any = 0
    for taps in product(*lines):
        place, weights = zip(*taps, strict=True)
        if None not in place:
            total = total + image[place] * prod(weights)
    return total
