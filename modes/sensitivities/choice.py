"""Choice: widths of weights under a budget, and entries that are removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...jacobians import prod_text
from ...jacobians.errors import InputError
from ...jacobians.text import Table, bytes_text
from ..model.primal.model import Model
from .rounding import with_weights


@dataclass(frozen=True)
class Allocation:
    """A width for each weight: `bits` by name, their `mean` per number and `bytes`, the `cost`."""

    bits: dict[str, int]
    mean: float
    bytes: float
    cost: float

    def __str__(self) -> str:
        rows = tuple((name, str(b)) for name, b in self.bits.items())
        note = (f"{self.mean:.2f} bits per number, {bytes_text(self.bytes)}, "
                f"predicted change of the loss {self.cost:.2e}")  # fmt: skip
        return str(Table("", ("weight", "bits"), rows, ("bits",), note))


def allocate_bits(
    costs: np.ndarray, sizes: np.ndarray, widths: np.ndarray, room: float
) -> np.ndarray:
    """argmin Σₖ costs[k, bₖ] with Σₖ sizes[k] widths[bₖ] ≤ room: a multiple-choice knapsack.

    Exact, by dynamic programming over the weights: of partial choices only those stay that no other
    one beats in both sums, and whose bound by a Lagrange multiplier is below what is known.

    >>> costs = np.array([[0.0, 1.0], [0.0, 3.0]])
    >>> allocate_bits(costs, np.array([10, 10]), np.array([8, 4]), 120)
    array([1, 0])
    """
    used, rows = np.outer(sizes, widths).astype(np.float64), np.arange(len(sizes))
    if used.min(axis=1).sum() > room:
        raise InputError(f"a budget of {room / sizes.sum():.4g} bits per weight, {room / 8:,.0f} "
                         f"bytes, is below the narrowest width, {widths.min()}: raise it, or name "
                         "narrower widths by bits=")  # fmt: skip
    if not np.isfinite(costs).all():
        raise InputError("a cost is not finite, or was not measured")
    price, chosen = price_of_bits(costs, used, room)
    best = costs[rows, chosen].sum() + 1e-12 * abs(costs).sum()
    bounds, least = ((x.min(axis=1)[::-1].cumsum()[::-1]) for x in (costs + price * used, used))
    bits, cost, came = np.zeros(1), np.zeros(1), []
    for k in rows:
        bits, cost = (np.add.outer(x, y[k]).ravel() for x, y in ((bits, used), (cost, costs)))
        bound, rest = (bounds[k + 1], least[k + 1]) if k + 1 < len(rows) else (0.0, 0.0)
        bound += price * (bits - room)
        held = np.flatnonzero((bits + rest <= room) & (cost + bound <= best))
        held = held[np.lexsort((cost[held], bits[held]))]
        lowest = np.minimum.accumulate(cost[held])
        held = held[np.diff(lowest, prepend=np.inf) < 0]
        came.append(np.divmod(held, len(widths)))
        bits, cost = bits[held], cost[held]
    state = int(cost.argmin())
    for k in rows[::-1]:
        state, chosen[k] = (int(x[state]) for x in came[k])
    return chosen


def price_of_bits(costs: np.ndarray, used: np.ndarray, room: float) -> tuple[float, np.ndarray]:
    """The least λ ≥ 0 for which argmin costs + λ used fits into the room, and this choice."""
    low, high = 0.0, 0.0
    while used[np.arange(len(used)), chosen := (costs + high * used).argmin(axis=1)].sum() > room:
        low, high = high, 2 * high or float(np.ptp(costs) / used.max() or 1.0)
    for _ in range(100 if high else 0):
        middle = (low + high) / 2
        other = (costs + middle * used).argmin(axis=1)
        if used[np.arange(len(used)), other].sum() > room:
            low = middle
        else:
            high, chosen = middle, other
    return high, chosen


@dataclass(frozen=True, repr=False)
class Pruning:
    """The entries of a `model` that stay, as `masks` by name, and the `scores` that chose them."""

    masks: dict[str, np.ndarray]
    scores: dict[str, np.ndarray]
    model: Model

    @property
    def table(self) -> Table:
        """A row for each weight: which share of it stays, and the sum of the scores removed."""
        pairs = zip(self.masks.items(), self.scores.values(), strict=True)
        rows = tuple((name, prod_text(m.shape), f"{m.mean():.1%}", f"{x[~m].sum():.2e}")
                     for (name, m), x in pairs)  # fmt: skip
        return Table("", ("weight", "shape", "stays", "removed"), rows, ("stays", "removed"))

    def pruned(self) -> Model:
        """The model in which the entries that do not stay are 0."""
        kept = {n: self.model.constants[n].copy() for n in self.masks}
        for name, mask in self.masks.items():
            kept[name][~mask] = 0
        return with_weights(self.model, kept)

    def __repr__(self) -> str:
        return str(self.table)


def least_scores(scores: Mapping[str, np.ndarray], sparsity: float) -> dict[str, np.ndarray]:
    """Masks that leave out the least scores of all tensors, the first of equal ones.

    >>> least_scores({"W": np.array([3.0, 1.0]), "V": np.array([2.0, 4.0])}, 0.5)
    {'W': array([ True, False]), 'V': array([False,  True])}
    """
    whole = np.concatenate([x.ravel() for x in scores.values()])
    kept = np.ones(len(whole), bool)
    kept[np.argsort(whole, kind="stable")[: round(sparsity * len(whole))]] = False
    return split_like(scores, kept)


def split_like(tensors: Mapping[str, np.ndarray], vector: np.ndarray) -> dict[str, np.ndarray]:
    """A vector over all tensors as arrays of their shapes."""
    parts = np.split(vector, np.cumsum([x.size for x in tensors.values()])[:-1])
    return {n: part.reshape(x.shape) for (n, x), part in zip(tensors.items(), parts, strict=True)}
