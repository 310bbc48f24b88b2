"""Progress: bars for long computations, on a terminal or in a notebook only.

Long computations count their parts: `with counting(...) as tick`, `for ... in counted(...)` or `in
chunks(...)`. The caller controls by `progress` whether bars are shown. Of nested computations only
the outermost is shown.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeVar

T = TypeVar("T")

Tick = Callable[[int], Any]
"""n ↦ None: n more parts are done."""

DELAY = 2.0
"""Seconds after which a bar is shown by default."""

WANTED: ContextVar[bool | None] = ContextVar("wanted", default=None)
INSIDE: ContextVar[bool] = ContextVar("inside", default=False)


@contextmanager
def progress(shown: bool | None = None) -> Iterator[None]:
    """Progress bars of the computations in a block: `with progress(False): ...` is silent.

    `shown`: None keeps the setting around the block, by default a bar after two seconds; True shows
    one at once. Bars are shown on a terminal or in a notebook only, never where stderr is a file or
    a pipe. tqdm draws them where it is installed.
    """
    before = WANTED.get()
    WANTED.set(before if shown is None else shown)
    try:
        yield
    finally:  # no token: a generator may end in another context
        WANTED.set(before)


@contextmanager
def counting(
    label: str, unit: str, total: int | None = None, *, shown: bool | None = None
) -> Iterator[Tick]:
    """Count the parts of a computation, `total` if known; `shown` is as for `progress`."""
    with progress(shown):
        wanted, stream = WANTED.get(), sys.stderr
        # A program without a console has no stream.
        terminal = stream is not None and not stream.closed and stream.isatty()
        if wanted is False or INSIDE.get() or not (terminal or in_notebook()):
            yield lambda n: None
            return
        INSIDE.set(True)
        counter = Counter(label, unit, total, stream, 0.0 if wanted else DELAY)
        try:
            yield counter.update
        finally:
            INSIDE.set(False)
            counter.close()


def chunks(n: int, width: int, label: str, unit: str) -> Iterator[tuple[int, int]]:
    """(start, stop) of n parts, `width` at a time, counted where there is more than one chunk.

    >>> list(chunks(5, 2, "matrix", "columns"))
    [(0, 2), (2, 4), (4, 5)]
    """
    if n <= width:
        yield from [(0, n)] * bool(n)
        return
    with counting(label, unit, n) as tick:
        for start in range(0, n, width):
            stop = min(start + width, n)
            yield start, stop
            tick(stop - start)


def counted(parts: Sequence[T], label: str, unit: str) -> Iterator[T]:
    """The parts, each counted when the next one is requested.

    >>> list(counted("abc", "alphabet", "letters"))
    ['a', 'b', 'c']
    """
    with counting(label, unit, len(parts)) as tick:
        for part in parts:
            yield part
            tick(1)


def in_notebook() -> bool:
    """Whether this process is a notebook kernel."""
    python = sys.modules.get("IPython")
    shell = python and python.get_ipython()
    return "IPKernelApp" in getattr(shell, "config", ())


@dataclass
class Counter:
    """A counter that shows a bar after `delay` seconds."""

    label: str
    unit: str
    total: int | None
    stream: TextIO
    delay: float
    count: int = 0
    start: float = field(default_factory=time.monotonic)
    bar: Any = None

    def update(self, n: int) -> None:
        self.count += n
        if self.bar is not None:
            self.bar.update(n)
        elif time.monotonic() - self.start >= self.delay:
            self.bar = self._drawn()

    def _drawn(self) -> Any:
        """A tqdm bar where tqdm is installed, in a notebook as a widget; else a `Bar`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a notebook without widgets gets text instead
                from tqdm.auto import tqdm
        except ImportError:
            return Bar(self)
        return tqdm(
            desc=self.label, unit=f" {self.unit}", total=self.total, initial=self.count,
            file=self.stream, leave=False, dynamic_ncols=True,
        )  # fmt: skip

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Bar:
    """One line that is redrawn, at most ten times a second, and erased at the end."""

    def __init__(self, counter: Counter) -> None:
        self.counter, self.shown, self.width = counter, 0.0, 0
        self.update(0)

    def update(self, n: int) -> None:
        """Redraw the line from the counter, at most every 0.1 s."""
        now, c = time.monotonic(), self.counter
        if now - self.shown >= 0.1:
            self.shown = now
            marks, of = c.count // 4 % 20, ""
            if c.total:
                marks, of = 20 * c.count // c.total, f" of {c.total:,}"
            bar = f"{'▪' * marks:<20} {c.count:,}{of} {c.unit}"
            self._write(f"{c.label} {bar}, {now - c.start:.0f} s")

    def close(self) -> None:
        self._write("")
        self._write("")

    def _write(self, text: str) -> None:
        self.counter.stream.write(f"\r{text:<{self.width}}")
        self.counter.stream.flush()
        self.width = len(text)
