"""Pools: sums over batches, of which every worker of a client finds those of its own."""

from __future__ import annotations

from functools import partial
from typing import Any, final

from ...jacobians.errors import warn
from ...jacobians.progress import progress
from ..curvature.pooling import Find, GradientMaker, Pool, Pooling
from ..data.batches import Batches
from ..data.deterministic import changed
from .parts import Grid, Parts
from .placement import Placement
from .shares import ONE_AT_A_TIME, counted, evenly

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
    with ONE_AT_A_TIME, progress(False):
        return held.pooled(moments)
