"""Terms: entries of a sparse matrix in coordinates, their numbers left to a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

STRIP = 2**21
"""Terms that are laid out at a time: a hundred bytes each, whatever the size of the matrix."""


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
        return Terms(
            self.rows[index], self.columns[index], self.variable[index], self.coefficient[index]
        )

    def by_row(self) -> Terms:
        """The same, sorted by row."""
        in_order = np.all(self.rows[1:] >= self.rows[:-1])
        return self if in_order else self[np.argsort(self.rows, kind="stable")]


def joined(parts: list[Terms]) -> Terms:
    """All terms, one part after the other."""
    return Terms(
        np.concatenate([t.rows for t in parts]), np.concatenate([t.columns for t in parts]),
        np.concatenate([t.variable for t in parts]), np.concatenate([t.coefficient for t in parts]),
    )  # fmt: skip


def expanded(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For stretches of `counts` from `starts`: which stretch, and where, for every position.

    >>> expanded(np.array([5, 0]), np.array([2, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    if np.all(counts == 1):
        return np.arange(len(counts)), starts
    stretch = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return stretch, np.arange(len(stretch)) + (starts - before)[stretch]


def strips(rows: np.ndarray, counts: np.ndarray, m: int) -> Iterator[tuple[slice, int, int]]:
    """Cuts entries, sorted by row, where so many terms have come together.

    Gives the entries of each strip of rows, its first row, and how many rows it has.
    """
    ends = np.cumsum(counts)
    full = np.searchsorted(ends, np.arange(STRIP, ends[-1] if len(ends) else 0, STRIP))
    tops = np.unique([0, *rows[full], m])
    cuts = np.searchsorted(rows, tops)
    for k in range(max(len(tops) - 1, 1)):
        last = min(k + 1, len(tops) - 1)
        yield slice(cuts[k], cuts[last]), int(tops[k]), int(tops[last] - tops[k])
