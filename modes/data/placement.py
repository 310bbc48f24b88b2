"""Placement: which worker holds which share, as workers come and go."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import Any, TypeVar

from ...jacobians.errors import InputError, OnnxJacError, first_line

T = TypeVar("T")

PATIENCE = 60
"""Seconds to wait for a worker when there is none."""

TRIES, PAUSE = 5, 0.5
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
                self.client.wait_for_workers(1, timeout=PATIENCE)
            except TimeoutError as error:
                raise OnnxJacError(f"no worker came within {PATIENCE} s: start some") from error
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

    for tries in range(TRIES):
        try:
            check_open(client)
            if tries:
                sleep(PAUSE)
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
        except Exception:
            check_open(client)
            raise
    check_open(client)
    raise OnnxJacError(
        f"workers were lost at each of {TRIES} tries: {first_line(lost)} See why they end, start "
        "others, and call this again"
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
