"""Adaptive: products by the fastest way that is ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ....jacobians import Array, Dag, Jacobian, Op, Shape, dtype_of, lead, shape_of
from ....jacobians.arrays import host, wide
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.text import time_text
from ....jacobians.threads import Background, Latest
from ....ops import numbers
from ..products.compiled import KEPT, Compiled
from ..tape.tape import Tape
from .cost import ELIMINATING, RECORDING
from .moving import FIRST, TRIES, Clock, Moving, Way
from .plan import (
    ELIMINATED,
    REPAID,
    TRUSTED,
    eliminated,
    planned,
    repays_decision,
    repays_elimination,
)

DAG, PLANNED, COMPILED, PROGRAM = "as it is", "planned", "compiled", "by the program of all points"
"""The ways to compute a product."""

UNMADE = "as it is, with the DAG still to be made"
"""The clock of a first product at a new point by the DAG, apart from products that find it made."""

WEIGHTS = {DAG: 1.0, PLANNED: 1.0, COMPILED: 0.8, PROGRAM: 0.8}
"""Weights of the times: a product by an engine leaves its threads awake for the next product."""

Ways = Mapping[str, tuple[Clock, Way]]

QUICK, TURNS = 1e-2, 16
"""A program that takes fewer seconds, and is quicker than all other ways, is chosen for so many
products: to choose takes ten microseconds, and a hundred after a product that used all caches.
"""


@dataclass
class Kept:
    """A program, and for how many products it is still chosen."""

    program: Way
    left: int


class Adaptive(Jacobian):
    """y = J x by the DAG as it is, planned or compiled, or by a program shared with other points.

    The number of future products is unknown. After 8, 300, 1200 … products the DAG is planned for
    four times as many, if they count for more than before; programs are compiled once
    products have taken as long as compiling takes. Both happen in a background thread, for which
    each product waits as long as the fastest one took, unless it took three times as long itself:
    alone on the cores, the thread is done far sooner. A plan is given up once this operator is
    gone. Each product takes the way that was measured to be the fastest of the ready ways, a short
    one for several products. Where the arrays are tensors on a device, a NumPy vector goes there,
    and y comes back.
    """

    holds = ("structure",)

    def __init__(
        self, dag: Dag | None, like: Jacobian | None = None, shared: Moving | None = None,
        tape: Tape | None = None,
    ) -> None:  # fmt: skip
        like = like or dag
        assert like is not None
        super().__init__(like.out_shape, like.in_shape, like.dtype)
        self._dag, self._shared, self._tape = dag, shared, tape
        self.count, self._next, self._seconds = 0, FIRST, 0.0
        self._begun_at, self._invested = 0, 0.0  # products before the work for this point, seconds
        self._ahead: Background[Jacobian | None] | None = None
        self._planned: Jacobian | None = None
        self._compiled: Compiled | None = None
        self._begun = set[Shape]()  # columns for which the structure is or is being compiled
        self._clocks: dict[tuple[Shape, str], Clock] = {}
        self._kept = Latest[tuple[Shape, Any], Kept](KEPT)  # by columns and dtype

    @property
    def dag(self) -> Dag:
        """The DAG as the rules gave it, made when it is first needed."""
        if self._dag is None:
            assert self._shared is not None
            assert self._tape is not None
            self._dag = self._shared.dag_at(self._tape)
        return self._dag

    @property
    def structure(self) -> Jacobian:
        """The operator that computes products now, when no program does."""
        return self._planned or eliminated(self.dag)

    @property
    def place(self) -> Place | None:
        return self._tape.place if self._tape else None

    @property
    def _op(self) -> Op:
        return self.place.op if self.place else numbers

    @property
    def _device(self) -> Any:
        return self.place.device if self.place else ""

    def _flat_product(self, v: Any, columns: Shape) -> Any:
        if program := self._program(v, columns):
            x = np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v
            return program(x.reshape((*columns, *self.in_shape))).reshape((*columns, self.shape[0]))
        return super()._flat_product(v, columns)

    def _program(self, v: Array, columns: Shape) -> Way | None:
        """The program that is kept for products with such arrays."""
        kept = self._kept.get((columns, v.dtype))
        if not kept or not kept.left:
            return None
        kept.left -= 1
        self.count += prod(columns)
        return kept.program

    def _apply(self, op: Op, v: Array) -> Array:
        if (place := self.place) and isinstance(v, np.ndarray):
            return host(self._apply(place.op, place.take(v)))
        if op is not self._op or (op is numbers and not isinstance(v, np.ndarray)):
            return self.structure._apply(op, v)
        columns = lead(v, self.in_shape)
        if program := self._program(v, columns):
            return program(v)
        ways = self._ways(columns)
        if dtype_of(v) != wide(self.dtype) or 0 in shape_of(v):
            ways = {DAG: ways[DAG]}
        best = min(clock.least for clock, _ in ways.values())
        taken = min(ways, key=lambda name: ways[name][0].order(best) * WEIGHTS[name])
        (clock, way), key = ways[taken], (columns, v.dtype)
        y, seconds = clock.timed(way, v)
        left = self._kept.pop(key, Kept(way, TURNS)).left
        since = 1 + TURNS - left  # products since the last choice
        clock.spent += (since - 1) * seconds
        for name, (other, _) in ways.items():
            if name != taken and (name != DAG or self._dag is not None):
                other.wait(since * seconds)
        self.count += prod(columns)
        self._seconds += since * seconds
        self._look_ahead(columns, ways, min(clock.least, max(3 * clock.least - seconds, 0.0)))
        settled = clock.tries >= TRIES and clock.least <= best and not self._ahead
        own = taken in (PROGRAM, COMPILED) and dtype_of(v) == self.dtype
        if settled and own and self.dtype.itemsize > 2 and clock.least < QUICK:
            self._kept[key] = Kept(way, TURNS)
        return y

    def _ways(self, columns: Shape) -> Ways:
        """The ways that are ready, each with its clock; the first one is tried first."""
        shared, tape, ways = self._shared, self._tape, dict[str, tuple[Clock, Way]]()
        if shared and tape and (program := shared.program(columns)):
            way = partial(shared.product, program, tape)
            ways[PROGRAM] = shared.clock(columns, PROGRAM, by_engine=True), way
        if self._compiled and (compiled := self._compiled.ready(columns, self._device)):
            ways[COMPILED] = self._clock(columns, COMPILED), compiled
        if self._planned:
            way = partial(self._planned._apply, self._op)
            ways[PLANNED] = self._clock(columns, PLANNED), way
        kind = UNMADE if self._dag is None else DAG
        clock = shared.clock(columns, kind) if shared else self._clock(columns, kind)
        return {**ways, DAG: (clock, self._plainly)}

    def _clock(self, columns: Shape, way: str) -> Clock:
        return self._clocks.setdefault((columns, way), Clock(by_engine=way == COMPILED))

    def _plainly(self, v: np.ndarray) -> np.ndarray:
        """A product by the DAG, eliminated if that takes no longer than one product."""
        known = repays_elimination(self.dag, 1)
        return (eliminated(self.dag) if known else self.dag)._apply(self._op, v)

    def _look_ahead(self, columns: Shape, ways: Ways, patience: float) -> None:
        """Give background work some seconds, take what is ready, and start what is due."""
        if shared := self._shared:
            if ways[DAG][0].total >= shared.cost:
                shared.prepare(columns).wait(patience)
            if 0 < self._invested <= saved(ways):
                shared.first = min(shared.first, self._begun_at)
        if ahead := self._ahead:
            ahead.wait(patience)
            if ahead.going:
                return
            self._take(ahead)
        first = shared.first if shared else 1
        if shared and PROGRAM in ways:
            if self.count < first:
                return
            if self._dag is None:  # to decide takes the DAG of this point, which is work as well
                shared.first = 4 * self.count
        if self.count >= max(first, self._next) and repays_decision(self.dag, 4 * self.count):
            self._next = max(4 * self.count, REPAID * TRUSTED)
            self._begin(partial(planned, self.dag, 4 * self.count))
        elif is_due(self.dag, self._seconds):
            self._ahead = Background(partial(eliminated, self.dag))
        elif self.count >= first and columns not in self._begun and (
            not shared or shared.settled(columns)
        ) and self._seconds >= RECORDING * len(self.dag.edges):
            self._begun.add(columns)
            engine = f"torch:{self._device}" if self.place else None
            compiled = self._compiled or Compiled(self.structure, engine)
            self._begin(partial(compiled_for, compiled, columns, self.place or HOST))

    def _begin(self, make: Callable[[], Jacobian | None]) -> None:
        """Start work for this point in the background; later points wait longer until it pays."""
        self._ahead, self._begun_at = Background(make), self._begun_at or self.count
        if shared := self._shared:
            shared.first = max(shared.first, 4 * self.count)

    def _take(self, ahead: Background[Jacobian | None]) -> None:
        """Use the result of the background work; a new plan replaces the compiled program."""
        self._ahead, made, self._invested = None, ahead.value, self._invested + ahead.seconds
        if isinstance(made, Compiled):
            self._compiled = made
        elif made is not None and made is not self.structure:
            self._planned, self._compiled = made, None
            self._begun.clear()
            self._clocks = {key: c for key, c in self._clocks.items() if key[1] == DAG}

    @property
    def choice(self) -> str:
        """The ways that were tried, each with the time of its fastest product."""
        found = {name: clock.least for name, (clock, _) in self._ways(()).items() if clock.total}
        return ", ".join(f"{name} {time_text(seconds)}" for name, seconds in found.items())

    def _transpose(self) -> Jacobian:
        return Adaptive(self.dag.T, tape=self._tape)

    def __getstate__(self) -> dict[str, Any]:
        """The state without programs, background work and a place."""
        kept = {name: part for name, part in vars(self).items() if name != "T"}
        kept |= dict.fromkeys(("_shared", "_tape", "_ahead", "_compiled"))
        dag = placed(self.dag, HOST) if self.place else self.dag
        return kept | {"_dag": dag, "_begun": set(), "_clocks": {}}

    def __repr__(self) -> str:
        return repr(self.structure) + (f", on {self.place.name}" if self.place else "")


@placed.register
def _(operator: Adaptive, place: Place) -> Any:
    """The operator itself, if its arrays are there: its programs take tensors."""
    return operator if operator.place == place else placed(operator.structure, place)


@planned.register
def _(operator: Adaptive, products: int, memory: int | None = None) -> Jacobian:
    return planned(operator.dag, products, memory)


def saved(ways: Ways) -> float:
    """The seconds by which products with the plan were quicker than the fastest one without it."""
    without = min(ways[name][0].least for name in (DAG, PROGRAM) if name in ways)
    clocks = (ways[name][0] for name in (PLANNED, COMPILED) if name in ways)
    return sum(clock.tries * without - clock.spent for clock in clocks)


def is_due(dag: Dag, spent: float) -> bool:
    """Whether elimination is still to be done and takes no longer than the products so far."""
    return ELIMINATED not in (dag.mirror or dag).known and spent >= ELIMINATING * len(dag.edges)


def compiled_for(compiled: Compiled, columns: Shape, place: Place) -> Compiled:
    """The operator with a program for these columns at a place that has run once."""
    zeros = place.take(np.zeros((*columns, *compiled.in_shape), wide(compiled.dtype)))
    compiled.program(columns, place.device or "")(zeros)
    return compiled
