"""Functions of operators by structure: A⁺, √A, Cholesky factors, powers, exp A, A = V Λ Vᴴ, U Σ Vᴴ.

A function is a `MatrixFunction`: what it does to numbers and to matrices. One dispatch,
`map_structure`, applies it:

| A | f(A) |
|---|---|
| diag(d), a dense matrix, blockdiag(Aᵢ) | f of each number or matrix |
| A ⊗ B | f(A) ⊗ f(B), or (V ⊗ W) diag(f(λ)) (V ⊗ W)ᴴ |
| Σ Aₖ ⊗ Bₖ with one eigenbasis, as in `kron_sums` | (V ⊗ W) diag(f(λ)) (V ⊗ W)ᴴ |
| A ⊗ I + I ⊗ B + δ I | exp(A) ⊗ exp(B + δ I) |
| c I + U Vᵀ, Hermitian | f(c) I + Q diag(f(c + μ) - f(c)) Qᴴ |
| a circulant | the circulant with the eigenvalues f(λ) |
| P A Pᵀ, P a permutation or a reshape | P f(A) Pᵀ |

Everything else is multiplied out, within the limit of `toarray`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce, singledispatch
from operator import matmul
from typing import Any, TypeVar

import numpy as np

from .arrays import cast_to, dtype_of, host, like, rounded, shape_of, size, times, wide, widened
from .as_one import absolute, are_inverse, as_circulant, as_one, of_blocks
from .base import Jacobian
from .closed import (
    all_numbers,
    as_one_operator,
    check_inverse,
    check_square,
    inverse_of,
    join_columns,
    low_rank_of,
)
from .dag import Block, Dag
from .elementwise import Diagonal, Identity, Scalar
from .errors import InputError
from .kron_sums import by_schur, diagonalised, kron_terms
from .lapack import Singular, adjoint_of, eigen, eps_of, hermitian
from .layout import Embed, Permutation, Reshape, Slice, SumTo
from .matrices import BlockDiagonal, Dense, Eye, Factor, Kron, LowRank, matrix_shape
from .products import factors_of
from .readings import library_of, module_of
from .sums import Sum, multiple, split_identity
from .transforms import Circulant, Fourier
from .vocabulary import Array

Found = TypeVar("Found")
Eigen = tuple[np.ndarray, Any]
Bases = tuple[Any, np.ndarray, Any]


@dataclass(frozen=True)
class MatrixFunction:
    """f of numbers and of stacks of matrices.

    A function `splits` if f(A ⊗ B) = f(A) ⊗ f(B), and is `spectral` if f(V Λ Vᴴ) = V f(Λ) Vᴴ for
    unitary V; f(U Σ Vᴴ) = V f(Σ) Uᴴ if it is the `pseudo`-inverse.
    """

    entries: Callable[[np.ndarray], np.ndarray]
    matrices: Callable[[np.ndarray], np.ndarray]
    splits: bool = True
    spectral: bool = True
    pseudo: bool = False

    def at(self, c: float) -> MatrixFunction:
        """A ↦ f(c A)."""
        return MatrixFunction(lambda d: self.entries(c * d), lambda a: self.matrices(c * a), False,
                    self.spectral)  # fmt: skip


def ask_structure(question: Callable[..., Found | None], A: Jacobian, *args: Any) -> Found:
    """The answer by structure, or for the dense matrix."""
    found = question(A, *args) if all_numbers(A) else None
    if found is None:
        found = question(Dense(A.toarray(), A.out_shape, A.in_shape), *args)
    if found is None:
        raise InputError(f"{A!r} is not Hermitian: it has singular values, svd()")
    return found


def split_layouts(operator: Jacobian) -> tuple[float, Jacobian, Jacobian, Jacobian]:
    """c, P, A and Q of c P A Q, for permutations and reshapes, or identities, P and Q."""
    one = as_one_operator(operator) if isinstance(operator, Dag) else operator
    factors = [f for f in factors_of(one or operator) if not isinstance(f, Scalar)]
    c = np.prod([f.factor for f in factors_of(one or operator) if isinstance(f, Scalar)])
    P: Jacobian = Identity(operator.out_shape, operator.dtype)
    Q: Jacobian = Identity(operator.in_shape, operator.dtype)
    while len(factors) > 1 and isinstance(factors[0], Permutation | Reshape):
        P = P @ factors.pop(0)
    while len(factors) > 1 and isinstance(factors[-1], Permutation | Reshape):
        Q = factors.pop() @ Q
    A = reduce(matmul, factors) if factors else Identity(operator.in_shape, operator.dtype)
    simple = as_circulant(A) or (as_one(A) if isinstance(A, Sum) else None)
    return float(c), P, simple or A, Q


@singledispatch
def map_structure(operator: Jacobian, form: MatrixFunction) -> Jacobian | None:
    """f(A) by structure, or None."""
    c, P, A, Q = split_layouts(operator)
    keeps = form.spectral or isinstance(P, Identity | Reshape)
    fits = form.pseudo or (keeps and are_inverse(P, Q))
    if type(A) is type(operator) or not fits:
        return None
    scale = 1.0
    if c != 1 and form.splits:
        with suppress(InputError):  # as for the root of -1
            scale, c = form.entries(np.array(c)).item(), 1.0
    found = map_structure(A, form if c == 1 else form.at(c))
    if found is None:
        return None
    return Q.T @ (found if scale == 1 else scale * found) @ P.T


@map_structure.register
def _(operator: Identity | Scalar | Diagonal, form: MatrixFunction) -> Jacobian:
    c = multiple(operator)
    d = operator.d if isinstance(operator, Diagonal) else np.array(c, operator.dtype)
    return Diagonal(like(keep_precision(form.entries, host(d)), d), operator.in_shape)


@map_structure.register
def _(operator: Dense, form: MatrixFunction) -> Jacobian:
    return Dense(keep_precision(form.matrices, operator.a), operator.in_shape, operator.out_shape)


@map_structure.register
def _(operator: BlockDiagonal, form: MatrixFunction) -> Jacobian:
    return BlockDiagonal(keep_precision(form.matrices, operator.blocks))


@map_structure.register
def _(operator: Kron, form: MatrixFunction) -> Jacobian | None:
    (m, n), (rows, columns) = matrix_shape(operator.left), matrix_shape(operator.right)
    if not form.splits or ((m, rows) != (n, columns) and not form.pseudo):
        return by_eigenvectors(operator, form)
    form = pseudo() if form.pseudo else form  # by the sizes of each factor
    try:
        left, right = (f if isinstance(f, Eye) else keep_precision(form.matrices, f)
                       for f in (operator.left, operator.right))  # fmt: skip
        return Kron(left, right, operator.batch)
    except InputError:  # as for the root of (-A) ⊗ (-B)
        return by_eigenvectors(operator, form)


@map_structure.register
def _(operator: Circulant, form: MatrixFunction) -> Jacobian | None:
    return operator.with_spectrum(form.entries(operator.spectrum)) if form.spectral else None


@map_structure.register
def _(operator: Permutation | Reshape | Slice | Embed, form: MatrixFunction) -> Jacobian | None:
    return operator.T if form.pseudo else None


@map_structure.register
def _(operator: LowRank, form: MatrixFunction) -> Jacobian | None:
    """(U Vᵀ)⁺ by its singular values."""
    if not form.pseudo:
        return None
    U, values, V = ask_structure(singular_bases, operator)
    return V @ Diagonal(pseudo(operator).entries(values)) @ U.H


@map_structure.register
def _(operator: Block, form: MatrixFunction) -> Jacobian | None:
    return of_blocks(lambda block: map_structure(block, form), operator)


@map_structure.register
def _(operator: Sum, form: MatrixFunction) -> Jacobian | None:
    form = pseudo(operator) if form.pseudo else form
    if (one := as_one(operator)) is not None:
        return map_structure(one, form)
    found = by_eigenvectors(operator, form) or of_low_rank(operator, form)
    by_parts = found is None and form.matrices is exponential
    split = by_schur(operator, kron_terms(operator)) if by_parts else None
    if split and split[0] is None:
        a, b = map(form.matrices, (split[1].a, split[1].b))
        found = Kron(a, b, ())
    return found


def by_eigenvectors(operator: Jacobian, form: MatrixFunction) -> Jacobian | None:
    """V diag(f(λ)) Vᴴ."""
    pair = eigenbasis(operator) if form.spectral else None
    if pair is None:
        return None
    values, V = pair
    return V @ Diagonal(form.entries(values).reshape(V.in_shape)) @ V.H


def of_low_rank(operator: Sum, form: MatrixFunction) -> Jacobian | None:
    """f(c I + U Vᵀ) = f(c) I + Q diag(f(c + μ) - f(c)) Qᴴ, where U Vᵀ is Hermitian."""
    if operator.shape[0] != operator.shape[1] or not form.spectral:
        return None
    shift, others = split_identity(operator)
    low = [pair for term in others if (pair := low_rank_of(term))]
    if not low or len(low) < len(others):
        return None
    U, V = map(join_columns, zip(*low, strict=True))
    if operator.shape[0] <= U.shape[1]:
        return None
    if (found := compressed(U, V)) is None:
        return None
    W, values = eigen(True, found[1])
    base, *others = form.entries(shift + np.append(np.zeros(1, values.dtype), values))
    Q = found[0] @ W
    Q, P = times(Q, np.array(others) - base), Q.conj()
    return base.item() * Identity(operator.in_shape, operator.dtype) + LowRank(
        Q, P, operator.out_shape, operator.in_shape)  # fmt: skip


def keep_precision(function: Callable[[np.ndarray], Any], array: np.ndarray) -> np.ndarray:
    """A function in at least single precision, in the precision of the array."""
    found: np.ndarray = function(widened(array))
    dtype = dtype_of(array)
    return rounded(found, dtype) if dtype_of(found).kind == dtype.kind else found


# -- A = V Λ Vᴴ and A = U Σ Vᴴ ------------------------------------------------------------------


@singledispatch
def eigenbasis(operator: Jacobian, *, vectors: bool = True) -> Eigen | None:
    """λ and V with A = V diag(λ) Vᴴ, with λ in the order of the structure; None if unknown.

    Without `vectors` the second result is None, and the values take a third of the time.
    """
    c, P, A, Q = split_layouts(operator)
    similar = type(A) is not type(operator) and are_inverse(P, Q)
    found = eigenbasis(A, vectors=vectors) if similar else None
    return None if found is None else (c * found[0], found[1] and P @ found[1])


@eigenbasis.register
def _(operator: Identity | Scalar | Diagonal, *, vectors: bool = True) -> Eigen | None:
    values = operator.diagonal()
    real = np.array_equal(values, values.real)
    return (values.real, Identity(operator.in_shape, operator.dtype)) if real else None


@eigenbasis.register
def _(operator: Dense | BlockDiagonal, *, vectors: bool = True) -> Eigen | None:
    stack = operator.a if isinstance(operator, Dense) else operator.blocks
    if (exact := hermitian(stack)) is None:
        return None
    V, values = eigen(vectors, exact)
    return values.ravel(), None if V is None else with_matrices(operator, V)


@eigenbasis.register
def _(operator: Kron | Sum, *, vectors: bool = True) -> Eigen | None:
    if isinstance(operator, Sum) and (one := as_one(operator)) is not None:
        return eigenbasis(one, vectors=vectors)
    total = operator if isinstance(operator, Sum) else Sum((operator,))
    found = diagonalised(total, kron_terms(total), with_vectors=vectors)
    if found is None or not found.rotation:
        return None
    batch, (V, W) = found.values.shape[:-2], (found.left.vectors, found.right.vectors)
    return found.values.ravel(), Kron(V, W, batch) if vectors else None


@eigenbasis.register
def _(operator: LowRank, *, vectors: bool = True) -> Eigen | None:
    """With U = Q R, the eigenvalues of R Vᵀ Q, and zeros."""
    rank, n = operator.u.shape[1], operator.shape[0]
    if vectors or n != operator.shape[1] or rank >= n:
        return None
    if (found := compressed(operator.u, operator.v)) is None:
        return None
    return np.append(eigen(False, found[1])[1], np.zeros(n - rank)), None


def compressed(U: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Q and H with U Vᵀ = Q H Qᴴ, where that is Hermitian."""
    dtype, linalg = wide(np.result_type(dtype_of(U), dtype_of(V))), module_of(U).linalg
    U, V = cast_to(U, dtype), cast_to(V, dtype)
    Q, R = linalg.qr(U)
    inside = R @ (V.T @ Q)
    outside = R @ V.T - inside @ Q.T.conj()
    rounding = 1e3 * eps_of(dtype) * linalg.norm(U) * linalg.norm(V)
    exact = None if linalg.norm(outside) > rounding else hermitian(inside)
    return None if exact is None else (Q, exact)


