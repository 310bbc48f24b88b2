"""Shares: what a worker holds of an operator, and what it computes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...ops import numbers
from ..data.batches import Batches
from ..data.deterministic import difference
from ..data.over import Weights, composed
from ..data.stream import Make, Stream
from ..data.streamed import Outline, OverBatches, Streamed, outline_of
from ..support.locks import Lock

ONE_AT_A_TIME = Lock()
"""A worker with many threads computes one product at a time, which has all of its memory."""


def share(
    make: Make, batches: Batches, keep: int, reduction: str, weights: Weights
) -> OverBatches:
    """The operator of some of the batches."""
    with ONE_AT_A_TIME:
        return composed(Stream(make, batches, keep), reduction, weights)


def described(C: Jacobian) -> Outline:
    """What the client has to know of a share."""
    return C.outline if isinstance(C, Streamed) else outline_of(C)


def product(C: Jacobian, v: np.ndarray, transposed: bool) -> np.ndarray:
    """C v or Cᵀ v, for v of shape (K, n)."""
    with ONE_AT_A_TIME:
        y = (C.T if transposed else C)._apply(numbers, v)
    return np.asarray(y)


def diagonal(C: Jacobian) -> np.ndarray:
    """The diagonal of a share."""
    with ONE_AT_A_TIME:
        return C.diagonal()


def compiled(C: OverBatches, options: dict[str, Any]) -> Jacobian:
    """A share that is compiled."""
    return C.compile(**options)


def suspect(C: OverBatches) -> str | None:
    """In what two passes over a share differ."""
    with ONE_AT_A_TIME:
        return difference(C)


def total(*terms: Any) -> Any:
    """The sum, always in the same order."""
    return reduce(add, terms)


def evenly(count: int, parts: int) -> list[tuple[int, int]]:
    """`count` things cut into successive parts that differ by one at most.

    >>> evenly(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    parts = max(1, min(parts, count))
    ends = [k * (count // parts) + min(k, count % parts) for k in range(parts + 1)]
    return list(pairwise(ends))


def counted(batches: Batches) -> int:
    """How many batches there are, by a pass over the data where nothing else tells."""
    return sum(1 for _ in batches) if batches.count is None else batches.count


def grouped(items: Sequence[Any], width: int) -> list[Sequence[Any]]:
    """Successive groups of `width`, the last one perhaps smaller."""
    return [items[k : k + width] for k in range(0, len(items), width)]
