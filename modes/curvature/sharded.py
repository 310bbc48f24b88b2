"""Sharded: Kronecker factors, of which each rank holds the factors of some tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np

from ...jacobians import Array, Jacobian
from ...jacobians.arguments import NonNegative, validated
from ...jacobians.arrays import host, wide
from ...jacobians.hooks import scale
from ...jacobians.threads import cached_property
from ..data.comm import Comm, agreed, all_reduced, joined_arrays, tell_all
from ..data.ranks import Ranks
from ..data.shares import OverShares
from ..data.stream import outline_of
from ..linear.symmetric import Curvature
from ..model.primal.inputs import Specs
from .kronecker import Factors, KroneckerFactored, sandwich


@final
class ShardedFactors(Curvature):
    """K = Σ_r K_r over the ranks r of `comm`, with K_r the blocks of the tensors that rank r holds.

    `local` is this K_r over its own tensors, or None where there are more ranks than tensors. A
    product is one of K_r, and an all-reduce. Inverse, function, eigenvalues and determinant
    follow from each K_r alone, as no block couples tensors of two ranks. All ranks call each one.
    """

    def __init__(self, comm: Comm, local: KroneckerFactored | None, domain: Specs) -> None:
        self.comm, self.local, self.domain = comm, local, domain
        own = sandwich(local.blocks if local else (), domain)
        outlines = [replace(outline_of(own), symmetric=True, domain=domain)]
        super().__init__(OverShares(Ranks(comm, own if local else None), outlines, False))

    def arrays(self) -> Iterator[Array]:
        """The factors of this rank alone."""
        yield from self.local.arrays() if self.local else ()

    @property
    def nbytes(self) -> int:
        return self.local.nbytes if self.local else 0

    def _each(self, change: Callable[[KroneckerFactored], Any]) -> ShardedFactors:
        """The matrix with change(K_r) in place of each K_r."""
        changed = tell_all(self.comm, lambda: self.local and change(self.local))
        return ShardedFactors(self.comm, changed, self.domain)

    @validated
    def inverse(  # type: ignore[override]
        self, damping: NonNegative = 0.0, *, heuristic: bool = False
    ) -> ShardedFactors:
        """(K + δ I)⁻¹, δ = `damping`; `heuristic` is as for `KroneckerFactored.inverse`."""
        return self._each(lambda K: K.inverse(damping, heuristic=heuristic))

    def function(self, f: Callable[[np.ndarray], np.ndarray]) -> ShardedFactors:
        """Q diag(f(λ)) Qᵀ, as for `KroneckerFactored.function`."""
        return self._each(lambda K: K.function(f))

    def eigenvalues(self) -> np.ndarray:
        """λ of all ranks, in the order of the ranks."""
        return joined_arrays(self.comm, lambda: self.local and self.local.eigenvalues())

    def eigenvalue_errors(self) -> np.ndarray:
        """The errors of the eigenvalues by rounding, over ε."""
        return joined_arrays(self.comm, lambda: self.local and self.local.eigenvalue_errors())

    def det(self) -> float:
        """det K = Π λ."""
        return float(np.prod(self.eigenvalues()))

    @cached_property
    def tiled(self) -> bool:
        """Whether no entry of a tensor has two uses, on any rank."""
        return all(agreed(self.comm, lambda: self.local is None or self.local.tiled))

    def _diagonal(self) -> np.ndarray:
        def found() -> np.ndarray | None:
            if self.local is None:
                return None
            entries, ends = host(self.local._diagonal()), np.zeros(self.shape[0], self.dtype)
            for spec in self.local.domain:
                ends[self._place(spec.name)[0]] = entries[self.local._place(spec.name)[0]]
            return ends

        return all_reduced(self.comm, found, self.shape[:1], wide(self.dtype)).astype(self.dtype)

    @property
    def formula(self) -> str:
        held = ", ".join(s.name for s in self.local.domain) if self.local else "none"
        return f"blockdiag(A ⊗ B), rank {self.comm.rank} of {self.comm.size} holds {held}"


@scale.register(ShardedFactors)
def _(operator: ShardedFactors, factor: float) -> Jacobian:
    """c K, of the same kind for c > 0."""
    if factor <= 0:
        return scale.dispatch(Curvature)(operator, factor)
    return operator._each(lambda K: K * factor)


def shard(
    comm: Comm, blocks: Sequence[Factors], domain: Specs, finish: Callable[[Factors], Factors]
) -> ShardedFactors:
    """K of these blocks, which are the same on all ranks: each rank keeps finish(f) of its own."""
    names = tensors_by_rank(blocks, domain, comm.size)[comm.rank]
    own = tuple(spec for spec in domain if spec.name in names)
    kept = [f for f in blocks if not names.isdisjoint(f.parts)]
    local = KroneckerFactored(map(finish, kept), own) if own else None
    return ShardedFactors(comm, local, domain)


def tensors_by_rank(blocks: Sequence[Factors], domain: Specs, ranks: int) -> list[frozenset[str]]:
    """The names of the tensors that each rank holds, so that their factors take about as many bytes
    on all ranks: tensors with a block or a factor in common, as a weight and its bias, stay
    together, and the largest such group goes to the rank that has least so far.
    """
    groups: list[set[Any]] = [{spec.name} for spec in domain]
    for f in blocks:
        keys = {*f.parts, id(f.a), id(f.b)}
        touched = [group for group in groups if not group.isdisjoint(keys)]
        groups = [group for group in groups if group.isdisjoint(keys)]
        groups.append(keys.union(*touched))
    sizes = {id(m): m.matrix.size for f in blocks for m in (f.a, f.b)}
    names = [spec.name for spec in domain]
    weighed = sorted(
        (-sum(sizes.get(key, 0) for key in group), [k for k, n in enumerate(names) if n in group])
        for group in groups
    )
    held: list[set[str]] = [set() for _ in range(ranks)]
    load = [0] * ranks
    for cost, places in weighed:
        least = load.index(min(load))
        load[least] -= cost
        held[least].update(names[k] for k in places)
    return [frozenset(some) for some in held]
