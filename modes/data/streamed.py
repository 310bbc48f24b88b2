"""Streamed: the sum of the operators of all batches, of which one at a time is alive."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, lead
from ...jacobians.errors import InputError
from .batches import Batch
from .rows import codomains_of
from .stream import Make, Stream

T = TypeVar("T")


@dataclass(frozen=True)
class Outline:
    """What the operator of one batch says of those of all."""

    shape: tuple[int, int]
    dtype: np.dtype
    symmetric: bool
    domain: tuple[Any, ...] | None
    codomains: tuple[Any, ...]
    text: str


class OverBatches(Jacobian):
    """An operator between flat vectors that is composed of those of the batches of a stream."""

    def __init__(self, stream: Stream, shape: tuple[int, int], dtype: np.dtype) -> None:
        super().__init__(shape[:1], shape[1:], dtype)
        self.stream = stream

    @abstractmethod
    def over(self, stream: Stream) -> OverBatches:
        """The same composition of other operators, of the same shapes."""

    def compile(
        self, engine: str | None = None, *, products: int = 100, memory: int | None = None
    ) -> Jacobian:
        """The same operator, where that of each batch is compiled for so many products with it.

        This repays where the operators of batches stay: see `keep`.
        """
        old = self.stream
        make = partial(compiled_one, old.make, engine, products, memory)
        return self.over(Stream(make, old.batches, old.keep))

    def arrays(self) -> Iterator[Array]:
        for C in self.stream.kept:
            yield from C.arrays()


@final
class Streamed(OverBatches):
    """C = Σ_b w_b C_b, for operators C_b = make(batch b) of one shape.

    Without weights, w_b = 1. A product, of one vector or many, is one pass over the data.
    """

    def __init__(
        self, stream: Stream, weights: tuple[float, ...] | None = None, *, transposed: bool = False
    ) -> None:
        self.weights, self.transposed, self.outline = weights, transposed, outline(stream)
        shape = self.outline.shape
        super().__init__(stream, shape[::-1] if transposed else shape, self.outline.dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        def term(C: Jacobian, w: np.ndarray | None) -> Array:
            y = product(op, C, v)
            return y if w is None else op.Mul(y, w)

        return self._sum(op.Add, term)

    def _transpose(self) -> Jacobian:
        if self.outline.symmetric:
            return self
        return Streamed(self.stream, self.weights, transposed=not self.transposed)

    def over(self, stream: Stream) -> OverBatches:
        return Streamed(stream, self.weights, transposed=self.transposed)

    def _dense(self, limit: int) -> np.ndarray:
        return self._sum(np.add, lambda C, w: times(w, C.toarray(limit=limit)))

    def diagonal(self) -> np.ndarray:
        return self._sum(np.add, lambda C, w: times(w, C.diagonal()))

    def _sum(self, add: Callable[[T, T], T], term: Callable[..., T]) -> T:
        """Σ_b term(C_b, w_b), in one pass."""

        def use(b: int, C: Jacobian) -> T:
            w = None if self.weights is None else np.asarray(self.weights[b], self.dtype)
            return term(self._fitting(b, C), w)

        return reduce(add, self.stream.each(use))

    def _fitting(self, b: int, C: Jacobian) -> Jacobian:
        if C.shape != self.outline.shape:
            raise InputError(
                f"batch {b} has an operator of shape {C.shape}, but the first one of "
                f"{self.outline.shape}: what cannot be added is stacked by reduction='stack'"
            )
        return C.T if self.transposed else C

    def __repr__(self) -> str:
        w = "" if self.weights is None else "w_b "
        return f"Σ_b {w}C_b{'ᵀ' if self.transposed else ''} with C_1 = {self.outline.text}"


def outline(stream: Stream) -> Outline:
    """The outline of the operator of the first batch."""
    first = next(stream.each(lambda _, C: outline_of(C)), None)
    if first is None:
        raise InputError("there are no batches")
    return first


def outline_of(C: Jacobian) -> Outline:
    """Shape, type, symmetry, and the tensors behind columns and rows where it has names."""
    domain = getattr(C, "domain", None)
    m, n = C.shape
    text = getattr(C, "formula", None) or repr(C)
    return Outline((m, n), C.dtype, C.T is C, domain, codomains_of(C), text)


def product(op: Op, C: Jacobian, v: Array) -> Array:
    """C v between flat vectors, (*K, n) -> (*K, m), whatever the tensors of C are."""
    k = lead(v, C.shape[1:])
    return op.Reshape(C._apply(op, op.Reshape(v, (*k, *C.in_shape))), (*k, C.shape[0]))


def times(w: np.ndarray | None, array: np.ndarray) -> np.ndarray:
    """w · array."""
    return array if w is None else w * array


def compiled_one(
    make: Make, engine: str | None, products: int, memory: int | None, batch: Batch
) -> Jacobian:
    """The operator of a batch, compiled."""
    return make(batch).compile(engine, products=products, memory=memory)
