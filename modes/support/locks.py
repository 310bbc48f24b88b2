"""Lock: for values that are computed once and shared by threads."""

from __future__ import annotations

import os
from threading import RLock
from typing import Any
from weakref import WeakSet


class Lock:
    """A lock that its own thread may take again, and that a pickle or a copy makes anew.

    A forked process finds it open: the thread that held it does not exist there.
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
        """An open lock, if the thread that held this one does not exist here."""
        held: Any = self._lock
        if not held._is_owned():  # by the thread that forked, which goes on here
            self._lock = RLock()


LOCKS: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in tuple(LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_renew_all)
