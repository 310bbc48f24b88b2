"""Once: a lazy value, computed on first access and then cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .locks import Lock

T = TypeVar("T")
S = TypeVar("S")

LOOKING = Lock()
"""The lock under which the lock of a value is created on first access."""


class Once(Generic[T]):
    """A value that is computed on first access, by one thread; a pickle holds the value.

    >>> squares = Once(lambda: [n * n for n in range(3)])
    >>> squares.made, squares.value, squares.made
    (False, [0, 1, 4], True)
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._lock: Lock | None = None  # created on first access: most values are never accessed

    @property
    def value(self) -> T:
        """The value."""
        if self._make is not None:
            with LOOKING:
                lock = self._lock = self._lock or Lock()
            with lock:
                if self._make is not None:
                    self._value = self._make()
                    self._make = None
        return self._value

    @property
    def made(self) -> bool:
        """Whether the value has been computed."""
        return self._make is None

    def then(self, change: Callable[[T], S]) -> Once[S]:
        """The result of a function of the value, lazy as well."""
        return Once(lambda: change(self.value))

    def __reduce__(self) -> tuple[Any, ...]:
        return known, (self.value,)


def known(value: T) -> Once[T]:
    """A lazy value that is already computed."""
    there: Once[T] = Once(lambda: value)
    there._value, there._make = value, None
    return there
