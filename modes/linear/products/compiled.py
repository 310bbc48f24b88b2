"""Compiled: an operator whose products run on an engine, and when compilation breaks even."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil, inf
from typing import Any

import numpy as np

from ....jacobians import Array, Jacobian, Op, Shape, dtype_of, lead, reading
from ....jacobians.arrays import is_tensor, wide
from ....jacobians.placing import Place, placed
from ....jacobians.text import time_text
from ....ops import numbers
from ...model.locks import Latest, Lock
from .engines import Program, compile_by, compiler, size_text
from .record import record

KEPT = 4
"""The number of programs kept per operator, each for one shape of columns."""

TRIES, SETTLED = 3, 0.2
"""The least number of timed products of each kind, and the least total seconds; the fastest product
counts. Idle threads of an engine spin for a while, and slow down the other engine meanwhile.
"""


class Compiled(Jacobian):
    """y = J x, by a program that is compiled at the first product with a new number of columns.

    `engine` is `"onnxruntime"`, `"numpy"`, `"torch"`, or None for the fastest available one;
    `seconds` is the compile time so far. The transpose is compiled in the same way.
    """

    holds = ("operator",)

    def __init__(self, operator: Jacobian, engine: str | None = None) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.engine, self.seconds = operator, engine, 0.0
        if engine is not None:
            compiler(engine)  # raises if it is not available
        self._programs: Latest[tuple[Shape, str], Program] = Latest(KEPT)
        self._lock = Lock()
        self._ran, self._why = engine or "the first engine that can", ""

    def __getstate__(self) -> dict[str, Any]:
        """The state without the programs, which are compiled again on demand."""
        return {"operator": self.operator, "engine": self.engine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _apply(self, op: Op, v: Array) -> Array:
        if is_tensor(v) and self.by_torch:
            return self.program(lead(v, self.in_shape), str(v.device))(v)
        if op is not numbers or not isinstance(v, np.ndarray):
            return self.operator._apply(op, v)
        v = v.astype(wide(self.dtype), copy=False)
        return self.program(lead(v, self.in_shape))(v)

    def _flat_product(self, v: Any, columns: Shape) -> Any:
        """Fast path: a program may take only a few microseconds."""
        device = str(v.device) if is_tensor(v) else ""
        runs = not device or self.by_torch
        if not runs or dtype_of(v) != self.dtype or 0 in v.shape or self.dtype.itemsize < 4:
            return super()._flat_product(v, columns)
        program = self._programs.get((columns, device)) or self.program(columns, device)
        shaped = v if device else np.ascontiguousarray(v)
        y = program(shaped.reshape((*columns, *self.in_shape)))
        return y.reshape((*columns, self.shape[0]))

    def ready(self, columns: Shape) -> Program | None:
        """The program, if it is compiled already."""
        return self._programs.get((columns, ""))

    def program(self, columns: Shape, device: str = "") -> Program:
        """The program for right-hand sides of this leading shape; of PyTorch, for a device."""
        key = columns, device
        with self._lock:
            if key not in self._programs:
                started = time.perf_counter()
                self._programs[key] = self._made(columns, device)
                self.seconds += time.perf_counter() - started
            return self._programs[key]

    @property
    def by_torch(self) -> bool:
        """Whether PyTorch runs the products."""
        return self.engine is not None and self.engine.startswith("torch")

    def _made(self, columns: Shape, device: str) -> Program:
        recording = record(self.operator, columns)
        if recording.meets_nothing:
            self._ran, self._why = "plain calls", "a tensor on the way has no elements"
            return partial(plain, self.operator)
        self._why = "asked for" if self.engine else size_text(recording)
        engine = f"torch:{device}" if device else self.engine
        program, self._ran = compile_by(engine, recording)
        if left := getattr(program, "on_host", ()):
            self._why += f"; without kernels for {', '.join(sorted(left))}, which NumPy computes"
        return program

    def _transpose(self) -> Jacobian:
        if self.operator.T is self.operator:
            return self
        return Compiled(self.operator.T, self.engine)

    def diagonal(self) -> np.ndarray:
        return self.operator.diagonal()

    def break_even(self) -> BreakEven | None:
        """The number of products like the last one that repay compiling; None before the first.

        Runs products for about half a second, or a few products if they take longer.
        """
        if not self._programs:
            return None
        (columns, _), program = next(reversed(self._programs.items()))
        v = np.ones((*columns, *self.in_shape), wide(self.dtype))
        return measured(
            self.seconds, partial(program, v), partial(self.operator._apply, numbers, v)
        )

    @property
    def choice(self) -> str:
        """The engine that runs the products, and why; the compile time, and when it pays off."""
        why = f" ({self._why})" if self._why else ", at the first product"
        found = self.break_even()
        return f"compiled: products by {self._ran}{why}" + (f"; {found}" if found else "")

    def __repr__(self) -> str:
        return f"{self.operator!r}, by {self._ran}"


@placed.register
def _(operator: Compiled, place: Place) -> Any:
    """The operator itself if PyTorch runs it; other engines take no tensors."""
    return operator if operator.by_torch else placed(operator.operator, place)


def plain(operator: Jacobian, v: Any) -> Any:
    """J v without an engine."""
    if is_tensor(v):
        return operator._apply(reading(v), v)
    return np.array(operator._apply(numbers, v), wide(operator.dtype))


@dataclass(frozen=True)
class BreakEven:
    """Seconds of compiling, and of one product compiled and uncompiled."""

    compiling: float
    compiled: float
    plain: float

    @property
    def products(self) -> float:
        """compiling / (plain - compiled), rounded up; infinite if nothing is gained."""
        won = self.plain - self.compiled
        return ceil(self.compiling / won) if won > 0 else inf

    def __str__(self) -> str:
        pays = f"pays from product {self.products:,} on" if self.products < inf else "never pays"
        each = f"{time_text(self.compiled)} each, {time_text(self.plain)} uncompiled"
        return f"compiling took {time_text(self.compiling)} and {pays} ({each}, measured now)"


def measured(compiling: float, compiled: Callable[[], Any], plain: Callable[[], Any]) -> BreakEven:
    """The break-even point, from the current times of products."""
    return BreakEven(compiling, quickest(compiled), quickest(plain))


def quickest(function: Callable[[], Any]) -> float:
    """Seconds of the fastest of many consecutive calls."""
    moments = [time.perf_counter()]
    while len(moments) <= TRIES or moments[-1] - moments[0] < SETTLED:
        function()
        moments.append(time.perf_counter())
    return min(stop - start for start, stop in pairwise(moments))
