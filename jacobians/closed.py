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

In the row of Σ Aₖ ⊗ Bₖ, V and W make all factors diagonal at once, Vᴴ Aₖ V = diag(aₖ) and
Wᴴ Bₖ W = diag(bₖ), so that λ = Σ aₖ ⊗ bₖ: they are the eigenvectors of a Hermitian matrix, or of a
pair of which one is positive definite. A ⊗ B + δ I and the Kronecker sum A ⊗ I + I ⊗ B are of this
kind, and A ⊗ B + C ⊗ D. Where these are not symmetric, A ⊗ B + C ⊗ D is (C ⊗ B) times the Kronecker
sum C⁻¹ A ⊗ I + I ⊗ B⁻¹ D.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce, singledispatch
from operator import add, matmul
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .arrays import Shape, prod_text, reading, rounded, shape_of, size, wide
from .base import Conjugate, Jacobian, conjugate
from .convolution import Convolution
from .dag import Block, Dag, composed
from .elementwise import Cast, Diagonal, Identity, Scalar, Zero
from .errors import InputError
from .layout import Permutation, Reshape
from .matrices import BlockDiagonal, Dense, Eye, Factor, Kron, LowRank, implicit_kron, matrix_shape
from .products import Product, commuted, factors_of
from .selection import Embed, Scatter, Slice, Take
from .sums import Sum, coefficient, scaled_kron, split_identity, terms_of
from .sylvester import Sylvester
from .transforms import Circulant, Cumulative, Fourier

SlogDet = tuple[Any, float]
"""The sign of a determinant, or its phase, and the logarithm of its absolute value."""

ZERO_DET = (0.0, -np.inf)

SMALL = 1000
"""The most rows of an operator that is inverted as a dense matrix where no closed form is known."""


class Singular(InputError):
    """A part of an operator has no inverse."""


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
    found = inverted(operator)
    cheap = (isinstance(leaf, HELD | MOVES) for leaf in leaves(operator))
    if found is None and operator.shape[0] <= SMALL and all(cheap):
        found = Dense(inverses(operator.toarray(), operator), operator.in_shape, operator.out_shape)
    return found


def leaves(operator: Jacobian) -> Iterator[Jacobian]:
    """The operators that an operator is composed of, without composites."""
    parts = [part for part in operator.contents() if isinstance(part, Jacobian)]
    if not parts:
        yield operator
    for part in parts:
        yield from leaves(part)


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
    """Whether the operator holds arrays of NumPy only."""
    return all(isinstance(a, np.ndarray) for a in operator.arrays())


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
def shifted(operator: Jacobian, shift: float) -> Jacobian | None:
    """(A + δ I)⁻¹ for an A that knows its eigenvectors, or None."""
    return None


# -- operators that act on each entry alone, or move entries -----------------------------------


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
    at = np.arange(operator.shape[0], dtype=float)
    order = np.real(move @ at).astype(np.intp)
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
    return Diagonal(np.asarray(1 / d), operator.in_shape)


@determinant.register
def _(operator: Scalar | Diagonal) -> SlogDet:
    held = operator.d if isinstance(operator, Diagonal) else np.array([operator.factor])
    times = size(operator.in_shape) // max(held.size, 1)
    return powered(of_entries(held), times)


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
    sizes = np.abs(values)
    small = sizes.min(initial=np.inf)
    if small <= values.size * eps_of(operator.dtype) * sizes.max(initial=0):
        raise singular(operator, f"its smallest eigenvalue is {small:.2g}")
    return operator.with_spectrum(1 / values)


