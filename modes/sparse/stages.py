"""Stages: the few kinds of vectorised steps in a program, and the scatter of its results.

`Scatter` writes numbers to positions that are mostly equally spaced, such as the diagonals of a
stencil matrix, where the rows of the grid are alike. Such positions are written through a strided
view, which is several times faster than an index array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

Index = np.ndarray | slice
Numbers = np.ndarray | float

ROUNDS = 8
"""Sums of up to this many terms are computed term by term, longer sums by a sparse product."""


class Variables:
    """The variables x; a range in `direct` is read from the array that it comes from."""

    def __init__(
        self, x: np.ndarray, flat: list[np.ndarray],
        direct: Mapping[tuple[int, int], tuple[int, slice]],
    ) -> None:  # fmt: skip
        self.x, self.flat, self.direct = x, flat, direct

    def __getitem__(self, index: Index) -> np.ndarray:
        if isinstance(index, slice) and (index.start, index.stop) in self.direct:
            source, where = self.direct[index.start, index.stop]
            return self.flat[source][where]
        return self.x[index]


class Multiplied:
    """x[made] = x[left] ∘ x[right]."""

    def __init__(self, left: np.ndarray, right: np.ndarray, made: slice) -> None:
        self.reads: tuple[Index, ...] = (as_slice(left), as_slice(right))
        self.made = made

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


Stage = Multiplied | Added | Spread
"""Computes a range of x from the variables before it."""


def added(
    variable: np.ndarray, coefficient: np.ndarray, counts: np.ndarray, made: slice
) -> Stage:
    """The sums of consecutive terms, `counts` terms each, one of which varies at least.

    Variable 0 is the constant 1.
    """
    n = len(counts)
    row = np.repeat(np.arange(n), counts)
    sums = np.bincount(row, np.where(variable == 0, coefficient, 0), n)
    constant = uniform(sums.astype(coefficient.dtype))
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


class Plate(NamedTuple):
    """Runs of equal steps: numbers first + i·skip + j to positions start + i·down + j·step."""

    shape: tuple[int, int]
    first: int
    skip: int
    start: int
    down: int
    step: int

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """A view of the numbers."""
        return strided(numbers, self.shape, self.first, self.skip, 1)

    def within(self, into: np.ndarray) -> np.ndarray:
        """A view of the positions."""
        return strided(into, self.shape, self.start, self.down, self.step)


def strided(a: np.ndarray, shape: tuple[int, int], start: int, down: int, step: int) -> np.ndarray:
    """The entries a[start + i·down + j·step], as a view: quicker than NumPy's `as_strided`."""
    item = a.itemsize
    return np.ndarray(shape, a.dtype, a, start * item, (down * item, step * item))


class Scatter:
    """into[at] = numbers, for positions `at` that are known in advance."""

    def __init__(self, at: np.ndarray) -> None:
        found = list(islice(plates(at), PLATES + 1))
        self.plates = found if len(found) <= PLATES else []
        others = np.ones(len(at), bool)
        for plate in self.plates:
            plate.of(others)[...] = False
        self.rest = as_slice(np.flatnonzero(others))
        self.at = as_slice(at[self.rest])

    def write(self, numbers: np.ndarray, into: np.ndarray) -> None:
        """into[at] = numbers, both contiguous and of one dtype."""
        for plate in self.plates:
            plate.within(into)[...] = plate.of(numbers)
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
        yield Plate((n, length), first, skip, start, down, step)
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
