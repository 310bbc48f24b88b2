"""Moving: products at one point after the other, by one program for all of them.

The program takes the residuals of a point beside v, bound where they lie, so that nothing is
recorded or compiled at a new point.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from ..jacobians import Dag, Shape, chosen, dtype_of
from ..jacobians.cached import cached_property
from .elimination.adaptive import FIRST, Clock, Way
from .elimination.cost import RECORDING
from .primal.engines.onnxruntime import EngineError, installed
from .products.onnxruntime import Session, compile
from .products.record import record_open
from .support.background import Background
from .tape.record import dag_of
from .tape.tapes import ends_of
from .tape.template import Filled, Template

Ends = tuple[tuple[str, ...], tuple[str, ...], bool]
"""The names of `of` and of `wrt`, and whether J is transposed."""


class Products:
    """The products with J at one point, for any number of columns: see `adaptive.Shared`."""

    def __init__(self, tape: Filled, ends: Ends) -> None:
        self.tape, self.ends, self._found = tape, ends, dict[Shape, Product]()

    def __call__(self, columns: Shape) -> Product:
        if columns not in self._found:
            known, key = self.tape.template.known, (*self.ends, columns)
            kept = known.get(key) or known.setdefault(key, Kept(self.tape, self.ends, columns))
            self._found[columns] = Product(kept, self.tape)
        return self._found[columns]


class Kept:
    """A program, and how long products with it and without it take: the same for all points."""

    def __init__(self, tape: Filled, ends: Ends, columns: Shape) -> None:
        self.dag, self.own, self.first = Clock(), Clock(), FIRST
        self.make = partial(session_of, tape.template, ends, columns, ends_of(tape, *ends[:2])[2])
        self.seconds = RECORDING * sum(len(f.blocks) for f in tape.template.forms)
        self.session: Background[Session] | None = None


class Product:
    """v ↦ J v at a point."""

    def __init__(self, kept: Kept, tape: Filled) -> None:
        self.kept, self.tape, self.dag, self.own = kept, tape, kept.dag, kept.own

    @property
    def first(self) -> int:
        return self.kept.first

    @first.setter
    def first(self, products: int) -> None:
        self.kept.first = products

    @property
    def program(self) -> Way | None:
        """The program at this point, if it is ready."""
        session = self.kept.session and self.kept.session.value
        return partial(self._run, session) if session else None

    def _run(self, session: Session, v: np.ndarray) -> np.ndarray:
        return session(np.ascontiguousarray(v), self._residuals)

    @cached_property
    def _residuals(self) -> dict[int, np.ndarray]:
        """The arrays that the operators hold, as they are bound."""
        return {key: np.ascontiguousarray(self.tape.arrays[key]) for key in self.tape.template.held}

    @property
    def settled(self) -> bool:
        """Whether the program is there, or cannot be made."""
        return self.kept.session is not None and not self.kept.session.going

    def prepare(self) -> None:
        """Begin to make the program, once products have taken as long."""
        if self.kept.session is None and self.dag.total >= self.kept.seconds:
            self.kept.session = Background(self.kept.make)


def products(tape: Filled | None, ends: Ends, engine: str | None) -> Products | None:
    """The products between some tensors, where a program can give them at any point."""
    if tape is None or not tape.template.closed or tape.template.model.lean:
        return None
    return Products(tape, ends) if engine != "numpy" and installed() else None


def session_of(form: Template, ends: Ends, columns: Shape, dtype: np.dtype) -> Session:
    """The program (residuals, v) ↦ J v."""
    of, wrt, transposed = ends

    def operator(op: Any, residuals: Mapping[int, ir.Value]) -> Dag:
        entries = tuple(f.at(residuals) for f in form.forms)
        dag = chosen(op, dag_of(entries, form.shapes, wrt, of, dtype))
        return dag.T if transposed else dag

    recording = record_open(form.held, operator, columns)
    kinds = {dtype_of(x).kind for x in recording.residuals.values()}
    if recording.meets_nothing or not kinds <= set("fiub"):
        raise EngineError("ONNX Runtime takes neither empty tensors nor bfloat16 from NumPy.")
    return compile(recording)
