"""Jacobian: the interface that every operator exposes to SciPy.

Conventions, stated once. A tensor is ravelled row-major, several tensors are concatenated in
their declared order, and J is outputs × inputs. A concrete operator has an `out_shape`, an
`in_shape` and two methods: `_apply` and `_transpose`.
"""

# SciPy types its LinearOperator for arrays alone; a Jacobian also takes and gives Jacobians.
# mypy: disable-error-code="override"
from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike

from . import hooks
from .algebra import Algebra
from .arguments import Count, Natural, NonNegative, validated
from .arrays import (
    Array,
    Op,
    Shape,
    distinct_bytes,
    floating_dtype,
    host,
    is_recorded,
    own_result,
    reading,
    rounded,
    size,
    wide,
)
from .errors import InputError, LimitError
from .progress import chunks
from .progress import progress as showing
from .readings import Place, is_kept, library_of
from .symint import Number, at
from .threads import cached_property

if TYPE_CHECKING:  # what a type checker knows of `algebra`
    from matplotlib.axes import Axes
    from scipy.sparse import csc_array, csr_array, sparray, spmatrix
    from scipy.sparse.linalg import LinearOperator

    Matrix = np.ndarray | sparray | spmatrix
    Made_co = TypeVar("Made_co", covariant=True)

    class Times(Protocol):
        @overload
        def __call__(self, x: Jacobian, /) -> Jacobian: ...
        @overload
        def __call__(self, x: Matrix, /) -> np.ndarray: ...
        @overload
        def __call__(self, x: Array, /) -> Any: ...

    class Scaled(Protocol[Made_co]):
        @overload
        def __call__(self, x: float, /) -> Made_co: ...
        @overload
        def __call__(self, x: Jacobian, /) -> Jacobian: ...
        @overload
        def __call__(self, x: Matrix, /) -> np.ndarray: ...
        @overload
        def __call__(self, x: Array, /) -> Any: ...

    class Plus(Protocol):
        @overload
        def __call__(self, x: Jacobian | Matrix, /) -> Jacobian: ...
        @overload
        def __call__(self, x: LinearOperator, /) -> LinearOperator: ...


DENSE_LIMIT = 2 * 2**30
"""Bytes that `toarray` may allocate by default."""

CHUNK_BYTES = 64 * 2**20
"""Bytes of right-hand sides per call of an operator."""


