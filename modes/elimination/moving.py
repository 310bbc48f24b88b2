"""Moving: products at many points by one program, whose inputs are the residuals.

The program reads the residuals in place, so that nothing is recorded or compiled at a new point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from time import perf_counter
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Dag, Shape, chosen, dtype_of, shape_of
from ..primal.engines.onnxruntime import EngineError, installed
from ..products import onnxruntime as products
from ..products.onnxruntime import Session
from ..products.record import Residuals, record_open
from ..support.background import Background
from ..tape.record import Entry, Names, dag_of
from ..tape.tape import Tape
from ..tape.template import Template
from .cost import RECORDING

Way = Callable[[np.ndarray], np.ndarray]
"""v ↦ J v."""

FIRST = 8
"""Products after which a plan is considered for the first time."""

TRIES = 3
"""Consecutive products by a way before it is judged: the first one may include some setup."""

AGAIN = 30
"""A way is tried again after other ways took this many times as long as its `TRIES` products."""


@dataclass
class Clock:
    """The time of products by one way: seconds of the fastest, and of all of them.

    `tries` counts products since the way was last reset, `others` the seconds that other ways took
    since its last product.
    """

    least: float = inf
    total: float = 0.0
    tries: int = 0
    others: float = 0.0

    def timed(self, way: Way, v: np.ndarray) -> tuple[np.ndarray, float]:
        """A product by this way, and the seconds that it took."""
        started = perf_counter()
        y = way(v)
        took = perf_counter() - started
        self.least, self.total = min(self.least, took), self.total + took
        self.tries, self.others = self.tries + 1, 0.0
        return y, took

    def wait(self, seconds: float) -> None:
        """Add the seconds of another way; after long enough, this way is tried again."""
        self.others += seconds
        if self.others > AGAIN * TRIES * self.least:
            self.tries, self.others = 0, 0.0

    @property
    def order(self) -> float:
        """Sort key to find the fastest way: a way that is still to be tried comes first."""
        return self.least if self.tries >= TRIES else 0.0


class Moving:
    """v ↦ J v, or Jᵀ v, at every point of a template: programs, and the times of products.

    Each number of columns has a program, and a clock for each way. A program is compiled in the
    background once products without it have taken `cost` seconds, the time to compile it. `first`
    is the number of products before work is done for a single point: four times the number at the
    last point that did such work, until the work is seen to pay.
    """

    def __init__(self, form: Template, of: Names, wrt: Names, *, transposed: bool) -> None:
        self.entries = tuple(part for part in form.parts if isinstance(part, Entry))
        self.held, self.shapes, self.dtype = form.held, form.shapes, form.ends[2]
        self.of, self.wrt, self.transposed = of, wrt, transposed
        self.cost, self.first = RECORDING * sum(len(e.blocks) for e in self.entries), FIRST
        self._clocks: dict[tuple[Shape, str], Clock] = {}
        self._sessions: dict[Shape, Background[Session]] = {}

    def clock(self, columns: Shape, way: str) -> Clock:
        """The clock of a way for products with these columns."""
        return self._clocks.setdefault((columns, way), Clock())

    def program(self, columns: Shape) -> Session | None:
        """The program, if it is ready."""
        session = self._sessions.get(columns)
        return session.value if session else None

    def settled(self, columns: Shape) -> bool:
        """Whether the program is ready or could not be compiled."""
        return columns in self._sessions and not self._sessions[columns].going

    def prepare(self, columns: Shape) -> Background[Session]:
        """Start compiling the program in the background."""
        if columns not in self._sessions:
            self._sessions[columns] = Background(partial(self.made, columns))
        return self._sessions[columns]

    def made(self, columns: Shape = ()) -> Session:
        """A program (residuals, v) ↦ J v that has run once; raises an error where it cannot run."""
        recording = record_open(self.held, self.dag, columns)
        kinds = {dtype_of(x).kind for x in recording.residuals.values()}
        if recording.meets_nothing or not kinds <= set("fiub"):
            raise EngineError("ONNX Runtime takes neither empty tensors nor bfloat16 from NumPy.")
        session = products.compile(recording)
        residuals = {key: zeros_like(x) for key, x in recording.residuals.items()}
        session(zeros_like(recording.v), residuals)
        return session

    def dag_at(self, tape: Tape) -> Dag:
        """The DAG at a point."""
        dag = tape.between(self.of, self.wrt)
        return dag.T if self.transposed else dag

    def dag(self, op: Any, residuals: Residuals) -> Dag:
        """The DAG over the residuals of a recording."""
        entries = tuple(entry.at(residuals) for entry in self.entries)
        dag = chosen(op, dag_of(entries, self.shapes, self.wrt, self.of, self.dtype))
        return dag.T if self.transposed else dag


def zeros_like(value: ir.Value) -> np.ndarray:
    """Zeros of the shape and type of a value."""
    return np.zeros(shape_of(value), dtype_of(value))


def moving(
    tape: Tape, of: Names, wrt: Names, engine: str | None, *,
    transposed: bool,
) -> Moving | None:  # fmt: skip
    """The products between some tensors at all points; None if no program can compute them."""
    form = tape.template
    if form is None or not form.closed or form.model.lean:
        return None
    if engine == "numpy" or not installed():
        return None
    known, key = form.known, (of, wrt, transposed)
    if key not in known:
        known.setdefault(key, Moving(form, of, wrt, transposed=transposed))
    found: Moving = known[key]
    return found
