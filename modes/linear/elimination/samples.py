"""Samples: operators that act within samples, and single-sample rows of operators that do not.

Entry e of a tensor, in row-major order, belongs to sample (e // inner) mod count. An operator acts
within samples if no entry of its output depends on entries of another sample; if sizes are
symbolic, this holds for all sizes. Operators on weights mix samples; for some of these operators,
the rows of a single sample cost proportionally less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from ....jacobians import (
    BlockDiagonal,
    Broadcast,
    Cast,
    Contraction,
    Convolution,
    Cumulative,
    Dag,
    Diagonal,
    Embed,
    Eye,
    Fourier,
    Identity,
    Jacobian,
    Kron,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Scatter,
    Shape,
    Slice,
    Sum,
    SumTo,
    Take,
    broadcast,
    reading,
    shape_of,
    size,
)
from ....jacobians.products import factors_of
from ....jacobians.symint import divided, is_symbolic, same


@dataclass(frozen=True, eq=False)
class Batch:
    """`count` samples, each of them in runs of `inner` adjacent entries."""

    count: int
    inner: int

    def outer(self, n: int) -> int:
        """How often the sequence of samples repeats in a tensor of n entries."""
        return n // (self.count * self.inner)

    def samples(self, n: int) -> np.ndarray:
        """The sample that each of n entries belongs to."""
        return np.arange(n) // self.inner % self.count

    def scaled(self, old: int, new: int) -> Batch | None:
        """The same samples where runs of `old` entries become runs of `new` ones."""
        runs = divided(self.inner, old)
        return None if runs is None else replace(self, inner=runs * new)

    def __eq__(self, other: object) -> bool:
        """Whether the samples are the same, at every size."""
        return isinstance(other, Batch) and same(
            (self.count, self.inner), (other.count, other.inner)
        )


def candidate_batches(shape: Shape) -> Iterator[Batch]:
    """Candidate samples of a tensor: along axis 0, axes 0 and 1, or axis 1, or a single sample."""
    seen = set()
    for first, stop in ((0, 1), (0, 2), (1, 2)):
        count, inner = size(shape[first:stop]), size(shape[stop:])
        if stop <= len(shape) and count > 1 and (count, inner) not in seen:
            seen.add((count, inner))
            yield Batch(count, inner)
    yield Batch(1, size(shape))


def layouts(dag: Dag, sink: int, batch: Batch) -> dict[int, Batch]:
    """The samples of every vertex from which all paths to the sink stay within samples."""
    found: dict[int, Batch | None] = {sink: batch}
    for edge in sorted(dag.edges, key=lambda e: e.start, reverse=True):
        if edge.end not in found:
            continue
        after = found[edge.end]
        before = within(edge.operator.T, after) if after else None
        agrees = edge.start not in found or found[edge.start] == before
        found[edge.start] = before if agrees else None
    return {vertex: batch for vertex, batch in found.items() if batch}


def within(operator: Jacobian, batch: Batch) -> Batch | None:
    """The samples of y = J x, from the samples of x, if J acts within samples."""
    if same(batch.count, 1):
        return Batch(1, operator.shape[0])
    return acts_per_sample(operator, batch)


@singledispatch
def acts_per_sample(operator: Jacobian, batch: Batch) -> Batch | None:
    """`within` for more than one sample, kind by kind; None where samples may mix."""
    return None


@acts_per_sample.register
def _(operator: Identity | Reshape | Scalar | Cast | Diagonal, batch: Batch) -> Batch | None:
    return batch


@acts_per_sample.register
def _(operator: Product, batch: Batch) -> Batch | None:
    after: Batch | None = batch
    for factor in reversed(operator.factors):
        after = after and acts_per_sample(factor, after)
    return after


@acts_per_sample.register
def _(operator: Sum, batch: Batch) -> Batch | None:
    first, *others = (acts_per_sample(term, batch) for term in operator.terms)
    return first if all(other == first for other in others) else None


@acts_per_sample.register
def _(operator: BlockDiagonal, batch: Batch) -> Batch | None:
    return batch.scaled(operator.in_shape[-1], operator.out_shape[-1])


@acts_per_sample.register
def _(operator: Kron, batch: Batch) -> Batch | None:
    (n, k), (m, rows) = operator.in_shape[-2:], operator.out_shape[-2:]
    if isinstance(operator.left, Eye):
        return batch.scaled(k, rows)
    if isinstance(operator.right, Eye) and divided(k, batch.count * batch.inner) is not None:
        return batch
    return batch.scaled(n * k, m * rows)


@acts_per_sample.register
def _(operator: Convolution, batch: Batch) -> Batch | None:
    if "w" in (operator.source, operator.target):
        return None
    return batch.scaled(size(operator.in_shape[1:]), size(operator.out_shape[1:]))


@acts_per_sample.register
def _(operator: Permutation, batch: Batch) -> Batch | None:
    axis = sample_axis(batch, operator.in_shape)
    return (
        None if axis is None else move_batch_axis(operator, batch, axis, operator.perm.index(axis))
    )


@acts_per_sample.register
def _(operator: Broadcast | SumTo, batch: Batch) -> Batch | None:
    """Axes of x and y with the same negative index are aligned."""
    axis = sample_axis(batch, operator.in_shape)
    return (
        None
        if axis is None
        else move_batch_axis(operator, batch, axis, axis - len(operator.in_shape))
    )


@acts_per_sample.register
def _(operator: Slice | Embed, batch: Batch) -> Batch | None:
    axis = sample_axis(batch, operator.in_shape)
    whole = axis is not None and same(tuple(operator.spans[axis][:2]), (0, 1))
    return move_batch_axis(operator, batch, axis, axis) if axis is not None and whole else None


@acts_per_sample.register
def _(operator: Cumulative, batch: Batch) -> Batch | None:
    return unless_along(batch, operator.in_shape, operator.axis)


@acts_per_sample.register
def _(operator: Fourier, batch: Batch) -> Batch | None:
    """Real and imaginary parts, along the last axis, mix as well."""
    return unless_along(batch, operator.in_shape, operator.axis, -1)


@acts_per_sample.register
def _(operator: Contraction, batch: Batch) -> Batch | None:
    axis = sample_axis(batch, operator.in_shape)
    label = "" if axis is None else operator.in_term[axis]
    if axis is None or operator.in_term.count(label) > 1 or operator.out_term.count(label) != 1:
        return None
    return move_batch_axis(operator, batch, axis, operator.out_term.index(label))


@acts_per_sample.register
def _(operator: Take, batch: Batch) -> Batch | None:
    axis, taken = sample_axis(batch, operator.in_shape), len(operator.in_shape) + operator.axis
    if axis is None:
        return None
    if axis != taken:
        return move_batch_axis(
            operator, batch, axis, axis if axis < taken else axis - len(operator.in_shape)
        )
    parted = part_batches(operator, batch)
    if parted or not isinstance(operator.index, np.ndarray) or is_symbolic(operator.in_shape):
        return parted
    local = Batch(batch.count, batch.inner // size(operator.in_shape[axis + 1 :]))
    rows = operator.index.size
    runs = batch.count * local.outer(operator.in_shape[axis])
    after = Batch(batch.count, rows // runs)
    kept = local.samples(operator.in_shape[axis])[np.ravel(operator.index)]
    if rows % runs or not rows or not np.array_equal(after.samples(rows), kept):
        return None
    return replace(after, inner=after.inner * size(operator.in_shape[axis + 1 :]))


@acts_per_sample.register
def _(operator: Scatter, batch: Batch) -> Batch | None:
    parted = part_batches(operator, batch)
    axis, rank = sample_axis(batch, operator.in_shape), len(operator.in_shape)
    first = len(operator.out_shape) + operator.axis
    if parted or axis is None:
        return parted
    if axis < first or axis - rank > operator.axis:
        return move_batch_axis(operator, batch, axis, axis if axis < first else axis - rank)
    if not isinstance(operator.index, np.ndarray) or is_symbolic(operator.out_shape):
        return None
    runs = batch.count * batch.outer(operator.shape[1])
    after = Batch(batch.count, operator.shape[0] // runs) if runs else None
    return after if after and after.inner and acts_per_sample(operator.T, after) == batch else None


def part_batches(operator: Take | Scatter, batch: Batch) -> Batch | None:
    """The samples of y if the samples of x are `parts`, within each of which the index stays."""
    new, old = operator.shape
    for k in range(1, len(operator.parts) + 1):
        count = size(operator.parts[:k])
        inner = divided(new, count)
        if inner is not None and batch == Batch(count, divided(old, count) or 0):
            return Batch(count, inner)
    return None


def sample_axis(batch: Batch, shape: Shape) -> int | None:
    """The axis that separates the samples, or None if several axes do."""
    stride: int = 1
    for axis in range(len(shape) - 1, -1, -1):
        whole, inside = stride * shape[axis], divided(batch.inner, stride) is not None
        if inside and not same(whole, 0) and divided(whole, batch.count * batch.inner) is not None:
            return axis
        stride = whole
    return None


def unless_along(batch: Batch, shape: Shape, *axes: int) -> Batch | None:
    """The same samples, or None if one of some negative axes separates them."""
    axis = sample_axis(batch, shape)
    return None if axis is None or axis - len(shape) in axes else batch


def move_batch_axis(operator: Jacobian, batch: Batch, axis: int, to: int) -> Batch | None:
    """The samples of y if axis `axis` of x becomes axis `to` of y, entry by entry."""
    rank = len(operator.out_shape)
    if to < -rank or not same(operator.in_shape[axis], operator.out_shape[to]):
        return None
    to %= rank
    return batch.scaled(size(operator.in_shape[axis + 1 :]), size(operator.out_shape[to + 1 :]))


@dataclass(frozen=True)
class Mixing:
    """An operator split where samples mix: `outer` factors act within samples, `mixer` does not.

    `batch` are the samples of the mixer's output, `rest` the factors applied before the mixer.
    """

    outer: tuple[Jacobian, ...]
    mixer: Jacobian
    rest: tuple[Jacobian, ...]
    batch: Batch

    def adjoints(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Jᵀ of rows (m, *out_shape), sample by sample: each (m, *in_shape)."""
        for factor in self.outer:
            rows = factor.T._apply(reading(rows), rows)
        parts = rows.reshape(len(rows), self.batch.count, -1)
        for sample in range(self.batch.count):
            single = rows_of_sample(self.mixer, self.batch, sample)
            assert single is not None
            part = parts[:, sample].reshape(len(rows), *single.out_shape)
            part = single.T._apply(reading(part), part)
            for factor in self.rest:
                part = factor.T._apply(reading(part), part)
            yield part


