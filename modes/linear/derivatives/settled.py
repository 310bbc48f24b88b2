"""Settled: results that do not depend on what was computed before.

As points and products go on, they are taken by other programs, whose results round in another way.
A process that goes on with the work of another one has to take them as the first one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

SETTLED: ContextVar[bool] = ContextVar("settled", default=False)
"""Whether points and products take the same way whatever their number."""


@contextmanager
def settled_ways() -> Iterator[None]:
    """In this block each point is read by the rules, and products are of the eliminated DAG, or by
    a program of all points, made at once.
    """
    before = SETTLED.get()
    SETTLED.set(True)
    try:
        yield
    finally:  # no token: a generator may end in another context
        SETTLED.set(before)
