"""Which kinds of operator are contractions, written as one."""

from __future__ import annotations

from functools import singledispatch
from string import ascii_letters

import numpy as np

from .arrays import Shape, shape_of, size
from .base import Jacobian
from .contraction import Contraction, label_sizes
from .cumulative import Cumulative
from .dense import BlockDiagonal, Dense, LowRank
from .diagonal import Diagonal
from .fourier import Fourier
from .kron import Eye, Factor, Kron

EINSUMS = Contraction, Dense, BlockDiagonal, LowRank, Diagonal, Kron
"""The kinds whose entries are products of entries of the arrays that they hold."""


@singledispatch
def as_contraction(operator: Jacobian) -> Contraction:
    """The operator as y[out] = Σ x[in] ∏ₖ aₖ[termₖ]."""
    raise TypeError(f"{type(operator).__name__} is not a contraction")


@as_contraction.register
def _(operator: Contraction) -> Contraction:
    return operator


@as_contraction.register
def _(operator: Dense) -> Contraction:
    return contraction(((operator.a, "ij"),), "j", "i")


@as_contraction.register
def _(operator: BlockDiagonal) -> Contraction:
    labels = ascii_letters[: len(operator.out_shape) + 1]
    b, i, j = labels[:-2], labels[-2], labels[-1]
    return contraction(((operator.blocks, b + i + j),), b + j, b + i)


@as_contraction.register
def _(operator: LowRank) -> Contraction:
    return contraction(((operator.u, "ir"), (operator.v, "jr")), "j", "i")


@as_contraction.register
def _(operator: Diagonal) -> Contraction:
    labels = ascii_letters[: len(operator.out_shape)]
    term = labels[len(labels) - len(shape_of(operator.d)) :]
    sizes = dict(zip(labels, operator.out_shape, strict=True))
    return Contraction(((operator.d, term),), labels, labels, sizes)


@as_contraction.register
def _(operator: Kron) -> Contraction:
    """Y[m, l] = Σ A[m, n] B[l, k] X[n, k]; an identity's two labels are one."""
    batch, rest = ascii_letters[: len(operator.batch)], iter(ascii_letters[len(operator.batch) :])
    m, n, row, k = next(rest), next(rest), next(rest), next(rest)
    n = m if isinstance(operator.left, Eye) else n
    k = row if isinstance(operator.right, Eye) else k
    terms = (operator.left, m + n), (operator.right, row + k)
    factors = tuple((f, tail(batch, f) + term) for f, term in terms if not isinstance(f, Eye))
    sizes = dict(zip(batch + n + k, operator.in_shape, strict=True))
    sizes |= dict(zip(batch + m + row, operator.out_shape, strict=True))
    return Contraction(factors, batch + n + k, batch + m + row, sizes)


@as_contraction.register
def _(operator: Cumulative) -> Contraction:
    line = Cumulative(0, operator.in_shape[operator.axis :][:1], operator.dtype,
                      exclusive=operator.exclusive, reverse=operator.reverse)  # fmt: skip
    return along(line, (operator.axis,), operator)


@as_contraction.register
def _(operator: Fourier) -> Contraction:
    shape = operator.in_shape[operator.axis], 2
    line = Fourier(0, shape, operator.dtype, inverse=operator.inverted)
    return along(line, (operator.axis, -1), operator)


def along(line: Jacobian, axes: tuple[int, ...], operator: Jacobian) -> Contraction:
    """The operator as the matrix of what it does along some axes, the same for all the others."""
    rank = len(operator.in_shape)
    labels, new = list(ascii_letters[:rank]), ascii_letters[rank : rank + len(axes)]
    old = "".join(labels[axis] for axis in axes)
    in_term = "".join(labels)
    for axis, label in zip(axes, new, strict=True):
        labels[axis] = label
    sizes = dict(zip((*in_term, *new), (*operator.in_shape, *line.out_shape), strict=True))
    matrix = line.toarray().reshape(line.out_shape + line.in_shape)
    return Contraction(((matrix, new + old),), in_term, "".join(labels), sizes)


def contraction(
    factors: tuple[tuple[np.ndarray, str], ...], in_term: str, out_term: str
) -> Contraction:
    """A contraction whose label sizes are those of its factors."""
    arrays, terms = zip(*factors, strict=True)
    return Contraction(factors, in_term, out_term, label_sizes(tuple(map(shape_of, arrays)), terms))


def tail(batch: str, factor: Factor) -> str:
    """The batch labels that a factor has axes for: the last ones."""
    axes = len(shape_of(factor)) - 2
    return batch[len(batch) - axes :]


def label_positions(term: str, shape: Shape, sizes: dict[str, int]) -> np.ndarray:
    """Row-major positions in a tensor with these labels, over the grid of all labels.

    An axis of length 1 stands still where its label moves.

    >>> label_positions("ji", (3, 2), {"i": 2, "j": 3}).tolist()
    [[0, 2, 4], [1, 3, 5]]
    """
    narrow = np.int32 if max(size(shape), size(tuple(sizes.values()))) < 2**31 else np.int64
    at, step, labels = np.zeros((1,) * len(sizes), narrow), 1, list(sizes)
    for label, n in zip(reversed(term), reversed(shape), strict=True):
        if n > 1:
            axis = [1] * len(labels)
            axis[labels.index(label)] = n
            at = at + step * np.arange(n, dtype=narrow).reshape(axis)
        step *= n
    return at
