"""Indices: v[have] ↦ Σ v ∏ factors, as the operator that the indices of the factors say."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import pairwise, permutations
from math import prod
from typing import Any

import numpy as np

from ..jacobians import (
    Array,
    BlockDiagonal,
    Contraction,
    Dense,
    Diagonal,
    Eye,
    Identity,
    Jacobian,
    Op,
    Permutation,
    Reshape,
    broadcast,
    implicit_kron,
    shape_of,
)
from .trees import Labels

Factor = tuple[Array, Labels]
"""An array, and the labels of its axes."""

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Indices:
    """Operators between tensors with labelled axes, of given lengths.

    >>> import numpy as np
    >>> from onnxjac.ops import numbers
    >>> indices = Indices(numbers, {"i": 2, "j": 3, "k": 4}, np.dtype(float))
    >>> indices.operator([(np.ones((3, 4)), ("j", "k"))], ("i", "j"), ("i", "k"))
    (I(2) ⊗ A[4×3])
    """

    def __init__(self, op: Op, sizes: Mapping[str, int], dtype: Any) -> None:
        self.op, self.sizes, self.dtype = op, sizes, dtype
        self.links: dict[Any, Jacobian] = {}

    def shape(self, labels: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.sizes[label] for label in labels)

    def aligned(self, x: Array, have: Labels, want: Labels) -> Array:
        """x with its axes in the order of `want`, and axes of length 1 for other labels."""
        order = tuple(sorted(range(len(have)), key=lambda k: want.index(have[k])))
        x = x if order == tuple(range(len(have))) else self.op.Transpose(x, perm=order)
        first = min((want.index(label) for label in have), default=len(want))
        axes = tuple(k for k, label in enumerate(want[first:]) if label not in have)
        return self.op.Unsqueeze(x, axes) if axes else x

    def operator(
        self, found: list[Factor], have: Labels, out: Labels, *, chooses: bool = False
    ) -> Jacobian:
        """v[have] ↦ Σ v ∏ factors over all labels that `out` lacks; a factor may be a choice."""
        if not found:
            return self.link(have, out)
        met = {label for _, labels in found for label in labels}
        for grid in (out, have):
            if met | {*have} | {*out} == {*grid}:
                labels = tuple(n for n in grid if n in met)
                found = [(self.times(found, labels), labels)]
                if met == {*grid} or {*have} == {*out}:
                    d = Diagonal(self.times(found, grid), self.shape(grid), chooses=chooses)
                    link = self.link(have, out)
                    return chain_factors(d, link) if grid is out else chain_factors(link, d)
        inner = tuple(n for n in have if n in met or n in out)
        outer = tuple(n for n in out if n in met or n in have)
        if met <= {*inner} == {*outer}:
            d = Diagonal(self.times(found, inner), self.shape(inner))
            return chain_factors(self.link(inner, out), d, self.link(have, inner))
        middle = self.product(found, inner, outer)
        return chain_factors(self.link(outer, out), middle, self.link(have, inner))

    def times(self, found: list[Factor], want: Labels) -> Array:
        """The product of factors, with their axes in the order of `want`."""
        return reduce(self.op.Mul, (self.aligned(x, labels, want) for x, labels in found))

    def product(self, found: list[Factor], have: Labels, out: Labels) -> Jacobian:
        """A Kronecker product, a stack of matrices, or a contraction."""
        n = next((k for k, (a, b) in enumerate(zip(have, out, strict=False)) if a != b), 0)
        orders = permutations(have[n:]) if len(have) - n <= 3 else [have[n:]]
        for order in ((*have[:n], *tail) for tail in orders):
            if (K := self.kronecker(found, order, out)) is not None:
                return chain_factors(K, self.link(have, order))
        if (fused := self.fused(found, have, out)) is not None:
            return fused
        grid = tuple(dict.fromkeys((*have, *out, *(n for _, labels in found for n in labels))))
        sizes = dict(zip(letters(grid, grid), self.shape(grid), strict=True))
        terms = tuple((x, letters(labels, grid)) for x, labels in found)
        return Contraction(terms, letters(have, grid), letters(out, grid), sizes)

    def fused(self, found: list[Factor], have: Labels, out: Labels) -> Jacobian | None:
        """The same with two labels as one, if one follows the other wherever either is."""
        orders = (have, out, *(labels for _, labels in found))
        for p, q in pairwise(out):
            if all(follows(p, q, labels) for labels in orders):
                break
        else:
            return None
        one = f"{p} {q}"
        self.sizes = {**self.sizes, one: self.sizes[p] * self.sizes[q]}
        old, new = (join_labels(labels, p, q, one) for labels in (have, out))
        factors = []
        for x, labels in found:
            fewer = join_labels(labels, p, q, one)
            factors.append((x if fewer == labels else self.op.Reshape(x, self.shape(fewer)), fewer))
        J = Reshape(self.shape(out), self.shape(new), self.dtype) @ self.product(factors, old, new)
        return J if old == have else J @ Reshape(self.shape(old), self.shape(have), self.dtype)

    def kronecker(self, found: list[Factor], have: Labels, out: Labels) -> Jacobian | None:
        """X ↦ A X Bᵀ over a batch, where the last labels are (q, r) before and (p, r) after."""
        n = 0
        while n < min(len(have), len(out)) and have[n] == out[n]:
            n += 1
        batch, old, new = out[:n], have[n:], out[n:]
        (x, labels), size = found[0], self.sizes
        if len(found) == 2 and len(old) == len(new) == 2:
            ordered = found if new[0] in found[0][1] else found[::-1]
            triples = zip(ordered, new, old, strict=True)
            pairs = [self.matrix(*factor, batch, p, q) for factor, p, q in triples]
            if all(F is not None for F in pairs):
                return implicit_kron(pairs[0], pairs[1], self.shape(batch))
        if len(found) != 1 or len(old) < 1 or len(old) != len(new) or old[1:] != new[1:]:
            return None
        p, q, rest = new[0], old[0], old[1:]
        F = self.matrix(x, labels, batch, p, q)
        if F is None:
            return None
        if not rest and {*batch} <= {*labels}:
            return BlockDiagonal(F) if batch else Dense(F)
        if not rest:
            alone, outer = batch[-1], batch[:-1]
            F = self.matrix(x, labels, outer, p, q)
            return F if F is None else implicit_kron(Eye(size[alone]), F, self.shape(outer))
        columns = prod(self.shape(rest))
        flat = Reshape((*self.shape((*batch, q)), columns), self.shape(have), self.dtype)
        wide = Reshape(self.shape(out), (*self.shape((*batch, p)), columns), self.dtype)
        return wide @ implicit_kron(F, Eye(columns), self.shape(batch)) @ flat

    def matrix(self, x: Array, labels: Labels, batch: Labels, p: str, q: str) -> Any:
        """A factor as a batch of matrices from q to p; None where it is not, or is diagonal."""
        if p == q or not {p, q} <= {*labels} or not {*labels} <= {*batch, p, q}:
            return None
        return self.aligned(x, labels, (*batch, p, q))

    def link(self, have: Labels, want: Labels) -> Jacobian:
        """Sums over the labels that `want` lacks, and repeats along the labels that are new."""
        if (have, want, self.dtype) not in self.links:
            self.links[have, want, self.dtype] = self.linked(have, want)
        return self.links[have, want, self.dtype]

    def linked(self, have: Labels, want: Labels) -> Jacobian:
        kept = tuple(n for n in have if n in want)
        J: Jacobian = Identity(self.shape(have), self.dtype)
        if kept != have:
            ones = tuple(self.sizes[n] if n in want else 1 for n in have)
            J = broadcast(ones, self.shape(have), self.dtype).T
            J = Reshape(self.shape(kept), ones, self.dtype) @ J
        order = tuple(n for n in want if n in kept)
        if order != kept:
            perm = tuple(kept.index(n) for n in order)
            J = Permutation(perm, self.shape(kept), self.dtype) @ J
        if order != want:
            first = want.index(order[0]) if order else len(want)
            ones = tuple(self.sizes[n] if n in kept else 1 for n in want[first:])
            J = Reshape(ones, self.shape(order), self.dtype) @ J
            J = broadcast(ones, self.shape(want), self.dtype) @ J
        return J


def chain_factors(*factors: Jacobian) -> Jacobian:
    """The product of some operators, of which identities are left out before that."""
    kept = [J for J in factors if type(J) is not Identity]
    return reduce(operator.matmul, kept) if kept else factors[0]


def follows(p: str, q: str, labels: Labels) -> bool:
    """Whether q is right behind p, or neither is there."""
    return (p, q) in pairwise(labels) or not {p, q} & {*labels}


def join_labels(labels: Labels, p: str, q: str, one: str) -> Labels:
    """The labels with one in place of p and q."""
    return tuple(one if label == p else label for label in labels if label != q)


def count_up(op: Op, n: Any) -> Array:
    """0, 1, … n - 1."""
    return np.arange(n) if isinstance(n, int) else op.Range(np.array(0), n, np.array(1))


def row_of(index: Array, n: Any) -> int | None:
    """The row that a constant scalar index selects on an axis of known length n; else None."""
    held = getattr(index, "const_value", index)
    if shape_of(index) or held is None or not isinstance(n, int):
        return None
    row = int(held.numpy() if hasattr(held, "numpy") else held)
    row += n if row < 0 else 0
    return row if 0 <= row < n else None


def from_the_start(op: Op, index: Array, n: Any) -> Array:
    """Indices as int64, with negative ones counted from the end of the axis."""
    index = op.CastLike(index, np.zeros((), np.int64))
    return op.Where(op.Less(index, 0), op.Add(index, n), index)


def letters(labels: Labels, grid: Labels) -> str:
    """Labels as the letters of an einsum."""
    return "".join(LETTERS[grid.index(label)] for label in labels)
