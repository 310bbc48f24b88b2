"""Program: the entries of a sparse Jacobian, from the arrays that its operators hold.

Every entry is coefficient · x[variable]. x[0] = 1 is the variable of the constants, then come the
arrays that change with the point, then the results of stages from earlier variables: products of
two variables, and sums of several. Positions and constants are computed once; at another point only
x is recomputed.

`Terms` are entries in coordinate form; `ArraySources` says which arrays at a point a program reads.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Jacobian
from ...jacobians.arrays import size
from ...jacobians.errors import LimitError
from ...jacobians.sparse import entries
from ..linear.derivatives.point import Point


class EntryProgram:
    """The variables: the arrays that they are read from, and the stages that compute the others.

    `fixed` are the ids of the operators whose values never change; None for all operators.
    """

    def __init__(self, dtype: Any, fixed: Container[int] | None, limit: int) -> None:
        self.dtype, self.fixed, self.limit = np.dtype(dtype), fixed, limit
        self.length, self.stages = 1, list[Stage]()
        self.starts: dict[Key, int] = {}
        self.read: dict[Key, slice] = {}

    def entries(self, operator: Jacobian) -> Terms:
        """The entries of an operator that is not composed of others."""
        E = entries(operator)
        if not E.held or self.fixed is None or id(operator) in self.fixed:
            E = E.known()
        variable = np.zeros(len(E.rows), np.int64)
        for array, at in E.held:
            variable = self.product(variable, np.int64(self.start(array_key(array))) + at)
        return Terms(E.rows, E.columns, variable, np.broadcast_to(E.weights, E.rows.shape))

    def start(self, key: Key) -> int:
        """Where the array of this identity starts in x, which holds each array once."""
        if key not in self.starts:
            _, shape, *_ = key
            self.starts[key], self.length = self.length, self.length + size(shape)
            self.read[key] = slice(self.starts[key], self.length)
        return self.starts[key]

    def product(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The variables left · right; new ones where neither factor is constant."""
        product = np.maximum(left, right).astype(np.int64, copy=False)
        new = np.flatnonzero(np.minimum(left, right))
        if len(new):
            made = self.reserve(len(new))
            self.stages.append(Multiplied(as_slice(left[new]), as_slice(right[new]), made))
            product[new] = np.arange(made.start, made.stop)
        return product

    def total(
        self, variable: np.ndarray, coefficient: np.ndarray, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Variables and coefficients of the sums of consecutive terms, one sum from each start."""
        counts = np.diff(starts, append=len(variable))
        first, total = variable[starts], np.add.reduceat(coefficient, starts)
        alike = np.logical_and.reduceat(variable == np.repeat(first, counts), starts)
        new = np.flatnonzero(~alike)
        if len(new):
            made = self.reserve(len(new))
            terms = np.repeat(~alike, counts)
            self.stages.append(sum_stage(variable[terms], coefficient[terms], counts[new], made))
            first[new], total[new] = np.arange(made.start, made.stop), 1
        return first, total

    def reserve(self, n: int) -> slice:
        """The next n variables; raises `LimitError` where all variables take too much memory."""
        self.length += n
        need = self.length * self.dtype.itemsize
        if need > self.limit:
            raise LimitError(
                f"accumulating the sparse Jacobian takes {need} bytes of intermediate numbers, "
                f"more than the limit of {self.limit}: keep it lazy, take a block, or raise "
                f"tosparse(limit=...)"
            )
        return slice(self.length - n, self.length)

    def run(self, arrays: Iterable[np.ndarray]) -> np.ndarray:
        """All variables for some values of the arrays."""
        x = np.empty(self.length, self.dtype)
        x[0] = 1
        for span, array in zip(self.read.values(), arrays, strict=True):
            x[span] = array.reshape(-1)
        with np.errstate(all="ignore"):  # NaN and infinity are results like others
            for stage in self.stages:
                stage(x)
        return x


STRIP = 2**21
"""The number of terms that are laid out at a time, about a hundred bytes each."""


@dataclass(frozen=True)
class Terms:
    """A[rows[k], columns[k]] += coefficient[k] · x[variable[k]]."""

    rows: np.ndarray
    columns: np.ndarray
    variable: np.ndarray
    coefficient: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Terms:
        return Terms(*(array[index] for array in vars(self).values()))

    def by_row(self) -> Terms:
        """The terms, sorted by row."""
        in_order = np.all(self.rows[1:] >= self.rows[:-1])
        return self if in_order else self[np.argsort(self.rows, kind="stable")]


def join_terms(parts: list[Terms]) -> Terms:
    """The terms of all parts, concatenated."""
    return Terms(*map(np.concatenate, zip(*(vars(terms).values() for terms in parts), strict=True)))


def expand_ranges(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges of `counts` positions from `starts`: the range of every position, and the position.

    >>> expand_ranges(np.array([5, 0]), np.array([2, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    if np.all(counts == 1):
        return np.arange(len(counts)), starts
    owner = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) + (starts - before)[owner]


def strips(rows: np.ndarray, counts: np.ndarray, m: int) -> Iterator[tuple[slice, int, int]]:
    """Cut entries, sorted by row, into strips of about `STRIP` terms.

    Yields the entries of each strip of rows, its first row, and its number of rows.
    """
    ends = np.cumsum(counts)
    full = np.searchsorted(ends, np.arange(STRIP, ends[-1] if len(ends) else 0, STRIP))
    tops = np.unique([0, *rows[full], m])
    cuts = np.searchsorted(rows, tops)
    for k in range(max(len(tops) - 1, 1)):
        last = min(k + 1, len(tops) - 1)
        yield slice(cuts[k], cuts[last]), int(tops[k]), int(tops[last] - tops[k])


Key = tuple[Any, ...]


@dataclass(frozen=True)
class ArraySources:
    """The names of the arrays that are read, and which of these are the same array."""

    first: tuple[Any, ...]
    names: tuple[Any, ...]
    aliases: tuple[int, ...]

    def fits(self, arrays: Mapping[Any, np.ndarray] | Point) -> bool:
        """Whether the same arrays coincide as before."""
        return aliases(array_key(arrays[name]) for name in self.names) == self.aliases

    def of(self, arrays: Mapping[Any, np.ndarray] | Point) -> list[np.ndarray]:
        """The arrays that are read, each once."""
        return [arrays[name] for name in self.first]


def find_sources(wanted: Collection[Key], arrays: Mapping[Any, np.ndarray]) -> ArraySources | None:
    """How to read the arrays with some identities; None if one is missing."""
    keys = {name: key for name, array in arrays.items() if (key := array_key(array)) in wanted}
    first: dict[Key, Any] = {}
    for name, key in keys.items():
        first.setdefault(key, name)
    if len(first) < len(wanted):
        return None
    return ArraySources(tuple(first[key] for key in wanted), tuple(keys), aliases(keys.values()))


def array_key(array: np.ndarray) -> Key:
    """A key that two views of the same numbers in the same order share."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype


def aliases(keys: Iterable[Any]) -> tuple[int, ...]:
    """For every key, the index of the first equal key.

    >>> aliases("abca")
    (0, 1, 2, 0)
    """
    first: dict[Any, int] = {}
    return tuple(first.setdefault(key, k) for k, key in enumerate(keys))


Index = np.ndarray | slice
Numbers = np.ndarray | float


@dataclass(frozen=True)
class Multiplied:
    """x[made] = x[left] ∘ x[right]."""

    left: Index
    right: Index
    made: slice

    def __call__(self, x: np.ndarray) -> None:
        np.multiply(x[self.left], x[self.right], out=x[self.made])


@dataclass(frozen=True)
class Summed:
    """x[made] = constant + C x, with C sparse."""

    constant: Numbers
    matrix: csr_array[Any]
    made: slice

    def __call__(self, x: np.ndarray) -> None:
        x[self.made] = self.constant + self.matrix @ x[: self.made.start]


Stage = Multiplied | Summed
"""Computes a range of x from the variables before it."""


def sum_stage(
    variable: np.ndarray, coefficient: np.ndarray, counts: np.ndarray, made: slice
) -> Summed:
    """The sums of consecutive terms, `counts` terms each; variable 0 is the constant 1."""
    n = len(counts)
    row = np.repeat(np.arange(n), counts)
    sums = np.bincount(row, np.where(variable == 0, coefficient, 0), n)
    moving = np.flatnonzero(variable)
    indptr = np.searchsorted(row[moving], np.arange(n + 1))
    matrix = csr_array((coefficient[moving], variable[moving], indptr), (n, made.start))
    return Summed(uniform(sums.astype(coefficient.dtype)), matrix, made)


def as_slice(index: np.ndarray) -> Index:
    """Consecutive positions as a slice, because a slice gives a view and an index array a copy.

    >>> as_slice(np.array([3, 4, 5]))
    slice(3, 6, None)
    >>> as_slice(np.array([3, 5]))
    array([3, 5], dtype=int32)
    """
    first, n = int(index[0]) if len(index) else 0, len(index)
    if n == 0 or bool(np.all(np.diff(index) == 1)):
        return slice(first, first + n)
    return index.astype(np.int32) if index.max() < 2**31 else index


def uniform(numbers: np.ndarray) -> Numbers:
    """A single number if all numbers are equal, else the array."""
    return float(numbers[0]) if len(numbers) and np.all(numbers == numbers[0]) else numbers
