"""Scatter: numbers written to places that mostly follow each other in equal steps.

The diagonals of a stencil's matrix are so: rows of the grid, one like the other. Such places are
written as a strided view, several times as fast as by an index for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from .stages import stretch

LONG, PLATES = 16, 8
"""The shortest run of equal steps that counts, and the most plates of equal runs."""


@dataclass(frozen=True)
class Plate:
    """Equal runs in equal steps: places start + i·down + j·step of numbers first + i·skip + j."""

    start: int
    first: int
    shape: tuple[int, int]
    down: int
    step: int
    skip: int

    @property
    def numbers(self) -> np.ndarray:
        """Which numbers are written."""
        rows, columns = np.arange(self.shape[0]), np.arange(self.shape[1])
        return self.first + np.add.outer(self.skip * rows, columns)

    @property
    def places(self) -> np.ndarray:
        """Where they are written."""
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
    """into[at] = numbers, for places `at` that are known beforehand."""

    def __init__(self, at: np.ndarray) -> None:
        self.plates = list(islice(plates(at), PLATES + 1))
        if len(self.plates) > PLATES:
            self.plates = []
        self.count, covered = len(at), np.zeros(len(at), bool)
        for plate in self.plates:
            covered[plate.numbers.ravel()] = True
        self.rest = stretch(np.flatnonzero(~covered))
        self.at = stretch(at[self.rest])

    @property
    def everywhere(self) -> np.ndarray:
        """All places, one after the other."""
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
    """The long runs of equal steps, equal runs that follow in equal distances as one plate."""
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
    """How many runs at the beginning have one length and one step, and the same distances."""
    gaps = ([b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(spots))
    same = (kind == kinds[0] for kind in kinds[1:])
    first: list[int] | None = None
    for n, (gap, fits) in enumerate(zip(gaps, same, strict=True), 1):
        first = first or gap
        if not fits or gap != first:
            return n
    return len(kinds)
