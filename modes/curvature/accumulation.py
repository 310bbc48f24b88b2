"""Accumulation: sums over the layers of a model, over one batch of data after the other.

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
from ..data.cluster import ONE_AT_A_TIME, Parts, counted, evenly, spread
from ..data.placement import Placement
from ..data.stream import Stream
from ..data.streaming import changed
from ..linearization import Linearization
from ..model import Model
from .gradients import Gradients, Target, gradients_of
from .symmetric import Specs


class Accumulation:
    """Sums over all batches of what is found in the gradients of each, as often as asked for."""

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
        if client is None:
            self._total = Share(make, batches, keep if several else sys.maxsize, 0, label).total
        else:
            self._total = partial(on_workers(make, batches, keep, client).summed, total)

    def total(self, find: Find) -> Sums:
        """Σ over batches of what `find` gives for each; a terminal shows how many are done."""
        with showing(self.progress):
            return self._total(find)

    def scale(self, sums: Sums) -> float:
        """c: 1 for a sum, 1 over the number of terms for a mean."""
        return 1 / sums.terms if self.target.reduction == "mean" else 1.0


Moments = list[tuple[Any, ...]]
"""The numbers of every layer that are added up over batches."""

Find = Callable[[Gradients], Moments]
"""Finds the numbers of one batch."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class Sums:
    """Sums over some batches: the parts and sums of every layer, and the number of terms.

    `entries` are the fingerprints of the layers, `batch` is the number of the first batch.
    """

    parts: list[Mapping[str, Jacobian]]
    sums: Moments
    terms: int
    domain: Specs
    entries: list[bytes]
    batch: int

    def __add__(self, other: Sums) -> Sums:
        """The sums of both; raises `InputError` where they are of different layers."""
        if self.entries != other.entries:
            raise InputError(
                f"batch {other.batch} uses the weights in another way than batch {self.batch}, "
                f"so that their factors cannot be added"
            )
        sums = [tuple(a + b for a, b in zip(one, more, strict=True))
                for one, more in zip(self.sums, other.sums, strict=True)]  # fmt: skip
        terms = self.terms + other.terms
        return Sums(self.parts, sums, terms, self.domain, self.entries, self.batch)


@final
@dataclass(frozen=True)
class GradientMaker:
    """batch ↦ J = ∂at/∂wrt, and from J the gradients of the batch.

    With `several` batches, each has a `seed` of its own, whatever its place in the data.
    """

    model: Model
    target: Target
    shared: Batch
    several: bool

    def __call__(self, batch: Batch) -> Linearization:
        return self.target.linearized(self.model, {**self.shared, **as_batch(batch)})

    def gradients(self, J: Jacobian) -> Gradients:
        """The gradients of the batch whose Jacobian is J."""
        assert isinstance(J, Linearization)
        target = self.target
        seed = mixed(target.seed, J.point) if self.several else target.seed
        return gradients_of(J, self.model, target.seeded(seed))


@final
class Share:
    """Some successive batches, from number `first` on, of which one at a time is linearised."""

    def __init__(
        self, make: GradientMaker, batches: Batches, keep: int, first: int,
        label: str = "pass over the data",
    ) -> None:  # fmt: skip
        self.make, self.first = make, first
        self.stream = Stream(make, batches, keep, label)

    def total(self, find: Find) -> Sums:
        """Σ over these batches of what `find` gives for each, layer by layer."""
        found = self.stream.each(lambda b, J: self._sums(b, J, find))
        start = next(found, None)
        if start is None:
            raise InputError("there are no batches")
        return reduce(add, found, start)

    def _sums(self, b: int, J: Jacobian, find: Find) -> Sums:
        """The sums of one batch."""
        found = self.make.gradients(J)
        layers = found.layers.layers
        return Sums(
            [layer.parts for layer in layers], find(found), found.terms, found.J.domain,
            [layer.entries for layer in layers], self.first + b,
        )  # fmt: skip


def on_workers(make: GradientMaker, batches: Batches, keep: int, client: Any) -> Parts:
    """One share of the batches on each worker of a client, which keeps `keep` bytes.

    A pass sends `find` to all of them, and adds up their sums in a tree. The share of a worker that
    is lost is gone through again by others. Draws do not depend on the worker that makes them.
    """
    if message := changed(batches.part(0, 1)):
        warn(f"{message}: the workers would count some samples twice and leave out others")
    placement = Placement(client)
    cuts = evenly(counted(batches), len(placement.homes))
    return spread(placement, Share, make, [(batches.part(a, b), keep, a) for a, b in cuts])


def total(share: Share, find: Find) -> Sums:
    """The sums of one share; a worker has no terminal that anybody looks at."""
    with ONE_AT_A_TIME, showing(False):
        return share.total(find)


def summed(moments: Callable[[int, Any, Any], tuple[Any, ...]], found: Gradients) -> Moments:
    """Σ over stacks of cotangents of moments(k, x, g), for every layer k; empty without stacks."""
    number = {id(layer): k for k, layer in enumerate(found.layers.layers)}
    sums: dict[int, tuple[Any, ...]] = {}
    for layer, g in found.each():
        k = number[id(layer)]
        new = moments(k, layer.x, g)
        sums[k] = tuple(a + b for a, b in zip(sums[k], new, strict=True)) if k in sums else new
    return [sums[k] for k in number.values()] if sums else []
