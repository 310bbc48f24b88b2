"""Batch sums: statistics of gradients, summed over the batches of data, one pass for each.

A pass is in this process, on the workers of a `client`, or on each rank of a `comm`, all of which
linearise one batch at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Any, cast, final

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.arguments import Count, Positive
from ...jacobians.arrays import host, like
from ...jacobians.errors import InputError, warn
from ...jacobians.progress import progress as showing
from ...jacobians.threads import cached_property, remembered
from ..data.adapter import NOTHING, ONE_OF_BOTH, mix_seed
from ..data.batches import Batch, Batches, as_batch, batches_of, is_data
from ..data.cluster import Parts, Placement, count_batches, evenly, submit_shares
from ..data.comm import Comm, as_comm, sum_arrays
from ..data.ranks import has_none
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

    `elsewhere` gives them at another point, where they are of one batch. `comm` has the ranks whose
    batches they are of.
    """

    target: Target
    progress: bool | None
    sums: Callable[[Find], Sums]
    elsewhere: Callable[[Any], Statistics] | None = None
    comm: Comm | None = None

    def total(self, find: Find) -> Sums:
        """Σ over batches of the statistics from `find`; a terminal shows the progress."""
        with showing(self.progress):
            return self.sums(find)

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
    resume: ResumeFile | None = None,
    **options: Any,
) -> Statistics:
    """The statistics of data, or of one point."""
    target, several = Target(**options), comm is not None or is_data(inputs, batch_size)
    if resume is not None and client is not None:
        raise InputError("the workers of client= keep no state from which they would go on: a lost "
                         "share is computed again by others. Leave out resume=")  # fmt: skip
    if comm is not None:
        if client is not None:
            raise InputError(ONE_OF_BOTH)
        comm = as_comm(comm)
        resume = resume and file_of_rank(resume, comm)
        begin = partial(begin_pass, resume, label, target, comm.size)
        known = model, target, inputs, batch_size, shared, keep, label
        share = partial(share_of_rank, *known, begin)
        return Statistics(target, progress, ShareOfRank(comm, share).total, comm=comm)
    batches = batches_of(inputs, batch_size)
    model = as_model(model, straight_through=target.straight_through)
    make = GradientMaker(model, target, shared, several)
    kept = keep if several else sys.maxsize
    if client is not None:
        shares = on_workers(make, batches, kept, client)
        return Statistics(target, progress, partial(shares.summed, total_of_share))
    if not several:
        return statistics_at(make, label, progress, inputs)
    work = begin_pass(resume, label, target, 1)
    return Statistics(target, progress, Share(make, batches, kept, 0, label, work).total)


def begin_pass(resume: ResumeFile | None, label: str, target: Target, ranks: int) -> Work:
    """The work of summing over batches."""
    return Work(resume, label, {**vars(target), "ranks": ranks})


def statistics_at(
    make: GradientMaker, label: str, progress: bool | None, inputs: Batch
) -> Statistics:
    """The statistics of one batch, with routes and layers that other points have made."""
    share = Share(make, batches_of(inputs, None), sys.maxsize, 0, label)
    elsewhere = partial(statistics_at, make, label, progress)
    return Statistics(make.target, progress, share.total, elsewhere)


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

    With `several` batches, each draws from its own `seed`, whatever its position in the data.
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
        own = self.several and self.target.fisher_type == "mc"
        target = (
            replace(self.target, seed=mix_seed(self.target.seed, J.point)) if own else self.target
        )
        if target.of is None or target.fisher_type != "empirical":
            return Gradients(J, target)
        make = partial(LossGradients, J, target.of, target.reduction, target.engine)
        return Gradients(J, target, remembered(self.known, "losses", make))


@final
class Share:
    """Consecutive batches, from number `first` on, linearised one at a time."""

    def __init__(
        self, make: GradientMaker, batches: Batches, keep: int, first: int,
        label: str = "pass over the data", work: Work | None = None,
    ) -> None:  # fmt: skip
        self.make, self.first, self.work, self.passes = make, first, work or Work(), 0
        self.marked = Marked(batches) if self.work.resume else None
        self.stream = Stream(make, self.marked or batches, keep, label)

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
            found.entries, found.twins, self.first + b,
        )  # fmt: skip


def unmarked(_: int) -> np.ndarray:
    """No fingerprint, where none is asked for."""
    return np.zeros(0, np.uint8)


def on_workers(make: GradientMaker, batches: Batches, keep: int, client: Any) -> Parts:
    """One share of the batches on each worker of a client, which keeps up to `keep` bytes.

    A pass sends `find` to all workers, and adds up their sums in a tree. The share of a lost worker
    is computed again by others. Draws do not depend on the worker that makes them.
    """
    if message := changed(batches.part(0, 1)):
        warn(f"{message}: the workers would count some samples twice and leave out others")
    placement = Placement(client)
    cuts = evenly(count_batches(batches), len(placement.homes))
    return submit_shares(placement, Share, make, [(batches.part(a, b), keep, a) for a, b in cuts])


def total_of_share(share: Share, find: Find) -> Sums:
    """The sums of one share, without progress, because nobody watches a worker's terminal."""
    with showing(False):
        return share.total(find)


@final
@dataclass(frozen=True)
class ShareOfRank:
    """This rank's batches among all ranks' batches; `make` gives the `Share`, or None."""

    comm: Comm
    make: Callable[[], Share | None]

    @cached_property
    def share(self) -> Share | None:
        """Made at the first pass, which tells all ranks of an error."""
        return self.make()

    def total(self, find: Find) -> Sums:
        """Σ over the batches of all ranks: one all-reduce, whatever the number of layers."""
        own: list[Any] = []

        def found() -> tuple[list[np.ndarray], Sums] | None:
            if self.share is None:
                return None
            sums = self.share.total(find)
            own.extend(x for moments in sums.sums for x in moments if np.ndim(x))
            empty = [tuple(None if np.ndim(x) else x for x in moments) for moments in sums.sums]
            return [np.asarray(host(x)) for x in own], replace(sums, sums=empty)

        arrays, outlines = sum_arrays(self.comm, found)
        placed = (like(x, y) for x, y in zip(arrays, own or arrays, strict=True))
        total = reduce(add, outlines)
        return replace(total, sums=[tuple(next(placed) if x is None else x for x in moments)
                                    for moments in total.sums])  # fmt: skip


def share_of_rank(
    model: ModelLike, target: Target, inputs: Any, batch_size: int | None, shared: Batch, keep: int,
    label: str, begin: Callable[[], Work],
) -> Share | None:  # fmt: skip
    """The batches of this rank, or None without any."""
    batches = batches_of(inputs, batch_size)
    if has_none(batches):
        return None
    model = as_model(model, straight_through=target.straight_through)
    return Share(GradientMaker(model, target, shared, True), batches, keep, 0, label, begin())


def sum_stacks(
    moments: Callable[[int, Any, Any], tuple[Any, ...]], found: Gradients,
    read: Callable[[int, Any], Any] | None = None,
) -> Moments:  # fmt: skip
    """Σ over stacks of cotangents of moments(k, x, g), for every layer k; empty without stacks."""
    sums: Moments = []
    for new in found.each(moments, read):
        sums = [tuple(map(add, *pair)) for pair in zip(sums, new, strict=True)] if sums else new
    return sums
