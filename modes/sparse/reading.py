"""Reading: which of the arrays of a point a program takes its numbers from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Reading:
    """The places of the arrays that are read in a list of all; for each of all its first alias."""

    places: tuple[int, ...]
    aliases: tuple[int, ...]

    def fits(self, arrays: Iterable[np.ndarray]) -> bool:
        """Whether the same arrays coincide, so that what was one number is one again."""
        return aliases(map(identity, arrays)) == self.aliases

    def of(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Those that are read."""
        return [arrays[k] for k in self.places]


def reading(wanted: Iterable[Key], arrays: Iterable[np.ndarray]) -> Reading | None:
    """Where the arrays of some identities are; None where one of them is not there."""
    keys = [identity(array) for array in arrays]
    wanted = list(wanted)
    if not set(keys).issuperset(wanted):
        return None
    return Reading(tuple(map(keys.index, wanted)), aliases(keys))


def identity(array: np.ndarray) -> Key:
    """What two views of the same numbers in the same order have in common."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype


def aliases(keys: Iterable[Any]) -> tuple[int, ...]:
    """For every array the first one that is the same.

    >>> aliases("abca")
    (0, 1, 2, 0)
    """
    first: dict[Any, int] = {}
    return tuple(first.setdefault(key, k) for k, key in enumerate(keys))
