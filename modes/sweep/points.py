"""Points: where a case is differentiated, off kinks and inside the domain of its operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .differences import has_tangents

Domain = Callable[[int, np.ndarray], np.ndarray]
"""(position of the input, values) -> values of the domain near them."""


def moved(op_type: str, feeds: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """The inputs, every floating one moved by 0.1 times normal numbers and into the domain."""
    rng = np.random.default_rng(seed)
    domain = DOMAINS.get(op_type, anything)

    def near(i: int, x: Any) -> Any:
        if not has_tangents(x.dtype):
            return x
        return domain(i, x.astype(np.float64) + 0.1 * rng.standard_normal(x.shape)).astype(x.dtype)

    return {name: near(i, x) for i, (name, x) in enumerate(feeds.items())}


def anything(i: int, x: np.ndarray) -> np.ndarray:
    """All numbers; infinities too, which masks are made of."""
    return np.where(np.isnan(x), 1.0, x)


def finite(i: int, x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), x, 1.0)


def inside(i: int, x: np.ndarray) -> np.ndarray:
    """In (-0.9, 0.9)."""
    return 0.9 * np.tanh(x)


def positive(i: int, x: np.ndarray) -> np.ndarray:
    return np.abs(x) + 0.1


def off_zero(i: int, x: np.ndarray) -> np.ndarray:
    return np.sign(x) * (np.abs(x) + 0.5)


def only(position: int, domain: Domain) -> Domain:
    """One input has that domain, the others are any finite numbers."""
    return lambda i, x: domain(i, finite(i, x)) if i == position else finite(i, x)


DOMAINS: dict[str, Domain] = {
    "Acos": inside,
    "Acosh": lambda i, x: np.abs(x) + 1.1,
    "Asin": inside,
    "Atanh": inside,
    "BatchNormalization": only(4, positive),
    "Cast": finite,
    "CastLike": finite,
    "Div": only(1, off_zero),
    "Log": positive,
    "Mod": only(1, off_zero),
    "Pow": only(0, positive),
    "Reciprocal": off_zero,
    "ReduceLogSum": positive,
    "Sqrt": positive,
}
"""What is left out takes all numbers."""
