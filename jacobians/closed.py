"""Closed forms: A⁻¹ and det A by structure, without an iteration.

The inverse of a structured operator is a structured operator again, which multiplies, transposes
and inverts in turn.

| A | A⁻¹ | det A |
|---|---|---|
| diag(d) | diag(1/d) | Π d |
| a permutation P | Pᵀ | ±1 |
| A ⊗ B | A⁻¹ ⊗ B⁻¹ | (det A)ⁿ (det B)ᵐ |
| blockdiag(Aᵢ) | blockdiag(Aᵢ⁻¹) | Π det Aᵢ |
| A B | B⁻¹ A⁻¹ | det A det B |
| B + U Vᵀ | B⁻¹ - B⁻¹ U C⁻¹ Vᵀ B⁻¹, C = I + Vᵀ B⁻¹ U (Woodbury) | det B det C |
| Σ Aₖ ⊗ Bₖ | (V ⊗ W) diag(λ)⁻¹ (V ⊗ W)ᴴ | Π λ / (det V)²ⁿ (det W)²ᵐ |
| A ⊗ I + I ⊗ B, not symmetric | by Schur forms: `Sylvester` | Π (λᵢ + μⱼ) |
| blockdiag(Aᵢ) + I ⊗ B + diag(d) | blockdiag(Aᵢ + B + diag(dᵢ)) inverted | of the blocks |
| P A Pᵀ + δ I, P a reshape or permutation | P (A + δ I)⁻¹ Pᵀ | det(A + δ I) |
| a circulant with kernel c | the circulant with kernel ifft(1 / fft(c)) | Π fft(c) |

`kron_sums` finds V, W and λ of a sum of Kronecker products. Tensors are inverted and decomposed
where they are; eigenvalues, and what only LAPACK does (Schur forms, pairs of matrices), are
NumPy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce, singledispatch
from operator import add, matmul
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .arrays import Array, host, prod_text, reading, reading_of, shape_of, size
from .as_one import (
    CORRECTED_ROWS,
    absolute,
    as_circulant,
    as_matrix,
    as_one,
    blocks_on_diagonal,
    inner_operators,
    is_of_kinds,
    of_blocks,
    of_each,
)
from .base import Conjugate, Jacobian, conjugate
from .convolution import Convolution
from .dag import Block, Dag, composed
from .elementwise import Cast, Diagonal, Identity, Scalar, Zero
from .errors import InputError
from .kron_sums import Sylvester, by_schur, diagonalised, kron_terms
from .lapack import (
    LOST,
    ZERO_DET,
    Singular,
    SlogDet,
    check_regular,
    eps_of,
    inverses,
    max_abs,
    multiply_dets,
    of_entries,
    of_matrices,
    of_matrix,
    of_sizes,
    of_values,
    power_of_det,
    singular,
    warn_of_rounding,
)
from .layout import Embed, Permutation, Reshape, Scatter, Slice, Take
from .matrices import BlockDiagonal, Dense, Eye, Kron, LowRank, implicit_kron, matrix_shape
from .placing import HOST, placed
from .products import Product
from .readings import is_kept
from .sums import Sum, multiple, split_identity, terms_of
from .transforms import Circulant, Cumulative, Fourier


def inverse_of(operator: Jacobian) -> Jacobian | None:
    """A⁻¹ of an `operator` A by structure, or None where structure does not determine it.

    Shape: (n, n), as A. Raises `InputError` where A or a part of it is singular, and where A is not
    square.

    >>> inverse_of(Kron(np.diag([1.0, 2.0]), np.diag([4.0, 8.0]), ())).diagonal()
    array([0.25  , 0.125 , 0.125 , 0.0625])
    >>> D = Diagonal(np.array([1.0, 2.0, 4.0]))
    >>> inverse_of(D + LowRank(np.ones((3, 1)), np.ones((3, 1))))
    diag(3) + lowrank(3×1, rank 1) · dense(1×3)
    """
    check_square(operator)
    if not all_numbers(operator):
        return None
    if (found := inverted(operator)) is not None:
        return found
    found = inverse_of_matrix(operator)
    return found and check_inverse(operator, found)


def slogdet_of(operator: Jacobian) -> SlogDet | None:
    """The sign of det A and log |det A| by structure, or None; the sign is a phase if A is complex.

    A is the `operator`. Raises `InputError` where A is not square.

    >>> slogdet_of(Kron(np.diag([1.0, -2.0]), Eye(3), ()))
    (-1.0, 2.0794415416798357)
    """
    check_square(operator)
    return determinant(operator) if all_numbers(operator) else None


def check_square(operator: Jacobian) -> None:
    """Raises `InputError` where an operator is not square."""
    if operator.shape[0] != operator.shape[1]:
        raise InputError(f"this needs a square operator, not {operator!r} of shape "
                         f"{prod_text(operator.shape)}")  # fmt: skip


def all_numbers(operator: Jacobian) -> bool:
    """Whether the operator holds numbers, as NumPy arrays or as tensors, beside NumPy's indices."""
    held = list(operator.arrays())
    others = [a for a in held if not isinstance(a, np.ndarray)]
    floats = (a for a in held if isinstance(a, np.ndarray) and a.dtype.kind not in "iub")
    return not others or (all(map(is_kept, others)) and not any(True for _ in floats))


