"""Lock: for values that are computed once and shared by threads."""

from __future__ import annotations

import os
from threading import RLock
from typing import Any
from weakref import WeakSet


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


def _renew_all() -> None:
    for lock in tuple(LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_renew_all)
