"""Repayment: after how many products the time that compiling took is won back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from ..reporting.units import time_text

TRIES = 3
"""Products of each kind that are timed; the quickest counts."""


@dataclass(frozen=True)
class Repayment:
    """Seconds that compiling took, and those of a product with and without it."""

    compiling: float
    compiled: float
    plain: float

    @property
    def products(self) -> float:
        """compiling / (plain - compiled), rounded up; infinite where nothing is won."""
        won = self.plain - self.compiled
        return ceil(self.compiling / won) if won > 0 else inf

    def __str__(self) -> str:
        pays = f"pays from product {self.products:,} on" if self.products < inf else "never pays"
        each = f"{time_text(self.compiled)} each, {time_text(self.plain)} uncompiled"
        return f"compiling took {time_text(self.compiling)} and {pays} ({each}, measured now)"


def measured(compiling: float, compiled: Callable[[], Any], plain: Callable[[], Any]) -> Repayment:
    """The repayment of a product by what it takes now; each is run a few times in turn."""
    rounds = [(seconds(compiled), seconds(plain)) for _ in range(TRIES)]
    return Repayment(compiling, *map(min, zip(*rounds, strict=True)))


def seconds(function: Callable[[], Any]) -> float:
    """Of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
