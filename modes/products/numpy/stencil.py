"""Stencil: a sum of shifted and scaled tensors, in one pass of BLAS for every term.

In row-major order a shift along any axes is one along the flat vector, y[p] += c x[p + k], but
for the few entries where it leaves an axis: these are computed by a sparse matrix afterwards.
Entries are taken in blocks that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import onnx_ir as ir
from scipy.linalg import get_blas_funcs
from scipy.sparse import coo_array, csr_array

from ....jacobians import Shape, dtype_of, size
from .shifts import Shifts, Term

BLOCK = 1 << 13
"""Entries that are summed at a time: they stay in the cache, and are too few for SciPy's BLAS to
take threads of its own, which would spin against those of NumPy's."""

CALL, RATE = 1e-6, 1e11
"""Seconds of a call and bytes per second of a pass, inside the cache."""

MARGIN, ENTRY = 1e-5, 2e-9
"""Seconds of a small sparse product, and of each entry of it."""

Step = Callable[..., Any]


class Stencil:
    """y = Σ c ∘ (x shifted); called with the flat sources, room for a block, and y.

    The first call writes y, by a term that is not shifted if there is one; the others add to it.
    """

    def __init__(self, shifts: Shifts) -> None:
        self.shape, self.dtype = shifts.shape, dtype_of(shifts.root.outputs[0])
        self.sources = list(dict.fromkeys(term.source for term in shifts.terms))
        self.margin, self.matrices = margins(shifts, self.sources)
        still = [t for t in shifts.terms if not any(t.shift) and is_whole(t, self.shape)]
        self.first = max(still, key=lambda t: t.coefficient.ndim, default=None)
        self.others = [term for term in shifts.terms if term is not self.first]
        self.length = BLOCK
        ends = (*range(0, size(self.shape), self.length), size(self.shape))
        self.steps = [step for block in pairwise(ends) for step in self._steps(*block)]

    def __call__(self, *flat: np.ndarray) -> None:
        for step in self.steps:
            step(flat)
        if len(self.margin):
            parts = (m @ x for m, x in zip(self.matrices, flat, strict=False))
            flat[-1][self.margin] = sum(parts)

    def _steps(self, low: int, high: int) -> Iterator[Step]:
        """The calls for a block of y."""
        if self.first is None:
            yield partial(cleared, low, high)
        else:
            c = self.first.coefficient
            cut = c.reshape(-1)[low:high] if c.ndim else c
            yield partial(scaled, self.sources.index(self.first.source), low, high, cut)
        axpy = get_blas_funcs("axpy", dtype=self.dtype)
        for term in self.others:
            c, source = term.coefficient, self.sources.index(term.source)
            k = offset(term.shift, self.shape)
            at, end = max(low, -k), min(high, size(self.shape) - k)
            if at < end and c.ndim:
                yield partial(weighted, axpy, source, at, k, c.reshape(-1)[at:end])
            elif at < end:
                yield partial(added, axpy, source, at, k, end - at, float(c))

    @property
    def nbytes(self) -> int:
        """Bytes of what was put together: coefficients and the rows of the margin."""
        terms = [self.first, *self.others] if self.first else self.others
        matrices = sum(m.data.nbytes + m.indices.nbytes + m.indptr.nbytes for m in self.matrices)
        return sum(t.coefficient.nbytes for t in terms) + self.margin.nbytes + matrices

    @property
    def seconds(self) -> float:
        """What a product takes, about."""
        passes = 1 + sum(1 + bool(term.coefficient.ndim) for term in self.others)
        outside = MARGIN + ENTRY * sum(matrix.nnz for matrix in self.matrices)
        inside = passes * pass_seconds(self.shape, self.dtype)
        return inside + (outside if len(self.margin) else 0)


def cleared(low: int, high: int, flat: tuple[np.ndarray, ...]) -> None:
    """y ← 0."""
    flat[-1][low:high] = 0


def scaled(source: int, low: int, high: int, c: np.ndarray, flat: tuple[np.ndarray, ...]) -> None:
    """y ← c ∘ x."""
    np.multiply(flat[source][low:high], c, out=flat[-1][low:high])


def added(
    axpy: Any, source: int, at: int, k: int, n: int, c: float, flat: tuple[np.ndarray, ...]
) -> None:
    """y[p] ← y[p] + c x[p + k]."""
    axpy(flat[source], flat[-1], n, c, at + k, 1, at, 1)


def weighted(
    axpy: Any, source: int, at: int, k: int, c: np.ndarray, flat: tuple[np.ndarray, ...]
) -> None:
    """y[p] ← y[p] + c[p] x[p + k]."""
    n = len(c)
    np.multiply(flat[source][at + k : at + k + n], c, out=flat[-2][:n])
    axpy(flat[-2], flat[-1], n, 1.0, 0, 1, at, 1)


def offset(shift: Shape, shape: Shape) -> int:
    """A shift in row-major order."""
    return sum(s * size(shape[k + 1 :]) for k, s in enumerate(shift))


def is_whole(term: Term, shape: Shape) -> bool:
    """Whether a term is everywhere."""
    return term.box == tuple((0, n) for n in shape)


def margins(shifts: Shifts, sources: list[ir.Value]) -> tuple[np.ndarray, list[csr_array[Any]]]:
    """Where a flat shift leaves the box of some term, and what y is there, for each source."""
    n, outside = size(shifts.shape), np.zeros(size(shifts.shape), bool)
    for term in shifts.terms:
        k = offset(term.shift, shifts.shape)
        reached = slice(max(0, -k), min(n, n - k))
        outside[reached] |= ~inside(term, shifts.shape)[reached]
    rows = np.flatnonzero(outside)
    matrices = [rows_of(rows, [t for t in shifts.terms if t.source is source], shifts.shape)
                for source in sources]  # fmt: skip
    return rows, matrices


def inside(term: Term, shape: Shape) -> np.ndarray:
    """Whether each entry is inside the box of a term."""
    found = np.zeros(shape, bool)
    found[tuple(slice(*ends) for ends in term.box)] = True
    return found.reshape(-1)


def rows_of(rows: np.ndarray, terms: list[Term], shape: Shape) -> csr_array[Any]:
    """Some rows of Σ c ∘ (shift), as a sparse matrix."""
    data, at, columns = [], [], []
    for term in terms:
        (there,) = np.nonzero(inside(term, shape)[rows])
        data.append(np.broadcast_to(term.coefficient, shape).reshape(-1)[rows[there]])
        at.append(there)
        columns.append(rows[there] + offset(term.shift, shape))
    where = np.concatenate(at), np.concatenate(columns)
    return csr_array(coo_array((np.concatenate(data), where), (len(rows), size(shape))))


def pass_seconds(shape: Shape, dtype: np.dtype) -> float:
    """One call that reads two tensors and writes one."""
    return CALL + 3 * size(shape) * dtype.itemsize / RATE
