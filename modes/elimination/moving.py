"""Moving: products at one point after the other by one program, whose inputs are the residuals.

It is bound to the residuals where they lie, so that nothing is recorded or compiled at a new point.
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
from ..tape.record import dag_of
from ..tape.tapes import ENDS
from ..tape.template import ResidualsAtPoint, Template
from .cost import RECORDING

Names = tuple[str, ...]

Way = Callable[[np.ndarray], np.ndarray]
"""v ↦ J v."""

FIRST = 8
"""Products after which a plan is considered for the first time."""

TRIES = 3
"""Products in a row that a way gives before it is judged: the first one may prepare something."""

AGAIN = 30
"""How many times as long as these the other ways are taken until a way is tried again."""


@dataclass
class Clock:
    """How long the products of a way take: the seconds of the quickest, and of all of them.

    `tries` are products since it was last judged, `others` the seconds of other ways since then.
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
        """Another way took so long; conditions may have changed since this one was tried."""
        self.others += seconds
        if self.others > AGAIN * TRIES * self.least:
            self.tries, self.others = 0, 0.0

    @property
    def order(self) -> float:
        """By which the quickest is found: a way that is to be tried comes first."""
        return self.least if self.tries >= TRIES else 0.0


class Moving:
    """v ↦ J v, or Jᵀ v, at every point of a template: programs, and how long products take.

    There is a program, and a clock for each way, for each number of columns. A program is made in
    the background, once products without it have taken `cost` seconds, as long as making it takes.
    `first` is after how many products something is prepared for one point alone: four times as
    many as at the last point that did so, until that was seen to pay.
    """

    def __init__(self, form: Template, of: Names, wrt: Names, *, transposed: bool) -> None:
        self.forms, self.held, self.shapes = form.forms, form.held, form.shapes
        self.of, self.wrt, self.transposed = of, wrt, transposed
        self.dtype = form.known[ENDS][2]
        self.cost, self.first = RECORDING * sum(len(f.blocks) for f in form.forms), FIRST
        self._clocks: dict[tuple[Shape, str], Clock] = {}
        self._sessions: dict[Shape, Background[Session]] = {}

    def clock(self, columns: Shape, way: str) -> Clock:
        """The clock of a way to a product with so many columns."""
        return self._clocks.setdefault((columns, way), Clock())

    def program(self, columns: Shape) -> Session | None:
        """The program, if it is ready."""
        session = self._sessions.get(columns)
        return session.value if session else None

    def settled(self, columns: Shape) -> bool:
        """Whether the program is there, or cannot be made."""
        return columns in self._sessions and not self._sessions[columns].going

    def prepare(self, columns: Shape) -> Background[Session]:
        """Begin to make the program."""
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

    def dag(self, op: Any, residuals: Residuals) -> Dag:
        """The DAG over the residuals of a recording."""
        entries = tuple(form.at(residuals) for form in self.forms)
        dag = chosen(op, dag_of(entries, self.shapes, self.wrt, self.of, self.dtype))
        return dag.T if self.transposed else dag


def zeros_like(value: ir.Value) -> np.ndarray:
    """Zeros of the shape and type of a value."""
    return np.zeros(shape_of(value), dtype_of(value))


def moving(
    residuals: ResidualsAtPoint | None, of: Names, wrt: Names, engine: str | None, *,
    transposed: bool,
) -> Moving | None:  # fmt: skip
    """The products between some tensors at all points, where a program can give them."""
    form = None if residuals is None else residuals.template
    if form is None or not form.closed or form.model.lean:
        return None
    if engine == "numpy" or not installed():
        return None
    known, key = form.known, (of, wrt, transposed)
    if key not in known:
        known.setdefault(key, Moving(form, of, wrt, transposed=transposed))
    found: Moving = known[key]
    return found
