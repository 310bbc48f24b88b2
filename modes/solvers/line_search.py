"""Line search: how far to go along a direction."""

from __future__ import annotations

from collections.abc import Callable

HALVINGS = 40


def backtrack(enough: Callable[[float], bool]) -> float | None:
    """t = 1, ½, ¼, …: the first that is enough, or None.

    >>> backtrack(lambda t: (1 - 3 * t) ** 2 < 1)
    0.5
    """
    lengths = (0.5**k for k in range(HALVINGS))
    return next((t for t in lengths if enough(t)), None)
