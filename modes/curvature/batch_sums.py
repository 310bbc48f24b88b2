"""Batch sums: statistics of gradients, summed over the batches of data, one pass for each.

A pass is in this process, on the workers of a `client`, or on each rank of a `comm`, all of which
linearise one batch at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any, cast, final

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.arguments import Count, Positive
from ...jacobians.arrays import host
from ...jacobians.errors import InputError, warn
from ...jacobians.progress import progress as showing
from ...jacobians.threads import remembered
from ..data.adapter import NOTHING, ONE_OF_BOTH
from ..data.batches import Batch, Batches, as_batch, batches_of, is_data
from ..data.cluster import on_workers
from ..data.comm import Comm, as_comm
from ..data.devices import is_jax, on_devices
from ..data.draws import sample_seeds
from ..data.ranks import Ranks, on_ranks
from ..data.shares import Alone, Shares
from ..data.stream import Marked, Stream, changed
from ..linear.linearization import Linearization, linearized
from ..linearize import engine_for, warn_of_zeros
from ..model.primal.inputs import Specs
from ..model.primal.model import Model, ModelLike, as_model
from ..resume import ResumeFile, Work, file_of_rank
from .fisher import LossGradients
from .gradients import Gradients, Target
from .reductions import weight_in_mean

Moments = list[tuple[Any, ...]]
"""The statistics of every layer that are summed over batches."""

Find = Callable[[Gradients], Moments]
"""A function that computes the statistics of one batch."""


@dataclass(frozen=True)
class Statistics:
    """Sums over all batches of statistics of their gradients, one pass for each, by `sums`.

    `elsewhere` gives them at another point, where they are of one batch. The ranks of `sharded`
    each keep a share of the factors.
    """

    target: Target
    progress: bool | None
    shares: Shares[GradientShare]
    elsewhere: Callable[[Any], Statistics] | None = None
    sharded: Comm | None = None

    @property
    def comm(self) -> Comm | None:
        """The ranks whose batches they are of."""
        return self.shares.comm if isinstance(self.shares, Ranks) else None

    def total(self, find: Find) -> Sums:
        """Σ over batches of the statistics from `find`; a terminal shows the progress."""
        with showing(self.progress):
            return self.shares.summed(GradientShare.total, find)

    def scale(self, sums: Sums) -> float:
        """c: 1 for a sum, 1 over the number of terms for a mean."""
        return weight_in_mean(sums.terms) if self.target.reduction == "mean" else 1.0


def statistics(
    model: ModelLike,
    inputs: Any,
    label: str,
    *,
    batch_size: Positive | None = None,
    shared: Batch = NOTHING,
    keep: Count = 0,
    progress: bool | None = None,
    client: Any = None,
    comm: Any = None,
    shard: bool = False,
    resume: ResumeFile | None = None,
    **options: Any,
) -> Statistics:
    """The statistics of data, or of one point."""
    if comm is not None and client is not None:
        raise InputError(ONE_OF_BOTH)
    if resume is not None and client is not None:
        raise InputError("the workers of client= keep no state from which they would go on: a lost "
                         "share is computed again by others. Leave out resume=")  # fmt: skip
    if is_jax(comm):
        found = on_devices(inputs, shared, options.get("engine"))
        inputs, comm, shared, options["engine"] = found
    target, several = Target(**options), comm is not None or is_data(inputs, batch_size)
    if shard and comm is None:
        raise InputError("shard=True is for ranks, which share the factors: give comm= too")
    model = as_model(model, straight_through=target.straight_through)
    make = GradientMaker(model, target, shared, several)
    if comm is not None:
        comm = as_comm(comm)
        begin = partial(begin_pass, resume and file_of_rank(resume, comm), label, target, comm.size)
        share = partial(GradientShare, make, keep, label, begin=begin)
        ranks = on_ranks(comm, share, inputs, batch_size)
        return Statistics(target, progress, ranks, sharded=ranks.comm if shard else None)
    batches = batches_of(inputs, batch_size)
    share = partial(GradientShare, make, keep if several else sys.maxsize, label)
    if client is not None:
        if message := changed(batches.part(0, 1)):
            warn(f"{message}: the workers would count some samples twice and leave out others")
        return Statistics(target, progress, on_workers(client, share, batches))
    if not several:
        return statistics_at(make, label, progress, inputs)
    begin = partial(begin_pass, resume, label, target, 1)
    return Statistics(target, progress, Alone(share(batches, begin=begin)))


def begin_pass(resume: ResumeFile | None, label: str, target: Target, ranks: int) -> Work:
    """The work of summing over batches."""
    return Work(resume, label, {**vars(target), "ranks": ranks})


def statistics_at(
    make: GradientMaker, label: str, progress: bool | None, inputs: Batch
) -> Statistics:
    """The statistics of one batch, with routes and layers that other points have made."""
    share = GradientShare(make, sys.maxsize, label, batches_of(inputs, None))
    elsewhere = partial(statistics_at, make, label, progress)
    return Statistics(make.target, progress, Alone(share), elsewhere)


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
        sums = [tuple(None if a is None else a + b for a, b in zip(one, more, strict=True))
                for one, more in zip(self.sums, other.sums, strict=True)]  # fmt: skip
        return replace(self, sums=sums, terms=self.terms + other.terms)

    def apart(self) -> tuple[list[Any], Sums]:
        """The arrays, and the sums with None in their places."""
        arrays = [x for moments in self.sums for x in moments if np.ndim(x)]
        rest = [tuple(None if np.ndim(x) else x for x in moments) for moments in self.sums]
        return arrays, replace(self, sums=rest)

    def joined(self, arrays: Iterable[Any]) -> Sums:
        """The sums with these arrays in the places of None."""
        placed = iter(arrays)
        return replace(self, sums=[tuple(next(placed) if x is None else x for x in moments)
                                   for moments in self.sums])  # fmt: skip

    @property
    def flat(self) -> list[Any]:
        """The sums of all layers, one after the other."""
        return [x for moments in self.sums for x in moments]

    def over(self, terms: int, flat: Sequence[Any]) -> Sums:
        """The sums over other batches, of as many `terms`."""
        rest = iter(flat)
        sums = [tuple(next(rest) for _ in moments) for moments in self.sums]
        return replace(self, terms=terms, sums=sums)

    def norms(self) -> np.ndarray:
        """The norm of each sum, (sums, 1)."""
        return np.array([[np.linalg.norm(host(x))] for x in self.flat])


@final
@dataclass(frozen=True)
class GradientMaker:
    """batch ↦ J = ∂at/∂wrt, and from J the gradients of the batch.

    With `several` batches, each sample has draws of its own, whatever batch it is in.
    """

    model: Model
    target: Target
    shared: Batch
    several: bool
    known: dict[Any, Any] = field(default_factory=dict)
    """The routes by engine, and the gradients of losses: they serve all batches."""

    def __call__(self, batch: Batch) -> Linearization:
        inputs = {**as_batch(self.shared), **as_batch(batch)}
        engine = engine_for(inputs, self.target.engine)
        is_first = engine not in self.known
        route = remembered(self.known, engine, partial(self.target.route, self.model, engine))
        J = linearized(route, inputs, moves=False)
        if is_first:
            warn_of_zeros(J)
        return J

    def gradients(self, J: Linearization) -> Gradients:
        """The gradients of the batch whose Jacobian is J."""
        target = self.target
        if self.several and target.fisher_type == "mc":
            batch = {name: x for name, x in J.point.items() if name not in self.shared}
            target = replace(target, seed=sample_seeds(cast(int, target.seed), batch))
        if target.of is None or target.fisher_type != "empirical":
            return Gradients(J, target)
        make = partial(LossGradients, J, target.of, target.reduction, target.engine)
        return Gradients(J, target, remembered(self.known, "losses", make))


@final
class GradientShare:
    """Consecutive batches, from number `first` on, linearised one at a time."""

    def __init__(
        self, make: GradientMaker, keep: int, label: str, batches: Batches, first: int = 0,
        begin: Callable[[], Work] = Work,
    ) -> None:  # fmt: skip
        self.make, self.work, self.passes = make, begin(), 0
        self.marked = Marked(batches) if self.work.resume else None
        self.stream = Stream(make, self.marked or batches, keep, first, label)

    def total(self, find: Find) -> Sums:
        """Σ over these batches of the statistics from `find`, layer by layer.

        Where sums come from a file, their batches are read, to see whether they are the same, and
        only the first one is linearised, for its layers.
        """
        begun, read = 1, self.marked.mark if self.marked else unmarked
        known = read(begun)

        def needs(b: int) -> bool:
            if b == begun - 1 > 0:
                check()
            return b == 0 or b >= begun

        def check() -> None:
            if not np.array_equal(read(begun), known):
                raise InputError(
                    f"{self.work.path} has sums over {begun} batches, which are others now: give "
                    "the same in the same order, or remove it"
                )

        found = self.stream.each(lambda b, J: self._sums(b, cast(Linearization, J), find), needs)
        with self.work.going_on():
            first = next(found, None)
            if first is None:
                raise InputError("there are no batches")
            self.passes += 1
            self.work.same(f"first batch, pass {self.passes}", first.norms)
            loop = self.work.loop("pass", begun, read(begun), first.terms, *first.flat)
            begun, known, terms, *flat = loop.state
            total = first.over(terms, flat)
            for done, more in enumerate(found, begun + 1):
                total += more
                loop.step(done, read(done), total.terms, *total.flat, products=1)
            check()
        return total

    def _sums(self, b: int, J: Linearization, find: Find) -> Sums:
        """The sums of one batch."""
        found = self.make.gradients(J)
        return Sums(
            [layer.parts for layer in found.layers], find(found), found.terms, found.J.domain,
            found.entries, found.twins, self.stream.first + b,
        )  # fmt: skip


def unmarked(_: int) -> np.ndarray:
    """No fingerprint, where none is asked for."""
    return np.zeros(0, np.uint8)


def sum_stacks(
    moments: Callable[[int, Any, Any], tuple[Any, ...]], found: Gradients,
    read: Callable[[int, Any], Any] | None = None,
) -> Moments:  # fmt: skip
    """Σ over stacks of cotangents of moments(k, x, g), for every layer k; empty without stacks."""
    sums: Moments = []
    for new in found.each(moments, read):
        sums = [tuple(map(add, *pair)) for pair in zip(sums, new, strict=True)] if sums else new
    return sums
