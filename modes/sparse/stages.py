"""Stages: the few kinds of vectorised steps in a program, and the scatter of its results.

`Scatter` writes numbers to positions that are mostly equally spaced, such as the diagonals of a
stencil matrix, where the rows of the grid are alike. Such positions are written through a strided
view, which is several times faster than an index array.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

Index = np.ndarray | slice
Numbers = np.ndarray | float

ROUNDS = 8
"""Sums of up to this many terms are computed term by term, longer sums by a sparse product."""


class Variables(Protocol):
    """The variables x, some of which may be in the arrays that they come from."""

    def __getitem__(self, index: Index) -> np.ndarray: ...


class Stage(Protocol):
    """Computes a range of x from the variables before it."""

    reads: tuple[Index, ...]

    def __call__(self, x: Variables) -> None: ...


class Multiplied:
    """x[made] = x[left] ∘ x[right]."""

    def __init__(self, left: np.ndarray, right: np.ndarray, made: slice) -> None:
        self.reads, self.made = (as_slice(left), as_slice(right)), made

    def __call__(self, x: Variables) -> None:
        left, right = self.reads
        np.multiply(x[left], x[right], out=x[self.made])


class Added:
    """x[made] = constant + Σᵣ cᵣ ∘ x[vᵣ]; the first round has a term for each sum."""

    def __init__(
        self, constant: Numbers, rounds: list[tuple[Index, Index, Numbers]], made: slice
    ) -> None:
        self.constant, self.rounds, self.made = constant, rounds, made
        self.reads: tuple[Index, ...] = tuple(variables for _, variables, _ in rounds)

    def __call__(self, x: Variables) -> None:
        total = x[self.made]
        (_, variables, coefficient), *others = self.rounds
        np.multiply(x[variables], coefficient, out=total)
        total += self.constant
        for rows, variables, coefficient in others:
            total[rows] += scaled(coefficient, x[variables])


class Spread:
    """x[made] = constant + C x, with C sparse."""

    def __init__(self, constant: Numbers, matrix: csr_array[Any], made: slice) -> None:
        self.constant, self.matrix, self.made = constant, matrix, made
        self.reads: tuple[Index, ...] = (slice(0, made.start),)

    def __call__(self, x: Variables) -> None:
        x[self.made][:] = self.constant + self.matrix @ x[slice(0, self.made.start)]


def added(
    variable: np.ndarray, coefficient: np.ndarray, counts: np.ndarray, made: slice
) -> Stage:
    """The sums of consecutive terms, `counts` terms each, one of which varies at least.

    Variable 0 is the constant 1.
    """
    n = len(counts)
    row = np.repeat(np.arange(n), counts)
    constant = np.bincount(row, np.where(variable == 0, coefficient, 0), n)
    constant = uniform(constant.astype(coefficient.dtype))
    moving = np.flatnonzero(variable)
    row, variable, coefficient = row[moving], variable[moving], coefficient[moving]
    indptr = np.searchsorted(row, np.arange(n + 1))
    place = np.arange(len(row)) - indptr[row]
    if place.max() >= ROUNDS:
        return Spread(constant, csr_array((coefficient, variable, indptr), (n, made.start)), made)
    rounds = [
        (as_slice(row[r]), as_slice(variable[r]), uniform(coefficient[r]))
        for r in (np.flatnonzero(place == k) for k in range(place.max() + 1))
    ]
    return Added(constant, rounds, made)


def scaled(coefficient: Numbers, x: np.ndarray) -> np.ndarray:
    """coefficient ∘ x, without a copy if the coefficient is 1."""
    return x if isinstance(coefficient, float) and coefficient == 1 else coefficient * x


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


LONG, PLATES = 16, 8
"""The shortest run of equal steps that counts, and the most plates."""


@dataclass(frozen=True)
class Plate:
    """Equally spaced runs: numbers first + i·skip + j at positions start + i·down + j·step."""

    start: int
    first: int
    shape: tuple[int, int]
    down: int
    step: int
    skip: int

    @property
    def numbers(self) -> np.ndarray:
        """The indices of the numbers."""
        rows, columns = np.arange(self.shape[0]), np.arange(self.shape[1])
        return self.first + np.add.outer(self.skip * rows, columns)

    @property
    def places(self) -> np.ndarray:
        """The positions of the numbers."""
        rows, columns = np.arange(self.shape[0]), np.arange(self.shape[1])
        return self.start + np.add.outer(self.down * rows, self.step * columns)

    def write(self, numbers: np.ndarray, into: np.ndarray) -> None:
        """into[places] = numbers."""
        item = into.itemsize
        target = np.ndarray(
            self.shape, into.dtype, into, self.start * item, (self.down * item, self.step * item)
        )
        source = np.ndarray(
            self.shape, numbers.dtype, numbers, self.first * item, (self.skip * item, item)
        )
        target[...] = source


class Scatter:
    """into[at] = numbers, for positions `at` that are known in advance."""

    def __init__(self, at: np.ndarray) -> None:
        self.plates = list(islice(plates(at), PLATES + 1))
        if len(self.plates) > PLATES:
            self.plates = []
        self.count, covered = len(at), np.zeros(len(at), bool)
        for plate in self.plates:
            covered[plate.numbers.ravel()] = True
        self.rest = as_slice(np.flatnonzero(~covered))
        self.at = as_slice(at[self.rest])

    @property
    def everywhere(self) -> np.ndarray:
        """All positions, in order."""
        at = np.empty(self.count, np.int64)
        at[self.rest] = np.r_[self.at]
        for plate in self.plates:
            at[plate.numbers] = plate.places
        return at

    def write(self, numbers: np.ndarray, into: np.ndarray) -> None:
        """into[at] = numbers, both contiguous and of one dtype."""
        for plate in self.plates:
            plate.write(numbers, into)
        into[self.at] = numbers[self.rest]


def plates(at: np.ndarray) -> Iterator[Plate]:
    """The long runs of equal steps; equal runs at equal distances form one plate."""
    steps = np.diff(at)
    heads = np.flatnonzero(np.diff(steps, prepend=steps[:1] - 1))
    lengths = np.diff(heads, append=len(steps)) + 1
    heads, lengths = heads[lengths >= LONG], lengths[lengths >= LONG]
    kinds = np.stack([lengths, steps[heads]], axis=1).tolist()
    spots = np.stack([at[heads], heads], axis=1).tolist()
    while kinds:
        n = alike(kinds, spots)
        (length, step), (start, first) = kinds[0], spots[0]
        down, skip = (spots[1][0] - start, spots[1][1] - first) if n > 1 else (0, 0)
        yield Plate(start, first, (n, length), down, step, skip)
        kinds, spots = kinds[n:], spots[n:]


def alike(kinds: list[list[int]], spots: list[list[int]]) -> int:
    """The number of leading runs that have equal lengths, steps and distances."""
    gaps = ([b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(spots))
    same = (kind == kinds[0] for kind in kinds[1:])
    first: list[int] | None = None
    for n, (gap, fits) in enumerate(zip(gaps, same, strict=True), 1):
        first = first or gap
        if not fits or gap != first:
            return n
    return len(kinds)