@determinant.register
def _(operator: Circulant) -> SlogDet:
    values, n = operator.spectrum, operator.in_shape[-1]
    if operator.dtype.kind == "c":
        return powered(of_entries(values), operator.count)
    inner = values[..., 1 : (n + 1) // 2]  # the conjugates are in the other half
    sign, log = of_entries(values[..., :: max(n // 2, 1)] if n % 2 == 0 else values[..., :1])
    return powered((float(np.sign(np.real(sign))), log + 2 * of_sizes(inner)), operator.count)


# -- matrices ----------------------------------------------------------------------------------


@inverted.register
def _(operator: Dense) -> Jacobian:
    return Dense(inverses(operator.a, operator), operator.in_shape, operator.out_shape)


@determinant.register
def _(operator: Dense) -> SlogDet:
    return of_matrices(operator.a)


@inverted.register
def _(operator: BlockDiagonal) -> Jacobian:
    return BlockDiagonal(inverses(operator.blocks, operator))


@determinant.register
def _(operator: BlockDiagonal) -> SlogDet:
    return of_matrices(operator.blocks)


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
            found = both(found, powered(of_matrices(factor), alike * power))
    return found


@inverted.register
def _(operator: LowRank) -> Jacobian:
    rank = operator.u.shape[1]
    if rank < operator.shape[0]:
        raise singular(operator, f"its rank is at most {rank}")
    whole = Dense(operator.u @ operator.v.T, operator.out_shape, operator.in_shape)
    return Dense(inverses(whole.a, operator), operator.in_shape, operator.out_shape)


@determinant.register
def _(operator: LowRank) -> SlogDet:
    low = operator.u.shape[1] < operator.shape[0]
    return ZERO_DET if low else of_matrices(operator.u @ operator.v.T)


def inverses(matrices: np.ndarray, whole: Jacobian, name: str = "") -> np.ndarray:
    """A⁻¹ of each matrix in (*batch, n, n); `whole` and `name` say which they are."""
    m, n = matrices.shape[-2:]
    if m != n:
        raise singular(whole, f"its {name} factor is {m}×{n}" if name else f"it holds {m}×{n}")
    work = np.asarray(matrices, wide(matrices.dtype))
    with np.errstate(all="ignore"):
        found = by_cholesky(work)
        found = by_lu(work) if found is None else found
        bounds = n * frobenius(work) * frobenius(found)  # of the condition numbers
        if (bounds * eps_of(work.dtype) < 1).all():
            return rounded(found, matrices.dtype)
        norms = np.linalg.norm(work, 1, (-2, -1)) * np.linalg.norm(found, 1, (-2, -1))
        bad = ~(norms * eps_of(work.dtype) < 1)
    if np.any(bad):
        what = f"its {name} factor" if name else "its matrix" if work.ndim == 2 else "a block"
        first = tuple(map(int, np.argwhere(bad)[0]))
        where = f" {first}" if work.ndim > 2 else ""
        number = float(np.asarray(norms)[first])
        text = f"{what}{where} has the condition number {number:.2g}"
        raise singular(whole, text if np.isfinite(number) else f"{what}{where} is singular")
    return rounded(found, matrices.dtype)


def frobenius(a: np.ndarray) -> np.ndarray:
    """‖A‖ of each matrix."""
    flat = a.reshape(*a.shape[:-2], a.shape[-2] * a.shape[-1])
    return np.sqrt(np.vecdot(flat, flat).real)


def root_of(a: np.ndarray) -> np.ndarray | None:
    """The triangle U with A = Uᵀ conj(U) of one positive definite matrix; None for others."""
    if a.ndim > 2 or not a.size or not (a == adjoint_of(a)).all():
        return None
    potrf: Any = scipy.linalg.get_lapack_funcs("potrf", (a,))
    upper, failed = potrf(a.T)
    return None if failed else upper


def by_cholesky(a: np.ndarray) -> np.ndarray | None:
    """A⁻¹ of one positive definite matrix; None for others."""
    if (upper := root_of(a)) is None:
        return None
    trtri: Any = scipy.linalg.get_lapack_funcs("trtri", (a,))
    upper, failed = trtri(upper, overwrite_c=True)
    return None if failed else upper.conj() @ upper.T


def by_lu(a: np.ndarray) -> np.ndarray:
    """A⁻¹ of each matrix; not finite where one is singular."""
    if not a.size:
        return a
    if a.ndim > 2:
        with suppress(np.linalg.LinAlgError):
            return np.linalg.inv(a)
        return np.stack([by_lu(one) for one in a.reshape(-1, *a.shape[-2:])]).reshape(a.shape)
    lapack: Any = scipy.linalg.get_lapack_funcs(("getrf", "getri", "getri_lwork"), (a,))
    getrf, getri, getri_lwork = lapack
    lu, pivots, failed = getrf(a)
    if failed:
        return np.full_like(a, np.inf)
    room, _ = getri_lwork(len(a))
    found, _ = getri(lu, pivots, lwork=int(np.real(room)), overwrite_lu=True)
    return np.asarray(found)


# -- composites --------------------------------------------------------------------------------


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
    return None if found is None else reduce(both, found)


def of_each(question: Callable[[Jacobian], Any], parts: Iterable[Jacobian]) -> list[Any] | None:
    """The answers for square operators; None where one is not square, or has no answer."""
    found = [question(part) if part.shape[0] == part.shape[1] else None for part in parts]
    return None if any(one is None for one in found) else found


def narrow(operator: Product) -> int | None:
    """The least size of a tensor between held factors, where it bounds the rank below n."""
    waist = min(factor.shape[1] for factor in operator.factors)
    return waist if waist < operator.shape[0] and held(operator) else None


@inverted.register
def _(operator: Dag) -> Jacobian | None:
    return None if (found := whole(operator)) is None else inverted(found)


@determinant.register
def _(operator: Dag) -> SlogDet | None:
    return None if (found := whole(operator)) is None else determinant(found)


def whole(operator: Dag) -> Jacobian | None:
    """A DAG in series and in parallel as one operator between flat tensors.

    None where a part has no inverse, before anything is multiplied.
    """
    closed = all(isinstance(leaf, Convolution) or inverted.dispatch(type(leaf)) is not UNKNOWN
                 for leaf in leaves(operator))  # fmt: skip
    found = composed(operator) if operator.edges and closed else None
    if found is None:
        return None
    left, right = (Identity(s, operator.dtype) for s in (operator.out_shape, operator.in_shape))
    return left @ found @ right


@inverted.register
def _(operator: Block) -> Jacobian | None:
    """A block-diagonal grid, block by block."""
    return of_blocks(inverted, operator)


def of_blocks(function: Callable[[Jacobian], Any], operator: Block) -> Block | None:
    """The function of each block of a block-diagonal grid; None for other grids."""
    own = of_each(function, diagonal_blocks(operator)) or []
    grid = [[b if i == j else None for j in range(len(own))] for i, b in enumerate(own)]
    return Block(grid) if grid else None


@determinant.register
def _(operator: Block) -> SlogDet | None:
    found = of_each(determinant, diagonal_blocks(operator))
    return reduce(both, found) if found else None


def diagonal_blocks(operator: Block) -> list[Jacobian]:
    """The blocks of a grid that has them on its diagonal and nowhere else; else none."""
    rows = operator.rows
    own = [row[k] for k, row in enumerate(rows) if k < len(row)]
    present = [block for row in rows for block in row if block is not None]
    return present if len(rows) == len(rows[0]) and present == own else []


@inverted.register
def _(operator: Sum) -> Jacobian | None:
    shift, others = split_identity(operator)
    if len(others) == 1 and (found := shifted(others[0], shift)) is not None:
        return found
    terms = kron_terms(operator)
    if (pairs := diagonalised(operator, terms, with_vectors=True)) is not None:
        return pairs.inverse(operator)
    if (split := by_schur(operator, terms)) is not None:
        outer, S = split
        S.schur  # noqa: B018 - the eigenvalues are on its diagonals
        sizes = np.abs(S.values)
        if sizes.min(initial=np.inf) <= sizes.size * eps_of(S.dtype) * sizes.max(initial=0):
            raise singular(operator, f"its smallest eigenvalue is {sizes.min():.2g}")
        return S if outer is None else S @ inverted(outer)
    if (parts := woodbury(operator)) is not None:
        return parts.inverse(operator)
    whole = as_one(operator)
    return None if whole is None else inverted(whole)


@determinant.register
def _(operator: Sum) -> SlogDet | None:
    terms = kron_terms(operator)
    if (pairs := diagonalised(operator, terms)) is not None:
        return pairs.determinant
    if (split := by_schur(operator, terms)) is not None:
        outer, S = split
        left = (1.0, 0.0) if outer is None else determinant(outer)
        return None if left is None else both(left, of_sums(S))
    if (parts := woodbury(operator)) is not None:
        return parts.determinant
    whole = as_one(operator)
    return None if whole is None else determinant(whole)


# -- B + U Vᵀ ----------------------------------------------------------------------------------


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
        Z = self.Y if same else columns(self.base_inverse.T, self.V)
        left = LowRank(self.Y, -middle.T, whole.in_shape)  # not multiplied out: it is as large so
        low = Product((left, Dense(Z.T, None, whole.out_shape)))
        return Sum((*terms_of(self.base_inverse), low))

    @property
    def determinant(self) -> SlogDet | None:
        """det B det C."""
        base = determinant(self.base)
        return None if base is None else both(base, of_matrices(self.C))


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
        U, V = (np.concatenate(side, axis=1) for side in zip(*low, strict=True))
    Y = columns(base_inverse, U)
    return Woodbury(base, base_inverse, Y, U, V, np.eye(U.shape[1], dtype=Y.dtype) + V.T @ Y)


def columns(operator: Jacobian, matrix: np.ndarray) -> np.ndarray:
    """A M for a matrix M."""
    if isinstance(operator, Diagonal | Scalar | Identity):  # no copy of M with its axes exchanged
        return operator.diagonal()[:, None] * matrix
    return operator @ matrix


HELD = (Dense | LowRank | Diagonal | Scalar | Identity | Reshape | Permutation | Kron
        | BlockDiagonal | Circulant)  # fmt: skip
"""The operators that may be multiplied out, because they are as cheap as the arrays they hold."""

MOVES = Slice | Embed | Take | Scatter | Cast
"""The operators that move entries, and hold no number."""


def held(operator: Jacobian) -> bool:
    """Whether an operator is of these kinds, or a product of them."""
    return all(isinstance(factor, HELD) for factor in factors_of(operator))


def low_rank_of(term: Jacobian) -> tuple[np.ndarray, np.ndarray] | None:
    """U and V with term = U Vᵀ, of rank below n; None for a term that may have full rank."""
    n = term.shape[0]
    if isinstance(term, LowRank):
        return (term.u, term.v) if term.u.shape[1] < n else None
    if not isinstance(term, Product) or not held(term):
        return None
    for k, factor in enumerate(term.factors):
        if isinstance(factor, LowRank) and factor.u.shape[1] < n:
            before, after = term.factors[:k], term.factors[k + 1 :]
            U = columns(reduce(matmul, before), factor.u) if before else factor.u
            V = columns(reduce(matmul, after).T, factor.v) if after else factor.v
            return U, V
    widths = [factor.shape[1] for factor in term.factors]
    k = int(np.argmin(widths))
    if widths[k] >= n:
        return None
    left, right = reduce(matmul, term.factors[: k + 1]), reduce(matmul, term.factors[k + 1 :])
    return left.toarray(), right.toarray().T


# -- sums that are one matrix ------------------------------------------------------------------


def as_circulant(operator: Jacobian) -> Circulant | None:
    """A sum of circulants and multiples of I as one circulant; None for other operators.

    A convolution of one channel with stride 1 after wrapping selections, Pad(mode="wrap"), is one.
    """
    total, shift = None, 0.0
    for term in terms_of(operator):
        c, others = coefficient(term)
        if not others or isinstance(term, Identity):
            shift += c
            continue
        C: Jacobian | None = others[0] if len(others) == 1 else wrapped(others)
        if C is None and (mirror := wrapped(tuple(f.T for f in reversed(others)))):
            C = mirror.T
        if not isinstance(C, Circulant):
            return None
        if total and (total.kernel.shape, total.dtype) != (C.kernel.shape, C.dtype):
            return None
        total = C.with_spectrum(c * C.spectrum + (total.spectrum if total else 0))
    return total and total.with_spectrum(total.spectrum + shift)


def wrapped(factors: tuple[Jacobian, ...]) -> Circulant | None:
    """The circulant that a convolution after wrapping selections is; its kernel is a column."""
    first, *pads = factors
    if not isinstance(first, Convolution) or (first.source, first.target) != ("x", "u"):
        return None
    g, shape = first.geometry, pads[-1].in_shape
    if set(g.strides) != {1} or any(g.pads) or g.w[:2] != (1, 1) or g.u != shape:
        return None
    takes = [pad for pad in pads if isinstance(pad, Take) and wraps(pad)]
    if len({take.axis for take in takes}) < len(pads):
        return None
    unit = np.zeros((1, *shape), wide(first.dtype))
    unit.reshape(*unit.shape[:3], -1)[..., 0] = 1
    column = reduce(lambda v, factor: factor._apply(reading(v), v), reversed(factors), unit)
    return Circulant(column[0, 0, 0].astype(first.dtype), shape)


def wraps(take: Take) -> bool:
    """Whether a selection takes the entries of an axis in turn, modulo its length."""
    n, index = take.in_shape[take.axis], np.asarray(take.index)
    spatial = take.axis >= 2 - len(take.in_shape) and index.ndim == 1
    return spatial and not ((index - index[0] - np.arange(index.size)) % n).any()


def is_real(values: np.ndarray) -> bool:
    """Whether complex numbers are real up to rounding."""
    rounding = 100 * eps_of(values.dtype) * np.abs(values).max(initial=0)
    return bool(np.abs(values.imag).max(initial=0) <= rounding)


def as_one(operator: Sum) -> Jacobian | None:
    """The sum as a circulant, a stack or grid of blocks, a matrix, or between layouts, or None."""
    if (found := as_circulant(operator) or as_blocks(operator) or as_grid(operator)) is not None:
        return found
    own = list(leaves(operator))
    matrix = any(isinstance(leaf, Dense) and leaf.shape == operator.shape for leaf in own)
    if matrix and all(isinstance(leaf, HELD | MOVES) for leaf in own):
        return Dense(operator.toarray(), operator.out_shape, operator.in_shape)
    return between_layouts(operator)


def as_blocks(operator: Sum) -> BlockDiagonal | None:
    """A sum of blocks, of I ⊗ B, and of diagonals as one stack of blocks that differ."""
    shift, others = split_identity(operator)
    diagonals = [term.diagonal() for term in others if isinstance(term, Diagonal)]
    varied = any(isinstance(f, Diagonal | BlockDiagonal) for t in others for f in factors_of(t))
    stacks = [stack_of(term) for term in others if not isinstance(term, Diagonal)] if varied else []
    if not stacks or any(stack is None for stack in stacks):
        return None
    total = np.array(reduce(add, stacks), operator.dtype)
    if shift or diagonals:
        at, shifts = np.arange(total.shape[-1]), np.full(operator.shape[0], shift, operator.dtype)
        total[..., at, at] += reduce(add, diagonals, shifts).reshape(operator.in_shape)
    return BlockDiagonal(total)


def as_grid(operator: Sum) -> Block | None:
    """A block-diagonal grid and a multiple of I as one such grid."""
    shift, others = split_identity(operator)
    if len(others) != 1 or not isinstance(others[0], Block):
        return None
    return of_blocks(lambda block: block + shift * Identity(block.in_shape, block.dtype), others[0])


def stack_of(term: Jacobian) -> np.ndarray | None:
    """The blocks of a multiple of blockdiag(Aᵢ) or of I ⊗ B; None for others, and for large B."""
    c, others = coefficient(term)
    K = others[0] if len(others) == 1 else None
    if isinstance(K, Kron) and isinstance(K.left, Eye) and K.out_shape[-1] <= SMALL:
        right: Any = K.right
        shape = (*K.batch, K.left.n, *right.shape[-2:])
        if size(shape) * term.dtype.itemsize <= term.dense_limit:
            return np.broadcast_to(c * right[..., None, :, :], shape)
    return c * K.blocks if isinstance(K, BlockDiagonal) else None


def between_layouts(operator: Sum) -> Jacobian | None:
    """P (Σ Pᵀ T P) Pᵀ for a reshape or permutation P that makes the terms simpler; else None."""
    for P in layouts(operator):
        terms = [moved(term, P) for term in operator.terms]
        if all(term is not None for term in terms):
            return P @ reduce(add, terms) @ P.T
    return None


def layouts(operator: Sum) -> Iterator[Jacobian]:
    """P of a term P A P⁻¹; the P with A ⊗ I = P (I ⊗ A) Pᵀ, beside diagonals and no I ⊗ B."""
    factors = [coefficient(term)[1] for term in operator.terms]
    for first, *_, last in (several for several in factors if len(several) > 2):
        if isinstance(first, Reshape | Permutation) and are_inverse(first, last):
            yield first
    krons = [one[0] for one in factors if len(one) == 1 and isinstance(one[0], Kron)]
    diagonal = any(isinstance(term, Diagonal) for term in operator.terms)
    if krons and diagonal and all(isinstance(K.right, Eye) for K in krons):
        *batch, m, n = operator.in_shape
        axes = range(len(batch))
        yield Permutation((*axes, len(batch) + 1, len(batch)), (*batch, n, m), operator.dtype)


def are_inverse(P: Jacobian, Q: Jacobian) -> bool:
    """Whether Q P = I."""
    return P.shape[0] == Q.shape[1] and isinstance(Q @ P, Identity)


def moved(term: Jacobian, P: Jacobian) -> Jacobian | None:
    """Pᵀ T P, where that has no more factors than T; else None."""
    c, factors = coefficient(term)
    if not factors:
        return c * Identity(P.in_shape, term.dtype)
    if isinstance(term, Diagonal):
        return Diagonal((P.T @ term.diagonal()).reshape(P.in_shape))
    pair = commuted(P.T, factors[0]) if isinstance(factors[0], Kron) else None
    found = reduce(matmul, (*(pair or (P.T, factors[0])), *factors[1:], P))
    return c * found if len(factors_of(found)) <= len(factors) else None


# -- sums of Kronecker products ----------------------------------------------------------------


@dataclass(frozen=True)
class Diagonalised:
    """(V ⊗ W)ᴴ A (V ⊗ W) = diag(λ)."""

    left: Basis
    right: Basis
    values: np.ndarray

    @property
    def rotation(self) -> bool:
        """Whether λ are the eigenvalues of A."""
        return self.left.metric is None and self.right.metric is None

    def inverse(self, whole: Jacobian) -> Jacobian:
        """(V ⊗ W) diag(1/λ) (V ⊗ W)ᴴ."""
        sizes = np.abs(self.values)
        if sizes.min(initial=np.inf) <= eps_of(whole.dtype) * sizes.max(initial=0):
            raise singular(whole, f"its smallest eigenvalue is {sizes.min():.2g}")
        basis = Kron(self.left.vectors, self.right.vectors, self.values.shape[:-2])
        return Product((basis, Diagonal(1 / self.values), adjoint(basis)))

    @property
    def determinant(self) -> SlogDet:
        """Π λ (det C)ⁿ (det D)ᵐ for the metrics C and D."""
        sign, log = of_entries(self.values)
        m, n = self.values.shape[-2:]
        for basis, power in ((self.left, n), (self.right, m)):
            if basis.metric is not None:
                log += power * of_matrices(basis.metric)[1]
        return sign, log


Term = tuple[float, Factor, Factor]
"""c, A and B of c A ⊗ B."""

KronTerms = tuple[float, list[Term], Shape]
"""δ, the terms and the batch of Σ c A ⊗ B + δ I."""


def kron_terms(operator: Sum) -> KronTerms | None:
    """δ, the terms and the batch of Σ c A ⊗ B + δ I; None for another sum."""
    shift, others = split_identity(operator)
    terms, batches = list[Term](), set[Shape]()
    for term in others:
        if (pair := scaled_kron(term)) is None:
            return None
        c, K = pair
        terms.append((c, K.left, K.right))
        batches.add(K.batch)
    return (shift, terms, batches.pop()) if len(batches) == 1 else None


def adjoint(K: Kron) -> Kron:
    """(V ⊗ W)ᴴ as a Kronecker product, which merges with others."""
    left, right = (f if isinstance(f, Eye) else adjoint_of(f) for f in (K.left, K.right))
    return Kron(left, right, K.batch)


def diagonalised(
    operator: Sum, found: KronTerms | None, *, with_vectors: bool = False
) -> Diagonalised | None:
    """Σ Aₖ ⊗ Bₖ + δ I in the basis that makes all factors diagonal; None where there is none."""
    if found is None:
        return None
    shift, terms, _ = found
    *_, m, n = operator.in_shape
    if shift:
        terms = [*terms, (shift, Eye(m), Eye(n))]
    scales = [c for c, *_ in terms]
    left = simultaneous([A for _, A, _ in terms], with_vectors)
    right = left and simultaneous([B for *_, B in terms], with_vectors)
    if left is None or right is None:
        return None
    values = sum(c * a[..., :, None] * b[..., None, :]
                 for c, a, b in zip(scales, left.values, right.values, strict=True))  # fmt: skip
    real = wide(np.finfo(operator.dtype).dtype)
    return Diagonalised(left, right, np.broadcast_to(np.asarray(values, real), operator.in_shape))


def by_schur(operator: Sum, found: KronTerms | None) -> tuple[Kron | None, Sylvester] | None:
    """C ⊗ B, if it is not I, and (A ⊗ I + I ⊗ D)⁻¹ for the sum (C ⊗ B) (A ⊗ I + I ⊗ D).

    A ⊗ B + C ⊗ D is c C ⊗ B times C⁻¹ A ⊗ I + I ⊗ B⁻¹ D; None where this takes the inverse of a
    singular matrix, and for sums of more terms.
    """
    if found is None or found[2]:
        return None
    shift, terms, _ = found
    *_, m, n = operator.in_shape
    if shift:
        terms = with_shift(terms, shift, Eye(m), Eye(n))
    square = all((matrix_shape(L), matrix_shape(R)) == ((m, m), (n, n)) for _, L, R in terms)
    if len(terms) != 2 or not square:
        return None
    orders = sorted((terms, terms[::-1]), key=lambda o: isinstance(o[0][2], Eye), reverse=True)
    for (c, A, B), (d, C, D) in orders:
        with suppress(Singular):
            left, right = c * solved(operator, C, A), d * solved(operator, B, D)
            free = isinstance(B, Eye) and isinstance(C, Eye)
            return None if free else Kron(C, B, ()), Sylvester(left, right)
    return None


def with_shift(terms: list[Term], shift: float, left: Eye, right: Eye) -> list[Term]:
    """c A ⊗ B for each term, and δ I: in a factor beside an identity, else as a term."""
    for k, (c, A, B) in enumerate(terms):
        if isinstance(A, Eye) or isinstance(B, Eye):
            A, B = (f if isinstance(f, Eye) else c * f + shift * np.eye(len(f), dtype=f.dtype)
                    for f in (A, B))  # fmt: skip
            return [*terms[:k], (1.0, A, B), *terms[k + 1 :]]
    return [*terms, (shift, left, right)]


def solved(whole: Jacobian, C: Factor, A: Factor) -> np.ndarray:
    """C⁻¹ A as a matrix."""
    C, A = (f if isinstance(f, Eye) else np.asarray(f, wide(f.dtype)) for f in (C, A))
    if isinstance(C, Eye):
        return np.eye(C.n, dtype=whole.dtype) if isinstance(A, Eye) else A
    return inverses(C, whole) if isinstance(A, Eye) else inverses(C, whole) @ A


@dataclass(frozen=True)
class Basis:
    """V, and the diagonals of Vᴴ Aₖ V; a rotation, or Vᴴ C V = I for the `metric` C."""

    vectors: Factor | None
    values: list[np.ndarray]
    metric: np.ndarray | None = None


def simultaneous(factors: list[Factor], with_vectors: bool) -> Basis | None:
    """V with Vᴴ Aₖ V diagonal, for Hermitian factors of which at most two are distinct.

    Without vectors, the values take a third of the time.
    """
    found, ones = matrices_of(factors), np.ones(1)
    exact = [a for a in map(hermitian, found) if a is not None]
    if len(exact) < len(found):
        return None
    if not found:
        return Basis(Eye(matrix_shape(factors[0])[0]), [ones] * len(factors))
    if len(found) == 1:
        V, values = eigen(with_vectors, exact[0])
        return Basis(V, [ones if isinstance(f, Eye) else values for f in factors])
    if len(found) > 2 or any(isinstance(f, Eye) or f.ndim > 2 for f in factors):
        return None
    for k in range(2):
        try:
            V, values = eigen(with_vectors, exact[k], exact[1 - k])
        except np.linalg.LinAlgError:  # the second one is not positive definite
            continue
        return Basis(V, [values if equal(f, found[k]) else ones for f in factors], exact[1 - k])
    return None


def eigen(
    with_vectors: bool, a: np.ndarray, metric: np.ndarray | None = None
) -> tuple[np.ndarray | None, np.ndarray]:
    """V, if wanted, and λ of a stack of Hermitian matrices, or of one matrix with a metric."""
    eigh: Any = scipy.linalg.eigh
    if metric is not None:
        found = eigh(a, metric, eigvals_only=not with_vectors, check_finite=False)
    else:
        found = np.linalg.eigh(a) if with_vectors else np.linalg.eigvalsh(a)
    return (found[1], found[0]) if with_vectors else (None, found)


def adjoint_of(matrices: np.ndarray) -> np.ndarray:
    """Aᴴ of each matrix."""
    return matrices.swapaxes(-1, -2).conj()


def hermitian(matrices: np.ndarray, eps: float | None = None) -> np.ndarray | None:
    """(A + Aᴴ) / 2 where that is A up to rounding, with matrices accurate to eps; else None."""
    if matrices.shape[-1] != matrices.shape[-2]:
        return None
    a = np.asarray(matrices, wide(matrices.dtype))
    skew = np.abs(a - adjoint_of(a)).max(initial=0)
    if skew == 0:
        return a
    rounding = 100 * a.shape[-1] ** 0.5 * (eps or eps_of(a.dtype))
    return (a + adjoint_of(a)) / 2 if skew <= rounding * np.abs(a).max(initial=0) else None


def matrices_of(factors: list[Factor]) -> list[np.ndarray]:
    """The distinct arrays among some factors."""
    found: list[np.ndarray] = []
    for factor in factors:
        if not isinstance(factor, Eye) and not any(equal(factor, f) for f in found):
            found.append(factor)
    return found


def equal(a: Factor, b: Factor) -> bool:
    """Whether two factors are the same matrix."""
    return a is b or (not isinstance(a, Eye) and not isinstance(b, Eye) and np.array_equal(a, b))


# -- determinants ------------------------------------------------------------------------------


def of_matrices(matrices: np.ndarray) -> SlogDet:
    """sign, log |Π det| over a stack of matrices."""
    if matrices.shape[-1] != matrices.shape[-2]:
        return ZERO_DET
    work = np.asarray(matrices, wide(matrices.dtype))
    if (upper := root_of(work)) is not None:
        return 1.0, 2 * of_sizes(np.diagonal(upper))
    signs, logs = np.linalg.slogdet(work)
    return signs.prod().item(), float(logs.sum(dtype=float))


def of_entries(values: np.ndarray) -> SlogDet:
    """sign, log |Π λ|."""
    values = np.asarray(values, wide(values.dtype))
    return np.prod(np.sign(values)).item(), of_sizes(values)


def of_sizes(values: np.ndarray) -> float:
    """log |Π λ|."""
    with np.errstate(divide="ignore"):
        return float(np.log(np.abs(values)).sum(dtype=float))


def both(a: SlogDet, b: SlogDet) -> SlogDet:
    """The determinant of a product."""
    return a[0] * b[0], a[1] + b[1]


def powered(found: SlogDet, times: int) -> SlogDet:
    """The determinant of a power."""
    return (found[0] ** times, found[1] * times) if times else (1.0, 0.0)


def singular(operator: Jacobian, why: str) -> Singular:
    """The error for an operator, or a part of one, that has no inverse."""
    return Singular(
        f"{operator!r}, {prod_text(operator.shape)}, has no inverse: {why}. Add damping, A + λ * "
        f"identity_like(A), or take the pseudo-inverse, solver='lsmr'"
    )


def eps_of(dtype: Any) -> float:
    """The rounding error of a dtype; halves count as single precision."""
    return float(np.finfo(wide(np.dtype(dtype))).eps)
