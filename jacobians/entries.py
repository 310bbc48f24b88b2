"""Entries: the numbers of an operator, all of them or those on the diagonal, made by products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .arrays import wide
from .errors import InputError, LimitError
from .guest import Guest
from .hooks import sparse
from .progress import chunks
from .progress import progress as showing

CHUNK = 64 * 2**20
"""Bytes of right-hand sides that go through an operator in one call."""


class Entries(Guest):
    """J as a matrix, dense or sparse, its diagonal and its trace."""

    def toarray(self, *, limit: int | None = None, progress: bool | None = None) -> np.ndarray:
        """The dense matrix, from whichever side needs fewer products; silent with `progress=False`.

        Shape: (m, n). Raises `LimitError` where the matrix would take more than `limit` bytes,
        which is 2 GiB or what the `Limits` of the model say.
        """
        limit, (m, n) = self.dense_limit if limit is None else limit, self.shape
        need = m * n * self.dtype.itemsize
        if need > limit:
            raise LimitError(
                f"the dense Jacobian of shape {m}×{n} ({self.dtype}) needs {need / 2**30:.2f} GiB, "
                f"more than the limit of {limit / 2**30:.2f} GiB: keep it lazy, take a block, "
                f"or raise toarray(limit=...)"
            )
        with showing(progress):
            return self._dense(limit)

    def tosparse(
        self, format: str = "csr", *, limit: int | None = None, out: Any = None,
        progress: bool | None = None,
    ) -> Any:  # fmt: skip
        """The matrix as a sparse array of SciPy, with every entry that may be other than zero.

        `out`, the result for the same Jacobian at another point, is overwritten and returned: only
        entries that depend on the point are written. The arrays that say where entries stand are
        read-only, for other results share them; a `copy()` has its own. As to `progress`, see
        `onnxjac.progress`.

        Shape: (m, n). Raises `LimitError` where the matrix would take more than `limit` bytes,
        `InputError` where `out` has another pattern.
        """
        with showing(progress):
            return sparse(self, format, self.dense_limit if limit is None else limit, out)

    def _dense(self, limit: int) -> np.ndarray:
        """The matrix, which is known to fit."""
        m, n = self.shape
        return self._columns() if m >= n else np.ascontiguousarray(self.T._columns().T)

    def _columns(self) -> np.ndarray:
        m, n = self.shape
        dense = np.empty((m, n), dtype=self.dtype)
        for start, stop in self._chunks(n, "matrix"):
            unit = np.zeros((n, stop - start), dtype=self.dtype)
            unit[range(start, stop), range(stop - start)] = 1
            dense[:, start:stop] = self._matmat(unit)
        return dense

    def _chunks(self, n: int, label: str) -> Iterator[tuple[int, int]]:
        width = max(1, CHUNK // (max(*self.shape, 1) * self.dtype.itemsize))
        return chunks(n, width, label, "products")

    def diagonal(self) -> np.ndarray:
        """The entries J[i, i], exact: structurally where the kind knows them, else by products.

        Shape: (min(m, n),).
        """
        m, n = self.shape
        k = min(m, n)
        entries = np.empty(k, dtype=self.dtype)
        for start, stop in self._chunks(k, "diagonal"):
            unit = np.zeros((n, stop - start), dtype=self.dtype)
            unit[range(start, stop), range(stop - start)] = 1
            entries[start:stop] = self._matmat(unit)[range(start, stop), range(stop - start)]
        return entries

    def trace(self) -> Any:
        """Σᵢ J[i, i] of a square operator: a float, or complex.

        Shape: a number. Raises `InputError` where the operator is not square.
        """
        if self.shape[0] != self.shape[1]:
            raise InputError(f"the trace needs a square operator, not one of shape {self.shape}")
        return self.diagonal().sum(dtype=wide(self.dtype)).item()