@eigenbasis.register
def _(operator: Circulant, *, vectors: bool = True) -> Eigen | None:
    """The basis of the Hartley transform, where the kernel is real and symmetric."""
    values = operator.eigenvalues
    rounding = 100 * eps_of(values.dtype) * np.abs(values).max(initial=0)
    if operator.dtype.kind == "c" or np.abs(values.imag).max(initial=0) > rounding:
        return None
    return np.tile(values.real.ravel(), operator.count), hartley(operator)


def hartley(C: Circulant) -> Jacobian:
    """(Re F - Im F) / √n for the Fourier transform F along the axes of a circulant: orthogonal."""
    shape, pair, column = C.in_shape, (*C.in_shape, 2), (*C.in_shape, 1)
    V: Jacobian = Embed(tuple((0, 1, k) for k in column), pair, C.dtype) @ Reshape(
        column, shape, C.dtype)  # fmt: skip
    for axis in C.axes:
        V = Fourier(axis - 1, pair, C.dtype) @ V
    weights = np.array([1, -1], wide(C.dtype)) / size(shape_of(C.kernel)) ** 0.5
    V = SumTo(column, pair, C.dtype) @ Diagonal(weights, pair) @ V
    return Reshape(shape, column, C.dtype) @ V


@singledispatch
def singular_bases(operator: Jacobian, *, vectors: bool = True) -> Bases | None:
    """U, σ and V with A = U diag(σ) Vᴴ, with σ in the order of the structure; None if unknown.

    Without `vectors`, the bases U and V are left out as None.
    """
    c, P, A, Q = split_layouts(operator)
    found = None if type(A) is type(operator) else singular_bases(A, vectors=vectors)
    if found is None:
        return None
    U, values, V = found
    return U and np.sign(c or 1) * P @ U, abs(c) * values, V and Q.T @ V


