"""Stream: operators over all batches of some data, one batch at a time, in this process.

`Stream` makes one operator at a time; `Streamed` is their sum, and `Stacked` their vertical stack.
"""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import sha256
from itertools import accumulate, chain, zip_longest
from typing import Any, Literal, TypeVar, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, Take, lead, shape_of, size
from ...jacobians.arguments import Count, Positive, validated
from ...jacobians.arrays import buffer_of
from ...jacobians.errors import InputError, warn
from ...jacobians.progress import counting
from ...jacobians.threads import cached_property
from ...ops import numbers
from ..linear.symmetric import Symmetric
from ..model.primal.model import TensorSpec
from .batches import Batch, Batches, batches_of, is_data, samples

T = TypeVar("T")

Make = Callable[[Batch], Jacobian]
"""batch ↦ operator: `linearize`, `hessian`, … with all arguments but the batch bound."""

WASTE = 64 * 2**20
"""Bytes of dropped operators after which the garbage collector runs."""


class Stream:
    """C_b = make(batch b) for b = 1, 2, …; the first operators are kept, up to `keep` bytes.

    Kept operators are made once, and if all are kept, the data is read once. `keep` counts the
    arrays of the operators, shared arrays once, but not their plans.
    """

    def __init__(
        self, make: Make, batches: Batches, keep: int = 0, label: str = "pass over the data"
    ) -> None:
        self.make, self.batches, self.keep, self.label = make, batches, keep, label
        self._kept: dict[int, Jacobian] = {}
        self._buffers: dict[int, int] = {}
        self._count: int | None = None
        self._waste = 0

    def each(self, use: Callable[[int, Jacobian], T]) -> Iterator[T]:
        """use(b, C_b) for every batch. C_b is dropped before the next one is made."""
        if len(self._kept) == self._count:
            yield from (use(b, C) for b, C in sorted(self._kept.items()))
            return
        count = 0
        with counting(self.label, "batches", self._count or self.batches.count) as tick:
            for b, batch in enumerate(self.batches):
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
        return {name: vars(self)[name] for name in ("make", "batches", "keep", "label")}

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


class OverBatches(Jacobian):
    """An operator between flat vectors, composed of the operators of a stream."""

    def __init__(self, stream: Stream, shape: tuple[int, int], dtype: np.dtype) -> None:
        super().__init__(shape[:1], shape[1:], dtype)
        self.stream = stream

    @cached_property
    def _whereabouts(self) -> Any:
        return next(self.stream.each(lambda _, C: C.place), None)

    @abstractmethod
    def with_stream(self, stream: Stream) -> OverBatches:
        """The same composition of another stream, with operators of the same shapes."""

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Jacobian:
        """The same operator, with the operator of each batch compiled for `products` products.

        Compiling pays off if the operators of batches are kept: see `keep`.
        """
        old = self.stream
        make = partial(compiled_one, old.make, engine, products, memory)
        return self.with_stream(Stream(make, old.batches, old.keep))

    def arrays(self) -> Iterator[Array]:
        for C in self.stream.kept:
            yield from C.arrays()