def check_inverse(A: Jacobian, M: Jacobian, slack: float = np.inf, lost: float = LOST) -> Jacobian:
    """M ≈ A⁻¹; raises `Singular` where x = M v has a relative error above `lost` for a random v.

    The error is M r for the residual r = A x - v, or for a random one as large as rounding makes
    it, ε |A| |x|, where nothing cancels in |A|. r, and the first error, are at most `slack` times
    the second ones.
    Source: Higham, "Accuracy and stability of numerical algorithms", 2002, chapter 7.
    """
    eps, (n, k) = eps_of(A.dtype), (A.shape[0], 3)
    v, signs = np.random.default_rng(0).standard_normal((2, n, k))
    with np.errstate(all="ignore"):
        x = M @ v
        r, noise = A @ x - v, eps * np.abs(absolute(A) @ np.abs(x))
        errors = np.abs(M @ np.hstack([r, signs * noise])).max(0, initial=0).reshape(2, k)
        own, least = (errors / np.abs(x).max(0)).max(1) if n else (0.0, 0.0)
        off = np.max(np.abs(r).max(0) / noise.max(0)) if n else 0.0
    stored = 0.01 if A.dtype.itemsize < 4 else eps  # what M, in half precision, is off by
    stable = own <= slack * least + stored and off <= slack * stored / eps
    if not (stable and max(own, least) < lost):
        raise singular(A, f"its condition number is {max(own, least) / eps:.2g} in {A.dtype}")
    return M


@singledispatch
def inverted(operator: Jacobian) -> Jacobian | None:
    """A⁻¹ of a square operator that holds numbers, or None."""
    return None


UNKNOWN = inverted.dispatch(object)


@singledispatch
def determinant(operator: Jacobian) -> SlogDet | None:
    """sign, log |det A| of a square operator that holds numbers, or None."""
    return None


@singledispatch
def shifted_inverse(operator: Jacobian, shift: float) -> Jacobian | None:
    """(A + δ I)⁻¹ for an A that knows its eigenvectors, or None."""
    return None


# -- operators that act on each entry alone, or move entries ---------------------------------------


@inverted.register
def _(operator: Identity | Reshape | Permutation | Cast) -> Jacobian:
    return operator.T


@determinant.register
def _(operator: Identity | Reshape | Cast) -> SlogDet:
    return 1.0, 0.0


@inverted.register
def _(operator: Slice | Embed | Take | Scatter) -> Jacobian:
    """A square selection is a permutation, or it takes an entry twice and another one not."""
    if order_of(operator) is None:
        raise singular(operator, "it takes an entry twice")
    return operator.T


