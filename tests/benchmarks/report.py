"""Report: the measurements, compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .rounds import Measured
from .targets import CHOSEN, COMPILED, EXPERT, PEER, PLAIN, SHARE, TARGETS, Target


@dataclass
class Outcome:
    """All contenders on one product of one workload, and the machine's limit."""

    workload: str
    product: str
    tolerance: float
    found: list[Measured]
    limit: float | None

    @property
    def ours(self) -> list[Measured]:
        """Our contenders, those with times."""
        return [m for m in self.found if library(m) == "onnxjac" and m.seconds]

    def best_peer(self, *, expert: bool = False) -> Measured | None:
        """The fastest other contender with a correct result."""
        right = [m for m in self.found if m.seconds and library(m) != "onnxjac" and self.right(m)]
        right = [m for m in right if m.contender.endswith("expert") == expert]
        return min(right, key=lambda m: m.median, default=None)

    def error(self, measured: Measured) -> float | None:
        """The relative distance to the nearer half of the results of other libraries."""
        return self._errors[measured.contender]

    @cached_property
    def _errors(self) -> dict[str, float | None]:
        return {m.contender: self._error(m) for m in self.found}

    def _error(self, measured: Measured) -> float | None:
        others = [m for m in self.found if library(m) != library(measured)]
        distances = sorted(
            distance(measured.result, m.result)
            for m in others
            if m.result is not None and measured.result is not None
        )
        return distances[(len(distances) - 1) // 2] if distances else None

    def right(self, measured: Measured) -> bool:
        """Whether its result agrees with the other libraries."""
        error = self.error(measured)
        return error is None or error <= self.tolerance


def library(measured: Measured) -> str:
    """The library of a contender."""
    return measured.contender.split()[0].split(".")[0]


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """‖a − b‖ / ‖b‖; infinite for results of different shapes."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), np.finfo(float).tiny))


@dataclass
class Row:
    """One of our contenders compared with the best peer."""

    outcome: Outcome
    ours: Measured
    peer: Measured | None
    target: Target | None

    @property
    def ratio(self) -> float | None:
        """The median over the rounds of our time ÷ the peer's."""
        if self.peer is None:
            return None
        pairs = zip(self.ours.seconds, self.peer.seconds, strict=False)  # one may have ended early
        return float(np.median([a / b for a, b in pairs]))

    @property
    def met(self) -> bool | None:
        """Whether the target is met, with a correct result."""
        if self.target is None or self.ratio is None:
            return None
        return self.ratio <= self.target.bound and self.outcome.right(self.ours)

    @property
    def share(self) -> float | None:
        """The machine's limit ÷ our time."""
        return None if self.outcome.limit is None else self.outcome.limit / self.ours.median

    @property
    def near(self) -> bool | None:
        """Whether `share` reaches the required `SHARE`."""
        return None if self.share is None else self.share >= SHARE


def rows(outcome: Outcome) -> Iterator[Row]:
    """Each of our contenders against the best peer and, if there is one, the best expert; J as it
    is against J compiled, where a target says so.
    """
    for ours in outcome.ours:
        key = (outcome.workload, outcome.product, ours.contender)
        targets = {t.against: t for t in TARGETS.get(key, [])}
        yield Row(outcome, ours, outcome.best_peer(), targets.get(PEER))
        if expert := outcome.best_peer(expert=True):
            yield Row(outcome, ours, expert, targets.get(EXPERT))
        compiled = next((m for m in outcome.ours if m.contender == CHOSEN), None)
        if compiled and COMPILED in targets:
            yield Row(outcome, ours, compiled, targets[COMPILED])


def pays(outcome: Outcome, ours: Measured) -> float | None:
    """The number of products after which compiling pays off."""
    plain = next((m for m in outcome.ours if m.contender == PLAIN), None)
    if plain is None or plain is ours:
        return None
    gain = plain.median - ours.median
    return max(0.0, ours.setup - plain.setup) / gain if gain > 0 else float("inf")


def machine_readable(outcome: Outcome) -> dict[str, Any]:
    """Everything but the results, for JSON."""
    contenders = [
        {"contender": m.contender, "setup": m.setup, "seconds": m.seconds, "absent": m.absent,
         "median": m.median if m.seconds else None, "error": outcome.error(m),
         "memory": m.memory}
        for m in outcome.found
    ]  # fmt: skip
    compared = [
        {"ours": r.ours.contender, "peer": r.peer and r.peer.contender, "ratio": r.ratio,
         "target": r.target and r.target.bound, "met": r.met, "share": r.share}
        for r in rows(outcome)
    ]  # fmt: skip
    return {
        "workload": outcome.workload, "product": outcome.product,
        "tolerance": outcome.tolerance, "limit": outcome.limit,
        "contenders": contenders, "compared": compared,
    }  # fmt: skip
