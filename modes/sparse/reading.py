"""Reading: which of the arrays of a point a program takes its numbers from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Reading:
    """By what names the arrays that are read are known, all of them, and which are the same."""

    first: tuple[Any, ...]
    names: tuple[Any, ...]
    aliases: tuple[int, ...]

    def fits(self, arrays: Mapping[Any, np.ndarray]) -> bool:
        """Whether the same arrays coincide, so that what was one number is one again."""
        return aliases(identity(arrays[name]) for name in self.names) == self.aliases

    def of(self, arrays: Mapping[Any, np.ndarray]) -> list[np.ndarray]:
        """Those that are read, each once."""
        return [arrays[name] for name in self.first]


def reading(wanted: Collection[Key], arrays: Mapping[Any, np.ndarray]) -> Reading | None:
    """Where the arrays of some identities are; None where one of them is not there."""
    keys = {name: key for name, array in arrays.items() if (key := identity(array)) in wanted}
    first: dict[Key, Any] = {}
    for name, key in keys.items():
        first.setdefault(key, name)
    if len(first) < len(wanted):
        return None
    return Reading(tuple(first[key] for key in wanted), tuple(keys), aliases(keys.values()))


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
