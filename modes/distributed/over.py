"""Over: one operator over all batches, and over many processes."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...jacobians import Jacobian
from ...jacobians.errors import warn
from ..data.batches import batches_of, samples
from ..data.over import Size, named, weights_of
from ..data.stream import Make
from .grid import Shares
from .operator import Distributed
from .parts import Grid, Parts
from .placement import Placement
from .shares import counted, evenly, share, suspect


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
    check: bool = True,
) -> Jacobian:
    """C = Σ_b w_b C_b or [C_1; C_2; …] as `streamed` makes it, computed by the workers of a client.

    `client` is a `distributed.Client`; `make`, `data`, `reduction`, `batch_size`, `keep` (bytes on
    each worker), `size` and `check` are those of `streamed`, and so is the scaling: w_b = 1 for
    `"sum"`, w_b = n_b / N for `"mean"`, rows by batch for `"stack"`.

    The batches are cut into `parts`, by default one for each worker. What `make` refers to, so the
    model, is sent once to each worker; data in memory is sent once with its part, a path or a
    function is opened by the workers. A product sends the right-hand sides to all workers, and adds
    up what they give in a tree. With fewer parts than workers, a part has copies, which share out
    the columns of a product: so does one batch with the columns of a matrix or with the probes of
    an estimator.

    Functions of a point (`hessian`, `linearize`, …) do the same with `client=`. So do `kfac`,
    `ekfac` and `shampoo`, whose factors are sums over batches while their products are not: as
    `make` they would give a sum of Kronecker products, which is another matrix.

    The share of a worker that is lost is computed again by others. A worker that is in the middle
    of a batch holds one linearisation, whatever the number of its threads.

    Shapes: as for `streamed`. Raises the errors of `streamed`, `InputError` where `client` is no
    client of Dask, and `OnnxJacError` where workers are lost again and again, or the cluster is
    closed.
    """
    batches = batches_of(data, batch_size)
    weights = weights_of(batches, reduction, size)
    count = len(weights) if weights else counted(batches)
    placement = Placement(client)
    cuts = evenly(count, len(placement.homes) if parts is None else parts)
    shares = [(batches.part(a, b), keep, reduction, weights and weights[a:b]) for a, b in cuts]
    build = partial(built, placement, make, shares)
    held = Parts(placement, build)
    C = Distributed(Shares(held, reduction == "stack"))
    if check and (message := next(filter(None, held.ask(suspect)), None)):
        warn(message)
    return named(C, C.shares.outlines[0].domain)


def built(
    placement: Placement, make: Make, shares: list[tuple[Any, ...]]
) -> tuple[Grid, Any]:
    """The futures of the operator of every part, in as many copies as there are workers for."""
    copies = max(1, len(placement.homes) // len(shares))
    maker = placement.everywhere(make)
    grid = [
        [placement.submit(p * copies + c, share, maker, *arguments) for c in range(copies)]
        for p, arguments in enumerate(shares)
    ]
    return grid, maker