def mixing(operator: Jacobian, batch: Batch) -> Mixing | None:
    """The split of an operator, from the samples of its output; None where there is no split."""
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
    """The rows of one sample as an operator, if they take proportionally less arithmetic."""
    return None


@rows_of_sample.register
def _(operator: Convolution, batch: Batch, sample: int) -> Jacobian | None:
    """A single held image: ∂/∂w of a convolution or transposed convolution."""
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
    """The input broadcast to a single sample."""
    if not repeats_per_sample(operator, batch):
        return None
    return broadcast(operator.in_shape, (1, *operator.out_shape[1:]), operator.dtype)


@rows_of_sample.register
def _(operator: Take, batch: Batch, sample: int) -> Jacobian | None:
    """The rows of a table that one sample looks up."""
    first = operator.axis == -len(operator.in_shape)
    if not first or operator.index.ndim == 0 or operator.out_shape[0] != batch.count:
        return None
    if batch.inner != size(operator.out_shape[1:]):
        return None
    return Take(operator.index[sample : sample + 1], 0, operator.in_shape, operator.dtype)


def repeats_per_sample(operator: Jacobian, batch: Batch) -> bool:
    """Whether the samples are along the first axis of the output, which only repeats the input."""
    out, new = operator.out_shape, len(operator.out_shape) - len(operator.in_shape)
    repeated = new > 0 or operator.in_shape[:1] == (1,)
    return repeated and out[:1] == (batch.count,) and batch.inner == size(out[1:])
