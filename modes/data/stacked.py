"""Stacked: the operators of all batches, one below the other; one at a time is alive."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import accumulate, chain
from typing import final

import numpy as np

from ...jacobians import Array, Jacobian, Op
from ...jacobians.errors import InputError
from .rows import codomains_of
from .stream import Stream
from .streamed import OverBatches, product


@final
class Stacked(OverBatches):
    """J = [J_1; J_2; …], for operators J_b = make(batch b) of one width.

    J v is one pass over the data, and so is Jᵀ u = Σ_b J_bᵀ u_b. A first pass, when it is made,
    tells the heights, and `codomains`, the tensors behind the rows of each batch.
    """

    def __init__(self, stream: Stream) -> None:
        found = tuple(stream.each(lambda _, J: (*J.shape, J.dtype, codomains_of(J))))
        heights, widths, dtypes, tensors = zip(*found, strict=True) if found else ((), (), (), ())
        if len(set(widths)) != 1:
            raise InputError(f"operators of so many columns cannot be stacked: {list(widths)}")
        self.ends = tuple(accumulate(heights, initial=0))
        self.codomains = tuple(chain.from_iterable(tensors))
        super().__init__(stream, (self.ends[-1], widths[0]), dtypes[0])

    def _apply(self, op: Op, v: Array) -> Array:
        parts = list(self.stream.each(lambda _, J: product(op, J, v)))
        return op.Concat(*parts, axis=-1)

    def _transpose(self) -> Jacobian:
        return StackedTranspose(self)

    def over(self, stream: Stream) -> OverBatches:
        return Stacked(stream)

    def _dense(self, limit: int) -> np.ndarray:
        return np.concatenate(list(self.stream.each(lambda _, J: J.toarray(limit=limit))))

    def __repr__(self) -> str:
        return f"[J_1; …; J_{len(self.ends) - 1}]"


@final
class StackedTranspose(Jacobian):
    """Jᵀ u = Σ_b J_bᵀ u_b, with u_b the rows of batch b."""

    def __init__(self, stacked: Stacked) -> None:
        super().__init__(stacked.in_shape, stacked.out_shape, stacked.dtype)
        self.stacked = stacked

    def _apply(self, op: Op, v: Array) -> Array:
        ends = self.stacked.ends

        def term(b: int, J: Jacobian) -> Array:
            return product(op, J.T, op.Slice(v, (ends[b],), (ends[b + 1],), (-1,)))

        return reduce(op.Add, self.stacked.stream.each(term))

    def _transpose(self) -> Jacobian:
        return self.stacked

    def _dense(self, limit: int) -> np.ndarray:
        return np.ascontiguousarray(self.stacked.toarray(limit=limit).T)

    def arrays(self) -> Iterator[Array]:
        return self.stacked.arrays()

    def __repr__(self) -> str:
        return f"{self.stacked!r}ᵀ"
