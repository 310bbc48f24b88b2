"""Background: a value that a thread of its own makes, while others go on without it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Generic, TypeVar

from .locks import Lock

T = TypeVar("T")

TURN = 2e-4
"""Seconds after which a thread in the background lets others take their turn.

The interpreter's own 5 ms come again at each call of NumPy that lets go of its lock.
"""

WORKING = Lock()
"""The lock under which threads begin and end work in the background."""


class Background(Generic[T]):
    """`value` is None until it is made, and where making it raises an exception.

    A forked process and a pickle leave the thread behind: there it stays None.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self.value: T | None = None
        self._thread = Thread(target=self._run, args=(make,), name="onnxjac: preparing products")
        with suppress(RuntimeError):  # the interpreter is about to end
            self._thread.start()

    def _run(self, make: Callable[[], T]) -> None:
        with suppress(Exception), short_turns():
            self.value = make()

    @property
    def going(self) -> bool:
        """Whether the thread is at work."""
        return self._thread.is_alive()

    def wait(self) -> T | None:
        """The value, once it is made."""
        if self._thread.is_alive():
            self._thread.join()
        return self.value

    def __getstate__(self) -> dict[str, Any]:
        return {"value": self.value, "_thread": Thread()}


working: list[float] = []
"""The length of a turn before each of those that are at work began."""


@contextmanager
def short_turns() -> Iterator[None]:
    """Threads take turns of at most `TURN` seconds; the last one restores what was before, unless
    somebody else has changed it since.
    """
    with WORKING:
        working.append(sys.getswitchinterval() if not working else working[0])
        sys.setswitchinterval(min(TURN, working[0]))
        short = sys.getswitchinterval()
    try:
        yield
    finally:
        with WORKING:
            before = working.pop()
            if not working and sys.getswitchinterval() == short:
                sys.setswitchinterval(before)
