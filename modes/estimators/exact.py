"""Exact: diagonals, spectra, determinants and norms by structure, by sparse entries or products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce, singledispatch
from itertools import islice, takewhile
from operator import matmul
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import (
    Block,
    BlockDiagonal,
    Cast,
    Convolution,
    Dag,
    Dense,
    Diagonal,
    Identity,
    Jacobian,
    Kron,
    LowRank,
    Product,
    Scalar,
    Sum,
    Zero,
    hooks,
    shape_of,
    slogdet_of,
)
from ...jacobians.arrays import Array, host, reading_of, times, total, wide
from ...jacobians.as_one import of_each
from ...jacobians.closed import all_numbers, check_square, determinant, shifted_inverse
from ...jacobians.errors import InputError
from ...jacobians.functions import eigenbasis, function_of, singular_bases
from ...jacobians.lapack import SlogDet, hermitian, max_abs, of_matrix, of_values
from ...jacobians.matrices import matrix_shape
from ..curvature.gradients import sample_diagonal
from ..curvature.kronecker import KroneckerFactored
from ..curvature.sharded import ShardedFactors
from ..linear.elimination.cost import seconds
from ..linear.linearization import Linearization
from ..linear.symmetric import undamped
from ..sparse import sparse_within
from ..sparse.sweep import alike, strip_wrappers, unwrapped_leaves
from .estimate import Probed
from .squared import block_grid, foreign, own_diagonal, squared

SPARSE_SHARE = 1 / 8
"""The most that finding sparse entries may take of the counted time of products."""

STRUCTURE, SPARSE, PRODUCTS = "exact by structure", "exact by sparse entries", "exact by products"

Found = tuple[Array, str]
"""Numbers, and the method that found them."""


def known_diagonal(P: Probed) -> Found | None:
    """diag(A) without a product, where the arrays of A are."""
    found = without_products(P.A)
    return found and (P.place.take(found[0]), found[1])


def without_products(A: Any) -> Found | None:
    """diag(A) by structure, or from sparse entries if there are few."""
    found = diagonal_of(A)
    if found is not None:
        return found, STRUCTURE
    matrix = find_entries(A)
    return None if matrix is None else (matrix.diagonal(), SPARSE)


def exact_diagonal(P: Probed) -> Found:
    """diag(A), by n products, Aⱼⱼ = eⱼᵀ A eⱼ, if nothing else determines it."""
    if known := known_diagonal(P):
        return known
    found = column_numbers(P, min(P.shape), lambda j, AE: AE[j : j + AE.shape[1]].diagonal())
    return found, PRODUCTS


def known_squares(P: Probed) -> Found | None:
    """(Σᵢ Aᵢⱼ²)ⱼ = diag(AᵀA) without a product: by structure, or from sparse entries if few."""
    square = squared(P.A)
    ones = P.zeros(P.shape[0]) + 1
    found = gram_diagonal(P.A) if square is None else square.T @ ones
    if found is not None:
        return P.place.take(found), STRUCTURE
    if (matrix := find_entries(P.A)) is not None:
        return P.place.take(np.bincount(matrix.indices, matrix.data**2, P.shape[1])), SPARSE
    return None


def column_squares(P: Probed) -> Found:
    """(Σᵢ Aᵢⱼ²)ⱼ, by min(m, n) products if nothing else determines it."""
    return known_squares(P) or (squares_by_products(P), PRODUCTS)


def squares_by_products(P: Probed) -> Array:
    """(Σᵢ Aᵢⱼ²)ⱼ by min(m, n) products."""
    m, n = P.shape
    if n <= m:
        return column_numbers(P, n, lambda _, AE: (AE**2).sum(0))
    loop = P.work.loop("rows", 0, P.zeros(n))
    done, squares = loop.state
    for _, stop, units in unit_columns(P, m, done, m):
        squares = squares + (P.adjoint(units) ** 2).sum(1)
        loop.step(stop, squares)
    return squares


def column_numbers(P: Probed, count: int, find: Callable[[int, Array], Array]) -> Array:
    """A number for each of the first columns, find(j, A [eⱼ, eⱼ₊₁, …])."""
    loop = P.work.loop("columns", 0, P.zeros(count))
    done, found = loop.state
    for start, stop, units in unit_columns(P, P.shape[1], done, count):
        found[start:stop] = find(start, P @ units)
        loop.step(stop, found[:stop])
    return found


def unit_columns(
    P: Probed, n: int, first: int, end: int, width: int = 64
) -> Iterator[tuple[int, int, Array]]:
    """The unit vectors of length n as columns, in chunks with their start and stop."""
    for start in range(first, end, width):
        stop = min(start + width, end)
        yield start, stop, P.units(start, stop, n)


def find_entries(A: Any) -> csr_array[Any] | None:
    """A by its sparse entries, where they are known and take less counted work than products."""
    if not isinstance(A, Jacobian) or any(map(foreign, unwrapped_leaves(A))):
        return None
    return sparse_within(A, SPARSE_SHARE * min(A.shape) * seconds(A))


@singledispatch
def diagonal_of(operator: Any) -> Array | None:
    """diag(A) by structure, or None where structure does not determine it.

    >>> J = Dense(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> diagonal_of(J.T @ Diagonal(np.array([10.0, 1.0])) @ J)
    array([19., 56.])
    """
    behind = strip_wrappers(operator)
    return None if behind is operator else diagonal_of(behind)


@diagonal_of.register
def _(
    operator: Identity | Zero | Scalar | Cast | Diagonal | Dense | LowRank | KroneckerFactored,
) -> Array:
    return operator._diagonal()


@diagonal_of.register
def _(operator: Kron) -> Array | None:
    """diag(A ⊗ B), if both factors are square."""
    shapes = map(matrix_shape, (operator.left, operator.right))
    return operator._diagonal() if all(m == n for m, n in shapes) else None


diagonal_of.register(Convolution, own_diagonal)


@diagonal_of.register
def _(operator: BlockDiagonal) -> np.ndarray | None:
    return operator._diagonal() if operator.out_shape == operator.in_shape else None


@diagonal_of.register
def _(operator: Sum) -> np.ndarray | None:
    found = of_each(diagonal_of, operator.terms)
    return None if found is None else reduce(total, found)


@diagonal_of.register
def _(operator: Dag | Block) -> np.ndarray | None:
    """The diagonals of the diagonal blocks, if these are square."""
    blocks = block_grid(operator)
    if blocks is None or len(blocks) != len(blocks[0]):
        return None
    found = of_each(diagonal_of, (row[k] for k, row in enumerate(blocks)))
    return None if found is None else reading_of(*found).Concat(*found, axis=0)


@diagonal_of.register
def _(operator: Product) -> Array | None:
    """diag(D A) = d ∘ diag(A), and diag(Fᵀ M F) = (F ∘ F)ᵀ m where M is diagonal."""
    if operator.shape[0] != operator.shape[1]:
        return None
    first, *_, last = operator.factors
    if isinstance(first, Diagonal | Scalar):
        return _scaled(first, operator.factors[1:])
    if isinstance(last, Diagonal | Scalar):
        return _scaled(last, operator.factors[:-1])
    found = _of_mirrored(operator.factors)
    J, *middle = operator.factors[::-1]
    if found is None and middle and isinstance(J, Linearization) and are_transposes(first, J):
        inner = reduce(matmul, middle[-2::-1], Identity(J.out_shape, J.dtype))
        found = sample_diagonal(J, inner)
    return own_diagonal(operator) if found is None else found


def _scaled(d: Jacobian, rest: tuple[Jacobian, ...]) -> np.ndarray | None:
    """d ∘ diag(A)."""
    inner = diagonal_of(Product(rest) if len(rest) > 1 else rest[0])
    return None if inner is None else times(d._diagonal(), inner)


def _of_mirrored(factors: tuple[Jacobian, ...]) -> np.ndarray | None:
    """(F ∘ F)ᵀ m for the factors Fᵀ M F."""
    pairs = zip(factors, reversed(factors), strict=True)
    half = len(
        list(takewhile(lambda pair: are_transposes(*pair), islice(pairs, len(factors) // 2)))
    )
    middle = factors[half : len(factors) - half]
    if not half or not all(isinstance(m, Diagonal | Scalar | Identity) for m in middle):
        return None
    square = squared(reduce(matmul, factors[len(factors) - half :]))
    weights = reduce(times, (m._diagonal() for m in middle), np.ones(factors[-half].shape[0]))
    return None if square is None else square.T @ weights


def are_transposes(left: Jacobian, right: Jacobian) -> bool:
    """Whether one operator is the transpose of the other, by construction."""
    a, b = strip_wrappers(left), strip_wrappers(right)
    same = left is right.T or a is b.T or b is a.T
    return same or getattr(a, "mirror", None) is b or getattr(b, "mirror", None) is a


DENSE_ROWS = 2000
"""The most rows or columns of a dense decomposition, which then takes at most seconds."""

Kind = Literal["eigenvalues", "singular values"]


def exact_spectrum(P: Probed, kind: Kind, most: float) -> Found | None:
    """All λ or σ, by structure, or from the dense matrix where it takes at most `most` products."""
    known = spectrum(P.A, kind)
    if known is not None:
        return known, STRUCTURE
    return None if min(P.shape) > most else (by_products(P, kind), PRODUCTS)


def by_products(P: Probed, kind: Kind) -> np.ndarray:
    """All λ or σ of the dense matrix, by min(m, n) products."""
    m, n = P.shape
    matrix = P @ P.units(0, n, n) if n <= m else P.adjoint(P.units(0, m, m)).T
    if kind == "singular values":
        return host(P.xp.linalg.svdvals(matrix))
    if hermitian(host(matrix), P.eps) is None:
        raise InputError("this needs a symmetric operator: its matrix and the transpose differ")
    return host(P.xp.linalg.eigvalsh((matrix + matrix.T) / 2))


@singledispatch
def spectrum(operator: Any, kind: Kind) -> np.ndarray | None:
    """All λ or σ, unsorted, or None where structure does not determine them.

    >>> K = Kron(np.diag([1.0, 2.0]), np.diag([3.0, 5.0]), ())
    >>> spectrum(K, "eigenvalues")
    array([ 3.,  5.,  6., 10.])
    """
    behind = strip_wrappers(operator)
    if behind is not operator:
        return spectrum(behind, kind)
    if not isinstance(operator, Jacobian) or not all_numbers(operator) or is_large(operator):
        return None
    if kind == "eigenvalues":
        square = operator.shape[0] == operator.shape[1]
        pair = eigenbasis(operator, vectors=False) if square else None
        return None if pair is None else pair[0]
    if (found := singular_bases(operator, vectors=False)) is None:
        return None
    _, values, _ = found
    return np.append(values, np.zeros(min(operator.shape) - len(values)))


def is_large(operator: Jacobian) -> bool:
    """Whether a matrix that an operator holds takes more than seconds to decompose."""
    kinds = Dense, BlockDiagonal, Kron, LowRank
    held = (
        a for leaf in unwrapped_leaves(operator) if isinstance(leaf, kinds) for a in leaf.arrays()
    )
    return any(min(shape_of(a)[-2:]) > DENSE_ROWS for a in held)


@spectrum.register
def _(operator: KroneckerFactored | ShardedFactors, kind: Kind) -> np.ndarray | None:
    """λ ≥ 0, which are singular values as well; None if the uses of a tensor overlap."""
    return operator.eigenvalues() if operator.tiled else None


@spectrum.register
def _(operator: Sum, kind: Kind) -> np.ndarray | None:
    """|λ + δ| or λ + δ for a symmetric operator plus δ I, if the sum is of no other kind."""
    if (known := spectrum.dispatch(object)(operator, kind)) is not None:
        return known
    found = undamped(operator)
    values = None if found is None else spectrum(found[0], "eigenvalues")
    if found is None or values is None:
        return None
    return values + found[1] if kind == "eigenvalues" else np.abs(values + found[1])


@singledispatch
def gram_diagonal(operator: Any) -> Array | None:
    """diag(AᵀA) by structure, or None where structure does not determine it."""
    behind = strip_wrappers(operator)
    return None if behind is operator else gram_diagonal(behind)


@gram_diagonal.register
def _(operator: KroneckerFactored | ShardedFactors) -> Array | None:
    """diag(Q Λ² Qᵀ)."""
    return operator.function(lambda values: values**2)._diagonal() if operator.tiled else None


@gram_diagonal.register
def _(operator: Sum) -> Array | None:
    """diag(AᵀA + 2 δ A + δ² I)."""
    found = undamped(operator)
    if found is None:
        return None
    square, own = gram_diagonal(found[0]), diagonal_of(found[0])
    return None if square is None or own is None else square + found[1] * (2 * own + found[1])


# -- the methods of every operator -----------------------------------------------------------------


def dense_matrix(J: Jacobian) -> np.ndarray:
    """The dense matrix, in at least single precision: LAPACK knows no half."""
    return np.asarray(J.toarray(), wide(J.dtype))


@hooks.diagonal.register
def _(A: Jacobian) -> Array:
    """Half precision would be rounded at each step of the structure, but once in a product."""
    real = A.dtype in (np.float32, np.float64)
    found = without_products(A) if real else None
    return A._diagonal() if found is None else found[0]


@hooks.slogdet.register
def _(J: Jacobian) -> SlogDet:
    found = slogdet_of(alike(J))
    if found is None and (values := spectrum(J, "eigenvalues")) is not None:
        return of_spectrum(J, values)
    return of_matrix(J, dense_matrix(J)) if found is None else found


@determinant.register
def _(operator: KroneckerFactored | ShardedFactors) -> SlogDet | None:
    return of_spectrum(operator, operator.eigenvalues()) if operator.tiled else None


def of_spectrum(A: Jacobian, values: np.ndarray) -> SlogDet:
    """sign, log |Π λ| of all eigenvalues of A; warns where rounding moves it."""
    K = (undamped(A) or (A,))[0] if isinstance(A, Sum) else A
    if isinstance(K, KroneckerFactored | ShardedFactors) and K.tiled:
        return of_values(A, values, K.eigenvalue_errors())
    return of_values(A, values, max_abs(values))


@shifted_inverse.register
def _(operator: KroneckerFactored | ShardedFactors, shift: float) -> Jacobian | None:
    return operator.inverse(shift) if shift >= 0 and operator.tiled else None


@hooks.eigvalsh.register
def _(J: Jacobian) -> np.ndarray:
    check_square(J)
    if (found := spectrum(J, "eigenvalues")) is not None:
        return np.sort(found)
    matrix = dense_matrix(J)
    if hermitian(matrix) is None:
        raise InputError(f"{J!r} is not Hermitian: it has singular values, svdvals()")
    return np.linalg.eigvalsh(matrix)


@hooks.svdvals.register
def _(J: Jacobian) -> np.ndarray:
    found = spectrum(J, "singular values")
    if found is None:
        return np.linalg.svd(dense_matrix(J), compute_uv=False)
    return np.sort(np.abs(found))[::-1]


@hooks.function.register
def _(J: Jacobian, name: str, *args: Any) -> Any:
    return function_of(alike(J), name, *args)


@hooks.norm.register
def _(J: Jacobian, ord: str | int = "fro") -> float:
    if ord not in NORMS:
        raise InputError(f"norm(ord={ord!r}): ord is one of {', '.join(map(repr, NORMS))}")
    known = known_squares(Probed(J)) if ord == "fro" and J.dtype.kind != "c" else None
    if known is not None:
        return float(known[0].sum()) ** 0.5
    if ord == "fro" and spectrum(J, "singular values") is None:
        return float(np.linalg.norm(dense_matrix(J)))
    return float(NORMS[ord](J.svdvals()))


NORMS: dict[str | int, Callable[[np.ndarray], Any]] = {
    "fro": np.linalg.norm, 2: lambda values: values.max(initial=0), "nuc": np.sum,
}  # fmt: skip
"""ord -> the norm from the singular values."""
