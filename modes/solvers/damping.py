"""Damping: how far a linear model is trusted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Damping:
    """λ: smaller after a step that the model foretold, larger, ever faster, after one that failed.

    For a gain ϱ = real / predicted reduction: λ max(⅓, 1 − (2ϱ − 1)³) where ϱ > 0; else λν, and
    ν, which is 2 at first, doubles.

    >>> damping = Damping(1.0)
    >>> for gain in (-1.0, -1.0, 0.5): damping.follow(gain)
    >>> damping
    Damping(value=8.0, growth=2.0)
    """

    value: float
    growth: float = 2.0

    def follow(self, gain: float) -> None:
        """Adapt to the gain of a step."""
        if gain > 0:
            self.value, self.growth = self.value * max(1 / 3, 1 - (2 * gain - 1) ** 3), 2.0
        else:
            self.value, self.growth = self.value * self.growth, 2 * self.growth