@determinant.register
def _(operator: Permutation | Slice | Embed | Take | Scatter) -> SlogDet:
    """The sign of the permutation: one change for every cycle of even length."""
    order = order_of(operator)
    return ZERO_DET if order is None else ((-1.0) ** (len(order) - cycles(order)), 0.0)


def order_of(operator: Jacobian) -> np.ndarray | None:
    """p with y[i] = x[p[i]] for a square selection, or its transpose; None if p is no permutation.

    Both have the same determinant, ±1.
    """
    move = operator.T if isinstance(operator, Embed | Scatter) else operator
    at = np.arange(operator.shape[0])
    order = placed(move, HOST)._apply(reading(at), at.reshape(move.in_shape)).ravel()
    return order if np.array_equal(np.sort(order), at) else None


def cycles(order: np.ndarray) -> int:
    """The number of cycles of a permutation.

    >>> cycles(np.array([1, 0, 2, 4, 5, 3]))
    3
    """
    n = len(order)
    graph = coo_array((np.ones(n), (np.arange(n), order)), shape=(n, n))
    count: Any = connected_components(graph, return_labels=False)
    return int(count)


@inverted.register
def _(operator: Scalar) -> Jacobian:
    if operator.factor == 0:
        raise singular(operator, "its factor is 0")
    return Scalar(1 / operator.factor, operator.in_shape, operator.dtype)


@inverted.register
def _(operator: Diagonal) -> Jacobian:
    d = operator.d
    if (d == 0).any():
        k = int(np.argmin(np.abs(operator.diagonal())))
        raise singular(operator, f"its entry {k} is 0")
    return Diagonal(1 / d, operator.in_shape)


@determinant.register
def _(operator: Scalar | Diagonal) -> SlogDet:
    held = host(operator.d) if isinstance(operator, Diagonal) else np.array([operator.factor])
    times = size(operator.in_shape) // max(held.size, 1)
    return power_of_det(of_entries(held), times)


@inverted.register
def _(operator: Zero) -> Jacobian:
    if operator.shape[0]:
        raise singular(operator, "it is 0")
    return operator.T


@determinant.register
def _(operator: Zero) -> SlogDet:
    return ZERO_DET if operator.shape[0] else (1.0, 0.0)


@inverted.register
def _(operator: Conjugate) -> Jacobian | None:
    found = inverted(operator.operator)
    return None if found is None else conjugate(found)


@determinant.register
def _(operator: Conjugate) -> SlogDet | None:
    found = determinant(operator.operator)
    return None if found is None else (np.conj(found[0]), found[1])


@inverted.register
def _(operator: Fourier) -> Jacobian:
    return Fourier(operator.axis, operator.in_shape, operator.dtype, inverse=not operator.inverted)


@determinant.register
def _(operator: Cumulative) -> SlogDet:
    """A triangle of ones."""
    return ZERO_DET if operator.exclusive and operator.shape[0] else (1.0, 0.0)


@inverted.register
def _(operator: Sylvester) -> Jacobian:
    m, n = operator.in_shape
    return implicit_kron(operator.a, Eye(n)) + implicit_kron(Eye(m), operator.b)


@determinant.register
def _(operator: Sylvester) -> SlogDet:
    sign, log = of_sums(operator)
    return np.conj(sign), -log


def of_sums(S: Sylvester) -> SlogDet:
    """Π (λᵢ + μⱼ); for real factors, numbers that are not real come with their conjugates."""
    values = S.values
    if S.dtype.kind == "c":
        return of_entries(values)
    sign, _ = of_entries(values.real[values.imag == 0])
    return sign, of_sizes(values)


@inverted.register
def _(operator: Circulant) -> Jacobian:
    values = operator.spectrum
    check_regular(operator, values, values.size * eps_of(operator.dtype))
    return operator.with_spectrum(1 / values)


