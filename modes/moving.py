"""Moving: products at one point after the other by one program, whose inputs are the residuals.

It is bound to the residuals where they lie, so that nothing is recorded or compiled at a new point.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from ..jacobians import Dag, Shape, chosen, dtype_of, shape_of
from .elimination.adaptive import FIRST, Clock
from .elimination.cost import RECORDING
from .primal.engines.onnxruntime import EngineError, installed
from .products import onnxruntime as products
from .products.onnxruntime import Session
from .products.record import Residuals, record_open
from .support.background import Background
from .tape.record import dag_of
from .tape.tapes import ends_of
from .tape.template import Filled

Names = tuple[str, ...]


class Moving:
    """v ↦ J v, or Jᵀ v, at every point of a template: programs, and how long products take.

    There is a program, and a clock for each way, for each number of columns. A program is made in
    the background, once products without it have taken as long.
    """

    def __init__(self, tape: Filled, of: Names, wrt: Names, *, transposed: bool) -> None:
        form = tape.template
        self.forms, self.held, self.shapes = form.forms, form.held, form.shapes
        self.of, self.wrt, self.transposed = of, wrt, transposed
        self.dtype = ends_of(tape, of, wrt)[2]
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
    tape: Filled | None, of: Names, wrt: Names, engine: str | None, *, transposed: bool
) -> Moving | None:
    """The products between some tensors at all points, where a program can give them."""
    if tape is None or not tape.template.closed or tape.template.model.lean:
        return None
    if engine == "numpy" or not installed():
        return None
    known, key = tape.template.known, (of, wrt, transposed)
    if key not in known:
        known.setdefault(key, Moving(tape, of, wrt, transposed=transposed))
    found: Moving = known[key]
    return found