@singular_bases.register
def _(operator: Identity | Permutation | Reshape | Slice | Embed, *, vectors: bool = True) -> Bases:
    m, n = operator.shape
    ones = np.ones(min(m, n), np.finfo(wide(operator.dtype)).dtype)
    if m < n:
        return Identity(operator.out_shape, operator.dtype), ones, operator.T
    return operator, ones, Identity(operator.in_shape, operator.dtype)


@singular_bases.register
def _(operator: Scalar | Diagonal, *, vectors: bool = True) -> Bases:
    sizes, phases = polar(operator.diagonal())
    V = Identity(operator.in_shape, operator.dtype)
    return Diagonal(phases.reshape(operator.in_shape)), sizes, V


@singular_bases.register
def _(operator: Dense | BlockDiagonal, *, vectors: bool = True) -> Bases:
    U, values, V = thin(operator.a if isinstance(operator, Dense) else operator.blocks, vectors)
    if not vectors:
        return None, values.ravel(), None
    return with_matrices(operator, U), values.ravel(), with_matrices(operator.T, V)


@singular_bases.register
def _(operator: Kron, *, vectors: bool = True) -> Bases:
    (U, s, V), (W, t, Z) = (thin(f, vectors) for f in (operator.left, operator.right))
    values, batch = s[..., :, None] * t[..., None, :], operator.batch
    values = np.broadcast_to(values, (*batch, *values.shape[-2:])).ravel()
    return (Kron(U, W, batch), values, Kron(V, Z, batch)) if vectors else (None, values, None)