@determinant.register
def _(operator: Circulant) -> SlogDet:
    values, n = operator.spectrum, operator.in_shape[-1]
    of_values(operator, values, max_abs(values))
    if operator.dtype.kind == "c":
        return power_of_det(of_entries(values), operator.count)
    inner = values[..., 1 : (n + 1) // 2]  # the conjugates are in the other half
    sign, log = of_entries(values[..., :: max(n // 2, 1)] if n % 2 == 0 else values[..., :1])
    return power_of_det((float(np.sign(np.real(sign))), log + 2 * of_sizes(inner)), operator.count)


# -- matrices --------------------------------------------------------------------------------------


@inverted.register
def _(operator: Dense) -> Jacobian:
    return Dense(inverses(operator.a, operator), operator.in_shape, operator.out_shape)


@determinant.register
def _(operator: Dense) -> SlogDet:
    return of_matrices(operator.a, operator)


@inverted.register
def _(operator: BlockDiagonal) -> Jacobian:
    return BlockDiagonal(inverses(operator.blocks, operator))


@determinant.register
def _(operator: BlockDiagonal) -> SlogDet:
    return of_matrices(operator.blocks, operator)


@inverted.register
def _(operator: Kron) -> Jacobian:
    left, right = (
        factor if isinstance(factor, Eye) else inverses(factor, operator, name)
        for factor, name in ((operator.left, "left"), (operator.right, "right"))
    )
    return Kron(left, right, operator.batch)


@determinant.register
def _(operator: Kron) -> SlogDet:
    """(det A)ⁿ (det B)ᵐ, once for every entry of the batch."""
    (m, n), (rows, columns) = matrix_shape(operator.left), matrix_shape(operator.right)
    if (m, rows) != (n, columns):
        return ZERO_DET if operator.shape[0] else (1.0, 0.0)
    batch, found = size(operator.batch), (1.0, 0.0)
    for factor, power in ((operator.left, rows), (operator.right, m)):
        if not isinstance(factor, Eye):
            alike = batch // max(size(shape_of(factor)[:-2]), 1)
            part = of_matrices(factor, operator)
            found = multiply_dets(found, power_of_det(part, alike * power))
    return found


@inverted.register
def _(operator: LowRank) -> Jacobian:
    rank = operator.u.shape[1]
    if rank < operator.shape[0]:
        raise singular(operator, f"its rank is at most {rank}")
    found = inverses(multiplied_out(operator), operator)
    return Dense(found, operator.in_shape, operator.out_shape)


@determinant.register
def _(operator: LowRank) -> SlogDet:
    low = operator.u.shape[1] < operator.shape[0]
    return ZERO_DET if low else of_matrices(multiplied_out(operator), operator)


def multiplied_out(operator: LowRank) -> Array:
    """U Vᵀ."""
    return reading_of(operator.u, operator.v).MatMul(operator.u, operator.v.T)


# -- composites ------------------------------------------------------------------------------------


@inverted.register
def _(operator: Product) -> Jacobian | None:
    """(A B)⁻¹ = B⁻¹ A⁻¹."""
    if (waist := narrow(operator)) is not None:
        raise singular(operator, f"it passes through a tensor of {waist} numbers")
    if circular := as_circulant(operator):
        return inverted(circular)
    found = of_each(inverted, operator.factors)
    return None if found is None else reduce(matmul, reversed(found))


@determinant.register
def _(operator: Product) -> SlogDet | None:
    if narrow(operator) is not None:
        return ZERO_DET
    if circular := as_circulant(operator):
        return determinant(circular)
    found = of_each(determinant, operator.factors)
    return None if found is None else reduce(multiply_dets, found)


def narrow(operator: Product) -> int | None:
    """The least size of a tensor between held factors, where it bounds the rank below n."""
    waist = min(factor.shape[1] for factor in operator.factors)
    return waist if waist < operator.shape[0] and is_of_kinds(operator) else None


@inverted.register
def _(operator: Dag) -> Jacobian | None:
    return None if (found := as_one_operator(operator)) is None else inverted(found)


@determinant.register
def _(operator: Dag) -> SlogDet | None:
    return None if (found := as_one_operator(operator)) is None else determinant(found)


def as_one_operator(operator: Dag) -> Jacobian | None:
    """A DAG in series and in parallel as one operator between flat tensors.

    None where a part has no inverse, before anything is multiplied.
    """
    closed = all(isinstance(leaf, Convolution) or inverted.dispatch(type(leaf)) is not UNKNOWN
                 for leaf in inner_operators(operator))  # fmt: skip
    found = composed(operator) if operator.edges and closed else None
    if found is None:
        return None
    left, right = (Identity(s, operator.dtype) for s in (operator.out_shape, operator.in_shape))
    return left @ found @ right


@inverted.register
def _(operator: Block) -> Jacobian | None:
    """A block-diagonal grid, block by block."""
    return of_blocks(inverted, operator)


@determinant.register
def _(operator: Block) -> SlogDet | None:
    found = of_each(determinant, blocks_on_diagonal(operator))
    return reduce(multiply_dets, found) if found else None


@inverted.register
def _(operator: Sum) -> Jacobian | None:
    """By its terms, or for a small sum by its matrix, where terms that cancel make that better."""
    shift, others = split_identity(operator)
    if len(others) == 1 and (found := shifted_inverse(others[0], shift)) is not None:
        return found
    error = None
    for inverse, slack in (inverse_by_terms, 100), (inverse_of_matrix, np.inf), (refined, np.inf):
        try:
            if (found := inverse(operator, error)) is not None:
                return check_inverse(operator, found, slack)
        except Singular as singular:
            error = error or singular
    if error is not None:
        raise error
    return None


def inverse_of_matrix(operator: Jacobian, error: Singular | None = None) -> Jacobian | None:
    """A⁻¹ of a small A, as a dense matrix; of a larger one where its terms end in an error."""
    whole = as_matrix(operator, error is not None)
    return whole and inverted(whole)


def refined(operator: Sum, error: Singular | None) -> Jacobian | None:
    """M + M (I - A M) of M ≈ A⁻¹ by the terms of an A that is too large for a dense matrix."""
    M = inverse_by_terms(operator) if error and operator.shape[0] > CORRECTED_ROWS else None
    return M and M + M @ (Identity(operator.in_shape, operator.dtype) - operator @ M)


def inverse_by_terms(operator: Sum, error: Singular | None = None) -> Jacobian | None:
    """(Σ T)⁻¹, by the first form that fits."""
    terms = kron_terms(operator)
    if (pairs := diagonalised(operator, terms, with_vectors=True)) is not None:
        return pairs.inverse(operator)
    if (split := by_schur(operator, terms)) is not None:
        outer, S = split
        return S if outer is None else S @ inverted(outer)
    if (parts := woodbury(operator)) is not None:
        return parts.inverse(operator)
    whole = as_one(operator)
    return None if whole is None else inverted(whole)


@determinant.register
def _(operator: Sum) -> SlogDet | None:
    """By its terms; by its matrix where the inverse by the same terms is inaccurate."""
    found: SlogDet | None
    if pairs := diagonalised(operator, terms := kron_terms(operator)):
        if pairs.rotation:
            return of_values(operator, pairs.values, pairs.sizes)
        found = pairs.determinant
    elif split := by_schur(operator, terms):
        outer, S = split
        found = (1.0, 0.0) if outer is None else determinant(outer)
        found = found and multiply_dets(found, of_sums(S))
    elif parts := woodbury(operator):
        found = parts.determinant
    else:
        whole = as_one(operator) or as_matrix(operator)
        if isinstance(whole, Dense) and isinstance(whole.a, np.ndarray):
            return of_matrix(operator, whole.a)
        return None if whole is None else determinant(whole)
    try:
        if found is not None and (M := inverse_by_terms(operator)) is not None:
            check_inverse(operator, M, 100)
    except Singular as error:
        if (whole := as_matrix(operator, True)) is not None:
            return of_matrix(operator, host(whole.a))
        warn_of_rounding(operator, error.why)
    return found


# -- B + U Vᵀ --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Woodbury:
    """B + U Vᵀ, with B⁻¹, Y = B⁻¹ U and C = I + Vᵀ Y."""

    base: Jacobian
    base_inverse: Jacobian
    Y: np.ndarray
    U: np.ndarray
    V: np.ndarray
    C: np.ndarray

    def inverse(self, whole: Jacobian) -> Jacobian:
        """B⁻¹ - Y C⁻¹ (B⁻ᵀ V)ᵀ."""
        middle = inverses(self.C, whole, "capacitance")
        same = self.U is self.V and self.base_inverse.T is self.base_inverse
        Z = self.Y if same else multiply_matrix(self.base_inverse.T, self.V)
        left = LowRank(self.Y, -middle.T, whole.in_shape)  # not multiplied out: it is as large so
        low = Product((left, Dense(Z.T, None, whole.out_shape)))
        return Sum((*terms_of(self.base_inverse), low))

    @property
    def determinant(self) -> SlogDet | None:
        """det B det C."""
        base = determinant(self.base)
        return None if base is None else multiply_dets(base, of_matrices(self.C))


def woodbury(operator: Sum) -> Woodbury | None:
    """The sum as B + U Vᵀ, where B has a closed inverse and the rank of U Vᵀ is below n."""
    pairs = [low_rank_of(term) for term in operator.terms]
    low = [pair for pair in pairs if pair is not None]
    rest = [term for term, pair in zip(operator.terms, pairs, strict=True) if pair is None]
    if not rest or not 0 < sum(u.shape[1] for u, _ in low) < operator.shape[0]:
        return None
    base = reduce(add, rest)
    try:
        base_inverse = inverted(base)
    except Singular:
        return None
    if base_inverse is None:
        return None
    U, V = low[0]
    if len(low) > 1:
        U, V = map(join_columns, zip(*low, strict=True))
    Y = multiply_matrix(base_inverse, U)
    C, at = reading_of(V, Y).MatMul(V.T, Y), np.arange(U.shape[1])
    C[at, at] += 1
    return Woodbury(base, base_inverse, Y, U, V, C)


def join_columns(matrices: tuple[Array, ...]) -> Array:
    """The columns of all matrices."""
    return reading_of(*matrices).Concat(*matrices, axis=1)


def multiply_matrix(operator: Jacobian, matrix: np.ndarray) -> np.ndarray:
    """A M for a matrix M."""
    if isinstance(operator, Diagonal):  # no copy of M with its axes exchanged
        return operator._diagonal()[:, None] * matrix
    c = multiple(operator)
    return operator @ matrix if c is None else c * matrix


def low_rank_of(term: Jacobian) -> tuple[np.ndarray, np.ndarray] | None:
    """U and V with term = U Vᵀ, of rank below n; None for a term that may have full rank."""
    n = term.shape[0]
    if isinstance(term, LowRank):
        return (term.u, term.v) if term.u.shape[1] < n else None
    if not isinstance(term, Product) or not is_of_kinds(term):
        return None
    for k, factor in enumerate(term.factors):
        if isinstance(factor, LowRank) and factor.u.shape[1] < n:
            before, after = term.factors[:k], term.factors[k + 1 :]
            U = multiply_matrix(reduce(matmul, before), factor.u) if before else factor.u
            V = multiply_matrix(reduce(matmul, after).T, factor.v) if after else factor.v
            return U, V
    widths = [factor.shape[1] for factor in term.factors]
    k = int(np.argmin(widths))
    if widths[k] >= n:
        return None
    left, right = reduce(matmul, term.factors[: k + 1]), reduce(matmul, term.factors[k + 1 :])
    return left.toarray(), right.toarray().T
