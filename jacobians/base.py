"""Jacobian: the face that every operator shows to SciPy.

Conventions, stated once. A tensor is ravelled row-major, several tensors are concatenated in
their declared order, and J is outputs × inputs. A concrete operator has an `out_shape`, an
`in_shape` and two methods: `_apply` and `_transpose`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from .arrays import Array, Op, Shape, bytes_of, own, reading, rounded, size, wide
from .errors import InputError, LimitError
from .guest import Guest
from .hooks import Shown, add, compiled, inverse, multiply, plot, scale, sparse, spy, submatrix
from .progress import chunks
from .progress import progress as showing

DENSE_LIMIT = 2 * 2**30
"""Bytes that `toarray` may allocate unless told otherwise."""

CHUNK = 64 * 2**20
"""Bytes of right-hand sides that go through an operator in one call."""


class Jacobian(Guest, Shown, ABC):
    """J = ∂y/∂x as a lazy linear operator, of shape (size of y, size of x).

    Products with float data are computed in the operator's own dtype, those of float16 and bfloat16
    in float32 and rounded once, at the end. `J @ v`, `J.T @ u`,
    `J @ V` (all columns in one call), `u @ J`, `J + K`, `2 * J` and `J @ K` work as for arrays.
    """

    out_shape: Shape
    in_shape: Shape
    dense_limit: int = DENSE_LIMIT  # bytes of a matrix made of it

    def __init__(self, out_shape: Shape, in_shape: Shape, dtype: Any) -> None:
        self.out_shape, self.in_shape = tuple(out_shape), tuple(in_shape)
        super().__init__(np.dtype(dtype), (size(self.out_shape), size(self.in_shape)))

    # -- what a concrete operator says --------------------------------------------------------

    @abstractmethod
    def _apply(self, op: Op, v: Array) -> Array:
        """(*K, *in_shape) -> (*K, *out_shape), in calls of the vocabulary `op` only."""

    @abstractmethod
    def _transpose(self) -> Jacobian:
        """The adjoint, as an operator of its own."""

    def arrays(self) -> Iterator[Array]:
        """The data it holds on to."""
        yield from ()

    @property
    def flops(self) -> int:
        """Multiplications and additions of one product, roughly."""
        return 0

    def __repr__(self) -> str:
        return type(self).__name__

    # -- what follows for all -----------------------------------------------------------------

    @cached_property
    def T(self) -> Jacobian:
        """The transpose, built once."""
        return self._transpose()

    @property
    def H(self) -> Jacobian:
        """The adjoint, which is the transpose: a Jacobian is real."""
        return self.T

    def transpose(self) -> Jacobian:
        return self.T

    def adjoint(self) -> Jacobian:
        return self.T

    _adjoint = transpose

    @property
    def nbytes(self) -> int:
        """Bytes of the data it holds, shared arrays counted once."""
        return bytes_of(self.arrays())

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._flat_product(np.asarray(x).reshape(1, -1)[0], ())

    def _matmat(self, X: np.ndarray) -> np.ndarray:
        return self._flat_product(np.asarray(X).T, (X.shape[1],)).T

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return self.T._matvec(x)

    def _rmatmat(self, X: np.ndarray) -> np.ndarray:
        return self.T._matmat(X)

    def _flat_product(self, v: np.ndarray, columns: Shape) -> np.ndarray:
        if np.iscomplexobj(v):
            real, imaginary = (self._flat_product(part, columns) for part in (v.real, v.imag))
            return real + 1j * imaginary
        result = np.result_type(self.dtype, v.dtype)
        if v.size == 0:
            return np.zeros((*columns, self.shape[0]), result)
        v = np.ascontiguousarray(v, dtype=wide(self.dtype)).reshape((*columns, *self.in_shape))
        product = np.asarray(self._apply(reading(v), v))
        return own(rounded(product.reshape(*columns, self.shape[0]), result), v)

    def __matmul__(self, other: Any) -> Any:
        if type(other) is np.ndarray and other.shape == self.shape[1:]:
            return self._flat_product(other, ())  # at once: SciPy's way there takes microseconds
        return multiply(self, other) if isinstance(other, Jacobian) else super().__matmul__(other)

    def dot(self, x: Any) -> Any:
        if isinstance(x, Jacobian):
            return multiply(self, x)
        return scale(self, x) if _is_real_scalar(x) else super().dot(x)

    __mul__ = dot

    def __rmul__(self, x: Any) -> Any:
        return scale(self, x) if _is_real_scalar(x) else super().__rmul__(x)

    def __truediv__(self, x: Any) -> Any:
        return scale(self, 1 / x) if _is_real_scalar(x) else super().__truediv__(x)

    def __neg__(self) -> Jacobian:
        return scale(self, -1.0)

    def __add__(self, other: Any) -> Any:
        return add(self, other) if isinstance(other, Jacobian) else super().__add__(other)

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __getitem__(self, key: Any) -> Jacobian:
        """`J[rows, columns]` with slices or index arrays, again lazy."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return submatrix(self, rows, columns)

    @property
    def structure(self) -> Jacobian:
        """The operator itself, without names and what else a face adds to it."""
        return self

    def compile(
        self, engine: str | None = None, *, products: int = 100, memory: int | None = None
    ) -> Jacobian:
        """The same operator for many products: planned for so many, and run by an engine.

        `engine` is `"onnxruntime"`, `"numpy"` or `"numba"`; by default the first that is installed
        and has all kernels. `memory` is how many bytes may be held beyond what J holds. The
        program is made at the first product, one for each number of columns; after `relinearize`,
        at the first product again.
        """
        return compiled(self, engine, products, memory)

    def inverse(self, *args: Any, **options: Any) -> Jacobian:
        """J⁻¹ as an operator, whose product is a Krylov solution: options of `onnxjac.inverse`."""
        solved: Jacobian = inverse(self, *args, **options)
        return solved

    def plot(self, **options: Any) -> Any:
        """The blocks or the entries as a picture: options of `onnxjac.plots.plot_jacobian`."""
        return plot(self, **options)

    def spy(self, **options: Any) -> Any:
        """Where entries may be other than zero, as a picture: options of `onnxjac.plots.spy`."""
        return spy(self, **options)

    def toarray(self, *, limit: int | None = None, progress: bool | None = None) -> np.ndarray:
        """The dense matrix, from whichever side needs fewer products; silent with `progress=False`.

        Raises `LimitError` where it would take more than `limit` bytes.
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

        Raises `LimitError` where it would take more than `limit` bytes, `InputError` where `out`
        has another pattern.
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
        """The entries J[i, i], exact: structurally where the kind knows them, else by products."""
        m, n = self.shape
        k = min(m, n)
        entries = np.empty(k, dtype=self.dtype)
        for start, stop in self._chunks(k, "diagonal"):
            unit = np.zeros((n, stop - start), dtype=self.dtype)
            unit[range(start, stop), range(stop - start)] = 1
            entries[start:stop] = self._matmat(unit)[range(start, stop), range(stop - start)]
        return entries

    def trace(self) -> float:
        """Σᵢ J[i, i] of a square operator."""
        if self.shape[0] != self.shape[1]:
            raise InputError(f"the trace needs a square operator, not one of shape {self.shape}")
        return float(self.diagonal().sum(dtype=wide(self.dtype)))


def _is_real_scalar(x: Any) -> bool:
    return np.isscalar(x) and np.isrealobj(x) and not isinstance(x, str | bytes)
