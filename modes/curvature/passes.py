"""Passes: sums over the layers of a model, over one batch of data after the other.

Data is what `streamed` takes: one batch (a dict), a list of batches, a function that gives an
iterator over them, or, with `batch_size`, arrays or the path of an `.npz` file. No more than one
batch is linearised at a time. A `seed` becomes another one for every batch, whatever its place in
the data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ...jacobians import Jacobian
from ...jacobians.errors import InputError
from ...jacobians.progress import progress as showing
from ..data.batches import Batch, as_batch, batches_of, is_data
from ..data.stream import Stream
from ..data.taking import NOTHING, mixed
from ..linearization import Linearization
from ..model import Model
from .gradients import Gradients, Target, gradients_of
from .symmetric import Specs

T = TypeVar("T")

Moments = list[tuple[Any, ...]]
"""For every layer the numbers that are added up over batches."""


@dataclass(frozen=True)
class Pool:
    """What is left of all batches: the parts and sums of every layer, the number of terms."""

    parts: list[Mapping[str, Jacobian]]
    sums: Moments
    terms: int
    domain: Specs


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
        **options: Any,
    ) -> None:
        self.model, self.progress, self.target = model, progress, Target(**options)
        self.shared, self.several = shared, is_data(inputs, batch_size)
        batches = batches_of(inputs, batch_size)
        kept = keep if self.several else sys.maxsize
        self.stream = Stream(self._linearized, batches, kept, label)

    def _linearized(self, batch: Batch) -> Linearization:
        return self.target.linearized(self.model, {**self.shared, **as_batch(batch)})

    def each(self, use: Callable[[Gradients], T]) -> Iterator[T]:
        """use(gradients of a batch) for every batch; a terminal shows how many are done."""
        with showing(self.progress):
            yield from self.stream.each(lambda _, J: use(self._gradients(J)))

    def _gradients(self, J: Jacobian) -> Gradients:
        assert isinstance(J, Linearization)
        seed = self.target.seed
        target = self.target.seeded(mixed(seed, J.point)) if self.several else self.target
        return gradients_of(J, self.model, target)

    def pooled(self, moments: Callable[[Gradients], Moments]) -> Pool:
        """Σ over batches of what `moments` finds of one, layer by layer."""
        entries: list[bytes] | None = None
        pool: Pool | None = None
        for b, (keys, one) in enumerate(self.each(lambda found: outcome(found, moments))):
            if entries not in (None, keys):
                raise InputError(f"batch {b} uses the weights in another way than batch 0, so that "
                                 f"their factors cannot be added")  # fmt: skip
            entries, pool = keys, one if pool is None else added(pool, one)
        if pool is None:
            raise InputError("there are no batches")
        return pool

    def scale(self, pool: Pool) -> float:
        """c: 1 for a sum, 1 over the number of terms for a mean."""
        return 1 / pool.terms if self.target.reduction == "mean" else 1.0


def outcome(found: Gradients, moments: Callable[[Gradients], Moments]) -> tuple[list[bytes], Pool]:
    """What one batch comes to, and the fingerprints of its layers."""
    layers = found.layers.layers
    pool = Pool([layer.parts for layer in layers], moments(found), found.terms, found.J.domain)
    return [layer.entries for layer in layers], pool


def added(left: Pool, right: Pool) -> Pool:
    """The sums of both."""
    sums = [tuple(a + b for a, b in zip(one, other, strict=True))
            for one, other in zip(left.sums, right.sums, strict=True)]  # fmt: skip
    return Pool(left.parts, sums, left.terms + right.terms, left.domain)


def summed(found: Gradients, moments: Callable[[int, Any, Any], tuple[Any, ...]]) -> Moments:
    """Σ over stacks of cotangents of moments(k, x, g), for every layer k; empty without stacks."""
    number = {id(layer): k for k, layer in enumerate(found.layers.layers)}
    total: dict[int, tuple[Any, ...]] = {}
    for layer, g in found.each():
        k = number[id(layer)]
        new = moments(k, layer.x, g)
        total[k] = tuple(a + b for a, b in zip(total[k], new, strict=True)) if k in total else new
    return [total[k] for k in number.values()] if total else []