class Holder:
    """An object with arrays: an operator, or a program that several operators share."""

    holds: ClassVar[tuple[str, ...]] = ()
    """The attributes that hold its data: arrays, other holders, or tuples of these."""

    def arrays(self) -> Iterator[Array]:
        """The arrays it holds."""
        for part in self.contents():
            if isinstance(part, Holder):
                yield from part.arrays()
            elif hasattr(part, "shape"):  # else a symbolic identity, or the labels of axes
                yield part

    def contents(self) -> Iterator[Any]:
        """Its data, one by one."""
        return flat(getattr(self, name) for name in self.holds)

    def _holding(self, **parts: Any) -> Self:
        """A copy with other data, by attribute, without the results derived from the data."""
        made = object.__new__(type(self))
        vars(made).update(self._stated(), **parts)
        return made

    def _stated(self) -> dict[str, Any]:
        """Its attributes without the results derived from them."""
        kind, derived = type(self), functools.cached_property
        return {name: part for name, part in vars(self).items()
                if not isinstance(getattr(kind, name, None), derived)}  # fmt: skip

    def apart(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its data, and all else that it is made of, by attribute: see `joined`."""
        held = {name: getattr(self, name) for name in self.holds}
        return held, {name: x for name, x in self._stated().items() if name not in held}

    @classmethod
    def joined(cls, held: Mapping[str, Any], others: Mapping[str, Any]) -> Self:
        """The holder that `apart` took into `held` and `others`; or, of other data, a new one."""
        made = object.__new__(cls)
        vars(made).update(others, **held)
        return made

    @property
    def flops(self) -> int:
        """The approximate number of multiplications and additions in one product."""
        return sum(part.flops for part in self.contents() if isinstance(part, Holder))

    @property
    def place(self) -> Place | None:
        """The `Place` of its arrays where some are of another library than NumPy; else None.

        Products of NumPy arrays are computed there, and go back.
        """
        return self._whereabouts

    @cached_property
    def _whereabouts(self) -> Place | None:
        for part in self.contents():
            if isinstance(part, Holder):
                found = part.place
            else:
                found = library_of(part).place(part) if is_kept(part) else None
            if found is not None:
                return found
        return None

    def __getstate__(self) -> dict[str, Any]:
        """The state without its place, which arrays that were pickled may have left."""
        return {name: part for name, part in vars(self).items() if name != "_whereabouts"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)  # SciPy's expects its own state

    def __repr__(self) -> str:
        return type(self).__name__


def flat(parts: Iterable[Any]) -> Iterator[Any]:
    """The parts, with nested tuples flattened."""
    for part in parts:
        yield from flat(part) if isinstance(part, tuple) else (part,)


def arrays_of(parts: Iterable[Any], seen: set[int] | None = None) -> Iterator[Array]:
    """The arrays that several holders hold; a program that some of them share is read once."""
    seen = set() if seen is None else seen
    for part in flat(parts):
        if not isinstance(part, Holder):
            yield from (part,) if hasattr(part, "shape") else ()
        elif id(part) not in seen:
            seen.add(id(part))
            yield from arrays_of(part.contents(), seen)


class Jacobian(Holder, Algebra, hooks.Shown, ABC):
    """J = ∂y/∂x as a lazy linear operator, of shape (size of y, size of x).

    x has the shape `in_shape`, y the shape `out_shape`, and J the `dtype` of its numbers.

    Products with float data are computed in the operator's own dtype; float16 and bfloat16 are
    computed in float32 and rounded once, at the end; integers become float64. `J @ v`,
    `J.T @ u`, `J @ V` (all columns in one call), `u @ J`, `J + K`, `2 * J` and `J @ K` work as for
    arrays. `J.H`, `rmatvec` and `rmatmat` use the adjoint: Jᵀ, conjugated where J is complex.

    Raises `InputError` where shapes do not fit, when an operator is built or multiplied.
    """

    out_shape: Shape
    in_shape: Shape
    dense_limit: int = DENSE_LIMIT  # bytes of its dense or sparse matrix

    if TYPE_CHECKING:
        __matmul__: ClassVar[Times]  # type: ignore[assignment]
        __rmatmul__: ClassVar[Times]  # type: ignore[assignment]
        __mul__: ClassVar[Scaled[Jacobian]]  # type: ignore[assignment, misc]
        __rmul__: ClassVar[Scaled[Jacobian]]  # type: ignore[assignment, misc]
        dot: ClassVar[Scaled[Jacobian]]  # type: ignore[assignment]
        __add__: ClassVar[Plus]  # type: ignore[assignment]
        __radd__: ClassVar[Plus]  # type: ignore[misc]
        __sub__: ClassVar[Plus]  # type: ignore[assignment, misc]
        __rsub__: ClassVar[Plus]

        def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
        def __truediv__(self, x: float, /) -> Jacobian: ...
        def __neg__(self) -> Jacobian: ...
        def __getitem__(self, key: Any) -> Jacobian: ...

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for observe in hooks.CLASS_OBSERVERS:
            observe(cls)

    def __init__(self, out_shape: Shape, in_shape: Shape, dtype: DTypeLike) -> None:
        self.out_shape, self.in_shape = self._sizes(out_shape), self._sizes(in_shape)
        # As LinearOperator.__init__ sets them, but that requires plain integers.
        self.dtype = floating_dtype(dtype)
        vars(self)["shape"] = size(self.out_shape), size(self.in_shape)

    def _sizes(self, shape: Shape) -> Shape:
        """The shape as a tuple, checked."""
        try:
            found = tuple(shape)
            if not found or min(map(index, at(found))) >= 0:
                return found
        except TypeError:
            pass
        raise InputError(f"{type(self).__name__}: {shape!r} is no shape, a tuple of integers")

    # -- what a concrete operator defines -----------------------------------------------------

    @abstractmethod
    def _apply(self, op: Op, v: Array) -> Array:
        """(*K, *in_shape) -> (*K, *out_shape), in calls of the vocabulary `op` only."""

    @abstractmethod
    def _transpose(self) -> Jacobian:
        """The transpose, as an operator of its own."""

    # -- derived for all operators ------------------------------------------------------------

    @cached_property
    def T(self) -> Jacobian:
        """The transpose: one object, even if several threads build it at once."""
        return self._transpose()

    @property
    def H(self) -> Jacobian:
        """The adjoint: the transpose, with conjugate entries where J is complex."""
        return conjugate(self.T)

    def transpose(self) -> Jacobian:
        return self.T

    def adjoint(self) -> Jacobian:  # type: ignore[misc]
        return self.H

    _adjoint = adjoint

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays it holds, with shared memory counted once."""
        return distinct_bytes(self.arrays())

    def _flat_product(self, v: Array, columns: Shape) -> Array:
        if not isinstance(v, np.ndarray):
            return library_of(v).product(self, v, columns)
        if np.iscomplexobj(v) and self.dtype.kind != "c":
            real, imaginary = (self._flat_product(part, columns) for part in (v.real, v.imag))
            return real + 1j * imaginary
        if v.dtype.kind not in "biufcVO":
            raise InputError(f"an operator multiplies numbers, not {v.dtype}")
        objects = v.flat if v.dtype.kind == "O" and self.dtype.kind != "c" else ()
        for x in objects:
            if not hasattr(x, "__float__"):
                raise InputError(f"an operator multiplies numbers, not objects such as {x!r}")
        result = np.result_type(self.dtype, v.dtype)
        if v.size == 0:
            return np.zeros((*columns, self.shape[0]), result)
        v = np.ascontiguousarray(v, dtype=wide(self.dtype))
        if (there := self.place) is not None:
            product = host(there.op.product(self, there.take(v), columns))
        else:
            product = np.asarray(self._apply(reading(v), v.reshape((*columns, *self.in_shape))))
        return own_result(rounded(product.reshape(*columns, self.shape[0]), result), v)

    # -- as a matrix ---------------------------------------------------------------------------

    @validated
    def toarray(self, *, limit: Count | None = None, progress: bool | None = None) -> np.ndarray:
        """The dense matrix, from whichever side needs fewer products; silent with `progress=False`.

        Shape: (m, n). Raises `LimitError` where the matrix would take more than `limit` bytes,
        by default 2 GiB or the `Limits` of the model.
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

    if not TYPE_CHECKING:  # for which v @ J would be NumPy's

        def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> np.ndarray:
            """The dense matrix where NumPy asks for an array: `np.asarray(J)`, `np.linalg.svd(J)`.

            Raises `LimitError` as `toarray` does, and `ValueError` for `copy=False`.
            """
            if copy is False:
                raise ValueError("an operator has no memory of its matrix that could be shared")
            return self.toarray().astype(dtype or self.dtype, copy=False)

    @overload
    def tosparse(
        self, format: Literal["csr"] = "csr", *, limit: int | None = None, out: Any = None,
        progress: bool | None = None,
    ) -> csr_array[Any]: ...

    @overload
    def tosparse(
        self, format: Literal["csc"], *, limit: int | None = None, progress: bool | None = None
    ) -> csc_array[Any]: ...

    @overload
    def tosparse(
        self, format: Literal["bsr", "coo", "dia", "dok", "lil"], *, limit: int | None = None,
        progress: bool | None = None,
    ) -> Any: ...

    @validated
    def tosparse(
        self, format: str = "csr", *, limit: Count | None = None, out: Any = None,
        progress: bool | None = None,
    ) -> Any:  # fmt: skip
        """The matrix as a SciPy sparse array, with every entry that may be nonzero.

        `format` is `"csr"`, `"csc"` or another format of SciPy.

        `out`, the result for the same Jacobian at another point, is overwritten and returned: only
        entries that depend on the point are written. The index arrays are read-only, because other
        results share them; a `copy()` has its own. For `progress`, see `onnxjac.progress`.

        Shape: (m, n). Raises `LimitError` where the matrix would take more than `limit` bytes,
        `InputError` where `out` has another pattern.
        """
        with showing(progress):
            return hooks.sparse(self, format, self.dense_limit if limit is None else limit, out)

    def _dense(self, limit: int) -> np.ndarray:
        """The dense matrix, already known to fit the limit."""
        m, n = self.shape
        return self._columns() if m >= n else np.ascontiguousarray(self.T._columns().T)

    def _columns(self) -> np.ndarray:
        m, n = self.shape
        dense = np.empty((m, n), dtype=self.dtype)
        for start, stop, product in self._products(n, "matrix"):
            dense[:, start:stop] = product
        return dense

    def _products(self, k: int, label: str) -> Iterator[tuple[int, int, np.ndarray]]:
        """The first k columns, from start to stop in each chunk."""
        width = max(1, CHUNK_BYTES // (max(*self.shape, 1) * self.dtype.itemsize))
        for start, stop in chunks(k, width, label, "products"):
            unit = np.zeros((self.shape[1], stop - start), dtype=self.dtype)
            unit[range(start, stop), range(stop - start)] = 1
            yield start, stop, self._matmat(unit)

    def diagonal(self) -> np.ndarray:
        """The entries J[i, i], exact: from the structure where possible, else by products.

        Shape: (min(m, n),).
        """
        return np.array(host(hooks.diagonal(self)), self.dtype)

    def _diagonal(self) -> Array:
        """The diagonal, where the arrays are; it may be a view of one of them."""
        if self.shape[0] * self.shape[1] * self.dtype.itemsize <= CHUNK_BYTES:
            return self._dense(CHUNK_BYTES).diagonal()
        entries = np.empty(min(self.shape), dtype=self.dtype)
        for start, stop, product in self._products(len(entries), "diagonal"):
            entries[start:stop] = product[range(start, stop), range(stop - start)]
        return entries

    def trace(self) -> Number:
        """Σᵢ J[i, i] of a square operator: a float, or complex.

        Shape: a number. Raises `InputError` where the operator is not square.
        """
        if self.shape[0] != self.shape[1]:
            raise InputError(f"the trace needs a square operator, not one of shape {self.shape}")
        return self.diagonal().sum(dtype=wide(self.dtype)).item()

    # -- implemented by the modules above ------------------------------------------------------

    @property
    def structure(self) -> Jacobian:
        """The operator itself, without the names and methods that a wrapper adds."""
        return self

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Jacobian:
        """The same operator, planned for a number of `products` and run by an engine.

        `engine` is `"onnxruntime"`, `"numpy"` or `"torch"`; by default the first that is installed
        and has all kernels. `memory` is the number of bytes that may be held in addition to J. A
        program is compiled at the first product with each number of columns. After `relinearize`,
        a named engine compiles again; otherwise products take the fastest route, as without
        `compile`, through programs that all points of the same shapes share.

        Shape: (m, n), as before. Raises `InputError` at the first product for an engine that is
        unknown or not installed, and where a vector does not fit.
        """
        return hooks.compiled(self, engine, products, memory)

    def to(self, device: Any) -> Jacobian:
        """J itself, with its arrays copied to a `device` of PyTorch, `"cuda"`, before the first
        product there. Products of J and J.T with NumPy arrays, and estimators, are computed there
        from then on. Needs `onnxjac[torch]`.

        Shape: (m, n), as before. Raises `InputError` without PyTorch or the device.
        """
        return hooks.to(self, device)

    @validated
    def inverse(
        self, *, solver: str | None = None, preconditioner: Any = None,
        rtol: NonNegative | None = None, maxiter: Count | None = None,
    ) -> Jacobian:  # fmt: skip
        """J⁻¹ as an operator, by structure or by Krylov solves: options as for `onnxjac.inverse`.

        - `solver`: the name of a solver; by default structure decides.
        - `preconditioner`: an M ≈ J⁻¹, or a function that builds it from J.
        - `rtol`: the relative residual at which a solve ends.
        - `maxiter`: the most iterations of a solve.

        Shape: (n, m). Raises `InputError` where a part of the structure is singular, and for a
        solver that does not take such an operator; a product raises `NotConverged` where the
        iteration does not reach its tolerance.
        """
        return hooks.inverse(
            self, solver=solver, preconditioner=preconditioner, rtol=rtol, maxiter=maxiter
        )

    def solve(self, b: Array, **options: Any) -> Array:
        """x = J⁻¹ b, or the least squares solution with `solver="lsmr"`: `J.inverse() @ b`.

        For several b, keep `J.inverse()`, which holds what a solve prepares.

        - `b`: the right-hand side, or several as columns.
        - `options`: as for `inverse`.

        Shapes: b is (m,) or (m, k), x (n,) or (n, k). Raises what `inverse` and its products raise.
        """
        return self.inverse(**options) @ b

    def slogdet(self) -> tuple[Any, float]:
        """The sign of det J, or its phase where J is complex, and log |det J|, exact.

        By structure where that determines it, else from the dense matrix. Warns with the condition
        number of a sum or a matrix whose determinant rounding decides. Shapes: two numbers.
        Raises `InputError` where J is not square, and `LimitError` where its matrix is too large.
        """
        return hooks.slogdet(self)

    def logdet(self) -> float:
        """log det J, as `slogdet`; -inf where J is singular.

        Shape: a number. Raises `InputError` where det J is negative or complex.
        """
        sign, log = self.slogdet()
        if np.imag(sign) or np.real(sign) < 0:
            raise InputError(f"det J is {sign:g} · exp({log:g}), which has no logarithm: take "
                             "slogdet()")  # fmt: skip
        return log

    def eigvalsh(self) -> np.ndarray:
        """All eigenvalues of a Hermitian J in ascending order, by structure or its dense matrix.

        Shape: (n,). Raises `InputError` where J is not Hermitian, and `LimitError` where its matrix
        is too large.
        """
        return np.asarray(hooks.eigvalsh(self))

    def svdvals(self) -> np.ndarray:
        """All singular values in descending order, by structure or from the dense matrix.

        Shape: (min(m, n),). Raises `LimitError` where the matrix is too large.
        """
        return np.asarray(hooks.svdvals(self))

    @validated
    def norm(self, ord: str | float = "fro") -> float:
        """‖J‖: the Frobenius norm, the spectral norm for 2 or the nuclear norm for "nuc", exact.

        Shape: a number. Raises `InputError` for another `ord`, and `LimitError` where structure
        does not suffice and the matrix is too large. `onnxjac.estimators` has estimates.
        """
        return float(hooks.norm(self, ord))

    def pinv(self) -> Jacobian:
        """J⁺, the pseudo-inverse, by structure or from the dense matrix.

        Shape: (n, m). Raises `LimitError` where the matrix is too large.
        """
        return hooks.function(self, "pinv")

    def sqrt(self) -> Jacobian:
        """√J, the principal root of a Hermitian J ≥ 0, by structure or from the dense matrix.

        Shape: (n, n). Raises `InputError` where J is not such an operator, and `LimitError` where
        its matrix is too large.
        """
        return hooks.function(self, "sqrt")

    def cholesky(self) -> Jacobian:
        """L, lower triangular with J = L Lᴴ, for a Hermitian J > 0; as `sqrt` in all else."""
        return hooks.function(self, "cholesky")

    def expm(self) -> Jacobian:
        """exp J = Σ Jᵏ / k!, by structure or from the dense matrix.

        Shape: (n, n). Raises `InputError` where J is not square, and `LimitError` where its matrix
        is too large.
        """
        return hooks.function(self, "expm")

    @validated
    def power(self, p: float) -> Jacobian:
        """Jᵖ: J ⋯ J for a whole `p`, never dense, by J⁻¹ where p < 0; else as `sqrt`.

        Shape: (n, n). Raises `InputError` where J is not square, and as `inverse` and `sqrt` do.
        """
        return hooks.function(self, "power", p)

    def __pow__(self, p: float) -> Jacobian:
        """Jᵖ, as `power`."""
        return self.power(p)

    def eigh(self) -> tuple[np.ndarray, Jacobian]:
        """λ and V with J = V diag(λ) Vᴴ for a Hermitian J; V is an operator, and Vᴴ V = I.

        λ is in the order of the structure, ascending where that is the dense matrix. Shapes: (n,)
        and (n, n). Raises `InputError` where J is not Hermitian, and `LimitError` where its matrix
        is too large.
        """
        return hooks.function(self, "eigh")

    def svd(self) -> tuple[Jacobian, np.ndarray, Jacobian]:
        """U, σ and V with J = U diag(σ) Vᴴ, where Uᴴ U = I = Vᴴ V; U and V are operators.

        σ ≥ 0 is in the order of the structure, and zeros may be left out. Shapes: (m, k), (k,) and
        (n, k). Raises `LimitError` where structure does not suffice and the matrix is too large.
        """
        return hooks.function(self, "svd")

    @validated
    def plot(
        self, *, entries: bool | None = None, ax: Axes | None = None, seed: Natural = 0,
        progress: bool | None = None,
    ) -> Axes:  # fmt: skip
        """A plot of the blocks or entries: options as for `onnxjac.plots.plot_jacobian`.

        - `entries`: True draws the entries, False blocks or tiles; by default by size.
        - `ax`: the Axes to draw on; by default the Axes of a new figure.
        - `seed`: the seed of the estimates of norms.
        - `progress`: True shows a bar at once, False none, None after two seconds; see
          `oj.progress`.

        Shape: J is (m, n), with m and n at least 1. Raises `InputError` without matplotlib, and for
        an operator without entries.
        """
        return hooks.plot(self, entries=entries, ax=ax, seed=seed, progress=progress)

    @validated
    def spy(self, *, ax: Axes | None = None, progress: bool | None = None) -> Axes:
        """A plot of the sparsity pattern: options as for `onnxjac.plots.spy`.

        - `ax`: the Axes to draw on; by default the Axes of a new figure.
        - `progress`: True shows a bar at once, False none, None after two seconds; see
          `oj.progress`.

        Shape: J is (m, n), with m and n at least 1. Raises `InputError` without matplotlib, and
        `LimitError` where the pattern takes more than 2 GiB.
        """
        return hooks.spy(self, ax=ax, progress=progress)


class Wrapper(Jacobian):
    """An operator that adds names or methods to another `operator`, which takes the products."""

    holds = ("operator",)

    def __init__(self, operator: Jacobian) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator = operator

    def _apply(self, op: Op, v: Array) -> Array:
        return self.operator._apply(op, v)

    def _flat_product(self, v: Array, columns: Shape) -> Array:
        return self.operator._flat_product(v, columns)

    @property
    def structure(self) -> Jacobian:
        return self.operator.structure

    @property
    def nbytes(self) -> int:
        return self.operator.nbytes

    def _dense(self, limit: int) -> np.ndarray:
        return self.operator._dense(limit)

    def _diagonal(self) -> Array:
        return self.operator._diagonal()


class Conjugate(Jacobian):
    """y = conj(J conj(x)) for an `operator` J: the matrix of J with conjugate entries."""

    holds = ("operator",)

    def __init__(self, operator: Jacobian) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator = operator

    def _apply(self, op: Op, v: Array) -> Array:
        if self.dtype.kind != "c":
            return self.operator._apply(op, v)
        if is_recorded(v):
            raise InputError(f"{self!r} is complex, and no graph of ONNX is: apply it to numbers")
        return self.operator._apply(op, v.conj()).conj()

    def _transpose(self) -> Jacobian:
        return Conjugate(self.operator.T)

    def _diagonal(self) -> Array:
        return self.operator._diagonal().conj()

    def __repr__(self) -> str:
        return f"conj({self.operator!r})"


def conjugate(operator: Jacobian) -> Jacobian:
    """The operator with conjugate entries: itself where they are real."""
    if operator.dtype.kind != "c":
        return operator
    return operator.operator if isinstance(operator, Conjugate) else Conjugate(operator)

