"""Factors: one block A ⊗ B, the tensors whose entries it is of, and what follows from A and B."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...jacobians import Block, Diagonal, Jacobian, Kron, Reshape, Shape, Take, take_flat
from ...jacobians.cached import cached_property


@dataclass(frozen=True, repr=False, eq=False)
class Factors:
    """Sᵀ (A ⊗ B) S for one use: S puts entries of tensors where (groups, inputs, outputs) has them.

    `parts` holds S by tensor: of a weight alone, or of a weight and a bias that are one matrix.
    `left` is A, (groups, inputs, inputs), and `right` is B, (groups, outputs, outputs). Where
    `corrected` is given, the eigenvalues are not those of A ⊗ B but these, in the same basis.
    """

    parts: Mapping[str, Jacobian]
    left: np.ndarray
    right: np.ndarray
    corrected: np.ndarray | None = None

    def __repr__(self) -> str:
        names, (k, m) = ", ".join(self.parts), self.left.shape[:2]
        n = self.right.shape[-1]
        groups = f"{k} × " if k > 1 else ""
        product = f"A {m}×{m} ⊗ B {n}×{n}"
        kind = product if self.corrected is None else f"Q diag(λ) Qᵀ in the eigenbasis of {product}"
        return f"{groups}{kind}: ({names})"

    @property
    def start(self) -> Jacobian:
        """S, from the tensors one after the other."""
        return side_by_side(list(self.parts.values()))

    @cached_property
    def middle(self) -> Jacobian:
        """The block between matrices, as it is cheapest to apply."""
        if self.corrected is None:
            return Kron(self.left, self.right, self.left.shape[:1])
        return self.basis @ (Diagonal(self.corrected) @ self.basis.T)

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
        """Q_A ⊗ Q_B: the eigenvectors in its columns."""
        q, r = self.left_basis[1], self.right_basis[1]
        return Kron(q, r, q.shape[:1])

    @property
    def trace(self) -> float:
        """tr A tr B, or Σ λ."""
        if self.corrected is not None:
            return float(self.corrected.sum())
        left, right = (np.trace(f, axis1=-2, axis2=-1) for f in (self.left, self.right))
        return float((left * right).sum())

    @property
    def diagonal(self) -> np.ndarray:
        """The diagonal of the block, (groups, inputs, outputs): (Q_A ∘ Q_A) λ (Q_B ∘ Q_B)ᵀ."""
        if self.corrected is None:
            left, right = (np.diagonal(f, axis1=-2, axis2=-1) for f in (self.left, self.right))
            return outer(left, right)
        q, r = (basis[1] ** 2 for basis in (self.left_basis, self.right_basis))
        return q @ self.corrected @ r.swapaxes(-1, -2)

    def with_values(self, values: np.ndarray) -> Factors:
        """Other eigenvalues in the same basis, which is not worked out again."""
        found = replace(self, corrected=values)
        found.__dict__.update(left_basis=self.left_basis, right_basis=self.right_basis)
        return found

    def function(self, f: Callable[[np.ndarray], np.ndarray]) -> Factors:
        """Q diag(f(λ)) Qᵀ."""
        return self.with_values(f(self.values))

    def times(self, factor: float) -> Factors:
        """A ⊗ (c B)."""
        if self.corrected is not None:
            return self.with_values(factor * self.corrected)
        return replace(self, right=factor * self.right)

    def inverse(self, damping: float, heuristic: bool) -> Factors:
        """(A ⊗ B + δ I)⁻¹, or (A + π √δ I)⁻¹ ⊗ (B + √δ/π I)⁻¹ with π² = mean(a) / mean(b).

        Where a factor is one number, as A is for a bias alone, the first is a Kronecker product
        too, and nothing is split.
        """
        if not heuristic or self.corrected is not None or 1 in self.values.shape[1:]:
            return self.function(lambda values: 1 / (values + damping))
        (a, q), (b, r), root = self.left_basis, self.right_basis, damping**0.5
        pi = np.sqrt(balance(a, b))
        return replace(self, left=rebuilt(1 / (a + pi * root), q),
                       right=rebuilt(1 / (b + root / pi), r))  # fmt: skip

    def within(self, names: Collection[str]) -> Factors | None:
        """The same block for some of its tensors; None where it is no Kronecker product then."""
        parts = {name: part for name, part in self.parts.items() if name in names}
        if len(parts) == len(self.parts):
            return self
        held = sum((p @ np.ones(p.shape[1])).reshape(p.out_shape) for p in parts.values()) != 0
        kept = np.flatnonzero(held.any(axis=(0, 2)))
        if self.corrected is not None or not held[:, kept].all():
            return None
        rows = Take(kept, 1, held.shape, self.left.dtype)
        return Factors({name: rows @ part for name, part in parts.items()},
                       self.left[:, kept][..., kept], self.right)  # fmt: skip


def unused(name: str, entries: np.ndarray, shape: Shape, dtype: np.dtype) -> Factors:
    """The block of entries of a tensor that no use has: each has the eigenvalue 0."""
    zero, n = np.zeros((len(entries), 1, 1), dtype), len(entries)
    part = Reshape((n, 1, 1), (n,), dtype) @ take_flat(entries, shape, dtype)
    return Factors({name: part}, zero, zero)


def eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, none below 0, and eigenvectors of positive semidefinite matrices."""
    values, vectors = np.linalg.eigh(a)
    return np.maximum(values, 0), vectors


def rebuilt(values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Q diag(λ) Qᵀ, per group."""
    return (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)


def outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All products of eigenvalues, (groups, inputs, outputs)."""
    return a[..., :, None] * b[..., None, :]


def balance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """mean(a) / mean(b) per group, and 1 where one of them is 0."""
    x, y = a.mean(axis=-1, keepdims=True), b.mean(axis=-1, keepdims=True)
    return np.where((x > 0) & (y > 0), x / np.where(y > 0, y, 1), 1.0)


def side_by_side(operators: list[Jacobian]) -> Jacobian:
    """Operators to the same output, their inputs concatenated."""
    return operators[0] if len(operators) == 1 else Block([list(operators)])
