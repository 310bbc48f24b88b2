"""Sampled: the rows of single samples of an operator that mixes them, as weights' operators do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from ...jacobians import (
    Broadcast,
    Convolution,
    Diagonal,
    Eye,
    Jacobian,
    Kron,
    Outer,
    Take,
    broadcast,
    shape_of,
    size,
)
from ...jacobians.products import factors_of
from ...ops.numbers import numbers
from .batch import Batch, within
from .patches import gathered, unfolded


@dataclass(frozen=True)
class Mixing:
    """An operator split where samples meet: `outer` factors act within samples, `mixer` does not.

    `batch` are the samples of what the mixer gives, `rest` the factors before it.
    """

    outer: tuple[Jacobian, ...]
    mixer: Jacobian
    rest: tuple[Jacobian, ...]
    batch: Batch

    def adjoints(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Jᵀ of rows (m, *out_shape), sample by sample: each (m, *in_shape)."""
        for factor in self.outer:
            rows = factor.T._apply(numbers, rows)
        parts = rows.reshape(len(rows), self.batch.count, -1)
        for sample in range(self.batch.count):
            found = rows_of_sample(self.mixer, self.batch, sample)
            assert found is not None
            single = unfolded(found, gathered)
            part = parts[:, sample].reshape(len(rows), *single.out_shape)
            part = single.T._apply(numbers, part)
            for factor in self.rest:
                part = factor.T._apply(numbers, part)
            yield part


def mixing(operator: Jacobian, batch: Batch) -> Mixing | None:
    """The split of an operator, from the samples of its output; None where there is no such."""
    factors = factors_of(operator)
    for k, factor in enumerate(factors):
        before = within(factor.T, batch)
        if before is None:
            known = batch.outer(factor.shape[0]) == 1 and rows_of_sample(factor, batch, 0)
            return Mixing(factors[:k], factor, factors[k + 1 :], batch) if known else None
        batch = before
    return None


@singledispatch
def rows_of_sample(operator: Jacobian, batch: Batch, sample: int) -> Jacobian | None:
    """The rows of one sample as an operator, where they take that much less arithmetic."""
    return None


@rows_of_sample.register
def _(operator: Convolution, batch: Batch, sample: int) -> Jacobian | None:
    """One image of those that are held: ∂/∂w of a convolution, or of a transposed one."""
    g = operator.geometry
    if operator.source != "w" or batch.count != operator.out_shape[0]:
        return None
    image = operator.held[sample : sample + 1]
    single = replace(g, x=(1, *g.x[1:]), u=(1, *g.u[1:]))
    return Convolution(image, operator.source, operator.target, single)


@rows_of_sample.register
def _(operator: Kron, batch: Batch, sample: int) -> Jacobian | None:
    """Some rows of A in A ⊗ I."""
    if operator.batch or isinstance(operator.left, Eye) or not isinstance(operator.right, Eye):
        return None
    height = shape_of(operator.left)[0] // batch.count
    if height * size(operator.out_shape[-1:]) != batch.inner:
        return None
    rows = operator.left[sample * height : (sample + 1) * height]
    return Kron(rows, operator.right, ())


@rows_of_sample.register
def _(operator: Broadcast, batch: Batch, sample: int) -> Jacobian | None:
    """What is repeated for every sample, once."""
    if not is_repeated(operator, batch):
        return None
    return broadcast(operator.in_shape, (1, *operator.out_shape[1:]), operator.dtype)


@rows_of_sample.register
def _(operator: Outer, batch: Batch, sample: int) -> Jacobian | None:
    """The same with the weights of one sample."""
    if not is_repeated(operator, batch):
        return None
    weights = np.broadcast_to(operator.u, operator.out_shape)[sample : sample + 1]
    return Diagonal(weights) @ broadcast(operator.in_shape, weights.shape, operator.dtype)


@rows_of_sample.register
def _(operator: Take, batch: Batch, sample: int) -> Jacobian | None:
    """The rows of a table that one sample looks up."""
    first = operator.axis == -len(operator.in_shape)
    if not first or operator.index.ndim == 0 or operator.out_shape[0] != batch.count:
        return None
    if batch.inner != size(operator.out_shape[1:]):
        return None
    return Take(operator.index[sample : sample + 1], 0, operator.in_shape, operator.dtype)


def is_repeated(operator: Jacobian, batch: Batch) -> bool:
    """Whether the first axis of the output is that of the samples, and only repeats the input."""
    out, new = operator.out_shape, len(operator.out_shape) - len(operator.in_shape)
    repeated = new > 0 or operator.in_shape[:1] == (1,)
    return repeated and out[:1] == (batch.count,) and batch.inner == size(out[1:])
