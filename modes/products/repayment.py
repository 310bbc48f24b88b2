"""Repayment: after how many products the time that compiling took is won back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from typing import Any

from ...jacobians.text import time_text

TRIES, SETTLED = 3, 0.2
"""So many products of each kind are timed at least, and for so many seconds; the quickest counts.
Threads of one engine spin for a while when it has no more work, and slow the other that long.
"""


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
    """The repayment of a product by what it takes now, once it is at its own pace."""
    return Repayment(compiling, quickest(compiled), quickest(plain))


def quickest(function: Callable[[], Any]) -> float:
    """Seconds of the quickest of many calls in a row."""
    moments = [time.perf_counter()]
    while len(moments) <= TRIES or moments[-1] - moments[0] < SETTLED:
        function()
        moments.append(time.perf_counter())
    return min(stop - start for start, stop in pairwise(moments))