@singular_bases.register
def _(operator: LowRank, *, vectors: bool = True) -> Bases:
    sides = (cast_to(f, wide(operator.dtype)) for f in (operator.u, operator.v.conj()))
    (Q, R), (P, S) = (module_of(f).linalg.qr(f) for f in sides)
    U, values, V = thin(R @ S.T.conj(), vectors)
    if not vectors:
        return None, values, None
    return Dense(Q @ U, operator.out_shape), values, Dense(P @ V, operator.in_shape)


@singular_bases.register
def _(operator: Circulant, *, vectors: bool = True) -> Bases | None:
    """C = P |C|, where |C| is symmetric, and P orthogonal with the phases of the spectrum."""
    values = np.tile(np.abs(operator.eigenvalues).ravel(), operator.count)
    if not vectors:
        return None, values, None
    if operator.dtype.kind == "c":
        return None
    V = hartley(operator)
    return operator.with_spectrum(polar(operator.spectrum)[1]) @ V, values, V


@singular_bases.register
def _(operator: Sum, *, vectors: bool = True) -> Bases | None:
    """|λ| where a basis of eigenvectors is known."""
    if (one := as_one(operator)) is not None:
        return singular_bases(one, vectors=vectors)
    found = eigenbasis(operator, vectors=vectors)
    if found is None:
        return None
    sizes, signs = polar(found[0])
    V = found[1]
    return V and V @ Diagonal(signs.reshape(V.in_shape)), sizes, V