@final
class Streamed(OverBatches):
    """C = Σ_b w_b C_b, for operators C_b = make(batch b) of one shape.

    Without weights, w_b = 1. A product, with one vector or many, is one pass over the data.
    """

    def __init__(
        self, stream: Stream, weights: tuple[float, ...] | None = None, *, transposed: bool = False
    ) -> None:
        first, place = next(stream.each(lambda _, C: (outline_of(C), C.place)), (None, None))
        if first is None:
            raise InputError("there are no batches")
        self.weights, self.transposed, self.outline = weights, transposed, first
        self._whereabouts = place
        super().__init__(stream, first.shape[::-1] if transposed else first.shape, first.dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        return self._sum(op, lambda C: product(op, C, v))

    def _transpose(self) -> Jacobian:
        if self.outline.symmetric:
            return self
        return Streamed(self.stream, self.weights, transposed=not self.transposed)

    def with_stream(self, stream: Stream) -> OverBatches:
        return Streamed(stream, self.weights, transposed=self.transposed)

    def _dense(self, limit: int) -> np.ndarray:
        return self._sum(numbers, lambda C: C.toarray(limit=limit))

    def _diagonal(self) -> np.ndarray:
        return self._sum(numbers, lambda C: C.diagonal())

    def _sum(self, op: Op, term: Callable[[Jacobian], Array]) -> Any:
        """Σ_b w_b term(C_b), in one pass."""

        def use(b: int, C: Jacobian) -> Array:
            y = term(self._fitting(b, C))
            w = self.weights
            return y if w is None else op.Mul(y, np.asarray(w[b], self.dtype))

        return reduce(op.Add, self.stream.each(use))

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


def outline_of(C: Jacobian) -> Outline:
    """Shape, dtype, symmetry, and the tensors of columns and rows if they have names."""
    domain = getattr(C, "domain", None)
    m, n = C.shape
    text = getattr(C, "formula", None) or repr(C)
    return Outline((m, n), C.dtype, C.T is C, domain, codomains_of(C), text)


def product(op: Op, C: Jacobian, v: Array) -> Array:
    """C v between flat vectors, (*K, n) -> (*K, m), whatever the shapes of C."""
    k = lead(v, C.shape[1:])
    return op.Reshape(C._apply(op, op.Reshape(v, (*k, *C.in_shape))), (*k, C.shape[0]))


def compiled_one(
    make: Make, engine: str | None, products: int, memory: int | None, batch: Batch
) -> Jacobian:
    """The operator of a batch, compiled."""
    return make(batch).compile(engine, products=products, memory=memory)


@final
class Stacked(OverBatches):
    """J = [J_1; J_2; …], for operators J_b = make(batch b) of equal width.

    J v is one pass over the data, and so is Jᵀ u = Σ_b J_bᵀ u_b. A first pass, in the constructor,
    finds the heights, and `codomains`, the tensors of the rows of each batch.
    """

    def __init__(self, stream: Stream) -> None:
        seen = tuple(stream.each(lambda _, J: (outline_of(J), J.place)))
        found = [outline for outline, _ in seen]
        heights, widths = ([J.shape[k] for J in found] for k in range(2))
        if len(set(widths)) != 1:
            raise InputError(f"operators of so many columns cannot be stacked: {list(widths)}")
        self.ends = tuple(accumulate(heights, initial=0))
        self.codomains = tuple(chain.from_iterable(J.codomains for J in found))
        super().__init__(stream, (self.ends[-1], widths[0]), found[0].dtype)
        self._whereabouts = seen[0][1]

    def _apply(self, op: Op, v: Array) -> Array:
        parts = list(self.stream.each(lambda _, J: product(op, J, v)))
        return op.Concat(*parts, axis=-1)

    def _transpose(self) -> Jacobian:
        return StackedTranspose(self)

    def with_stream(self, stream: Stream) -> OverBatches:
        return Stacked(stream)

    def _dense(self, limit: int) -> np.ndarray:
        return np.concatenate(list(self.stream.each(lambda _, J: J.toarray(limit=limit))))

    def __repr__(self) -> str:
        return f"[J_1; …; J_{len(self.ends) - 1}]"


@final
class StackedTranspose(Jacobian):
    """Jᵀ u = Σ_b J_bᵀ u_b, with u_b the rows of batch b."""

    holds = ("stacked",)

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

    def __repr__(self) -> str:
        return f"{self.stacked!r}ᵀ"


Specs = tuple[TensorSpec, ...]


def by_tensor(J: Jacobian) -> tuple[Jacobian, Specs | None]:
    """J with its rows sorted by tensor, and these tensors over all batches.

    The rows of `Stacked` are sorted by batch. If an operator has no names, or its names differ
    between batches, J is returned unchanged, with None.
    """
    batches = codomains_of(J)
    names = {tuple(spec.name for spec in specs) for specs in batches}
    if len(names) != 1 or names == {()}:
        return J, None
    tensors = tuple(zip(*batches, strict=True))
    sizes = np.array([[size(shape_of(spec)) for spec in specs] for specs in batches])
    if 1 not in sizes.shape:  # all rows of the first tensor, then of the second, …
        owners = np.tile(np.arange(sizes.shape[1]), len(sizes)).repeat(sizes.ravel())
        J = Take(np.argsort(owners, kind="stable"), 0, J.out_shape, J.dtype) @ J
    return J, tuple(map(together, tensors))


def codomains_of(J: Jacobian) -> tuple[Specs, ...]:
    """The tensors of the rows, batch by batch; empty if they have no names."""
    own: Any = getattr(J, "codomain", None) or ()
    return getattr(J, "codomains", (own,))


def together(specs: Specs) -> TensorSpec:
    """One tensor over all batches, joined along its first axis; flat if the other axes differ.

    >>> z = TensorSpec("z", (3, 2), np.dtype(float))
    >>> print(together((z, z._replace(shape=(1, 2)))))
    z float64[4,2]
    >>> print(together((z, z._replace(shape=(3, 5)))))
    z float64[21]
    """
    if len(specs) == 1:
        return specs[0]
    shapes = [shape_of(spec) for spec in specs]
    alike = all(shapes) and len({shape[1:] for shape in shapes}) == 1
    counts = [shape[0] for shape in shapes] if alike else map(size, shapes)
    return specs[0]._replace(shape=(sum(counts), *(shapes[0][1:] if alike else ())))


Reduction = Literal["sum", "mean", "stack"]

Size = Callable[[Batch], int]

Weights = tuple[float, ...] | None


@validated
def streamed(
    make: Make,
    data: Any,
    *,
    reduction: Reduction,
    batch_size: Positive | None = None,
    keep: Count = 0,
    size: Size = samples,
    check: bool = True,
) -> Jacobian:
    """C = Σ_b w_b C_b with C_b = make(batch b), or [C_1; C_2; …]: an operator over all batches.

    | `reduction` | C | correct if |
    |---|---|---|
    | `"sum"` | Σ_b C_b | C_b is a sum over the samples of the batch |
    | `"mean"` | Σ_b (n_b / N) C_b, N = Σ_b n_b | C_b is a mean over the n_b samples of the batch |
    | `"stack"` | [C_1; C_2; …] | C_b has rows of its own: ∂outputs/∂weights |

    So `reduction` states how `make` reduces, and the result reduces all data in the same way.

    `data` is one batch (a dict, which gives make(batch) itself), a list of batches, a function that
    returns an iterator over them (such as a generator function), an iterable that can be read again
    (such as a data loader), or, split into blocks of `batch_size` rows, a dict of arrays, which may
    be memory-mapped, or the path of an `.npz` file written by `numpy.savez`.

    Every product is a pass over the data in which at most one batch is linearised at a time;
    operators within `keep` bytes are kept for the next product. `size(batch)` is the number of
    samples in a batch, by default the length of the first axis. With `check`, two products are
    compared, and an `OnnxJacWarning` says if they differ, and why.

    Shapes: C has the shape of the C_b, or with `"stack"` the sum of their rows by their common
    columns; an array of the data is (N, ...). Raises `InputError` for data that cannot be read
    again or has no common number of samples, for an unknown `reduction`, and where the shapes of
    two C_b differ; errors of `make` are passed on.
    """
    if not is_data(data, batch_size):
        return make(data)
    batches = batches_of(data, batch_size)
    weights = weights_of(batches, reduction, size)
    C = composed(Stream(make, batches, keep), reduction, weights)
    if check and (message := difference(C)):
        warn(message)
    return named(C, C.outline.domain if isinstance(C, Streamed) else None)


def composed(stream: Stream, reduction: str, weights: Weights) -> OverBatches:
    """The operator over all batches, without names."""
    return Stacked(stream) if reduction == "stack" else Streamed(stream, weights)


def weights_of(batches: Batches, reduction: str, size: Size) -> Weights:
    """n_b / N for every batch, or None for unit weights."""
    if reduction != "mean":
        return None
    sizes = [size(batch) for batch in batches]
    return tuple(n / sum(sizes) for n in sizes)


def named(C: Jacobian, domain: tuple[Any, ...] | None) -> Jacobian:
    """The operator with the names of its tensors, if it is symmetric and has names."""
    return Symmetric(C, domain) if domain is not None and C.T is C else C


def difference(C: OverBatches, *, seed: int = 0) -> str | None:
    """A message where ‖C v − C v‖ > √ε ‖C v‖ for two products of one random v, else None.

    Both products read the data. The order of batches may change if they are summed.
    """
    v = np.random.default_rng(seed).standard_normal(C.shape[1])
    fresh = C.with_stream(Stream(C.stream.make, C.stream.batches))
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


def digest(batch: Batch) -> str:
    """A fingerprint of the contents of a batch."""
    found = sha256()
    for name, value in sorted(batch.items()):
        array = np.ascontiguousarray(value)
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(array.tobytes())
    return found.hexdigest()
