"""Accumulation: sums over batches of statistics of their gradients.

This process, or each worker of a `client`, linearises one batch at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, cast, final

from ...jacobians import Jacobian
from ...jacobians.arguments import Count, Positive
from ...jacobians.errors import InputError, warn
from ...jacobians.progress import progress as showing
from ..data.adapter import NOTHING, mixed
from ..data.batches import Batch, Batches, as_batch, batches_of, is_data
from ..data.cluster import Parts, Placement, counted, evenly, spread
from ..data.stream import Stream, changed
from ..linear.linearization import Linearization
from ..linear.symmetric import Specs
from ..model.primal.model import Model
from .gradients import Gradients, Target


class Accumulation:
    """Sums over all batches of statistics of their gradients, one pass for each statistic."""

    def __init__(
        self,
        model: Model,
        inputs: Any,
        label: str,
        *,
        batch_size: Positive | None = None,
        shared: Batch = NOTHING,
        keep: Count = 0,
        progress: bool | None = None,
        client: Any = None,
        **options: Any,
    ) -> None:
        self.progress, self.target = progress, Target(**options)
        several, batches = is_data(inputs, batch_size), batches_of(inputs, batch_size)
        make = GradientMaker(model, self.target, shared, several)
        kept = keep if several else sys.maxsize
        if client is None:
            self._total = Share(make, batches, kept, 0, label).total
        else:
            self._total = partial(on_workers(make, batches, kept, client).summed, total)

    def total(self, find: Find) -> Sums:
        """Σ over batches of the statistics from `find`; a terminal shows the progress."""
        with showing(self.progress):
            return self._total(find)

    def scale(self, sums: Sums) -> float:
        """c: 1 for a sum, 1 over the number of terms for a mean."""
        return 1 / sums.terms if self.target.reduction == "mean" else 1.0


Moments = list[tuple[Any, ...]]
"""The statistics of every layer that are summed over batches."""

Find = Callable[[Gradients], Moments]
"""A function that computes the statistics of one batch."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class Sums:
    """Sums over some batches: the parts and sums of every layer, and the number of terms.

    `entries` are the fingerprints of the layers, `batch` is the number of the first batch. `twins`
    are as in `Layout`.
    """

    parts: list[Mapping[str, Jacobian]]
    sums: Moments
    terms: int
    domain: Specs
    entries: list[bytes]
    twins: Mapping[int, int]
    batch: int

    def __add__(self, other: Sums) -> Sums:
        """The sums of both; raises `InputError` if their layers differ."""
        if (self.entries, self.twins) != (other.entries, other.twins):
            raise InputError(
                f"batch {other.batch} uses the weights in another way than batch {self.batch}, "
                f"so that their factors cannot be added"
            )
        sums = [tuple(a + b for a, b in zip(one, more, strict=True))
                for one, more in zip(self.sums, other.sums, strict=True)]  # fmt: skip
        return replace(self, sums=sums, terms=self.terms + other.terms)


@final
@dataclass(frozen=True)
class GradientMaker:
    """batch ↦ J = ∂at/∂wrt, and from J the gradients of the batch.

    With `several` batches, each draws from its own `seed`, whatever its position in the data.
    """

    model: Model
    target: Target
    shared: Batch
    several: bool

    def __call__(self, batch: Batch) -> Linearization:
        return self.target.linearized(self.model, {**as_batch(self.shared), **as_batch(batch)})

    def gradients(self, J: Linearization) -> Gradients:
        """The gradients of the batch whose Jacobian is J."""
        own = self.several and self.target.fisher_type == "mc"
        seed = mixed(self.target.seed, J.point) if own else self.target.seed
        return Gradients(J, self.model, replace(self.target, seed=seed))


@final
class Share:
    """Consecutive batches, from number `first` on, linearised one at a time."""

    def __init__(
        self, make: GradientMaker, batches: Batches, keep: int, first: int,
        label: str = "pass over the data",
    ) -> None:  # fmt: skip
        self.make, self.first = make, first
        self.stream = Stream(make, batches, keep, label)

    def total(self, find: Find) -> Sums:
        """Σ over these batches of the statistics from `find`, layer by layer."""
        found = self.stream.each(lambda b, J: self._sums(b, cast(Linearization, J), find))
        start = next(found, None)
        if start is None:
            raise InputError("there are no batches")
        return reduce(add, found, start)

    def _sums(self, b: int, J: Linearization, find: Find) -> Sums:
        """The sums of one batch."""
        found = self.make.gradients(J)
        return Sums(
            [layer.parts for layer in found.layers], find(found), found.terms, found.J.domain,
            found.entries, found.twins, self.first + b,
        )  # fmt: skip


def on_workers(make: GradientMaker, batches: Batches, keep: int, client: Any) -> Parts:
    """One share of the batches on each worker of a client, which keeps up to `keep` bytes.

    A pass sends `find` to all workers, and adds up their sums in a tree. The share of a lost worker
    is computed again by others. Draws do not depend on the worker that makes them.
    """
    if message := changed(batches.part(0, 1)):
        warn(f"{message}: the workers would count some samples twice and leave out others")
    placement = Placement(client)
    cuts = evenly(counted(batches), len(placement.homes))
    return spread(placement, Share, make, [(batches.part(a, b), keep, a) for a, b in cuts])


def total(share: Share, find: Find) -> Sums:
    """The sums of one share, without progress, because nobody watches a worker's terminal."""
    with showing(False):
        return share.total(find)


def summed(
    moments: Callable[[int, Any, Any], tuple[Any, ...]], found: Gradients,
    read: Callable[[int, Any], Any] | None = None,
) -> Moments:  # fmt: skip
    """Σ over stacks of cotangents of moments(k, x, g), for every layer k; empty without stacks."""
    sums: Moments = []
    for new in found.each(moments, read):
        sums = [tuple(map(add, *pair)) for pair in zip(sums, new, strict=True)] if sums else new
    return sums
