"""Parts: what the workers hold of the parts of some data, and sums of what they find in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

from .placement import Placement, persistently
from .shares import grouped, total

FAN = 8
"""Results that one task adds up."""

Grid = list[list[Any]]
"""Futures of what is held: for each part of the data, its copies."""

Build = Callable[[], tuple[Grid, Any]]
"""What gives these futures, and all those that have to live as long."""


@final
class Parts:
    """What is held of the parts of some data, on the workers.

    A part may have copies, among which the columns of a product are shared out. `build` sends what
    they are made of, and gives their futures.
    """

    def __init__(self, placement: Placement, build: Build) -> None:
        self.placement, self.build = placement, build
        persistently(self.renew, lambda: None, placement.client)

    def renew(self) -> None:
        """Everything sent anew."""
        self.placement.refresh()
        self.grid, self._origin = self.build()

    @property
    def copies(self) -> int:
        """How many workers hold the same part."""
        return len(self.grid[0])

    def submit(self, part: int, copy: int, task: Callable[..., Any], *arguments: Any) -> Any:
        """A task with what is held of a part, where that is."""
        place = part * self.copies + copy
        return self.placement.submit(place, task, self.grid[part][copy], *arguments)

    def ask(self, task: Callable[..., Any]) -> list[Any]:
        """What a task says of every part."""
        attempt = partial(self._all, task)
        return persistently(attempt, self.renew, self.placement.client)

    def summed(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Σ over all parts of what a task says of one; arguments are sent once to every worker."""

        def attempt() -> Any:
            self.placement.refresh()
            sent = [self.placement.everywhere(argument) for argument in arguments]
            (found,) = self.gathered(self.added(self._asked(task, *sent)))
            return found

        return persistently(attempt, self.renew, self.placement.client)

    def _all(self, task: Callable[..., Any]) -> list[Any]:
        return self.gathered(self._asked(task))

    def _asked(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        return [self.submit(p, 0, task, *arguments) for p in range(len(self.grid))]

    def gathered(self, futures: list[Any]) -> list[Any]:
        """What futures come to."""
        return list(self.placement.client.gather(futures))

    def added(self, futures: list[Any]) -> list[Any]:
        """The future of the sum, computed by a tree on the workers."""
        while len(futures) > 1:
            submit = self.placement.client.submit
            futures = [submit(total, *group, pure=False) for group in grouped(futures, FAN)]
        return futures
