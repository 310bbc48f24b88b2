"""Contraction: the Jacobian of an einsum in one operand, and other operators as contractions."""

from __future__ import annotations

from functools import singledispatch
from string import ascii_letters

import numpy as np

from .arrays import Array, Op, Shape, dtype_of, factor, fits, shape_of, size
from .base import Jacobian
from .elementwise import Diagonal
from .errors import InputError
from .matrices import BlockDiagonal, Dense, Eye, Kron, LowRank
from .symint import same
from .transforms import Cumulative, Fourier


class Contraction(Jacobian):
    """y[out] = Σ x[in] ∏ₖ aₖ[termₖ], summed over the labels that `out` lacks.

    `factors` are pairs (aₖ, termₖ), `in_term` is `in` and `out_term` is `out`, strings of one
    letter for each axis; `sizes` are the lengths by label. Every label of `in` occurs in `out` or
    in some term, and every label of `out` in `in` or in some term, so that the transpose is the
    same contraction with `in` and `out` exchanged. Labels of `sizes` that occur nowhere are
    dropped.
    """

    holds = ("factors",)

    def __init__(
        self, factors: tuple[tuple[Array, str], ...], in_term: str, out_term: str,
        sizes: dict[str, int],
    ) -> None:  # fmt: skip
        factors = tuple((factor(a), term) for a, term in factors)
        check_terms(factors, in_term, out_term, sizes)
        dtype = np.result_type(*(dtype_of(a) for a, _ in factors))
        out_shape, in_shape = (tuple(sizes[label] for label in t) for t in (out_term, in_term))
        super().__init__(out_shape, in_shape, dtype)
        self.factors, self.in_term, self.out_term = factors, in_term, out_term
        labels = set(in_term + out_term).union(*(term for _, term in factors))
        self.sizes = {label: n for label, n in sizes.items() if label in labels}

    def _apply(self, op: Op, v: Array) -> Array:
        terms = ",".join((*(term for _, term in self.factors), f"...{self.in_term}"))
        return op.Einsum(*(a for a, _ in self.factors), v, equation=f"{terms}->...{self.out_term}")

    def _transpose(self) -> Jacobian:
        return Contraction(self.factors, self.out_term, self.in_term, self.sizes)

    @property
    def flops(self) -> int:
        return 2 * size(tuple(self.sizes.values()))

    def __repr__(self) -> str:
        terms = ", ".join(term for _, term in self.factors)
        return f"einsum({terms}; {self.in_term} → {self.out_term})"


def check_terms(
    factors: tuple[tuple[Array, str], ...], in_term: str, out_term: str, sizes: dict[str, int]
) -> None:
    """Raises `InputError` where labels and shapes do not form a `Contraction`."""
    shapes = [(shape_of(a), term) for a, term in factors]
    text = f"Contraction of {', '.join(f'{term} {list(s)}' for s, term in shapes)}; {in_term} to "
    text += f"{out_term}, sizes {sizes}"
    labels = {label for _, term in shapes for label in term}
    if not factors:
        raise InputError(f"{text}: it holds no array")
    if unknown := sorted((labels | {*in_term, *out_term}) - sizes.keys()):
        raise InputError(f"{text}: the size of {', '.join(unknown)} is not given")
    if alone := sorted(({*in_term} ^ {*out_term}) - labels):
        raise InputError(f"{text}: {', '.join(alone)} is in one of in and out only, in no factor")
    for shape, term in shapes:
        sized = tuple(sizes[label] for label in term)
        if len(sized) != len(shape) or not fits(shape, sized):
            raise InputError(f"{text}: {term} has shape {list(shape)}, not {list(sized)}")


def label_sizes(arrays: tuple[Shape, ...], terms: tuple[str, ...]) -> dict[str, int]:
    """The length of every label in `terms`, from the shapes in `arrays`; length 1 broadcasts to any
    other, also to 0.

    >>> label_sizes(((2, 1), (0, 4)), ("ij", "jk"))
    {'i': 2, 'j': 0, 'k': 4}
    """
    sizes: dict[str, int] = {}
    if list(map(len, arrays)) != list(map(len, terms)):
        raise InputError(f"the terms {', '.join(terms)} do not fit arrays of shape "
                         f"{', '.join(str(list(shape)) for shape in arrays)}")  # fmt: skip
    for shape, term in zip(arrays, terms, strict=True):
        for label, n in zip(term, shape, strict=True):
            if same(sizes.get(label, 1), 1):
                sizes[label] = n
    return sizes


EINSUMS = Contraction, Dense, BlockDiagonal, LowRank, Diagonal, Kron
"""The types whose entries are sums of products of entries of the arrays that they hold."""


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
    """Y[m, l] = Σ A[m, n] B[l, k] X[n, k]; an identity has one label for both axes."""
    batch, rest = ascii_letters[: len(operator.batch)], iter(ascii_letters[len(operator.batch) :])
    m, n, row, k = next(rest), next(rest), next(rest), next(rest)
    n = m if isinstance(operator.left, Eye) else n
    k = row if isinstance(operator.right, Eye) else k
    terms = (operator.left, m + n), (operator.right, row + k)
    factors = tuple((f, batch[len(batch) + 2 - len(shape_of(f)) :] + term)
                    for f, term in terms if not isinstance(f, Eye))  # fmt: skip
    sizes = dict(zip(batch + n + k, operator.in_shape, strict=True))
    sizes |= dict(zip(batch + m + row, operator.out_shape, strict=True))
    return Contraction(factors, batch + n + k, batch + m + row, sizes)


@as_contraction.register
def _(operator: Cumulative) -> Contraction:
    line = Cumulative(0, operator.in_shape[operator.axis :][:1], operator.dtype,
                      exclusive=operator.exclusive, reverse=operator.reverse)  # fmt: skip
    return matrix_along(line, (operator.axis,), operator)


@as_contraction.register
def _(operator: Fourier) -> Contraction:
    shape = operator.in_shape[operator.axis], 2
    line = Fourier(0, shape, operator.dtype, inverse=operator.inverted)
    return matrix_along(line, (operator.axis, -1), operator)


def matrix_along(line: Jacobian, axes: tuple[int, ...], operator: Jacobian) -> Contraction:
    """The operator as one matrix along some axes, applied alike across all other axes."""
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
    """A contraction whose label sizes come from its factors."""
    arrays, terms = zip(*factors, strict=True)
    return Contraction(factors, in_term, out_term, label_sizes(tuple(map(shape_of, arrays)), terms))


def label_positions(term: str, shape: Shape, sizes: dict[str, int]) -> np.ndarray:
    """Row-major positions in a tensor with these labels, over the grid of all labels.

    An axis of length 1 is broadcast along its label.

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
