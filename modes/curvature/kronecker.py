"""Kronecker: curvature as one Kronecker product per use of a weight, with all that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import final

import numpy as np

from ...jacobians import Array, Dag, Edge, Jacobian, Op, shape_of
from ...jacobians.cached import cached_property
from ...jacobians.errors import InputError
from ...jacobians.hooks import scale
from ...ops import numbers
from .factors import Factors, unused
from .symmetric import Curvature, Specs


@final
class KroneckerFactored(Curvature):
    """K = Σ Sᵀ (A ⊗ B) S over the uses of weights, of which `blocks` holds S, A and B.

    Two tensors are coupled where they are one matrix: a weight and its bias, with `joint`.
    Inverse, trace, determinant, diagonal and eigendecomposition follow from those of the factors;
    `inverse` and `function` give a matrix of the same kind.
    """

    def __init__(self, blocks: Iterable[Factors], domain: Specs) -> None:
        self.blocks, self.domain = tuple(blocks), domain
        self.operator = sandwich(self.blocks, domain)
        shape, dtype = self.operator.out_shape, self.operator.dtype
        super().__init__(shape, shape, dtype)

    @property
    def factors(self) -> dict[str, list[Factors]]:
        """The blocks that each tensor has a part in, by name."""
        return {s.name: [f for f in self.blocks if s.name in f.parts] for s in self.domain}

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

    def block(self, name: str, *others: str) -> Curvature:
        """K[name, name], or that of several tensors, such as a weight and its bias.

        It is of the same kind, but where it is a part of a matrix with corrected eigenvalues.
        """
        names = name, *others
        domain = tuple(self._place(n)[1] for n in names)
        touched = [f for f in self.blocks if not f.parts.keys().isdisjoint(names)]
        inside = [found for f in touched if (found := f.within(names)) is not None]
        if len(inside) == len(touched):
            return KroneckerFactored(inside, domain)
        if others:
            raise InputError(f"{names} are a part of matrices with corrected eigenvalues: ask for "
                             f"all of their tensors, or use submatrix()")  # fmt: skip
        return super().block(name)

    def inverse(self, damping: float = 0.0, *, heuristic: bool = False) -> KroneckerFactored:
        """(K + δ I)⁻¹, exact; with `heuristic`, δ is split over the factors of every block.

        The heuristic is (A + π √δ I) ⊗ (B + √δ/π I) with π² = (tr A / dim A) / (tr B / dim B), of
        Martens and Grosse, 2015. Corrected eigenvalues, and blocks of which A or B is one number,
        are always damped exactly.
        """
        if damping < 0:
            raise InputError(f"damping={damping} is negative")
        blocks = self._complete("the inverse")
        if not all((f.values + damping).all() for f in blocks):
            raise InputError("K is singular: give a positive damping")
        return KroneckerFactored([f.inverse(damping, heuristic) for f in blocks], self.domain)

    def function(self, f: Callable[[np.ndarray], np.ndarray]) -> KroneckerFactored:
        """Q diag(f(λ)) Qᵀ, for f that takes all of λ ≥ 0 to no less than 0: a root, a power."""
        blocks = self._complete("a function")
        return KroneckerFactored([block.function(f) for block in blocks], self.domain)

    def eigenvalues(self) -> np.ndarray:
        """λ with K = Q diag(λ) Qᵀ, in the order of the columns of `eigenvectors`."""
        blocks = self._complete("the eigenvalues")
        return np.concatenate([f.values.ravel() for f in blocks])

    def eigenvectors(self) -> Jacobian:
        """Q, orthogonal, as an operator: Q.T takes a vector to the eigenbasis of K."""
        return bases(self._complete("the eigenvectors"), self.domain)

    def trace(self) -> float:
        """tr K = Σ tr A tr B."""
        return sum(f.trace for f in self.blocks)

    def diagonal(self) -> np.ndarray:
        """diag K = Σ Sᵀ (diag A ⊗ diag B)."""
        return self._gathered(lambda f: f.diagonal)

    def logdet(self) -> float:
        """log det K, −inf where K is singular."""
        with np.errstate(divide="ignore"):
            return float(np.log(self.eigenvalues()).sum())

    def det(self) -> float:
        """det K = Π λ."""
        return float(np.prod(self.eigenvalues()))

    @cached_property
    def tiled(self) -> bool:
        """Whether no entry of a tensor has two uses: the eigenbases of all are one basis then."""
        return bool((self._uses <= 1).all())

    @cached_property
    def _uses(self) -> np.ndarray:
        """How many uses every entry has."""
        return self._gathered(lambda f: np.ones(f.values.shape, self.dtype))

    def _gathered(self, entries: Callable[[Factors], np.ndarray]) -> np.ndarray:
        """Σ Sᵀ m, of one matrix m for every block."""
        total = {s.name: np.zeros(shape_of(s), self.dtype) for s in self.domain}
        for f in self.blocks:
            m = entries(f)
            for name, part in f.parts.items():
                total[name] += part.T._apply(numbers, m).reshape(total[name].shape)
        return np.concatenate([t.ravel() for t in total.values()])

    def _complete(self, what: str) -> list[Factors]:
        """The blocks, and zeros for what no use has; the uses must not overlap."""
        blocks = list(self.blocks)
        for spec in self.domain:
            count = self._uses[self._place(spec.name)[0]]
            if (count > 1).any():
                raise InputError(f"{what} of K is not known: the uses of {spec.name!r} do not "
                                 f"tile it, they overlap")  # fmt: skip
            if (left := np.flatnonzero(count == 0)).size:
                blocks.append(unused(spec.name, left, shape_of(spec), self.dtype))
        return blocks

    @property
    def formula(self) -> str:
        corrected = any(f.corrected is not None for f in self.blocks)
        return "blockdiag(Q Λ Qᵀ)" if corrected else "blockdiag(A ⊗ B)"


def sandwich(blocks: tuple[Factors, ...], domain: Specs) -> Dag:
    """Σ Sᵀ (A ⊗ B) S as a graph: tensors, matrices, their products, tensors."""
    tensors, k = {s.name: i for i, s in enumerate(domain)}, len(blocks)
    first = len(domain) + 2 * k
    edges = []
    for j, f in enumerate(blocks, len(domain)):
        edges += [Edge(tensors[name], j, part) for name, part in f.parts.items()]
        edges += [Edge(j, j + k, f.middle)]
        edges += [Edge(j + k, first + tensors[name], part.T) for name, part in f.parts.items()]
    own = tuple(shape_of(s) for s in domain)
    inner = tuple(f.middle.in_shape for f in blocks)
    sources, sinks = range(len(domain)), range(first, first + len(domain))
    return Dag((*own, *inner, *inner, *own), edges, tuple(sources), tuple(sinks), dtype_of(domain))


def bases(blocks: list[Factors], domain: Specs) -> Dag:
    """Q: from the eigenbases of all blocks, one after the other, to the tensors."""
    tensors = {s.name: len(blocks) + i for i, s in enumerate(domain)}
    edges = [Edge(j, tensors[name], part.T @ f.basis)
             for j, f in enumerate(blocks) for name, part in f.parts.items()]  # fmt: skip
    shapes = (*(f.middle.in_shape for f in blocks), *(shape_of(s) for s in domain))
    return Dag(shapes, edges, tuple(range(len(blocks))), tuple(tensors.values()), dtype_of(domain))


def dtype_of(domain: Specs) -> np.dtype:
    """The type of numbers of tensors one after the other."""
    return np.result_type(*(spec.dtype for spec in domain))


@scale.register(KroneckerFactored)
def _(operator: KroneckerFactored, factor: float) -> Jacobian:
    """c K, which is of the same kind for c > 0."""
    if factor <= 0:
        return scale.dispatch(Curvature)(operator, factor)
    return KroneckerFactored([f.times(factor) for f in operator.blocks], operator.domain)
