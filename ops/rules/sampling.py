"""Sampling: interpolated values of an image, and their derivatives in image and positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    BlockDiagonal,
    Diagonal,
    Jacobian,
    Reshape,
    Shape,
    Take,
    broadcast,
    dtype_of,
    shape_of,
    size,
)
from ...jacobians.symint import Number
from .interpolation import SUPPORT, kernel


@dataclass(frozen=True)
class Line:
    """The samples along one axis of length n: neighbours, weights and their slopes, (*Q, taps)."""

    n: Number
    index: Array
    weight: Array
    slope: Array


def line(
    op: Any, at: Array, n: Number, mode: str, reindex: Callable[..., Array] | None = None
) -> Line:
    """Samples at positions `at`; neighbours outside get weight 0, or `reindex` moves them."""
    at = op.Unsqueeze(at, (-1,))
    if mode == "nearest":
        below, offsets = op.Round(at), np.zeros(1)
    else:
        below, offsets = op.Floor(at), np.arange(1.0 - SUPPORT[mode], 1.0 + SUPPORT[mode])
    neighbour = op.Add(below, offsets.astype(dtype_of(at)))
    w, slope = nearest(op, at) if mode == "nearest" else kernel(op, mode, op.Sub(neighbour, at))
    if reindex is None:
        there = op.And(op.GreaterOrEqual(neighbour, 0.0), op.LessOrEqual(neighbour, n - 1))
        w, slope = op.Where(there, w, 0.0), op.Where(there, slope, 0.0)
    else:
        neighbour = reindex(op, neighbour)
    index = op.Clip(op.CastLike(neighbour, np.zeros((), np.int64)), 0, n - 1)
    return Line(n, index, w, op.Neg(slope))


def nearest(op: Any, at: Array) -> tuple[Array, Array]:
    """Weight 1 and slope 0 at every position."""
    one, zero = (op.Expand(np.full((), c, dtype_of(at)), shape_of(at)) for c in (1, 0))
    return one, zero


class Samples:
    """Σ over neighbours of weight · row, for rows (R, C): values of shape (*Q, C).

    The rows of all images are concatenated; `start` is the first row of the image of each sample.
    """

    def __init__(self, op: Any, rows: Array, lines: Sequence[Line], start: Array) -> None:
        self.op, self.rows, self.lines = op, rows, lines
        at: Array = op.Unsqueeze(start, (-1,))
        weight: Array = np.ones((), dtype_of(rows))
        for k, along in enumerate(lines):
            step = size(tuple(later.n for later in lines[k + 1 :]))
            at = crossed(op, op.Add, at, op.Mul(along.index, step))
            weight = crossed(op, op.Mul, weight, along.weight)
        self.index, self.weight = at, weight

    @property
    def shape(self) -> Shape:
        """(*Q, C)."""
        return (*shape_of(self.index)[:-1], shape_of(self.rows)[-1])

    def weighted(self, weight: Array) -> Array:
        """The sums over the neighbours with the given weights."""
        picked = self.op.Gather(self.rows, self.index, axis=0)
        products = self.op.Mul(picked, self.op.Unsqueeze(weight, (-1,)))
        return self.op.ReduceSum(products, (-2,), keepdims=0)

    @property
    def value(self) -> Array:
        return self.weighted(self.weight)

    def in_rows(self) -> Jacobian:
        """∂value/∂rows."""
        dtype = dtype_of(self.rows)
        take = Take(self.index, 0, shape_of(self.rows), dtype)
        scaled = Diagonal(self.op.Unsqueeze(self.weight, (-1,)), take.out_shape) @ take
        kept = (*self.shape[:-1], 1, self.shape[-1])
        total = broadcast(kept, take.out_shape, dtype).T
        return Reshape(self.shape, kept, dtype) @ total @ scaled

    def slope(self, k: int) -> Array:
        """∂value/∂position along axis k, (*Q, C): its slopes times the weights of other axes."""
        factors = [a.slope if j == k else a.weight for j, a in enumerate(self.lines)]
        return self.weighted(reduce(partial(crossed, self.op, self.op.Mul), factors))

    def in_positions(self, gains: Sequence[Array], order: Sequence[int]) -> Jacobian:
        """∂value/∂coordinates (*Q, D): coordinate j moves positions along axis order[j]."""
        op = self.op
        columns = [op.Mul(self.slope(k), op.Unsqueeze(gains[k], (-1,))) for k in order]
        return BlockDiagonal(op.Concat(*(op.Unsqueeze(c, (-1,)) for c in columns), axis=-1))


def crossed(op: Any, combine: Any, a: Array, b: Array) -> Array:
    """The outer `combine`, (*Q, m) and (*Q, n) -> (*Q, m n); b alone if a is a scalar."""
    if not shape_of(a):
        return b
    pairs = combine(op.Unsqueeze(a, (-1,)), op.Unsqueeze(b, (-2,)))
    return op.Reshape(pairs, (*shape_of(pairs)[:-2], size(shape_of(pairs)[-2:])))
