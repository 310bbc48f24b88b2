"""Pooling: sums over the layers of a model, of one batch after the other, in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, final

from ...jacobians import Jacobian
from ...jacobians.errors import InputError
from ..data.batches import Batch, Batches, as_batch
from ..data.stream import Stream
from ..data.taking import mixed
from ..linearization import Linearization
from ..model import Model
from .gradients import Gradients, Target, gradients_of
from .symmetric import Specs

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
