"""Sums of Kronecker products, Σ Aₖ ⊗ Bₖ + δ I, made diagonal or triangular factor by factor.

V and W make all factors diagonal at once, Vᴴ Aₖ V = diag(aₖ) and Wᴴ Bₖ W = diag(bₖ), so that
(V ⊗ W)ᴴ A (V ⊗ W) = diag(λ) with λ = Σ aₖ ⊗ bₖ: they are the eigenvectors of a Hermitian matrix, or
of a pair of which one is positive definite. A ⊗ B + δ I and the Kronecker sum A ⊗ I + I ⊗ B are of
this kind, and A ⊗ B + C ⊗ D. Where these are not symmetric, A ⊗ B + C ⊗ D is (C ⊗ B) times the
Kronecker sum C⁻¹ A ⊗ I + I ⊗ B⁻¹ D, which Schur forms solve: they are LAPACK's, and on the host.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from .arrays import Array, Op, Shape, dtype_of, factor, host, reading, shape_of, wide
from .base import Jacobian
from .elementwise import Diagonal
from .errors import InputError
from .lapack import (
    Singular,
    SlogDet,
    adjoint_of,
    check_regular,
    eigen,
    eps_of,
    hermitian,
    inverses,
    max_abs,
    of_entries,
    of_matrices,
)
from .matrices import Dense, Eye, Factor, Kron, matrix_shape
from .products import Product
from .readings import is_kept, library_of
from .sums import Sum, scaled_kron, split_identity
from .threads import cached_property

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
    pairs = [(a[..., :, None], c * b[..., None, :])
             for c, a, b in zip(scales, left.values, right.values, strict=True)]  # fmt: skip
    sizes = sum(max_abs(a) * abs(b) + abs(a) * max_abs(b) for a, b in pairs)
    real = np.finfo(wide(operator.dtype)).dtype
    values, sizes = (np.broadcast_to(np.asarray(found, real), operator.in_shape)
                     for found in (sum(a * b for a, b in pairs), sizes))  # fmt: skip
    return Diagonalised(left, right, values, sizes)


@dataclass(frozen=True)
class Diagonalised:
    """(V ⊗ W)ᴴ A (V ⊗ W) = diag(λ), with `values` λ that are off by ε `sizes`."""

    left: Basis
    right: Basis
    values: np.ndarray
    sizes: np.ndarray

    @property
    def rotation(self) -> bool:
        """Whether λ are the eigenvalues of A."""
        return self.left.metric is None and self.right.metric is None

    def inverse(self, whole: Jacobian) -> Jacobian:
        """(V ⊗ W) diag(1/λ) (V ⊗ W)ᴴ."""
        check_regular(whole, self.values, eps_of(whole.dtype) if self.rotation else 0.0)
        K = Kron(self.left.vectors, self.right.vectors, self.values.shape[:-2])
        left, right = (f if isinstance(f, Eye) else adjoint_of(f) for f in (K.left, K.right))
        return Product((K, Diagonal(1 / self.values), Kron(left, right, K.batch)))

    @property
    def determinant(self) -> SlogDet:
        """Π λ (det C)ⁿ (det D)ᵐ for the metrics C and D."""
        sign, log = of_entries(self.values)
        m, n = self.values.shape[-2:]
        for basis, power in ((self.left, n), (self.right, m)):
            if basis.metric is not None:
                log += power * of_matrices(basis.metric)[1]
        return sign, log


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


def matrices_of(factors: list[Factor]) -> list[np.ndarray]:
    """The distinct arrays among some factors."""
    found: list[np.ndarray] = []
    for f in factors:
        if not isinstance(f, Eye) and not any(equal(f, known) for known in found):
            found.append(f)
    return found


def equal(a: Array, b: Array) -> bool:
    if a is b or isinstance(a, Eye) or type(a) is not type(b):
        return a is b
    return shape_of(a) == shape_of(b) and bool((a == b).all())


def by_schur(operator: Sum, found: KronTerms | None) -> tuple[Kron | None, Sylvester] | None:
    """C ⊗ B, if it is not I, and (A ⊗ I + I ⊗ D)⁻¹ for the sum (C ⊗ B) (A ⊗ I + I ⊗ D).

    A ⊗ B + C ⊗ D is c C ⊗ B times C⁻¹ A ⊗ I + I ⊗ B⁻¹ D; None where this takes the inverse of a
    singular matrix, and for sums of more terms.
    """
    if found is None or found[2]:
        return None
    shift, terms, _ = found
    *_, m, n = operator.in_shape
    terms = [(c, factor_on_host(A), factor_on_host(B)) for c, A, B in terms]
    if shift:
        terms = with_shift(terms, shift, Eye(m), Eye(n))
    square = all((matrix_shape(L), matrix_shape(R)) == ((m, m), (n, n)) for _, L, R in terms)
    if len(terms) != 2 or not square:
        return None
    orders = sorted((terms, terms[::-1]), key=lambda o: isinstance(o[0][2], Eye), reverse=True)
    for (c, A, B), (d, C, D) in orders:
        with suppress(Singular):
            left, right = c * solve_factor(operator, C, A), d * solve_factor(operator, B, D)
            free = isinstance(B, Eye) and isinstance(C, Eye)
            return None if free else Kron(C, B, ()), Sylvester(left, right)
    return None


def factor_on_host(factor: Factor) -> Factor:
    return factor if isinstance(factor, Eye) else host(factor)


def with_shift(terms: list[Term], shift: float, left: Eye, right: Eye) -> list[Term]:
    """c A ⊗ B for each term, and δ I: in a factor beside an identity, else as a term."""
    for k, (c, A, B) in enumerate(terms):
        if isinstance(A, Eye) or isinstance(B, Eye):
            A, B = (f if isinstance(f, Eye) else c * f + shift * np.eye(len(f), dtype=f.dtype)
                    for f in (A, B))  # fmt: skip
            return [*terms[:k], (1.0, A, B), *terms[k + 1 :]]
    return [*terms, (shift, left, right)]


def solve_factor(whole: Jacobian, C: Factor, A: Factor) -> np.ndarray:
    """C⁻¹ A as a matrix."""
    C, A = (f if isinstance(f, Eye) else np.asarray(f, wide(f.dtype)) for f in (C, A))
    if isinstance(C, Eye):
        return np.eye(C.n, dtype=whole.dtype) if isinstance(A, Eye) else A
    return inverses(C, whole) if isinstance(A, Eye) else inverses(C, whole) @ A


class Sylvester(Jacobian):
    """C ↦ X with A X + X Bᵀ = C, the inverse of A ⊗ I + I ⊗ B, by Schur forms (Bartels, Stewart).

    A = `a` is (m, m) and B = `b` is (n, n), without a sum of two of their eigenvalues that is 0.
    The Schur forms take O(m³ + n³) flops, once; a product takes O(m² n + m n²). The transpose knows
    its `origin`, for the Schur forms.

    >>> S = Sylvester(np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([[5.0]]))
    >>> S @ np.array([8.0, 8.0])
    array([1., 1.])
    """

    holds = ("a", "b")

    def __init__(self, a: Array, b: Array, origin: Sylvester | None = None) -> None:
        self.a, self.b = a, b = factor(a), factor(b)
        sides = [shape_of(f) for f in (a, b)]
        if any(len(shape) != 2 or shape[0] != shape[1] for shape in sides):
            raise InputError(f"Sylvester: A and B are square, not {list(sides[0])} and "
                             f"{list(sides[1])}")  # fmt: skip
        shape = (sides[0][0], sides[1][0])
        super().__init__(shape, shape, np.result_type(dtype_of(a), dtype_of(b)))
        self.origin = origin

    @cached_property
    def schur(self) -> tuple[np.ndarray, ...]:
        """T, U, S, V with A = U T Uᴴ and Bᵀ = V S Vᴴ."""
        if self.origin is not None:
            return self.origin.schur
        dtype = wide(self.dtype)
        output = "complex" if dtype.kind == "c" else "real"
        schur: Any = partial(scipy.linalg.schur, output=output, check_finite=False)
        (T, U), (S, V) = (schur(np.asarray(host(f), dtype)) for f in (self.a, self.b.T))
        return T, U, S, V

    @cached_property
    def matrix(self) -> np.ndarray:
        return self.toarray()

    def _apply(self, op: Op, v: Array) -> Array:
        if is_kept(v):
            return library_of(v).by_numbers("Sylvester", lambda x: self._apply(reading(x), x), v)
        if not isinstance(v, np.ndarray) or v.dtype.kind == "O":  # a graph holds the matrix
            return Dense(self.matrix, self.out_shape, self.in_shape)._apply(op, v)
        if np.iscomplexobj(v) and self.dtype.kind != "c":  # a real Schur form takes real columns
            return self._apply(op, v.real) + 1j * self._apply(op, v.imag)
        found = [self._solved(C) for C in v.reshape(-1, *self.in_shape)]
        whole = np.array(found, wide(self.dtype)) if found else v
        return whole.reshape(*v.shape[:-2], *self.out_shape)

    def _solved(self, C: np.ndarray) -> np.ndarray:
        """X; of the transpose, Aᵀ X + X B = C, by the conjugate equation and the same forms."""
        T, U, S, V = self.schur
        flipped = self.origin is not None
        F = U.conj().T @ (C.conj() if flipped else C) @ V
        trsyl: Any = scipy.linalg.get_lapack_funcs("trsyl", (T, S, F))
        Y, scale, _ = trsyl(T, S, F, **({"trana": "C", "tranb": "C"} if flipped else {}))
        X = U @ (Y / scale) @ V.conj().T
        return X.conj() if flipped else X

    def _transpose(self) -> Jacobian:
        return self.origin or Sylvester(self.a.T, self.b.T, self)

    @property
    def values(self) -> np.ndarray:
        """λᵢ + μⱼ for the eigenvalues of A and B, of their Schur forms where these are known."""
        known = self.schur[::2] if "schur" in vars(self) else (self.a, self.b)
        a, b = (np.linalg.eigvals(np.asarray(f, wide(self.dtype))) for f in known)
        return a[:, None] + b

    @property
    def flops(self) -> int:
        m, n = self.in_shape
        return 5 * m * n * (m + n)

    def __repr__(self) -> str:
        m, n = self.in_shape
        return f"sylvester({m}×{m}, {n}×{n})"
