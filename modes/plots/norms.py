"""Norms: those of all blocks of a matrix together, from a few products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.base import CHUNK
from ...jacobians.progress import Tick, counting
from ..estimators.probes import signs
from ..estimators.result import mean

Edges = tuple[int, ...]


@dataclass(frozen=True)
class BlockNorms:
    """‖Jᵢⱼ‖_F for all blocks, the largest relative standard error, and the products they took."""

    values: np.ndarray
    error: float
    products: int

    @property
    def T(self) -> BlockNorms:
        """Those of the transpose."""
        return BlockNorms(self.values.T, self.error, self.products)


def block_norms(
    J: Jacobian, rows: Edges, columns: Edges, *, probes: int = 32, seed: int = 0
) -> BlockNorms:
    """‖Jᵢⱼ‖_F² = Σ_k ‖Jᵢⱼᵀ e_k‖² = E ‖Jᵢⱼᵀ u‖² for u of random signs, (rows, columns).

    One product with Jᵀ serves all blocks beside each other. It is exact, by unit vectors, where a
    block has no more rows than `probes`; of J and Jᵀ, that one is taken that needs fewer products.
    """
    if _count(columns, probes) < _count(rows, probes):
        return block_norms(J.T, columns, rows, probes=probes, seed=seed).T
    rng = np.random.default_rng(seed)
    with counting("norms of blocks", "products", _count(rows, probes)) as tick:
        found = [_squares(J.T, span, columns, probes, rng, tick) for span in pairwise(rows)]
    squares, errors = (np.array(part) for part in zip(*found, strict=True))
    relative = np.divide(errors, 2 * squares, out=np.zeros_like(errors), where=squares > 0)
    return BlockNorms(np.sqrt(squares), float(relative.max(initial=0)), _count(rows, probes))


def _count(edges: Edges, probes: int) -> int:
    """The products that one side takes."""
    return sum(min(stop - start, probes) for start, stop in pairwise(edges))


def _squares(
    A: Jacobian, span: tuple[int, int], parts: Edges, probes: int, rng: np.random.Generator,
    tick: Tick,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Squared norms of the parts of A[:, span], and their standard errors."""
    width = span[1] - span[0]
    exact = width <= probes
    tried = np.eye(width) if exact else signs(rng, width, probes)
    images = [np.zeros((len(parts) - 1, 0)), *_images(A, span, tried, parts, tick)]
    samples = np.concatenate(images, axis=1)
    return (samples.sum(axis=1), np.zeros(len(samples))) if exact else mean(samples)


def _images(
    A: Jacobian, span: tuple[int, int], tried: np.ndarray, parts: Edges, tick: Tick
) -> Iterator[np.ndarray]:
    """‖(A v)_part‖² for all v, (parts, some), as many at a time as memory bears."""
    step = max(1, CHUNK // (8 * max(A.shape)))
    for start in range(0, tried.shape[1], step):
        some = tried[:, start : start + step]
        v = np.zeros((A.shape[1], some.shape[1]))
        v[slice(*span)] = some
        squares = np.asarray(A @ v, float) ** 2
        tick(some.shape[1])
        yield np.array([squares[a:b].sum(axis=0) for a, b in pairwise(parts)])
