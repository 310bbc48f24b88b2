"""Cached properties without a lock."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

Kept = TypeVar("Kept")


class cached_property(functools.cached_property[Kept]):
    """A property that is computed on first access and then stored in the instance.

    In Python 3.11 one lock serves all instances of a class: while one thread computes the property
    of an instance, all other threads wait, and a forked process waits for ever. Here two threads
    may both compute the value; the first one stored is kept.
    """

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            known = vars(instance)
            if self.attrname not in known:
                known.setdefault(self.attrname, self.func(instance))
            return known[self.attrname]
