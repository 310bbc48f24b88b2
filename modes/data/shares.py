"""Shares: one operator over all batches, whoever holds them.

A share is some of the batches, or what is made of them: an operator, or sums of statistics. All
shares are asked the same, and their answers are added, or put one below the other:

| | who holds a share | a sum over shares |
|---|---|---|
| `Alone` | this process holds the only one | nothing to add |
| `cluster.Workers` | a worker of a Dask client | a tree of tasks, handed out by a scheduler |
| `ranks.Ranks` | a process that runs the same script | one all-reduce, entered by all ranks |

`compose` makes the operator over all batches, in the same steps for all three.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, ClassVar, Generic, Literal, TypeVar, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, Shape, lead
from ...jacobians.arguments import Count, Positive, validated
from ...jacobians.errors import InputError, warn
from ...jacobians.readings import is_kept, library_of
from ...ops import numbers
from ..linear.symmetric import Symmetric
from .batches import Batch, Batches, batches_of, is_data, samples
from .comm import same_on_all
from .stream import (
    Make,
    Outline,
    OverBatches,
    OverData,
    Stream,
    difference,
    outline_of,
    over_batches,
)

T = TypeVar("T")
R = TypeVar("R")

Reduction = Literal["sum", "mean", "stack"]

Size = Callable[[Batch], float]


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
    return compose(Alone(Share(make, keep, size, batches_of(data, batch_size))), reduction, check)


class Shares(ABC, Generic[T]):
    """An object for each share of the batches; a task is a function of it."""

    name: ClassVar[str]
    """What a share is called in an error."""

    @abstractmethod
    def each(self, task: Callable[[T], R]) -> Shares[R]:
        """The shares with task(share) in place of each."""

    @abstractmethod
    def ask(self, task: Callable[[T], R]) -> list[R | None]:
        """task(share) of every share, small objects, in order; None where it has no batches."""

    @abstractmethod
    def summed(self, task: Callable[..., R], *arguments: Any) -> R:
        """Σ task(share, *arguments), of objects that can be added."""

    @abstractmethod
    def composed(self, outlines: Sequence[Outline | None], stacked: bool) -> OverData:
        """The sum or the stack of shares that are operators."""


@final
class Alone(Shares[T]):
    """The only share, in this process."""

    name = "part"

    def __init__(self, share: T) -> None:
        self.share = share

    def each(self, task: Callable[[T], R]) -> Shares[R]:
        return Alone(task(self.share))

    def ask(self, task: Callable[[T], R]) -> list[R | None]:
        return [task(self.share)]

    def summed(self, task: Callable[..., R], *arguments: Any) -> R:
        return task(self.share, *arguments)

    def composed(self, outlines: Sequence[Outline | None], stacked: bool) -> OverData:
        C: Any = self.share
        return C


class Elsewhere(Shares[T]):
    """Shares in other processes, whose operators multiply NumPy arrays."""

    where: str
    """Where they are, in the text of an operator."""

    own: int | None = None
    """The number of the share of this process, where it has one."""

    @abstractmethod
    def total(self, task: Callable[[T], np.ndarray], shape: Shape, dtype: np.dtype) -> np.ndarray:
        """Σ task(share), of arrays of this shape and dtype."""

    @abstractmethod
    def product(
        self, v: np.ndarray, transposed: bool, ends: Sequence[int] | None, shape: Shape,
        dtype: np.dtype,
    ) -> np.ndarray:  # fmt: skip
        """C v or Cᵀ v, of this shape and dtype, for v (K, n); `ends` are between stacked rows."""

    def composed(self, outlines: Sequence[Outline | None], stacked: bool) -> OverData:
        known = {k: in_common(o, stacked) for k, o in enumerate(outlines) if o is not None}
        same_on_all(known, "operators", self.name, shown)
        return OverShares(self, outlines, stacked)


@dataclass(frozen=True)
class Share:
    """Some batches from number `first` on, and `make`, which gives the operator of each.

    `sizes` are those that `size` gives, where a mean weighs by them.
    """

    make: Make
    keep: int
    size: Size
    batches: Batches
    first: int = 0
    sizes: tuple[float, ...] = ()

    def measured(self) -> Share:
        """The share with the sizes of its batches."""
        return replace(self, sizes=tuple(map(self.size, self.batches)))

    def operator(self, stacked: bool, total: float | None) -> OverBatches:
        """The operator over its batches, with weights n_b / N in a mean, N = `total`."""
        weights = None if total is None else tuple(n / total for n in self.sizes)
        stream = Stream(self.make, self.batches, self.keep, self.first)
        return over_batches(stream, stacked, weights)


def compose(shares: Shares[Share], reduction: Reduction, check: bool) -> Jacobian:
    """The operator over the batches of all shares, as `streamed` describes it."""
    stacked, total = reduction == "stack", None
    if reduction == "mean":
        shares = shares.each(Share.measured)
        sizes = [found for found in shares.ask(attrgetter("sizes")) if found]
        total = sum(map(sum, sizes))
        if sizes and not total:
            raise InputError("the batches have no samples, and so no mean: take reduction='sum'")
    operators = shares.each(methodcaller("operator", stacked, total))
    C = operators.composed(operators.ask(partial(outline_of_share, stacked)), stacked)
    if check and (text := first_told(operators, difference)):
        warn(text)
    return with_names(C, C.first.domain)


def first_told(shares: Shares[T], task: Callable[[T], str | None]) -> str | None:
    """The first text that a share answers, with its number where there are several."""
    found = shares.ask(task)
    numbered = len(found) > 1
    told = (f"{shares.name} {k}: {text}" if numbered else text
            for k, text in enumerate(found) if text)  # fmt: skip
    return next(told, None)


def outline_of_share(stacked: bool, C: OverBatches) -> Outline:
    """The outline of all rows of a share, or of the first term of a sum."""
    return outline_of(C) if stacked else C.first


def with_names(C: Jacobian, domain: tuple[Any, ...] | None) -> Jacobian:
    """The operator with the names of its tensors, if it is symmetric and has names."""
    return Symmetric(C, domain) if domain is not None and C.T is C else C


def in_common(outline: Outline, stacked: bool) -> Outline:
    """What the outlines of all shares have in common."""
    if not stacked:
        return replace(outline, codomains=(), text="")
    return replace(outline, shape=(0, outline.shape[1]), codomains=(), text="", symmetric=False)


def shown(outline: Outline) -> str:
    """An outline in an error: m×n, dtype, and the tensors of the columns."""
    tensors = ", ".join(map(str, outline.domain or ())) or "no names"
    return f"{outline.shape[0]}×{outline.shape[1]} {outline.dtype} ({tensors})"


def share_product(C: Jacobian, v: np.ndarray, transposed: bool) -> np.ndarray:
    """C v or Cᵀ v, for v of shape (K, n); one vector is multiplied as one."""
    turned = C.T if transposed else C
    if len(v) == 1:
        return np.asarray(turned._flat_product(v[0], ()))[None]
    return np.asarray(turned._flat_product(v, v.shape[:1]))


@final
class OverShares(OverData):
    """C = Σ_p C_p, or [C_1; C_2; …], of the operators C_p of shares that are elsewhere.

    C equals the operator of `streamed` up to the order of the sum, which is always the same: two
    products with one vector have the same bits.
    """

    def __init__(
        self, shares: Elsewhere[Any], outlines: Sequence[Outline | None], stacked: bool, *,
        transposed: bool = False,
    ) -> None:  # fmt: skip
        self.shares = shares
        super().__init__(outlines, stacked, transposed=transposed)

    @property
    def rows(self) -> slice | None:
        """The rows of a stack that belong to this process."""
        own = self.shares.own
        return slice(*self.ends[own : own + 2]) if self.stacked and own is not None else None

    def _apply(self, op: Op, v: Array) -> Array:
        if is_kept(v):
            return library_of(v).by_numbers("shares", partial(self._apply, numbers), v)
        if op is not numbers:
            raise InputError(f"a product {self.shares.where} cannot be written into a graph")
        columns = np.reshape(v, (-1, self.shape[1]))
        ends = self.ends if self.stacked else None
        shape, dtype = (len(columns), self.shape[0]), np.result_type(self.dtype, v.dtype)
        y = self.shares.product(columns, self.transposed, ends, shape, dtype)
        return y.reshape((*lead(v, self.in_shape), self.shape[0]))

    def again(self, parts: Any = None, *, transposed: bool | None = None) -> OverData:
        turned = self.transposed if transposed is None else transposed
        return OverShares(parts or self.shares, self.outlines, self.stacked, transposed=turned)

    def _dense(self, limit: int) -> np.ndarray:
        if self.stacked:
            return super()._dense(limit)
        shape = self.shape[::-1] if self.transposed else self.shape
        found = self.shares.total(methodcaller("toarray", limit=limit), shape, self.dtype)
        return found.T if self.transposed else found

    def _diagonal(self) -> np.ndarray:
        if self.stacked:
            return super()._diagonal()
        return self.shares.total(methodcaller("diagonal"), (min(self.shape),), self.dtype)

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Jacobian:
        """The same operator, with the kept operators compiled: see `OverBatches.compile`."""
        compiled = methodcaller("compile", engine, products=products, memory=memory)
        return self.again(self.shares.each(compiled))

    def __repr__(self) -> str:
        C = "[C_1; C_2; …]" if self.stacked else "Σ_p C_p"
        return f"{C}{'ᵀ' if self.transposed else ''} {self.shares.where}"
