"""Cluster: batches and columns that are split among the workers of a Dask client.

`Workers` holds the futures of the shares, and `Placement` assigns them to workers. One process has
the script and the data, and hands out tasks: there are no ranks that could enter a collective
together, so that a client is no `Comm`.

With W workers and P parts, a product sends its right-hand sides to every worker, which pass them
on, and adds P results, eight at a time; a stack sends every row once. All P (1 + 1/7) tasks pass
through one scheduler. Model and point are sent once to every worker, and data in memory once with
its part. docs/results/distributed.md has measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise
from operator import add
from time import sleep
from typing import Any, TypeVar, final

import numpy as np

from ...jacobians import Jacobian, Shape
from ...jacobians.arguments import Count, Positive, validated
from ...jacobians.errors import InputError, OnnxJacError, first_line
from ...jacobians.progress import progress
from ...jacobians.threads import Lock
from .batches import Batches, batches_of, samples
from .shares import Elsewhere, Reduction, Share, Size, compose, share_product
from .stream import Make

T = TypeVar("T")
R = TypeVar("R")


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
    `ekfac` and `shampoo`, which add up factors: as `make` they would give a sum of Kronecker
    products, which is another matrix.

    The share of a lost worker is computed again by others. A worker holds one linearisation at a
    time, whatever the number of its threads.

    Shapes: as for `streamed`. Raises the errors of `streamed`, `InputError` where `client` is not a
    Dask client, and `OnnxJacError` where workers are lost repeatedly, or the cluster is closed.
    """
    make_share = partial(Share, make, keep, size)
    shares = on_workers(client, make_share, batches_of(data, batch_size), parts, copied=True)
    return compose(shares, reduction, check)


FAN = 8
"""The number of results that one task adds up."""

Grid = list[list[Any]]
"""Futures of the copies of each part."""

Build = Callable[[], tuple[Grid, Any]]
"""A function that makes these futures, and an object that must live as long as they do."""


@final
class Workers(Elsewhere[T]):
    """Shares on the workers of a client, perhaps in several copies, which split columns.

    `build` submits the tasks that make the shares, from data that it sends or from the shares of a
    `parent`, and returns their futures. Where a worker that held them is lost, it is called again.
    """

    name = "part"

    def __init__(
        self, placement: Placement, build: Build, parent: Workers[Any] | None = None
    ) -> None:
        self.placement, self.build, self.parent = placement, build, parent
        self._persistently(self._make)

    def _make(self) -> None:
        self.placement.refresh()
        self.grid, self._origin = self.build()
        self.where = f"on workers, {len(self.grid)} parts × {self.copies}"

    def renew(self) -> None:
        """Make the shares again, from data that is sent again."""
        if self.parent is not None:
            self.parent.renew()
        self._make()

    @property
    def copies(self) -> int:
        """The number of workers that hold the same share."""
        return len(self.grid[0])

    def each(self, task: Callable[[T], R]) -> Workers[R]:
        def build() -> tuple[Grid, Any]:
            places = range(self.copies)
            return [[self._submit(p, c, task) for c in places] for p in range(len(self.grid))], None

        return Workers(self.placement, build, self)

    def ask(self, task: Callable[[T], R]) -> list[R | None]:
        return self._persistently(lambda: self._gathered(self._asked(task)))

    def summed(self, task: Callable[..., R], *arguments: Any) -> R:
        """Σ task(share, *arguments), whose arguments are sent once to every worker."""

        def attempt() -> R:
            self.placement.refresh()
            sent = [self.placement.everywhere(argument) for argument in arguments]
            found: R = self._gathered(self._added(self._asked(task, *sent)))[0]
            return found

        return self._persistently(attempt)

    def total(self, task: Callable[[T], np.ndarray], shape: Shape, dtype: np.dtype) -> np.ndarray:
        return np.asarray(self.summed(task), dtype)

    def product(
        self, v: np.ndarray, transposed: bool, ends: Sequence[int] | None, shape: Shape,
        dtype: np.dtype,
    ) -> np.ndarray:  # fmt: skip
        return self._persistently(lambda: self._product(v, transposed, ends))

    def _product(self, v: np.ndarray, transposed: bool, ends: Sequence[int] | None) -> np.ndarray:
        self.placement.refresh()
        stacked, cuts = ends is not None and not transposed, evenly(len(v), self.copies)

        def futures(copy: int, columns: np.ndarray) -> list[Any]:
            """The futures of a product with one copy of each share."""
            if ends is None or stacked:
                sent = [self.placement.everywhere(columns)] * len(self.grid)
            else:
                sent = [columns[:, a:b] for a, b in pairwise(ends)]
            found = [self._submit(p, copy, share_product, part, transposed)
                     for p, part in enumerate(sent)]  # fmt: skip
            return found if stacked else self._added(found)

        found = [futures(copy, v[a:b]) for copy, (a, b) in enumerate(cuts)]
        return np.concatenate([np.concatenate(self._gathered(f), axis=-1) for f in found])

    def _submit(self, part: int, copy: int, task: Callable[..., Any], *arguments: Any) -> Any:
        """The future of a task with one copy of a share, on the worker that holds it."""
        place = part * self.copies + copy
        return self.placement.submit(place, run_alone, task, self.grid[part][copy], *arguments)

    def _asked(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        return [self._submit(p, 0, task, *arguments) for p in range(len(self.grid))]

    def _persistently(self, attempt: Callable[[], R]) -> R:
        """The result of `attempt`, retried with everything sent again if a worker was lost."""
        return persistently(attempt, self.renew, self.placement.client)

    def _gathered(self, futures: list[Any]) -> list[Any]:
        return list(self.placement.client.gather(futures))

    def _added(self, futures: list[Any]) -> list[Any]:
        """The future of the sum, computed by a tree on the workers."""
        while len(futures) > 1:
            submit = self.placement.client.submit
            groups = (futures[k : k + FAN] for k in range(0, len(futures), FAN))
            futures = [submit(sum_in_order, *group, pure=False) for group in groups]
        return futures


def on_workers(
    client: Any, make: Callable[[Batches, int], T], batches: Batches, parts: int | None = None,
    *, copied: bool = False,
) -> Workers[T]:  # fmt: skip
    """make(batches, first) on the workers, for consecutive parts of the batches, by default one for
    each worker; `copied` to all workers where there are fewer parts.
    """
    placement = Placement(client)
    cuts = evenly(batches.counted(), len(placement.homes) if parts is None else parts)
    copies = max(1, len(placement.homes) // len(cuts)) if copied else 1

    def build() -> tuple[Grid, Any]:
        maker = placement.everywhere(make)
        return [
            [placement.submit(p * copies + c, run_alone, maker, batches.part(a, b), a)
             for c in range(copies)] for p, (a, b) in enumerate(cuts)
        ], maker  # fmt: skip

    return Workers(placement, build)


ONE_AT_A_TIME = Lock()


def run_alone(task: Callable[..., T], *arguments: Any) -> T:
    """The result of a task; a worker of many threads runs one at a time, with all of its memory."""
    with ONE_AT_A_TIME, progress(False):  # nobody watches the terminal of a worker
        return task(*arguments)


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
