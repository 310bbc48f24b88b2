"""Progress: how many products so far, on a terminal and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

Tick = Callable[[int], Any]
"""n ↦ None: n more are done."""


@contextmanager
def counting(label: str, unit: str, stream: TextIO) -> Iterator[Tick]:
    """A bar that counts up, since nobody knows the end: tqdm's if there is one, else our own."""
    if not stream.isatty():
        yield lambda n: None
        return
    with bar_on(stream, label, unit) as bar:
        yield bar.update


def bar_on(stream: TextIO, label: str, unit: str) -> Any:
    """What draws: tqdm where it is installed, else a `Bar`."""
    try:
        from tqdm import tqdm
    except ImportError:
        return Bar(stream, label, unit)
    return tqdm(desc=label, unit=f" {unit}", file=stream, leave=False)


class Bar:
    """One line that is written over, ten times a second at most, and wiped out at the end."""

    def __init__(self, stream: TextIO, label: str, unit: str) -> None:
        self.stream, self.label, self.unit = stream, label, unit
        self.count, self.shown, self.start = 0, 0.0, time.monotonic()

    def update(self, n: int) -> None:
        """n more are done."""
        self.count += n
        now = time.monotonic()
        if now - self.shown >= 0.1:
            self.shown = now
            bar = "▪" * (self.count // 4 % 20)
            seconds = f"{now - self.start:.1f} s"
            self._write(f"{self.label} {bar:<20} {self.count} {self.unit}, {seconds}")

    def _write(self, text: str) -> None:
        self.stream.write(f"\r\x1b[K{text}")
        self.stream.flush()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")
