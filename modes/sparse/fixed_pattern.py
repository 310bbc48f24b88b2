"""Fixed pattern: the entries that a sum of sparse matrices may have, the same at all points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.sparse import csr_array

from ...jacobians.errors import InputError
from ...jacobians.threads import cached_property

Slots = tuple[np.ndarray, np.ndarray]
"""The entries of a matrix that count, and their places among the values of the sum."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A pattern as a part of a larger matrix: entry (i, j) lies at (rows[i], columns[j])."""

    pattern: csr_array[Any]
    rows: np.ndarray
    columns: np.ndarray

    def keys(self, A: csr_array[Any], width: int) -> np.ndarray:
        """The entries of a matrix in place of the pattern, numbered row by row."""
        i = self.rows[np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))]
        return i.astype(np.int64) * width + self.columns[A.indices]


@final
class FixedPattern:
    """Σₖ Aₖ, each Aₖ a sparse matrix in its place: the rows and columns of all entries, by rows.

    With `lower`, entries above the diagonal are left out. Indices are int32 where they fit.

    >>> A = csr_array(np.array([[1.0, 2.0], [2.0, 0.0]]))
    >>> both = [Placed(A, np.array(at), np.array(at)) for at in ([0, 1], [1, 2])]
    >>> S = FixedPattern((3, 3), both, lower=True)
    >>> S.rows, S.columns, S.values([A, A])
    (array([0, 1, 1, 2], dtype=int32), array([0, 0, 1, 1], dtype=int32), array([1., 2., 1., 2.]))
    """

    def __init__(
        self, shape: tuple[int, int], parts: Sequence[Placed], *, lower: bool = False
    ) -> None:
        self.shape, self.parts, self.lower = shape, parts, lower
        keys = [part.keys(part.pattern, shape[1]) for part in parts]
        whole = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]))
        rows, columns = np.divmod(whole, max(shape[1], 1))
        kept = rows >= columns if lower else slice(None)
        self.keys = whole[kept]
        small = max(*shape, len(self.keys)) <= np.iinfo(np.int32).max
        kind = np.int32 if small else np.int64
        self.rows: np.ndarray = rows[kept].astype(kind)
        self.columns: np.ndarray = columns[kept].astype(kind)
        self.indptr = np.searchsorted(self.rows, np.arange(shape[0] + 1)).astype(kind)
        self.known: dict[int, tuple[Any, Slots]] = {}

    def values(self, matrices: Sequence[csr_array[Any]]) -> np.ndarray:
        """The entries of Σₖ Aₖ in order; raises `InputError` for an entry without a place."""
        found = np.zeros(len(self.keys))
        for k, A in enumerate(matrices):
            kept, slots = self._slots(k, A)
            found[slots] += A.data[kept]
        return found

    def matrix(self, values: np.ndarray) -> csr_array[Any]:
        """The sparse array with these entries; those below the diagonal also above it."""
        if not self.lower:
            return csr_array((values, self.columns, self.indptr), self.shape)
        order, columns, indptr = self.mirrored
        return csr_array((values[order], columns, indptr), self.shape)

    @cached_property
    def mirrored(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the symmetric matrix, row by row: the place of each entry, its column, row starts."""
        above = np.flatnonzero(self.rows != self.columns)
        rows = np.concatenate([self.rows, self.columns[above]])
        columns = np.concatenate([self.columns, self.rows[above]])
        place = np.concatenate([np.arange(len(self.rows)), above])
        order = np.lexsort((columns, rows))
        starts = np.searchsorted(rows[order], np.arange(self.shape[0] + 1))
        return place[order], columns[order], starts.astype(columns.dtype)

    def _slots(self, k: int, A: csr_array[Any]) -> Slots:
        """Where the entries of Aₖ go: found once for all matrices that share their indices."""
        index, slots = self.known.get(k, (None, None))
        if slots is not None and index is A.indices:
            return slots
        keys = self.parts[k].keys(A, self.shape[1])
        rows, columns = np.divmod(keys, max(self.shape[1], 1))
        kept = np.flatnonzero(rows >= columns) if self.lower else np.arange(len(keys))
        place = np.searchsorted(self.keys, keys[kept])
        inside = np.append(self.keys, -1)[place] == keys[kept]
        if not inside.all():
            first = int(np.flatnonzero(~inside)[0])
            entry = int(rows[kept][first]), int(columns[kept][first])
            raise InputError(
                f"entry {entry} may be nonzero here but not at the start: the model computes other "
                "steps at this point, so make the problem anew from inputs near it"
            )
        self.known[k] = A.indices, (kept, place)
        return kept, place
