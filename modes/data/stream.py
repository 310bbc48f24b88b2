"""Stream: operators over batches, one batch at a time, in this process.

`Stream` makes one operator at a time; `OverBatches` is their sum or their vertical stack.
"""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import sha256
from itertools import accumulate, chain, islice, zip_longest
from typing import Any, TypeVar, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, lead, shape_of
from ...jacobians.arguments import Count, validated
from ...jacobians.arrays import buffer_of, host
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ...jacobians.readings import Place
from ...jacobians.threads import cached_property
from ...ops import numbers
from ..model.primal.inputs import Specs
from .batches import Batch, Batches, as_batch

T = TypeVar("T")

Weights = tuple[float, ...] | None

Make = Callable[[Batch], Jacobian]
"""batch ↦ operator: `linearize`, `hessian`, … with all arguments but the batch bound."""

WASTE = 64 * 2**20
"""Bytes of dropped operators after which the garbage collector runs."""


class Stream:
    """C_b = make(batch b) for b = 1, 2, …; the first operators are kept, up to `keep` bytes.

    Kept operators are made once, and if all are kept, the data is read once. `keep` counts the
    arrays of the operators, shared arrays once, but not their plans. `first` is the number of the
    first batch among all batches, for errors.
    """

    def __init__(
        self, make: Make, batches: Batches, keep: int = 0, first: int = 0,
        label: str = "pass over the data",
    ) -> None:  # fmt: skip
        self.make, self.batches, self.keep = make, batches, keep
        self.first, self.label = first, label
        self._kept: dict[int, Jacobian] = {}
        self._buffers: dict[int, int] = {}
        self._count: int | None = None
        self._waste = 0

    def each(
        self, use: Callable[[int, Jacobian], T], needs: Callable[[int], bool] = lambda b: True
    ) -> Iterator[T]:
        """use(b, C_b) for every batch that it `needs`. C_b is dropped before the next is made."""
        if len(self._kept) == self._count:
            yield from (use(b, C) for b, C in sorted(self._kept.items()) if needs(b))
            return
        count = 0
        with counting(self.label, "batches", self._count or self.batches.count) as tick:
            for b, batch in enumerate(self.batches):
                if needs(b):
                    yield self._used(use, b, batch)
                count = b + 1
                tick(1)
        self._count = count

    def _used(self, use: Callable[[int, Jacobian], T], b: int, batch: Batch) -> T:
        if b in self._kept:
            return use(b, self._kept[b])
        C = self.make(batch)
        used = use(b, C)
        if not self._keeps(b, C):
            self._waste += C.nbytes
            if self._waste > WASTE:  # an operator and its transpose form a cycle
                gc.collect()
                self._waste = 0
        return used

    def _keeps(self, b: int, C: Jacobian) -> bool:
        """Keep an operator if there is room for it; returns whether it is kept."""
        if self.keep <= 0:
            return False
        buffers = {**self._buffers, **{buffer_of(a): a.nbytes for a in C.arrays()}}
        if sum(buffers.values()) > self.keep:
            return False
        self._kept[b], self._buffers = C, buffers
        return True

    @property
    def kept(self) -> tuple[Jacobian, ...]:
        """The operators that were kept."""
        return tuple(self._kept.values())

    def __getstate__(self) -> dict[str, Any]:
        """The state without the operators that were kept."""
        return {name: vars(self)[name] for name in ("make", "batches", "keep", "first", "label")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


@dataclass(frozen=True)
class Outline:
    """Properties of the operator of one batch that hold for all batches."""

    shape: tuple[int, int]
    dtype: np.dtype
    symmetric: bool
    domain: tuple[Any, ...] | None
    codomains: tuple[Any, ...]
    text: str


class OverData(Jacobian):
    """C = Σ_b w_b C_b, or [C_1; C_2; …] if `stacked`, between flat vectors.

    `outlines` describe the parts of a stack, or the terms of a sum, at least the first one; None
    stands for a part without batches.
    """

    def __init__(
        self, outlines: Sequence[Outline | None], stacked: bool, *, transposed: bool = False
    ) -> None:
        self.outlines, self.stacked, self.transposed = outlines, stacked, transposed
        self.ends = tuple(accumulate((o.shape[0] if o else 0 for o in outlines), initial=0))
        m, n = self.first.shape
        shape = (self.ends[-1] if stacked else m, n)[:: -1 if transposed else 1]
        super().__init__(shape[:1], shape[1:], self.first.dtype)

    @property
    def first(self) -> Outline:
        """The outline of the first part."""
        return next(filter(None, self.outlines))

    @abstractmethod
    def again(self, parts: Any = None, *, transposed: bool | None = None) -> OverData:
        """The same composition, of other `parts` of the same shapes, or `transposed`."""

    def _transpose(self) -> Jacobian:
        alone = not self.stacked and self.first.symmetric
        return self if alone else self.again(transposed=not self.transposed)

    @property
    def codomains(self) -> tuple[Any, ...]:
        """The tensors of the rows of each batch of a stack; the rows of a sum have no names."""
        if not self.stacked or self.transposed:
            return ((),)
        return tuple(chain.from_iterable(o.codomains for o in filter(None, self.outlines)))


@final
class OverBatches(OverData):
    """C = Σ_b w_b C_b, without weights w_b = 1, or [C_1; C_2; …], for C_b = make(batch b).

    A product with C or with Cᵀ, with one vector or many, is one pass over the data.
    """

    def __init__(
        self, stream: Stream, outlines: Sequence[Outline | None], stacked: bool,
        weights: tuple[float, ...] | None, place: Any, *, transposed: bool = False,
    ) -> None:  # fmt: skip
        self.stream, self.weights, self._whereabouts = stream, weights, place
        super().__init__(outlines, stacked, transposed=transposed)

    @cached_property
    def _whereabouts(self) -> Place | None:  # a pickle leaves the place behind
        return next(self.stream.each(lambda _, C: C.place), None)

    def _apply(self, op: Op, v: Array) -> Array:
        if self.stacked and not self.transposed:
            return op.Concat(*self._each(lambda _, C: flat_product(op, C, v)), axis=-1)
        ends = self.ends

        def term(b: int, C: Jacobian) -> Array:
            u = op.Slice(v, (ends[b],), (ends[b + 1],), (-1,)) if self.stacked else v
            return flat_product(op, C, u)

        return self._sum(op, term)

    def again(self, parts: Stream | None = None, *, transposed: bool | None = None) -> OverData:
        return OverBatches(
            parts or self.stream, self.outlines, self.stacked, self.weights, self.place,
            transposed=self.transposed if transposed is None else transposed,
        )  # fmt: skip

    def _dense(self, limit: int) -> np.ndarray:
        if not self.stacked:
            return self._sum(numbers, lambda _, C: C.toarray(limit=limit))
        parts = list(self._each(lambda _, C: C.toarray(limit=limit)))
        return np.concatenate(parts, axis=int(self.transposed))

    def _diagonal(self) -> np.ndarray:
        if self.stacked:
            return super()._diagonal()
        return self._sum(numbers, lambda _, C: C.diagonal())

    def _sum(self, op: Op, term: Callable[[int, Jacobian], Array]) -> Any:
        """Σ_b w_b term(b, C_b), in one pass."""

        def use(b: int, C: Jacobian) -> Array:
            y, w = term(b, C), self.weights
            if w is None or w[b]:
                return y if w is None else op.Mul(y, np.asarray(w[b], self.dtype))
            return op.Expand(np.zeros((), self.dtype), shape_of(y))  # also where S / D is 0 / 0

        return reduce(op.Add, self._each(use))

    def _each(self, use: Callable[[int, Jacobian], T]) -> Iterator[T]:
        """use(b, C_b) for every batch, with C_bᵀ in the transpose.

        Raises `InputError` where these are not as many as the rows or the weights are of.
        """
        counted = self.outlines if self.stacked else self.weights
        expected, seen = None if counted is None else len(counted), 0

        def fitting(b: int, C: Jacobian) -> T:
            nonlocal seen
            seen = b + 1
            if b == expected:
                raise other_count(expected, "more")
            if not self.stacked and C.shape != self.first.shape:
                raise InputError(
                    f"batch {self.stream.first + b} has an operator of shape {C.shape}, but the "
                    f"first one of {self.first.shape}: what cannot be added is stacked by "
                    "reduction='stack'"
                )
            return use(b, C.T if self.transposed else C)

        yield from self.stream.each(fitting)
        if not seen or expected not in (None, seen):
            raise other_count(expected or "some", seen)

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Jacobian:
        """The same operator, with the operator of each batch compiled for `products` products.

        Compiling pays off if the operators of batches are kept: see `keep`.
        """
        old = self.stream
        make = partial(compiled_one, old.make, engine, products, memory)
        return self.again(Stream(make, old.batches, old.keep, old.first))

    def arrays(self) -> Iterator[Array]:
        for C in self.stream.kept:
            yield from C.arrays()

    def __repr__(self) -> str:
        turned = "ᵀ" if self.transposed else ""
        if self.stacked:
            return f"[J_1; …; J_{len(self.outlines)}]{turned}"
        w = "" if self.weights is None else "w_b "
        return f"Σ_b {w}C_b{turned} with C_1 = {self.first.text}"


def other_count(expected: Any, found: Any) -> InputError:
    """The error for a pass over the data with another number of batches than the first one."""
    return InputError(
        f"the data has {expected} batches in the first pass and {found} in a later one: give a "
        "function that makes the same batches in every pass"
    )


def outline_of(C: Jacobian) -> Outline:
    """Shape, dtype, symmetry, and the tensors of columns and rows if they have names."""
    domain = getattr(C, "domain", None)
    m, n = C.shape
    text = getattr(C, "formula", None) or repr(C)
    return Outline((m, n), C.dtype, C.T is C, domain, codomains_of(C), text)


def flat_product(op: Op, C: Jacobian, v: Array) -> Array:
    """C v between flat vectors, (*K, n) -> (*K, m), whatever the shapes of C."""
    k = lead(v, C.shape[1:])
    return op.Reshape(C._apply(op, op.Reshape(v, (*k, *C.in_shape))), (*k, C.shape[0]))


def compiled_one(
    make: Make, engine: str | None, products: int, memory: int | None, batch: Batch
) -> Jacobian:
    """The operator of a batch, compiled."""
    return make(batch).compile(engine, products=products, memory=memory)


def codomains_of(J: Jacobian) -> tuple[Specs, ...]:
    """The tensors of the rows, batch by batch; empty if they have no names."""
    own: Any = getattr(J, "codomain", None) or ()
    return getattr(J, "codomains", (own,))


def over_batches(stream: Stream, stacked: bool, weights: Weights) -> OverBatches:
    """The operator over all batches, without names; for a stack, a first pass finds the heights."""
    seen = stream.each(lambda _, C: (outline_of(C), C.place))
    found = list(seen if stacked else islice(seen, 1))
    if not found:
        raise InputError("there are no batches")
    outlines = [outline for outline, _ in found]
    if len({outline.shape[1] for outline in outlines}) > 1:
        widths = [outline.shape[1] for outline in outlines]
        raise InputError(f"operators of so many columns cannot be stacked: {widths}")
    return OverBatches(stream, outlines, stacked, weights, found[0][1])


def difference(C: OverBatches) -> str | None:
    """A message where ‖C v − C v‖ > √ε ‖C v‖ for two products of one random v, else None.

    Both products read the data. The order of batches may change if they are summed.
    """
    v = np.random.default_rng(0).standard_normal(C.shape[1])
    fresh = C.again(Stream(C.stream.make, C.stream.batches))
    first, second = fresh @ v, fresh @ v
    distance, scale = (float(np.linalg.norm(y)) for y in (first - second, first))
    if distance <= float(np.sqrt(np.finfo(C.dtype).eps)) * scale:
        return None
    why = changed(C.stream.batches) or (
        "the batches are the same in two passes, so that their operators are random (dropout?)"
    )
    return (
        f"two products of one vector differ by {distance / max(scale, 1e-300):.1e}, relative: "
        f"{why}; solvers and estimators expect one matrix"
    )


def changed(batches: Batches) -> str | None:
    """The first batch that differs in a second pass, as a message; None where all are equal."""
    pairs = zip_longest(map(digest, batches), map(digest, batches))
    for b, (first, second) in enumerate(pairs):
        if first != second:
            return f"batch {b} is another one in the second pass (shuffled, or random data?)"
    return None


@final
class Marked(Batches):
    """Batches, with a fingerprint of all that were read up to each of them."""

    def __init__(self, whole: Batches) -> None:
        self.whole, self.marks = whole, list[bytes]()

    def __iter__(self) -> Iterator[Batch]:
        self.marks, found = [], sha256()
        for batch in self.whole:
            found.update(digest(as_batch(batch)).encode())
            self.marks.append(found.digest())
            yield batch

    @property
    def count(self) -> int | None:
        return self.whole.count

    def mark(self, count: int) -> np.ndarray:
        """The fingerprint of the first batches; zeros where they are not read yet."""
        known = self.marks[count - 1] if count <= len(self.marks) else bytes(sha256().digest_size)
        return np.frombuffer(known, np.uint8)


def digest(batch: Batch) -> str:
    """A fingerprint of the contents of a batch."""
    found = sha256()
    for name, value in sorted(batch.items()):
        array = np.ascontiguousarray(host(value))
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(array.tobytes())
    return found.hexdigest()
