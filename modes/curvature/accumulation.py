"""Passes: sums over the layers of a model, over one batch of data after the other.

Data is what `streamed` takes: one batch (a dict), a list of batches, a function that gives an
iterator over them, or, with `batch_size`, arrays or the path of an `.npz` file. No more than one
batch is linearised at a time, by this process or by each worker of a `client`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, final

from ...jacobians import Jacobian
from ...jacobians.errors import InputError, warn
from ...jacobians.progress import progress as showing
from ..data.adapter import NOTHING, mixed
from ..data.batches import Batch, Batches, as_batch, batches_of, is_data
from ..data.cluster import ONE_AT_A_TIME, Grid, Parts, counted, evenly
from ..data.placement import Placement
from ..data.stream import Stream
from ..data.streaming import changed
from ..linearization import Linearization
from ..model import Model
from .gradients import Gradients, Target, gradients_of
from .symmetric import Specs


class Passes:
    """The gradients of every batch, as often as they are asked for."""

    def __init__(
        self,
        model: Model,
        inputs: Any,
        label: str,
        *,
        batch_size: int | None = None,
        shared: Batch = NOTHING,
        keep: int = 0,
        progress: bool | None = None,
        client: Any = None,
        **options: Any,
    ) -> None:
        self.progress, self.target = progress, Target(**options)
        several, batches = is_data(inputs, batch_size), batches_of(inputs, batch_size)
        make = GradientMaker(model, self.target, shared, several)
        kept = keep if several else sys.maxsize
        self.over: Pooling | Pools = (
            Pooling(make, batches, kept, label) if client is None
            else Pools(make, batches, kept, client)
        )  # fmt: skip

    def pooled(self, moments: Find) -> Pool:
        """Σ over batches of what `moments` finds of one; a terminal shows how many are done."""
        with showing(self.progress):
            return self.over.pooled(moments)

    def scale(self, pool: Pool) -> float:
        """c: 1 for a sum, 1 over the number of terms for a mean."""
        return 1 / pool.terms if self.target.reduction == "mean" else 1.0


Moments = list[tuple[Any, ...]]
"""For every layer the numbers that are added up over batches."""

Find = Callable[[Gradients], Moments]
"""What finds them for one batch."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class Pool:
    """What is left of some batches: the parts and sums of every layer, the number of terms.

    `entries` are the fingerprints of the layers, `batch` the number of the first batch.
    """

    parts: list[Mapping[str, Jacobian]]
    sums: Moments
    terms: int
    domain: Specs
    entries: list[bytes]
    batch: int

    def __add__(self, other: Pool) -> Pool:
        """The sums of both; raises `InputError` where they are of different layers."""
        if self.entries != other.entries:
            raise InputError(
                f"batch {other.batch} uses the weights in another way than batch {self.batch}, "
                f"so that their factors cannot be added"
            )
        sums = [tuple(a + b for a, b in zip(one, more, strict=True))
                for one, more in zip(self.sums, other.sums, strict=True)]  # fmt: skip
        terms = self.terms + other.terms
        return Pool(self.parts, sums, terms, self.domain, self.entries, self.batch)


@final
@dataclass(frozen=True)
class GradientMaker:
    """batch ↦ J = ∂at/∂wrt, and from J the gradients of the batch.

    With `several` batches a `seed` becomes another one for each, whatever its place in the data.
    """

    model: Model
    target: Target
    shared: Batch
    several: bool

    def __call__(self, batch: Batch) -> Linearization:
        return self.target.linearized(self.model, {**self.shared, **as_batch(batch)})

    def gradients(self, J: Jacobian) -> Gradients:
        """Those of one batch, of which J is."""
        assert isinstance(J, Linearization)
        target = self.target
        seed = mixed(target.seed, J.point) if self.several else target.seed
        return gradients_of(J, self.model, target.seeded(seed))


@final
class Pooling:
    """Sums over some batches, of which no more than one is linearised at a time.

    `first` is the number of the first one, where they are a part of all.
    """

    def __init__(
        self, make: GradientMaker, batches: Batches, keep: int, label: str, first: int = 0
    ) -> None:
        self.make, self.first = make, first
        self.stream = Stream(make, batches, keep, label)

    def pooled(self, moments: Find) -> Pool:
        """Σ over batches of what `moments` finds of one, layer by layer."""
        pools = self.stream.each(lambda b, J: self._pool(b, J, moments))
        start = next(pools, None)
        if start is None:
            raise InputError("there are no batches")
        return reduce(add, pools, start)

    def _pool(self, b: int, J: Jacobian, moments: Find) -> Pool:
        """What one batch comes to."""
        found = self.make.gradients(J)
        layers = found.layers.layers
        return Pool(
            [layer.parts for layer in layers], moments(found), found.terms, found.J.domain,
            [layer.entries for layer in layers], self.first + b,
        )  # fmt: skip


def summed(moments: Callable[[int, Any, Any], tuple[Any, ...]], found: Gradients) -> Moments:
    """Σ over stacks of cotangents of moments(k, x, g), for every layer k; empty without stacks."""
    number = {id(layer): k for k, layer in enumerate(found.layers.layers)}
    total: dict[int, tuple[Any, ...]] = {}
    for layer, g in found.each():
        k = number[id(layer)]
        new = moments(k, layer.x, g)
        total[k] = tuple(a + b for a, b in zip(total[k], new, strict=True)) if k in total else new
    return [total[k] for k in number.values()] if total else []


REPEATED = "the workers would count some samples twice and leave out others"


@final
class Pools:
    """The sums of `Pooling`, by the workers of a client, each of which keeps `keep` bytes.

    The batches are cut into one part for each worker. A pass sends what to find to all of them, and
    adds up in a tree what they found. The part of a worker that is lost is gone through again by
    others. Draws do not depend on who makes them: see `GradientMaker`.
    """

    def __init__(self, make: GradientMaker, batches: Batches, keep: int, client: Any) -> None:
        if message := changed(batches.part(0, 1)):
            warn(f"{message}: {REPEATED}")
        placement = Placement(client)
        cuts = evenly(counted(batches), len(placement.homes))
        shares = [(batches.part(a, b), keep, a) for a, b in cuts]
        self.parts = Parts(placement, partial(built, placement, make, shares))

    def pooled(self, moments: Find) -> Pool:
        """Σ over batches of what `moments` finds of one, layer by layer."""
        pool: Pool = self.parts.summed(pooled, moments)
        return pool


def built(
    placement: Placement, make: GradientMaker, shares: list[tuple[Any, ...]]
) -> tuple[Grid, Any]:
    """The futures of what goes through each part."""
    maker = placement.everywhere(make)
    return [[placement.submit(p, pooling, maker, *own)] for p, own in enumerate(shares)], maker


def pooling(make: GradientMaker, batches: Batches, keep: int, first: int) -> Pooling:
    """What goes through some of the batches, on a worker."""
    return Pooling(make, batches, keep, "pass over the data", first)


def pooled(held: Pooling, moments: Find) -> Pool:
    """The sums of one part; a worker has no terminal that anybody looks at."""
    with ONE_AT_A_TIME, showing(False):
        return held.pooled(moments)
