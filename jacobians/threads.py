"""Threads: cached properties, locks, values computed once and shared, or side by side."""

from __future__ import annotations

import functools
import os
from _thread import RLock
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakSet

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class cached_property(functools.cached_property[T]):
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
                value = self.func(instance)
                if value is instance:  # which would keep itself alive
                    return value
                known.setdefault(self.attrname, value)
            return known[self.attrname]


class Lock(RLock):  # type: ignore[misc]  # final for type checkers, not in CPython
    """A reentrant lock; a pickle or a copy of it is a new lock.

    A forked process releases it if another thread held it: that thread does not exist there. Enter
    and exit are not written in Python, where Ctrl-C may come between them and the `with` statement:
    the lock would be held for ever.
    """

    def __init__(self) -> None:
        LOCKS.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, ()

    def renew(self) -> None:
        """Release the lock unless this thread holds it: other threads do not survive a fork."""
        held: Any = self
        if not held._is_owned():  # by the thread that forked, which continues here
            held._at_fork_reinit()


LOCKS: WeakSet[Lock] = WeakSet()

KEEPING = Lock()
"""The lock of all caches; an entry takes a microsecond."""


MISSING: Any = object()


class Latest(dict[K, V]):
    """A cache of the `most` entries that were used last; a copy of it is empty.

    >>> known = Latest(2)
    >>> known["a"], known["b"] = 1, 2
    >>> known["a"], known.setdefault("c", 3), [*known]
    (1, 3, ['a', 'c'])
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __getitem__(self, key: K) -> V:
        with KEEPING:
            value = super().pop(key)
            super().__setitem__(key, value)
            return value

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, which becomes the last one used."""
        with KEEPING:
            value = super().pop(key, MISSING)
            if value is MISSING:
                return default
            super().__setitem__(key, value)
            return value

    def setdefault(self, key: K, default: Any = None) -> V:
        """The value of a key, at first `default`."""
        with KEEPING:
            if key not in self:
                self[key] = default
            return self[key]

    def __setitem__(self, key: K, value: V) -> None:
        with KEEPING:
            super().pop(key, None)
            super().__setitem__(key, value)
            if len(self) > self.most:
                del self[next(iter(self))]

    def __reduce__(self) -> tuple[Any, ...]:
        return Latest, (self.most,)


def remembered(known: dict[Any, Any], key: Hashable, make: Callable[[], T]) -> T:
    """The result that `known` has for a key; at the first call what `make` gives."""
    found = known.get(key, MISSING)
    return cast(T, known.setdefault(key, make()) if found is MISSING else found)


def _renew_all() -> None:
    for lock in tuple(LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_renew_all)

WORKING = Lock()
"""The lock under which the threads of linear algebra are limited and restored."""


@functools.cache
def libraries() -> Any:
    """The libraries of linear algebra in this process, from threadpoolctl; None without that."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")


def cores() -> int:
    """The number of threads that linear algebra may use now; 1 if threadpoolctl is missing."""
    found = libraries()
    return max((one.num_threads for one in found.lib_controllers), default=1) if found else 1


limits: dict[object, Any] = {}
"""What restores the threads of linear algebra, once for each `concurrent` at work."""


@contextmanager
def single_threaded() -> Iterator[None]:
    """Linear algebra in one thread: several would wait for cores that `concurrent` uses.

    Ctrl-C may come at any line: what restores the threads is known before they change.
    """
    here = object()
    try:
        with WORKING:
            limits[here] = next(iter(limits.values()), None) or libraries().limit(limits=None)
            libraries().limit(limits=1)
        yield
    finally:
        with WORKING:
            if [*limits] == [here]:
                limits[here].restore_original_limits()
            limits.pop(here, None)


def concurrent(f: Callable[[K], V], items: Iterable[K], threads: int) -> Iterator[V]:
    """f(x) for every item, in order, by several threads, each with at most one item."""
    items = iter(items)
    first = [*islice(items, 2)]
    items = chain(first, items)
    if threads == 1 or len(first) < 2:
        yield from map(f, items)
        return
    ahead = deque[Future[V]]()
    with single_threaded(), ThreadPoolExecutor(threads) as pool:
        for item in items:
            ahead.append(pool.submit(copy_context().run, f, item))  # with errstate, progress
            if len(ahead) == threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