def polar(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|z| and z / |z|, which is 1 for 0."""
    sizes = np.abs(values)
    return sizes, np.where(sizes > 0, values, 1) / np.where(sizes > 0, sizes, 1)


def with_matrices(like: Jacobian, stack: Array) -> Jacobian:
    """A dense or block-diagonal operator of other columns."""
    return Dense(stack, like.out_shape) if isinstance(like, Dense) else BlockDiagonal(stack)


def thin(factor: Factor, vectors: bool) -> tuple[Any, np.ndarray, Any]:
    """U, σ and V of each matrix, as many columns as the smaller side."""
    if isinstance(factor, Eye):
        return factor, np.ones(factor.n), factor
    work, linalg = widened(factor), module_of(factor).linalg
    if not vectors:
        return None, host(linalg.svdvals(work)), None
    U, values, Vh = linalg.svd(work, full_matrices=False)
    return U, host(values), adjoint_of(Vh)


# -- the functions ------------------------------------------------------------------------------


def of_hermitian(entries: Callable[[np.ndarray], np.ndarray], a: np.ndarray) -> np.ndarray:
    """V f(λ) Vᴴ of each matrix; raises `InputError` for one that is not Hermitian."""
    if (exact := hermitian(a)) is None:
        raise InputError("a root needs a Hermitian operator")
    V, values = eigen(True, exact)
    return times(V, entries(values)[..., None, :]) @ adjoint_of(V)


def power_of_values(values: np.ndarray, power: float = 0.5) -> np.ndarray:
    """λᵖ of numbers that are real and not negative, up to rounding."""
    rounding = 100 * max(values.size, 1) * eps_of(values.dtype) * np.abs(values).max(initial=0)
    least = np.real(values).min(initial=0)
    bad = least < -rounding or (power < 0 and np.real(values).min(initial=np.inf) <= rounding)
    if bad or np.abs(np.imag(values)).max(initial=0) > rounding:
        kind, value = "" if power < 0 else "semi-", values.flat[np.argmin(np.real(values))]
        raise InputError(f"a root needs a positive {kind}definite operator, without the "
                         f"eigenvalue {value:.2g}")  # fmt: skip
    return np.maximum(np.real(values), 0) ** power


def invert_values(floor: float, values: np.ndarray) -> np.ndarray:
    """1/λ along the last axis, and 0 where λ is 0 up to rounding, or up to `floor`."""
    sizes = np.abs(values)
    least = values.shape[-1] * eps_of(values.dtype) * sizes.max(-1, initial=0, keepdims=True)
    small = sizes <= np.maximum(least, floor)
    return np.where(small, 0, 1 / np.where(small, 1, values))


def pseudo(A: Jacobian | None = None) -> MatrixFunction:
    """The pseudo-inverse: 0 is what rounding leaves of the numbers in A, with magnitudes |A| 1."""
    largest = 0.0 if A is None else np.abs(absolute(A) @ np.ones(A.shape[1])).max(initial=0)
    of_values = partial(
        invert_values, 0.0 if A is None else max(A.shape) * eps_of(A.dtype) * largest
    )

    def matrices(a: np.ndarray) -> np.ndarray:
        U, values, V = thin(a, True)
        return times(V, of_values(values)[..., None, :]) @ adjoint_of(U)

    return MatrixFunction(lambda d: of_values(d.ravel()).reshape(d.shape), matrices, pseudo=True)


def triangle(a: np.ndarray) -> np.ndarray:
    """L with A = L Lᴴ."""
    if (exact := hermitian(a)) is None:
        raise InputError("a Cholesky factor needs a Hermitian operator")
    linalg = module_of(a).linalg
    try:
        return linalg.cholesky(exact)
    except linalg.LinAlgError:
        raise InputError("a Cholesky factor needs a positive definite operator") from None


def exponential(a: np.ndarray) -> np.ndarray:
    """exp A of each matrix."""
    return library_of(a).exponential(a)


FORMS = {
    "sqrt": MatrixFunction(power_of_values, partial(of_hermitian, power_of_values)),
    "cholesky": MatrixFunction(power_of_values, triangle, spectral=False),
    "expm": MatrixFunction(np.exp, exponential, splits=False),
}
"""Name -> the function."""


def function_of(A: Jacobian, name: str, *args: Any) -> Any:
    """A function or decomposition by its name, which is the name of a method of operators."""
    if name == "svd":
        return ask_structure(singular_bases, A)
    if name == "pinv":
        return pinv_of(A)
    check_square(A)
    if name == "eigh":
        return ask_structure(eigenbasis, A)
    return power_of(A, *args) if name == "power" else ask_structure(map_structure, A, FORMS[name])


def pinv_of(A: Jacobian) -> Jacobian:
    """A⁺, which is A⁻¹ where structure gives that."""
    found = map_structure(A, pseudo()) if all_numbers(A) else None
    if found is None and A.shape[0] == A.shape[1]:
        with suppress(Singular):
            inverse = inverse_of(A)
            found = inverse and check_inverse(A, inverse, lost=1e-3)
    return found or ask_structure(map_structure, A, pseudo(A))


def power_of(A: Jacobian, p: float) -> Jacobian:
    """Aᵖ: products for a whole p, V Λᵖ Vᴴ for another one."""
    if not np.isfinite(p):
        raise InputError(f"Jᵖ takes a finite p, not {p}")
    if p == int(p) < 0:
        return power_of(A.inverse(), -p)
    if p != int(p):
        entries = partial(power_of_values, power=p)
        return ask_structure(
            map_structure, A, MatrixFunction(entries, partial(of_hermitian, entries))
        )
    n = int(p)
    form = MatrixFunction(
        lambda d: np.asarray(d**n), lambda a: module_of(a).linalg.matrix_power(a, n)
    )
    found = map_structure(A, form) if n and all_numbers(A) else None
    return found or reduce(matmul, [A] * n, Identity(A.in_shape, A.dtype))
