"""Cluster: operators whose batches and columns are split among the workers of a Dask client.

`distributed` makes a `Distributed`, whose products are one map over the workers and one sum.
`Parts` holds the futures of the objects on the workers, and `Placement` assigns them to workers.

The cost with W workers, P parts of the data (by default W), n columns and m rows of C, K right-hand
sides and s bytes per number:

| | per product | |
|---|---|---|
| arithmetic | the time of one pass / W | if batches can be split evenly |
| right-hand sides | s n K W bytes | to every worker; the workers pass them on |
| results of a sum | s m K P bytes | added eight at a time, in log₈ P rounds |
| results of a stack | s m K bytes | every worker sends its own rows |
| tasks | P (1 + 1/7) | all pass through one scheduler |

A pass for Kronecker factors is a sum too: for a weight with i inputs and o outputs, of s (i² + o²)
bytes instead of s m K. For the eigenvalues of E-KFAC, s (i² + o²) bytes go to every worker, and
s i o return.

Sent once: the objects that `make` refers to (model, point) to every worker, and data in memory with
its part. `tests/benchmarks/distributed.py` measures these costs, and extrapolates to 1,000 workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise
from operator import add, methodcaller
from time import sleep
from typing import Any, TypeVar, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, lead
from ...jacobians.arguments import Count, Positive, validated
from ...jacobians.errors import InputError, OnnxJacError, first_line, warn
from ...jacobians.readings import is_kept, library_of
from ...jacobians.threads import Lock
from ...ops import numbers
from .batches import Batches, batches_of, samples
from .stream import (
    Make,
    Outline,
    OverBatches,
    OverData,
    Reduction,
    Size,
    Stream,
    Weights,
    batch_weights,
    compose_stream,
    difference,
    outline_of,
    with_names,
)

T = TypeVar("T")


@validated
def distributed(
    make: Make,
    data: Any,
    client: Any,
    *,
    reduction: Reduction,
    batch_size: Positive | None = None,
    keep: Count = 0,
    size: Size = samples,
    parts: Positive | None = None,
    check: bool = True,
) -> Jacobian:
    """C = Σ_b w_b C_b or [C_1; C_2; …] as `streamed` makes it, computed by the workers of a client.

    `client` is a `distributed.Client`; `make`, `data`, `reduction`, `batch_size`, `keep` (bytes on
    each worker), `size` and `check` are as for `streamed`, and so is the scaling: w_b = 1 for
    `"sum"`, w_b = n_b / N for `"mean"`, rows by batch for `"stack"`.

    The batches are split into `parts`, by default one per worker. Objects that `make` refers to,
    such as the model, are sent once to each worker; data in memory is sent once with its part, and
    a path or a function is opened by the workers. A product sends the right-hand sides to all
    workers, and adds up their results in a tree. With fewer parts than workers, every part has
    copies that split the columns of a product: even for a single batch, the columns of a matrix or
    the probes of an estimator are computed in parallel.

    Functions of a point (`hessian`, `linearize`, …) do the same with `client=`. So do `kfac`,
    `ekfac` and `shampoo`, whose factors are sums over batches while the Kronecker products are not:
    as `make`, these functions would give a sum of Kronecker products, which is another matrix.

    The share of a lost worker is computed again by others. A worker holds one linearisation at a
    time, whatever the number of its threads.

    Shapes: as for `streamed`. Raises the errors of `streamed`, `InputError` where `client` is not a
    Dask client, and `OnnxJacError` where workers are lost repeatedly, or the cluster is closed.
    """
    batches = batches_of(data, batch_size)
    weights = batch_weights(batches, reduction, size)
    count = len(weights) if weights else count_batches(batches)
    placement = Placement(client)
    cuts = evenly(count, len(placement.homes) if parts is None else parts)
    shares = [(batches.part(a, b), keep, reduction, weights and weights[a:b]) for a, b in cuts]
    copies = max(1, len(placement.homes) // len(shares))
    held = submit_shares(placement, share_operator, make, shares, copies)
    C = Distributed(held, held.ask(outline), reduction == "stack")
    if check and (message := next(filter(None, held.ask(difference)), None)):
        warn(message)
    return with_names(C, C.outlines[0].domain)


@final
class Distributed(OverData):
    """C = Σ_p C_p or [C_1; C_2; …], with C_p the operator of a part of the data, on a worker.

    C equals the operator of `streamed` up to the order of summation, which does not depend on the
    workers: two products with the same vector are equal. With fewer parts than workers, each part
    has copies, which split the columns of a product.
    """

    def __init__(
        self, parts: Parts, outlines: Sequence[Outline], stacked: bool, *, transposed: bool = False
    ) -> None:
        self.parts = parts
        super().__init__(outlines, stacked, transposed=transposed)

    def _apply(self, op: Op, v: Array) -> Array:
        if is_kept(v):
            return library_of(v).by_numbers("workers", partial(self._apply, numbers), v)
        if op is not numbers:
            raise InputError("a product over workers cannot be written into a graph")
        columns = np.reshape(v, (-1, self.shape[1]))
        y = self.parts.persistently(lambda: self._product(columns))
        return y.reshape((*lead(v, self.in_shape), self.shape[0]))

    def _product(self, v: np.ndarray) -> np.ndarray:
        """C v for v of shape (K, n)."""
        self.parts.placement.refresh()
        cuts = evenly(len(v), self.parts.copies)
        found = [self._futures(c, v[a:b]) for c, (a, b) in enumerate(cuts)]
        return np.concatenate([np.concatenate(self.parts.gathered(f), axis=-1) for f in found])

    def _futures(self, copy: int, v: np.ndarray) -> list[Any]:
        """The futures of a product with one copy of each part."""
        parts, whole = self.parts, range(len(self.parts.grid))
        if self.transposed and self.stacked:
            sent: list[Any] = [v[:, a:b] for a, b in pairwise(self.ends)]
        else:
            sent = [parts.placement.everywhere(v)] * len(whole)
        found = [parts.submit(p, copy, share_product, sent[p], self.transposed) for p in whole]
        return found if self.stacked and not self.transposed else parts.added(found)

    def again(self, parts: Parts | None = None, *, transposed: bool | None = None) -> OverData:
        turned = self.transposed if transposed is None else transposed
        return Distributed(parts or self.parts, self.outlines, self.stacked, transposed=turned)

    def _diagonal(self) -> np.ndarray:
        if self.stacked:
            return super()._diagonal()
        return np.asarray(self.parts.summed(methodcaller("diagonal")))

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Jacobian:
        """The same operator, with the kept operators compiled: see `OverBatches.compile`."""
        compiled = methodcaller("compile", engine, products=products, memory=memory)

        def build() -> tuple[Grid, Any]:
            grid, origin = self.parts.build()
            submit = self.parts.placement.submit
            made = [[submit(p * len(row) + c, compiled, future) for c, future in enumerate(row)]
                    for p, row in enumerate(grid)]  # fmt: skip
            return made, (grid, origin)

        return self.again(Parts(self.parts.placement, build))

    def __repr__(self) -> str:
        parts, copies = len(self.parts.grid), self.parts.copies
        C = f"[C_1; …; C_{parts}]" if self.stacked else f"Σ_p C_p, p = 1 … {parts}"
        return f"{C}{'ᵀ' if self.transposed else ''}, {copies} × on workers"


FAN = 8
"""The number of results that one task adds up."""

Grid = list[list[Any]]
"""Futures of the copies of each part."""

Build = Callable[[], tuple[Grid, Any]]
"""A function that makes these futures, and an object that must live as long as they do."""


@final
class Parts:
    """The parts of some data, as objects on the workers, perhaps in several copies.

    `build` sends the data that they are made from, and returns their futures.
    """

    def __init__(self, placement: Placement, build: Build) -> None:
        self.placement, self.build = placement, build
        persistently(self.renew, lambda: None, placement.client)

    def renew(self) -> None:
        """Send everything again."""
        self.placement.refresh()
        self.grid, self._origin = self.build()

    @property
    def copies(self) -> int:
        """The number of workers that hold the same part."""
        return len(self.grid[0])

    def submit(self, part: int, copy: int, task: Callable[..., Any], *arguments: Any) -> Any:
        """The future of a task with one copy of a part, on the worker that holds it."""
        place = part * self.copies + copy
        return self.placement.submit(place, run_alone, task, self.grid[part][copy], *arguments)

    def ask(self, task: Callable[..., Any]) -> list[Any]:
        """The result of a task for every part."""
        return self.persistently(lambda: self.gathered(self._asked(task)))

    def summed(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Σ over all parts of the results of a task; arguments are sent once to every worker."""

        def attempt() -> Any:
            self.placement.refresh()
            sent = [self.placement.everywhere(argument) for argument in arguments]
            (found,) = self.gathered(self.added(self._asked(task, *sent)))
            return found

        return self.persistently(attempt)

    def persistently(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, retried with everything sent again if a worker was lost."""
        return persistently(attempt, self.renew, self.placement.client)

    def _asked(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        return [self.submit(p, 0, task, *arguments) for p in range(len(self.grid))]

    def gathered(self, futures: list[Any]) -> list[Any]:
        """The results of futures."""
        return list(self.placement.client.gather(futures))

    def added(self, futures: list[Any]) -> list[Any]:
        """The future of the sum, computed by a tree on the workers."""
        while len(futures) > 1:
            submit = self.placement.client.submit
            groups = (futures[k : k + FAN] for k in range(0, len(futures), FAN))
            futures = [submit(sum_in_order, *group, pure=False) for group in groups]
        return futures


def submit_shares(
    placement: Placement, task: Callable[..., Any], make: Any, shares: Sequence[tuple[Any, ...]],
    copies: int = 1,
) -> Parts:  # fmt: skip
    """task(make, *share) on the workers for every share, in `copies` copies each."""

    def build() -> tuple[Grid, Any]:
        maker = placement.everywhere(make)
        return [
            [placement.submit(p * copies + c, run_alone, task, maker, *own) for c in range(copies)]
            for p, own in enumerate(shares)
        ], maker

    return Parts(placement, build)


ONE_AT_A_TIME = Lock()


def run_alone(task: Callable[..., T], *arguments: Any) -> T:
    """The result of a task; a worker of many threads runs one at a time, with all of its memory."""
    with ONE_AT_A_TIME:
        return task(*arguments)


def share_operator(
    make: Make, batches: Batches, keep: int, reduction: str, weights: Weights
) -> OverBatches:
    """The operator of some of the batches."""
    return compose_stream(Stream(make, batches, keep), reduction, weights)


def outline(C: OverBatches) -> Outline:
    """The outline of a share, for the client."""
    return outline_of(C) if C.stacked else C.outlines[0]


def share_product(C: Jacobian, v: np.ndarray, transposed: bool) -> np.ndarray:
    """C v or Cᵀ v, for v of shape (K, n)."""
    return np.asarray((C.T if transposed else C)._apply(numbers, v))


def sum_in_order(*terms: Any) -> Any:
    """The sum of terms, in order."""
    return reduce(add, terms)


def evenly(count: int, parts: int) -> list[tuple[int, int]]:
    """The bounds of `count` items in consecutive parts whose lengths differ by at most one.

    >>> evenly(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    parts = max(1, min(parts, count))
    ends = [k * (count // parts) + min(k, count % parts) for k in range(parts + 1)]
    return list(pairwise(ends))


def count_batches(batches: Batches) -> int:
    """The number of batches, by a pass over the data if it is not known."""
    return sum(1 for _ in batches) if batches.count is None else batches.count


WORKER_SECONDS = 60
"""Seconds to wait for a worker when there is none."""

ATTEMPTS, PAUSE_SECONDS = 5, 0.5
"""The number of attempts before the loss of workers is an error, and the pause in seconds."""


class Placement:
    """The workers of a client in a fixed order, and tasks that prefer one of them.

    Another worker takes the place of a lost one; the scheduler sends it the data that the tasks
    need, or lets it recompute them.
    """

    def __init__(self, client: Any) -> None:
        if not hasattr(client, "scatter"):
            raise InputError(
                f"client={client!r} is no client of Dask: give distributed.Client(address)"
            )
        self.client = client
        self.homes = persistently(self.workers, lambda: None, client)

    def workers(self) -> list[str]:
        """The addresses of the current workers."""
        if not self.client.ncores():
            try:
                self.client.wait_for_workers(1, timeout=WORKER_SECONDS)
            except TimeoutError as error:
                message = f"no worker came within {WORKER_SECONDS} s: start some"
                raise OnnxJacError(message) from error
        return sorted(self.client.ncores())

    def refresh(self) -> None:
        """Assign new workers to the places of lost workers."""
        there = self.workers()
        free = [worker for worker in there if worker not in self.homes] or there
        lost = [k for k, home in enumerate(self.homes) if home not in there]
        for place, k in enumerate(lost):
            self.homes[k] = free[place % len(free)]

    def submit(self, place: int, task: Callable[..., Any], *arguments: Any) -> Any:
        """The future of a task that prefers the worker of a place."""
        home = self.homes[place % len(self.homes)]
        return self.client.submit(
            task, *arguments, workers=[home], allow_other_workers=True, pure=False
        )

    def everywhere(self, value: Any) -> Any:
        """A value for every worker: sent to one worker, and passed on from there.

        A broadcast by the scheduler would hang if a worker died in the meantime.
        """
        return self.client.scatter(value, hash=False)


def persistently(attempt: Callable[[], T], renew: Callable[[], Any], client: Any) -> T:
    """The result of `attempt`, retried after `renew` if a lost worker held the only copy of data.

    `renew` sends everything again; the scheduler recomputes the tasks that depend on it. Raises
    `OnnxJacError` where workers are lost repeatedly, and where the client or its cluster is closed.
    Errors of a task are passed on.
    """
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError

    from distributed import KilledWorker  # an extra: imported where it is used

    for tries in range(ATTEMPTS):
        try:
            check_open(client)
            if tries:
                sleep(PAUSE_SECONDS)
                renew()
            return attempt()
        except (FutureCancelledError, CommClosedError) as error:
            lost = error
        except KilledWorker as error:
            raise OnnxJacError(
                f"a part of the data ended every worker that took it: {first_line(error)} A worker "
                "that runs out of memory is ended: give smaller batches (batch_size=), less keep=, "
                "or workers with more memory"
            ) from error
        except OnnxJacError:
            raise
        except Exception:  # of a task, or of a client that was closed meanwhile
            check_open(client)
            raise
    check_open(client)
    raise OnnxJacError(
        f"workers were lost at each of {ATTEMPTS} tries: {first_line(lost)} See why they end, "
        "start others, and call this again"
    ) from lost


def check_open(client: Any) -> None:
    """Raises `OnnxJacError` where a client is not connected to a scheduler."""
    status = getattr(client, "status", "running")
    if status != "running":
        raise OnnxJacError(
            f"the client of Dask has no scheduler, its status is {status!r}: it was closed, or its "
            "cluster was. Connect to one that runs, distributed.Client(address), and make the "
            "operator again with that client"
        )
