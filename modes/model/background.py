"""Background: a value computed in its own thread, while other threads go on without it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from time import perf_counter
from typing import Any, Generic, TypeVar

from .locks import Lock

T = TypeVar("T")

TURN = 2e-4
"""Switch interval of the interpreter, in seconds, while a background thread is at work.

With the default of 5 ms, other threads wait that long after each NumPy call that releases the GIL.
"""

WORKING = Lock()
"""The lock under which threads begin and end work in the background."""


class Background(Generic[T]):
    """`value` is None until it is computed, which takes some `seconds`, and stays None if that
    raises an exception.

    The thread does not exist in a forked process or after unpickling: there it stays None.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self.value: T | None = None
        self.seconds = 0.0
        self._thread = Thread(target=self._run, args=(make,), name="onnxjac: preparing products")
        with suppress(RuntimeError):  # the interpreter is about to end
            self._thread.start()

    def _run(self, make: Callable[[], T]) -> None:
        started = perf_counter()
        with suppress(Exception), short_turns():
            self.value = make()
        self.seconds = perf_counter() - started

    @property
    def going(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> T | None:
        """The value, after waiting for the thread, at most for some seconds."""
        if self._thread.is_alive():
            self._thread.join(seconds)
        return self.value

    def __getstate__(self) -> dict[str, Any]:
        return {"value": self.value, "seconds": self.seconds, "_thread": Thread()}


working: list[float] = []
"""The original switch interval, once for each background thread at work."""


@contextmanager
def short_turns() -> Iterator[None]:
    """A switch interval of at most `TURN` seconds; the last thread restores the original interval,
    unless it was changed elsewhere in the meantime.
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
