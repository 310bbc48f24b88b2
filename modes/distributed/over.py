"""Over: one operator over all batches, and over many processes."""

from __future__ import annotations

from typing import Any

from ...jacobians import Jacobian
from ...jacobians.errors import InputError
from ..curvature.symmetric import Symmetric
from ..data.batches import Batches, batches_of, samples
from ..data.over import REDUCTIONS, Size
from ..data.stream import Make
from .operator import Distributed, Grid, Shares
from .placement import Placement
from .shares import evenly, share


def distributed(
    make: Make,
    data: Any,
    client: Any,
    *,
    reduction: str,
    batch_size: int | None = None,
    keep: int = 0,
    size: Size = samples,
    parts: int | None = None,
) -> Jacobian:
    """C = Σ_b w_b C_b or [C_1; C_2; …] as `streamed` makes it, computed by the workers of a client.

    `client` is a `distributed.Client`; `make`, `data`, `reduction`, `batch_size`, `keep` (bytes on
    each worker) and `size` are those of `streamed`, and the scaling is the same: `"sum"`: w_b = 1;
    `"mean"`: w_b = n_b / N; `"stack"`: rows by batch.

    The batches are cut into `parts`, by default one for each worker. What `make` refers to, so the
    model, is sent once to each worker; data in memory is sent once with its part, a path or a
    function is opened by the workers. A product sends the right-hand sides to all workers, and adds
    up what they give in a tree. With fewer parts than workers, a part has copies, which share out
    the columns of a product: so does one batch with the columns of a matrix or with the probes of
    an estimator.

    The share of a worker that is lost is computed again by others. A worker that is in the middle
    of a batch holds one linearisation, whatever the number of its threads.
    """
    if reduction not in REDUCTIONS:
        known = ", ".join(map(repr, REDUCTIONS))
        raise InputError(f"reduction={reduction!r} is not one of {known}")
    batches = batches_of(data, batch_size)
    sizes = [size(batch) for batch in batches]
    if not sizes:
        raise InputError("there are no batches")
    weights = tuple(n / sum(sizes) for n in sizes) if reduction == "mean" else None
    placement = Placement(client)
    cuts = evenly(len(sizes), len(placement.homes) if parts is None else parts)
    grid = sent(placement, make, batches, cuts, keep, weights, reduction == "stack")
    return faced(Distributed(Shares(placement, grid, reduction == "stack")))


def sent(
    placement: Placement,
    make: Make,
    batches: Batches,
    cuts: list[tuple[int, int]],
    keep: int,
    weights: tuple[float, ...] | None,
    stacked: bool,
) -> Grid:
    """The operator of every part on its workers."""
    copies = max(1, len(placement.homes) // len(cuts))
    maker = placement.everywhere(make)

    def future(p: int, copy: int) -> Any:
        a, b = cuts[p]
        mine = None if weights is None else weights[a:b]
        task = share, maker, batches.part(a, b), keep, mine, stacked
        return placement.submit(p * copies + copy, *task)

    return [[future(p, copy) for copy in range(copies)] for p in range(len(cuts))]


def faced(C: Distributed) -> Jacobian:
    """A sum of symmetric operators between named tensors is one of these itself."""
    first = C.shares.outlines[0]
    if C.T is C and first.domain is not None:
        return Symmetric(C, first.domain)
    return C
