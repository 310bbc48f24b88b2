"""Placement: which worker holds which share, while workers come and go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from ...jacobians.errors import InputError, OnnxJacError

T = TypeVar("T")

PATIENCE = 60
"""Seconds to wait for a worker where there is none."""

TRIES = 3
"""How often a product is begun before the loss of workers is an error."""


class Placement:
    """The workers of a client, in an order that stays; tasks prefer the one that they are given.

    A lost worker's place is taken by one that is left, to which the scheduler brings, or there
    computes again, all that the tasks need.
    """

    def __init__(self, client: Any) -> None:
        if not hasattr(client, "scatter"):
            raise InputError(
                f"client={client!r} is no client of Dask: give distributed.Client(address)"
            )
        self.client = client
        self.homes = self.workers()

    def workers(self) -> list[str]:
        """The addresses of the workers that are there."""
        return sorted(self.client.ncores()) or self._awaited()

    def _awaited(self) -> list[str]:
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise OnnxJacError(f"no worker came within {PATIENCE} s: start some") from error
        return sorted(self.client.ncores())

    def refresh(self) -> None:
        """New homes for what was where no worker is now."""
        there = self.workers()
        free = [worker for worker in there if worker not in self.homes] or there
        lost = [k for k, home in enumerate(self.homes) if home not in there]
        for place, k in enumerate(lost):
            self.homes[k] = free[place % len(free)]

    def submit(self, place: int, task: Callable[..., Any], *arguments: Any) -> Any:
        """The future of a task that is rather done at one place than at another."""
        home = self.homes[place % len(self.homes)]
        return self.client.submit(
            task, *arguments, workers=[home], allow_other_workers=True, pure=False
        )

    def everywhere(self, value: Any) -> Any:
        """A value sent to every worker."""
        return self.client.scatter(value, broadcast=True, hash=False)


def persistently(attempt: Callable[[], T], renew: Callable[[], Any]) -> T:
    """What `attempt` gives; begun again, with all sent anew, where a lost worker was the last one
    that had what a task needs. What has been computed from that is computed again by the scheduler.
    """
    from distributed.client import FutureCancelledError  # the extra: loaded where it is used
    from distributed.comm.core import CommClosedError

    for _ in range(TRIES - 1):
        try:
            return attempt()
        except (FutureCancelledError, CommClosedError):
            with suppress(FutureCancelledError, CommClosedError):
                renew()
    return attempt()
