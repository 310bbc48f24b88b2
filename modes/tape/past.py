"""Past: what a point takes over from the one before it, compared when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from weakref import ref

from ...ops import Step
from ..support.once import Once, known
from .record import Made, Past
from .reuse import stale_between


class Before(Protocol):
    """A linearisation at the point before; where its own blocks are not made, older ones are."""

    @property
    def made(self) -> Made | None: ...


def past_of(
    before: Before | None, steps: Iterable[Step], point: Mapping[str, Any]
) -> Once[Past | None]:
    """What may be the same at a point; `source` are the blocks that are there already.

    The point before is not kept alive: of a long sequence at which nobody looks, only the blocks
    of the last one that was looked at remain.
    """
    if before is None:
        return known(None)
    there, made = ref(before), before.made

    def compared() -> Past | None:
        J = there()
        latest = made if J is None else J.made
        if latest is None:
            return None
        return Past(latest.entries, stale_between(steps, latest.point, point))

    return Once(compared, made)
