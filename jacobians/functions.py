"""Functions of operators by structure: A⁺, √A, Cholesky factors, powers, exp A, A = V Λ Vᴴ, U Σ Vᴴ.

Each function is a `Form`: what it does to numbers and to matrices, and whether f(A ⊗ B) is
f(A) ⊗ f(B). One dispatch, `mapped`, applies every form to every structure.

| A | f(A) |
|---|---|
| diag(d), c I | diag(f(d)) |
| a dense matrix, blockdiag(Aᵢ) | f of each matrix |
| A ⊗ B | f(A) ⊗ f(B), or (V ⊗ W) diag(f(λ)) (V ⊗ W)ᴴ |
| Σ Aₖ ⊗ Bₖ with one eigenbasis, as in `closed` | (V ⊗ W) diag(f(λ)) (V ⊗ W)ᴴ |
| A ⊗ I + I ⊗ B + δ I | exp: e^δ exp(A) ⊗ exp(B) |
| c I + U Vᵀ, Hermitian | f(c) I + Q diag(f(c + μ) - f(c)) Qᴴ |
| a circulant | the circulant with the eigenvalues f(λ) |
| P A Pᵀ, P a permutation or a reshape | P f(A) Pᵀ |
| a permutation, a selection | A⁺ = Aᵀ |

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
import scipy.linalg

from .arrays import wide
from .base import Jacobian
from .closed import (
    Singular,
    adjoint_of,
    all_numbers,
    as_circulant,
    as_kronecker_sum,
    as_one,
    check_square,
    diagonal_blocks,
    diagonalised,
    eps_of,
    hermitian,
    inverse_of,
    is_hermitian,
    is_real,
    low_rank_of,
)
from .dag import Block, Dag, composed
from .elementwise import Diagonal, Identity, Scalar
from .errors import InputError
from .layout import Inner, Permutation, Reshape
from .matrices import BlockDiagonal, Dense, Eye, Factor, Kron, LowRank
from .products import factors_of
from .selection import Embed, Slice
from .sums import Sum, coefficient, multiple
from .transforms import Circulant, Fourier

Turn = Permutation | Reshape

Found = TypeVar("Found")


@dataclass(frozen=True)
class Form:
    """f of numbers and of stacks of matrices.

    It `splits` if f(A ⊗ B) = f(A) ⊗ f(B), and is `spectral` if f(V Λ Vᴴ) = V f(Λ) Vᴴ for unitary V.
    """

    entries: Callable[[np.ndarray], np.ndarray]
    matrices: Callable[[np.ndarray], np.ndarray]
    splits: bool = True
    spectral: bool = True


def known(question: Callable[..., Found | None], operator: Jacobian, *args: Any) -> Found:
    """The answer by structure, or for the dense matrix."""
    if question is not singular_bases and PINV not in args:
        check_square(operator)
    found = question(simplified(operator), *args) if all_numbers(operator) else None
    if found is None:
        found = question(Dense(operator.toarray(), operator.out_shape, operator.in_shape), *args)
    if found is None:
        raise InputError(f"{operator!r} is not Hermitian: it has singular values, svd()")
    return found


def simplified(operator: Jacobian) -> Jacobian:
    """A DAG as one operator, and c A with c in the matrices of A."""
    if isinstance(operator, Dag) and operator.edges and (whole := composed(operator)) is not None:
        left, right = (Identity(s, operator.dtype) for s in (operator.out_shape, operator.in_shape))
        operator = left @ whole @ right
    c, others = coefficient(operator)
    if circular := as_circulant(operator):
        return circular
    operator = operator if c == 1 or len(others) != 1 else scaled(others[0], c)
    return (as_one(operator) or operator) if isinstance(operator, Sum) else operator


def scaled(A: Jacobian, c: float) -> Jacobian:
    """c A, with c in the matrices of A where it has some."""
    if isinstance(A, Sum):
        return Sum(tuple(scaled(term, c) for term in A.terms))
    if isinstance(A, Kron):
        left, right = (A.left, c * A.right) if isinstance(A.left, Eye) else (c * A.left, A.right)
        return Kron(left, right, A.batch)
    if isinstance(A, Dense):
        return Dense(c * A.a, A.out_shape, A.in_shape)
    if isinstance(A, BlockDiagonal):
        return BlockDiagonal(c * A.blocks)
    return c * A


def turned(operator: Jacobian) -> tuple[Jacobian, Jacobian, Jacobian]:
    """P, A and Q of P A Q for permutations and reshapes P and Q, or identities."""
    factors = [*factors_of(operator)]
    count = len(factors)
    first, last = (Identity(s, operator.dtype) for s in (operator.out_shape, operator.in_shape))
    while len(factors) > 1 and isinstance(factors[0], Turn):
        first = first @ factors.pop(0)
    while len(factors) > 1 and isinstance(factors[-1], Turn):
        last = factors.pop() @ last
    inner = operator if len(factors) == count else reduce(matmul, factors)
    return first, simplified(inner), last


def is_similar(first: Jacobian, last: Jacobian) -> bool:
    """Whether P A Q is similar to A, since Q = Pᵀ."""
    return isinstance(last @ first, Identity)


@singledispatch
def mapped(operator: Jacobian, form: Form) -> Jacobian | None:
    """f(A) by structure, or None."""
    first, inner, last = turned(operator)
    if type(inner) is type(operator) or not is_similar(first, last) or not form.spectral:
        return None
    found = mapped(inner, form)
    return None if found is None else first @ found @ last


@mapped.register(Identity)
@mapped.register(Scalar)
@mapped.register(Diagonal)
def _(operator: Jacobian, form: Form) -> Jacobian:
    d = operator.d if isinstance(operator, Diagonal) else np.array(multiple(operator), operator.dtype)
    return Diagonal(kept(form.entries, d), operator.in_shape)


@mapped.register
def _(operator: Dense, form: Form) -> Jacobian:
    return Dense(kept(form.matrices, operator.a), operator.in_shape, operator.out_shape)


@mapped.register
def _(operator: BlockDiagonal, form: Form) -> Jacobian:
    return BlockDiagonal(kept(form.matrices, operator.blocks))


@mapped.register
def _(operator: Kron, form: Form) -> Jacobian | None:
    if not form.splits:
        return by_eigenvectors(operator, form)
    try:
        return Kron(*(f if isinstance(f, Eye) else kept(form.matrices, f)
                      for f in (operator.left, operator.right)), operator.batch)  # fmt: skip
    except InputError:  # as for the root of (-A) ⊗ (-B)
        return by_eigenvectors(operator, form)


@mapped.register
def _(operator: Circulant, form: Form) -> Jacobian | None:
    return operator.with_spectrum(form.entries(operator.spectrum)) if form.spectral else None


@mapped.register(Permutation)
@mapped.register(Reshape)
@mapped.register(Slice)
@mapped.register(Embed)
def _(operator: Jacobian, form: Form) -> Jacobian | None:
    return operator.T if form is PINV else None


@mapped.register
def _(operator: LowRank, form: Form) -> Jacobian | None:
    """(U Vᵀ)⁺ by its singular values."""
    U, values, V = singular_bases(operator)
    return V @ Diagonal(reciprocal(values)) @ U.H if form is PINV else None


@mapped.register
def _(operator: Block, form: Form) -> Jacobian | None:
    found = [mapped(block, form) for block in diagonal_blocks(operator) or ()]
    if not found or any(block is None for block in found):
        return None
    return Block([[b if i == j else None for j in range(len(found))] for i, b in enumerate(found)])


@mapped.register
def _(operator: Sum, form: Form) -> Jacobian | None:
    found = by_eigenvectors(operator, form) or (of_low_rank(operator, form) if form.spectral else None)
    if found is None and form is EXPM and (split := as_kronecker_sum(operator)):
        rest = split.rest
        found = None if split.factor else Kron(*map(form.matrices, (rest.a, rest.b)), ())
    return found


def by_eigenvectors(operator: Jacobian, form: Form) -> Jacobian | None:
    """V diag(f(λ)) Vᴴ."""
    pair = eigenbasis(operator) if form.spectral else None
    if pair is None:
        return None
    return pair[1] @ Diagonal(form.entries(pair[0]).reshape(pair[1].in_shape)) @ pair[1].H


def of_low_rank(operator: Sum, form: Form) -> Jacobian | None:
    """f(c I + U Vᵀ) = f(c) I + Q diag(f(c + μ) - f(c)) Qᴴ, where U Vᵀ is Hermitian."""
    shifts = [multiple(term) for term in operator.terms]
    pairs = [low_rank_of(t) for t, c in zip(operator.terms, shifts, strict=True) if c is None]
    low = [pair for pair in pairs if pair is not None]
    if not low or len(low) < len(pairs) or operator.shape[0] <= sum(u.shape[1] for u, _ in low):
        return None
    U, V = (np.concatenate(side, axis=1) for side in zip(*low, strict=True))
    Q, R = np.linalg.qr(U)
    inside, (size, other) = V.T @ Q, map(np.linalg.norm, (U, V))
    outside = np.linalg.norm(R @ (V.T - inside @ np.conj(Q.T)))  # 0 where U Vᵀ is Hermitian
    if outside > 1e3 * eps_of(U.dtype) * size * other or not is_hermitian(R @ inside):
        return None
    values, W = np.linalg.eigh(hermitian(R @ inside))
    c = np.array(sum(filter(None, shifts)), values.dtype)
    Q, base = Q @ W, form.entries(c)
    change = LowRank(Q * (form.entries(c + values) - base), Q.conj(), operator.out_shape,
                     operator.in_shape)  # fmt: skip
    return Scalar(base.item(), operator.in_shape, change.dtype) + change


def kept(function: Callable[[np.ndarray], Any], array: np.ndarray) -> np.ndarray:
    """A function in at least single precision, in the precision of the array."""
    found: np.ndarray = function(np.asarray(array, wide(array.dtype)))
    return found.astype(array.dtype if found.dtype.kind == array.dtype.kind else found.dtype)


# -- A = V Λ Vᴴ and A = U Σ Vᴴ ------------------------------------------------------------------

Eigen = tuple[np.ndarray, Jacobian]
Bases = tuple[Jacobian, np.ndarray, Jacobian]


@singledispatch
def eigenbasis(operator: Jacobian) -> Eigen | None:
    """λ and V with A = V diag(λ) Vᴴ, or None; the order of λ is that of the structure."""
    first, inner, last = turned(operator)
    found = eigenbasis(inner) if type(inner) is not type(operator) and is_similar(first, last) else None
    return None if found is None else (found[0], first @ found[1])


@eigenbasis.register(Identity)
@eigenbasis.register(Scalar)
@eigenbasis.register(Diagonal)
def _(operator: Jacobian) -> Eigen | None:
    values = operator.diagonal()
    real = np.array_equal(values, values.real)
    return (values.real, Identity(operator.in_shape, operator.dtype)) if real else None


@eigenbasis.register(Dense)
@eigenbasis.register(BlockDiagonal)
def _(operator: Dense | BlockDiagonal) -> Eigen | None:
    stack = operator.a if isinstance(operator, Dense) else operator.blocks
    if not is_hermitian(stack):
        return None
    values, V = np.linalg.eigh(hermitian(stack))
    return values.ravel(), with_matrices(operator, V)


@eigenbasis.register(Kron)
@eigenbasis.register(Sum)
def _(operator: Kron | Sum) -> Eigen | None:
    whole = operator if isinstance(operator, Sum) else Sum((operator,))
    found = diagonalised(whole, with_vectors=True)
    if found is None or not found.rotation:
        return None
    V = Kron(found.left.vectors, found.right.vectors, found.values.shape[:-2])
    return found.values.ravel(), V


@eigenbasis.register
def _(operator: Circulant) -> Eigen | None:
    """The basis of the Hartley transform, where the kernel is real and symmetric."""
    values = operator.eigenvalues
    if operator.dtype.kind == "c" or not is_real(values):
        return None
    return np.tile(values.real.ravel(), operator.count), hartley(operator)


def hartley(C: Circulant) -> Jacobian:
    """(Re F - Im F) / √n for the Fourier transform F along the axes of a circulant: orthogonal."""
    shape, n = C.in_shape, C.kernel.size
    pair, column = (*shape, 2), (*shape, 1)
    spans = tuple((0, 1, k) for k in column)
    V: Jacobian = Embed(spans, pair, C.dtype) @ Reshape(column, shape, C.dtype)
    for axis in C.axes:
        V = Fourier(axis - 1, pair, C.dtype) @ V
    weights = np.array([1, -1], wide(C.dtype)) / n**0.5
    return Reshape(shape, column, C.dtype) @ Inner(weights, column, pair) @ V


@singledispatch
def singular_bases(operator: Jacobian) -> Bases | None:
    """U, σ and V with A = U diag(σ) Vᴴ, or None; the order of σ is that of the structure."""
    first, inner, last = turned(operator)
    found = None if type(inner) is type(operator) else singular_bases(inner)
    return None if found is None else (first @ found[0], found[1], last.T @ found[2])


@singular_bases.register(Identity)
@singular_bases.register(Permutation)
@singular_bases.register(Reshape)
def _(operator: Jacobian) -> Bases:
    ones = np.ones(operator.shape[0], wide(operator.dtype))
    return operator, ones, Identity(operator.in_shape, operator.dtype)


@singular_bases.register(Scalar)
@singular_bases.register(Diagonal)
def _(operator: Jacobian) -> Bases:
    d = operator.diagonal().reshape(operator.in_shape)
    sizes = np.abs(d)
    sign = np.where(sizes > 0, d, 1) / np.where(sizes > 0, sizes, 1)
    return Diagonal(sign), sizes.ravel(), Identity(operator.in_shape, operator.dtype)


@singular_bases.register(Dense)
@singular_bases.register(BlockDiagonal)
def _(operator: Dense | BlockDiagonal) -> Bases:
    U, values, V = thin(operator.a if isinstance(operator, Dense) else operator.blocks)
    return with_matrices(operator, U), values.ravel(), with_matrices(operator.T, V)


@singular_bases.register
def _(operator: Kron) -> Bases:
    (U, s, V), (W, t, Z) = map(thin, (operator.left, operator.right))
    values = s[..., :, None] * t[..., None, :]
    values = np.broadcast_to(values, (*operator.batch, *values.shape[-2:]))
    return Kron(U, W, operator.batch), values.ravel(), Kron(V, Z, operator.batch)


@singular_bases.register
def _(operator: LowRank) -> Bases:
    (Q, R), (P, S) = map(np.linalg.qr, (operator.u, operator.v.conj()))
    U, values, V = thin(R @ np.conj(S.T))
    return Dense(Q @ U, operator.out_shape), values, Dense(P @ V, operator.in_shape)


@singular_bases.register
def _(operator: Circulant) -> Bases | None:
    """C = P |C|, where |C| is symmetric, and P orthogonal with the phases of the spectrum."""
    values = operator.spectrum
    if operator.dtype.kind == "c":
        return None
    sizes, V = np.abs(values), hartley(operator)
    phases = operator.with_spectrum(np.where(sizes > 0, values, 1) / np.where(sizes > 0, sizes, 1))
    return phases @ V, np.tile(np.abs(operator.eigenvalues).ravel(), operator.count), V


def with_matrices(like: Jacobian, stack: np.ndarray) -> Jacobian:
    """A dense or block-diagonal operator of other columns."""
    return Dense(stack, like.out_shape) if isinstance(like, Dense) else BlockDiagonal(stack)


def thin(factor: Factor) -> tuple[Factor, np.ndarray, Factor]:
    """U, σ and V of each matrix, as many columns as the smaller side."""
    if isinstance(factor, Eye):
        return factor, np.ones(factor.n), factor
    U, values, Vh = np.linalg.svd(np.asarray(factor, wide(factor.dtype)), full_matrices=False)
    return U, values, adjoint_of(Vh)


# -- the functions ------------------------------------------------------------------------------


def of_hermitian(entries: Callable[[np.ndarray], np.ndarray], a: np.ndarray) -> np.ndarray:
    """V f(λ) Vᴴ of each matrix; raises `InputError` for one that is not Hermitian."""
    if not is_hermitian(a):
        raise InputError("this function needs a Hermitian operator")
    values, V = np.linalg.eigh(hermitian(a))
    found: np.ndarray = (V * entries(values)[..., None, :]) @ adjoint_of(V)
    return found


def root(values: np.ndarray, power: float = 0.5) -> np.ndarray:
    """λᵖ of numbers that are not negative beyond rounding."""
    largest = np.abs(values).max(initial=0)
    rounding = 100 * max(values.size, 1) * eps_of(values.dtype) * largest
    if np.abs(np.imag(values)).max(initial=0) > rounding or np.real(values).min(initial=0) < -rounding:
        raise InputError(f"an eigenvalue is {np.real(values).min():.2g}: a root needs an operator "
                         "that is positive semi-definite")  # fmt: skip
    found: np.ndarray = np.maximum(np.real(values), 0) ** power
    return found


def reciprocal(values: np.ndarray) -> np.ndarray:
    """1/λ, and 0 where λ is 0 up to rounding."""
    sizes = np.abs(values)
    small = sizes <= values.size * eps_of(values.dtype) * sizes.max(initial=0)
    found: np.ndarray = np.where(small, 0, 1 / np.where(small, 1, values))
    return found


def triangle(a: np.ndarray) -> np.ndarray:
    """L with A = L Lᴴ."""
    if not is_hermitian(a):
        raise InputError("a Cholesky factor needs a Hermitian operator")
    try:
        return np.linalg.cholesky(hermitian(a))
    except np.linalg.LinAlgError:
        raise InputError("a Cholesky factor needs a positive definite operator") from None


PINV = Form(reciprocal, np.linalg.pinv)
SQRT = Form(root, partial(of_hermitian, root))
CHOLESKY = Form(root, triangle, spectral=False)
EXPM = Form(np.exp, scipy.linalg.expm, splits=False)


def pinv_of(operator: Jacobian) -> Jacobian:
    """A⁺, which is A⁻¹ where structure gives that."""
    found = mapped(simplified(operator), PINV) if all_numbers(operator) else None
    if found is None and operator.shape[0] == operator.shape[1]:
        with suppress(Singular):
            found = inverse_of(operator)
    return found or known(mapped, operator, PINV)


def power_of(operator: Jacobian, p: float) -> Jacobian:
    """Aᵖ: products for a whole p, V Λᵖ Vᴴ for another one."""
    check_square(operator)
    if p < 0:
        return power_of(operator.inverse(), -p)
    if p != int(p):
        entries = partial(root, power=p)
        return known(mapped, operator, Form(entries, partial(of_hermitian, entries)))
    whole = partial(np.linalg.matrix_power, n=int(p))
    form = Form(lambda d: np.asarray(d ** int(p)), whole)
    found = mapped(simplified(operator), form) if p and all_numbers(operator) else None
    start = Identity(operator.in_shape, operator.dtype)
    return found or reduce(matmul, [operator] * int(p), start)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pinv": pinv_of,
    "sqrt": lambda A: known(mapped, A, SQRT),
    "cholesky": lambda A: known(mapped, A, CHOLESKY),
    "expm": lambda A: known(mapped, A, EXPM),
    "power": power_of,
    "eigh": partial(known, eigenbasis),
    "svd": partial(known, singular_bases),
}
"""Method of an operator -> the function."""
