"""Algebra: products of operators with arrays of any library, and of operators with each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from scipy.sparse import issparse, linalg

from .arrays import Shape, as_array, native, prod_text, untraced
from .errors import InputError, LimitError
from .hooks import add, multiply, scale, submatrix, to_jax, to_lineax, to_pylops, to_torch, wrapped
from .readings import is_kept
from .symint import is_symbolic
from .vocabulary import Array

is_sparse: Callable[[Any], bool] = issparse

Factor: TypeAlias = Any
"""A number, an array of any library or an operator: whatever a product or a sum takes or gives."""


Product = TypeVar("Product", bound=Callable[..., Any])


def in_its_library(product: Product) -> Product:
    """The product, which for an array of the array API standard is one of its library."""

    @wraps(product)
    def call(J: Any, x: Array) -> Factor:
        ours = isinstance(x, np.ndarray | np.generic) or is_kept(x)
        if ours or not hasattr(x, "__array_namespace__"):
            return product(J, x)
        return x.__array_namespace__().asarray(product(J, native(x)), device=x.device)

    return cast(Product, call)


class Algebra(linalg.LinearOperator):
    """`J @ K`, `J + K`, `2 * J` and `J[rows, columns]` are operators again; `J @ v` is an array.

    For a matrix A of NumPy or SciPy, `J @ A` and `A @ J` are arrays, and `J + A` is an operator;
    `J @ onnxjac.asoperator(A)` stays one too.

    Products take arrays of any library and return NumPy arrays, but for a tensor of PyTorch a
    tensor on its device, which autograd does not track, and for an array of the array API standard
    an array of its library; the `to_...` methods convert J for other libraries.

    Shapes with leading axes, as in SciPy from 1.18 on: `J @ X` is (*K, n, k) -> (*K, m, k), and
    `J.matvec(x)` (*K, n) -> (*K, m), where (n, 1) is a column.
    """

    dense_limit: int  # bytes of a dense matrix
    T: Any
    H: Any

    @abstractmethod
    def _flat_product(self, v: Array, columns: Shape) -> Array:
        """J v for a flat vector, or for a batch of them: (*columns, n) -> (*columns, m)."""

    @untraced
    def _times(self, x: Array) -> Array:
        """J x for a vector or matrices, (*K, n, k) -> (*K, m, k), of NumPy, SciPy or PyTorch."""
        x, n = self._unpacked(x), self.shape[1]
        ndim = getattr(x, "ndim", 0)
        if not ndim or x.shape[-min(ndim, 2)] != n:
            raise self._mismatch(x, n, f"a vector of {n} or a matrix of {n} rows")
        if ndim == 1:
            return self._flat_product(x, ())
        if ndim > 2:
            return self._by_rows(x.swapaxes(-1, -2)).swapaxes(-1, -2)
        if x.shape[1] == 1:  # a vector: programs and plans are kept by the number of columns
            return self._flat_product(x.reshape(n), ())[:, None]
        return self._flat_product(x.T, (x.shape[1],)).T

    @untraced
    def _by_rows(self, x: Array) -> Array:
        """J x for each vector x of an array: (*K, n) -> (*K, m)."""
        x = self._unpacked(x)
        *K, n = x.shape
        return self._flat_product(x.reshape(prod(K), n), (prod(K),)).reshape(*K, self.shape[0])

    _matvec = _matmat = _times

    def _rmatvec(self, x: Array) -> Array:
        return self.H._times(x)

    _rmatmat = _rmatvec

    def __matmul__(self, other: Factor) -> Factor:
        if type(other) is np.ndarray and other.shape == self.shape[1:]:
            return self._flat_product(other, ())  # the fast path
        if is_kept(other):
            return self._times(other)
        if np.isscalar(other):
            raise InputError(f"J @ v multiplies an array, not {other!r}: 2 * J scales")
        if isinstance(other, dict):
            raise InputError("J @ x is for vectors and matrices: J.apply({name: x}) takes tensors")
        return self.dot(other)

    @in_its_library
    def dot(self, x: Factor) -> Factor:
        """J x: for a vector, a matrix, a number or an operator `x`, as J @ x and J * x."""
        if isinstance(x, Algebra):
            return multiply(self, x)
        if _is_real_scalar(x):
            return scale(self, x)
        if isinstance(x, linalg.LinearOperator) and x.shape[0] != self.shape[1]:
            raise self._mismatch(x, 0, f"an operator of {self.shape[1]} rows")
        if np.isscalar(x) or isinstance(x, linalg.LinearOperator):
            return super().dot(cast(Any, x))
        return self._times(array(x))

    __mul__ = dot

    @untraced
    @in_its_library
    def __rmul__(self, x: Factor) -> Factor:
        """x J: for a vector, matrices, a number or an operator `x`, as x @ J and x * J."""
        if _is_real_scalar(x):
            return scale(self, x)
        if np.isscalar(x):
            return super().dot(cast(Any, x))  # from SciPy 1.18 on, its __rmul__ calls rdot
        x, m = self._unpacked(array(x)), self.shape[0]
        if not getattr(x, "ndim", 0) or x.shape[-1] != m:
            raise InputError(
                f"dimension mismatch: a vector of {m} or a matrix of {m} columns times J, "
                f"{type(self).__name__} of shape {prod_text(self.shape)}, not {describe_factor(x)}"
            )
        if x.ndim > 2:
            return self.T._by_rows(x)
        return self.T._times(x.T).T if x.ndim == 2 else self.T._times(x)

    rdot = __rmul__

    def __truediv__(self, x: Array) -> Factor:
        if not is_symbolic(x) and (not np.isscalar(x) or x == 0):
            raise InputError(f"J / c takes a number c other than 0, not {x!r:.40}: c * J scales J")
        return scale(self, 1 / x) if _is_real_scalar(x) else super().__truediv__(x)

    def __neg__(self) -> Factor:
        return scale(self, -1.0)

    def __add__(self, other: Factor) -> Factor:
        if isinstance(other, Algebra):
            return add(self, other)
        if is_sparse(other) or (isinstance(other, np.ndarray) and other.ndim == 2):
            return add(self, wrapped(other))
        if np.isscalar(other):
            raise InputError(f"J + c adds no number to an operator, here {other!r}: J + c * "
                             "identity_like(J) adds c I")  # fmt: skip
        if not isinstance(other, linalg.LinearOperator):
            raise InputError(f"J + K adds an operator or a matrix, not {describe_factor(other)}")
        if other.shape != self.shape:
            raise InputError(f"cannot add operators of shape {self.shape} and {other.shape}: "
                             f"{self!r} and {other!r}")  # fmt: skip
        return super().__add__(other)

    __radd__ = __add__

    def __sub__(self, other: Factor) -> Factor:
        return self + (-other if hasattr(other, "__neg__") else other)

    def __rsub__(self, other: Factor) -> Factor:
        return -self + other

    def __getitem__(self, key: Any) -> Factor:
        """`J[rows, columns]` with slices or index arrays, still lazy."""
        rows, columns, *others = key if isinstance(key, tuple) else (key, slice(None))
        if others:
            raise InputError(f"J[rows, columns] has two indices, not {len(key)}")
        return submatrix(self, rows, columns)

    @in_its_library
    def matvec(self, x: Array) -> Array:
        """J x for a vector x, or for each of several: (*K, n) -> (*K, m)."""
        return self._by_vector(self._vector(x, self.shape[1]))

    @in_its_library
    def rmatvec(self, x: Array) -> Array:
        """Jᴴ x for a vector x, or for each; Jᴴ is Jᵀ, conjugated where J is complex."""
        return self.H._by_vector(self._vector(x, self.shape[0]))

    def _by_vector(self, x: Array) -> Array:
        n = self.shape[1]
        return self._times(x) if x.shape in ((n,), (n, 1)) else self._by_rows(x)

    @in_its_library
    def matmat(self, X: Array) -> Array:
        """J X for a matrix X, or for each of several, all columns at once."""
        return self._times(self._matrix(X, self.shape[1]))

    @in_its_library
    def rmatmat(self, X: Array) -> Array:
        """Jᴴ X for a matrix X, or for each of several, all columns at once."""
        return self.H._times(self._matrix(X, self.shape[0]))

    def _unpacked(self, x: Array) -> Array:
        """A sparse matrix as an array; raises `LimitError` where it would be too large."""
        if not is_sparse(x):
            return x
        nbytes = 8 * prod(x.shape)
        if nbytes > self.dense_limit:
            raise LimitError(
                f"the product of J, {prod_text(self.shape)}, with a sparse matrix of shape "
                f"{prod_text(x.shape)} is dense, and takes {nbytes:,} bytes: "
                "scipy.sparse.linalg.aslinearoperator(matrix) in its place keeps it lazy"
            )
        return x.toarray()

    def _vector(self, x: Array, n: int) -> Array:
        """Vectors of n numbers, or a matrix of one column."""
        x = array(x)
        shape = tuple(getattr(x, "shape", ()))
        if shape != (n, 1) and shape[-1:] != (n,):
            raise self._mismatch(x, n, f"a vector of {n}")
        return x

    def _matrix(self, X: Array, n: int) -> Array:
        """Matrices of n rows, dense or sparse."""
        X = array(X)
        if len(getattr(X, "shape", ())) < 2 or X.shape[-2] != n:
            raise self._mismatch(X, 0, f"a matrix of {n} rows")
        return X

    def _mismatch(self, x: Array, n: int, wanted: str) -> InputError:
        """The error for a factor that does not fit J; n numbers would fit as a vector."""
        shape = getattr(x, "shape", ())
        ravels = bool(n and shape) and prod(shape) == n
        said = ": x.ravel() is such a vector" if ravels else ""
        named = "; J.apply({name: x}) takes tensors" if hasattr(self, "apply") else ""
        return InputError(
            f"dimension mismatch: J, {type(self).__name__} of shape {prod_text(self.shape)}, "
            f"multiplies {wanted}, not {describe_factor(x)}{said}{named}"
        )

    def to_torch(self) -> Any:
        """v ↦ J v as a PyTorch function.

        Autograd pulls cotangents back by Jᵀ, to any order; forward mode and `torch.func` work too.
        Needs `onnxjac[torch]`.

        Shapes: (*K, n) -> (*K, m), any leading axes K, for J (m, n). Raises `InputError` without
        PyTorch, and where v does not fit.
        """
        return to_torch(self)

    def to_jax(self) -> Any:
        """v ↦ J v as a JAX function.

        The function supports `jit`, `vmap`, `jvp`, `grad` and their compositions. Needs
        `onnxjac[jax]`.

        Shapes: (*K, n) -> (*K, m), any leading axes K, for J (m, n). Raises `InputError` without
        JAX, and where v does not fit.
        """
        return to_jax(self)

    def to_lineax(self, *tags: Any) -> Any:
        """J as an operator of lineax, for `lineax.linear_solve` inside `jit`, `vmap` and `grad`.

        It is tagged as symmetric where Jᵀ is J, as diagonal where it is one, and then as positive
        semidefinite where its entries are. Needs `onnxjac[lineax]`.

        - `tags`: further tags of lineax, which are taken as true: a Gauss-Newton matrix of a convex
          loss is `lineax.positive_semidefinite_tag`.

        Shape: (m, n), as J; 32 bits unless JAX is told to use 64. Raises `InputError` without
        lineax.
        """
        return to_lineax(self, tags)

    def to_pylops(self) -> Any:
        """J as a `pylops.LinearOperator`; where a side is one tensor, dims or dimsd is its shape.

        Needs `onnxjac[pylops]`.

        Shape: (m, n), as J. Raises `InputError` without PyLops.
        """
        return to_pylops(self)


for name in ("_xp", "ndim"):  # what SciPy's own constructor sets, from 1.18 on: NumPy and 2
    setattr(Algebra, name, getattr(linalg.aslinearoperator(np.eye(1)), name, None))


def array(x: Array) -> Array:
    """Lists and arrays of other libraries as NumPy arrays; tensors and anything else unchanged."""
    if isinstance(x, list | tuple):
        return as_array(x)
    return x if is_kept(x) else native(x)


def describe_factor(x: Array) -> str:
    """What a factor is, for a message."""
    if not hasattr(x, "shape"):
        return type(x).__name__
    kind = "an operator" if isinstance(x, linalg.LinearOperator) else "an array"
    return f"{kind} of shape {list(x.shape)}"


def _is_real_scalar(x: object) -> bool:
    """Whether x is a real number; raises `InputError` for text, which scales nothing."""
    if isinstance(x, str | bytes):
        raise InputError(f"an operator multiplies numbers, not {x!r}")
    if isinstance(x, float | int) or is_symbolic(x):
        return True
    return np.isscalar(x) and not isinstance(x, complex | np.complexfloating)
