"""Locks and caches: for values that are computed once and shared by threads."""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakSet

K = TypeVar("K")
V = TypeVar("V")


class Lock:
    """A reentrant lock; a pickle or a copy of it is a new lock.

    A forked process releases it if another thread held it: that thread does not exist there.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, ()

    def renew(self) -> None:
        """Release the lock unless this thread holds it: other threads do not survive a fork."""
        held: Any = self._lock
        if not held._is_owned():  # by the thread that forked, which continues here
            self._lock = RLock()


LOCKS: WeakSet[Lock] = WeakSet()

KEEPING = Lock()
"""The lock of all caches; an entry takes a microsecond."""


class Latest(OrderedDict[K, V]):
    """A cache of the `most` entries that were set last; a copy of it is empty."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        with KEEPING:
            super().__setitem__(key, value)
            self.move_to_end(key)
            if len(self) > self.most:
                self.popitem(last=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Latest, (self.most,)


def _renew_all() -> None:
    for lock in tuple(LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_renew_all)
