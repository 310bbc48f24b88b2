"""Kronecker: curvature as one Kronecker product per use of a weight, with all that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from ...jacobians import Array, Block, Diagonal, Jacobian, Kron, Op
from ...jacobians.errors import InputError
from .blocks import block_diagonal
from .symmetric import Curvature, Specs, Symmetric


@dataclass(frozen=True, repr=False, eq=False)
class Factors:
    """Sᵀ (A ⊗ B) S for one use: S picks the entries of W as (groups, inputs, outputs).

    `left` is A, (groups, inputs, inputs), and `right` is B, (groups, outputs, outputs). Where
    `corrected` is given, the eigenvalues are not those of A ⊗ B but these, in the same basis.
    """

    start: Jacobian
    left: np.ndarray
    right: np.ndarray
    corrected: np.ndarray | None = None

    @cached_property
    def operator(self) -> Jacobian:
        """The block, as it is cheapest to apply."""
        if self.corrected is not None:
            return self.function(lambda a, b: self.values)
        return self.start.T @ Kron(self.left, self.right, self.left.shape[:1]) @ self.start

    @cached_property
    def left_basis(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of A."""
        return eigh(self.left)

    @cached_property
    def right_basis(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of B."""
        return eigh(self.right)

    @property
    def values(self) -> np.ndarray:
        """The eigenvalues, (groups, inputs, outputs)."""
        if self.corrected is not None:
            return self.corrected
        return outer(self.left_basis[0], self.right_basis[0])

    @property
    def basis(self) -> Jacobian:
        """Q = Sᵀ (Q_A ⊗ Q_B): the eigenvectors in its columns."""
        q, r = self.left_basis[1], self.right_basis[1]
        return self.start.T @ Kron(q, r, q.shape[:1])

    def function(self, f: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Jacobian:
        """Q diag(f(a, b)) Qᵀ, of the eigenvalues a of A and b of B."""
        values = f(self.left_basis[0], self.right_basis[0])
        return self.basis @ (Diagonal(values) @ self.basis.T)

    def inverse(self, damping: float, heuristic: bool) -> Jacobian:
        """(A ⊗ B + δ I)⁻¹, or ((A + π √δ I) ⊗ (B + √δ/π I))⁻¹ with π² = mean(a) / mean(b)."""
        if not heuristic or self.corrected is not None:
            return self.function(lambda a, b: 1 / (self.values + damping))
        root = np.sqrt(damping)

        def damped(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            pi = np.sqrt(balance(a, b))
            return 1 / outer(a + pi * root, b + root / pi)

        return self.function(damped)


def eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, none below 0, and eigenvectors of positive semidefinite matrices."""
    values, vectors = np.linalg.eigh(a)
    return np.maximum(values, 0), vectors


def outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All products of eigenvalues, (groups, inputs, outputs)."""
    return a[..., :, None] * b[..., None, :]


def balance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """mean(a) / mean(b) per group, and 1 where one of them is 0."""
    x, y = a.mean(axis=-1, keepdims=True), b.mean(axis=-1, keepdims=True)
    return np.where((x > 0) & (y > 0), x / np.where(y > 0, y, 1), 1.0)


@final
class KroneckerFactored(Curvature):
    """K = blockdiag(Σ Sᵀ (A ⊗ B) S): the blocks of each tensor in `factors`, by name.

    Inverse, trace, determinant and eigendecomposition follow from those of the factors.
    """

    def __init__(self, factors: dict[str, list[Factors]], domain: Specs) -> None:
        self.factors, self.domain = factors, domain
        self.operator = self._assembled(lambda f: f.operator)
        shape, dtype = self.operator.out_shape, self.operator.dtype
        super().__init__(shape, shape, dtype)

    def _assembled(self, part: Callable[[Factors], Jacobian]) -> Jacobian:
        """Per tensor the sum over its uses, tensors side by side."""
        blocks = []
        for spec in self.domain:
            first, *others = (part(f) for f in self.factors[spec.name])
            for other in others:
                first = first + other
            blocks.append(first)
        return block_diagonal(blocks)

    def _apply(self, op: Op, v: Array) -> Array:
        return self.operator._apply(op, v)

    def arrays(self) -> Iterator[Array]:
        return self.operator.arrays()

    @property
    def structure(self) -> Jacobian:
        return self.operator

    @property
    def flops(self) -> int:
        return self.operator.flops

    def inverse(self, damping: float = 0.0, *, heuristic: bool = False) -> Symmetric:
        """(K + δ I)⁻¹, exact; with `heuristic`, δ is split over the factors of every block.

        The heuristic is (A + π √δ I) ⊗ (B + √δ/π I) with π² = (tr A / dim A) / (tr B / dim B), of
        Martens and Grosse, 2015. Corrected eigenvalues are always damped exactly.
        """
        self._complete("the inverse")
        if damping < 0:
            raise InputError(f"damping={damping} is negative")
        values = self.eigenvalues() + damping
        if not values.all():
            raise InputError("K is singular: give a positive damping")
        return Symmetric(self._assembled(lambda f: f.inverse(damping, heuristic)), self.domain)

    def eigenvalues(self) -> np.ndarray:
        """λ with K = Q diag(λ) Qᵀ, in the order of the columns of `eigenvectors`."""
        self._complete("the eigenvalues")
        blocks = (f for spec in self.domain for f in self.factors[spec.name])
        return np.concatenate([f.values.ravel() for f in blocks])

    def eigenvectors(self) -> Jacobian:
        """Q, orthogonal, as an operator: Q.T takes a vector to the eigenbasis of K."""
        self._complete("the eigenvectors")
        rows: list[Jacobian] = []
        for spec in self.domain:
            rows.append(side_by_side([f.basis for f in self.factors[spec.name]]))
        return block_diagonal(rows)

    def trace(self) -> float:
        """tr K = Σ tr A tr B."""
        blocks = (f for several in self.factors.values() for f in several)
        return float(sum(traces(f).sum() for f in blocks))

    def logdet(self) -> float:
        """log det K, −inf where K is singular."""
        with np.errstate(divide="ignore"):
            return float(np.log(self.eigenvalues()).sum())

    def det(self) -> float:
        """det K = Π λ."""
        return float(np.prod(self.eigenvalues()))

    def _complete(self, what: str) -> None:
        """The uses of each tensor must tile it: then their eigenbases are one of the tensor."""
        for name, several in self.factors.items():
            covered = sum((f.start.T @ f.start) @ np.ones(f.start.shape[1]) for f in several)
            if not np.array_equal(covered, np.ones_like(covered)):
                raise InputError(f"{what} of K is not known: the uses of {name!r} do not tile it")

    def __repr__(self) -> str:
        names = ", ".join(spec.name for spec in self.domain)
        return f"blockdiag(A ⊗ B): ({names})², {self.shape[0]}×{self.shape[1]} {self.dtype}"


def traces(f: Factors) -> np.ndarray:
    """The trace of a block, per group."""
    if f.corrected is not None:
        return f.corrected.sum(axis=(-1, -2))
    return np.trace(f.left, axis1=-2, axis2=-1) * np.trace(f.right, axis1=-2, axis2=-1)


def side_by_side(operators: list[Jacobian]) -> Jacobian:
    """Operators to the same output, their inputs concatenated."""
    return operators[0] if len(operators) == 1 else Block([list(operators)])
