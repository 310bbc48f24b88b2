"""Adaptive: how products are taken as they go on, each by the fastest way that is ready.

For many points there is one program, whose inputs are the residuals. Vertices are eliminated once
for all points, on graph values: what that multiplies out of the residuals is computed at each point
by a model of its own, and so is what a program computes without v. Programs read all of it in
place, so that nothing is recorded or compiled at a new point.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil, inf, prod
from operator import itemgetter
from time import perf_counter
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, Dag, Edge, Jacobian, Op, Shape, dtype_of, lead, shape_of
from ....jacobians.arrays import host, wide
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.text import time_text
from ....jacobians.threads import Background, Latest, remembered
from ....ops import numbers
from ....ops.graphs import build
from ...model.primal.engines.onnxruntime import EngineError, installed
from ...model.primal.engines.torch import where
from ...model.primal.evaluate import by_torch, evaluate, evaluate_there
from ...model.primal.model import Model
from ..products.compiled import (
    KEPT,
    Compiled,
    OpenProgram,
    Program,
    Recording,
    Residuals,
    compiler,
    is_inexact,
    opened,
    prepared,
    recorded,
)
from ..tape.record import Entry, Names, dag_of
from ..tape.route import Tape
from ..tape.template import Template, fill_of, is_turned, values_in
from .cost import ELIMINATING, RECORDING
from .plan import (
    ELIMINATED,
    REPAID,
    TRUSTED,
    eliminated,
    planned,
    repays_decision,
    repays_elimination,
)
from .vertex_elimination import elimination

Way = Callable[[np.ndarray], np.ndarray]
"""v ↦ J v."""

DAG, PLANNED, COMPILED, PROGRAM = "as it is", "planned", "compiled", "by the program of all points"
"""The ways to compute a product."""

UNMADE = "as it is, with the DAG still to be made"
"""The clock of a first product at a new point by the DAG, apart from products that find it made."""

WEIGHTS = {DAG: 1.0, PLANNED: 1.0, COMPILED: 0.8, PROGRAM: 0.8}
"""Weights of the times: a product by an engine leaves its threads awake for the next product."""

QUICK, TURNS = 1e-2, 16
"""A program that takes fewer seconds, and is quicker than all other ways, is chosen for so many
products, or until a plan is due: to choose takes ten microseconds, and a hundred after a product
that used all caches.
"""

FIRST = 8
"""Products after which a plan is considered for the first time."""

TRIES, ENOUGH = 3, 100
"""Consecutive products by a way before it is judged, at least and at most: the first one may
include some setup.
"""

SETTLED, SOON = 0.15, 0.02
"""Seconds of such products by an engine, and by NumPy: after the last product of NumPy, where its
threads took part, one by another engine takes twice as long for 80 to 120 ms, since they spin.
"""

SHORT = 2e-3
"""Seconds of a product by one engine from which no other one is tried."""

AGAIN = 30
"""A way is tried again after other ways took this many times as long as a trial by an engine: what
follows a trial of NumPy waits for its threads.
"""

FAR = 3.0
"""A way that took this many times as long as another one is not tried any more."""

Eliminated = tuple[Dag, Model, Mapping[int, str]]
"""A DAG after elimination, over graph values, for all points; the model that computes these values
from the residuals; and their names there, by their identity.
"""


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
            due = max(0, self._next - self.count) / max(prod(columns), 1)  # until a plan is due
            self._kept[key] = Kept(way, min(TURNS, ceil(due) or TURNS))
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


class Moving:
    """v ↦ J v, or Jᵀ v, at every point of a template: programs, and the times of products.

    Each number of columns has a program, and a clock for each way. A program is compiled in the
    background once products without it have taken `cost` seconds, the time to compile it. `first`
    is the number of products before work is done for a single point: four times the number at the
    last point that did such work, until the work is seen to pay.
    """

    def __init__(
        self, form: Template, of: Names, wrt: Names, engine: str | None, *, transposed: bool
    ) -> None:
        self.form, self.of, self.wrt, self.transposed = form, of, wrt, transposed
        self._ends = of, wrt
        self.engines = [engine] if engine else ["onnxruntime"] * installed() + ["numpy"]
        entries = (part for part in form.parts if isinstance(part, Entry))
        self.cost, self.first = RECORDING * sum(len(e.blocks) for e in entries), FIRST
        self._clocks: dict[tuple[Shape, str], Clock] = {}
        self._programs: dict[Shape, Background[OpenProgram]] = {}

    def clock(self, columns: Shape, way: str, *, by_engine: bool = False) -> Clock:
        """The clock of a way for products with these columns."""
        return self._clocks.setdefault((columns, way), Clock(by_engine=by_engine))

    def program(self, columns: Shape) -> OpenProgram | None:
        """The program, if it is ready."""
        program = self._programs.get(columns)
        return program.value if program else None

    def settled(self, columns: Shape) -> bool:
        """Whether the program is ready or could not be compiled."""
        return columns in self._programs and not self._programs[columns].going

    def prepare(self, columns: Shape) -> Background[OpenProgram]:
        """Start compiling the program in the background."""
        if columns not in self._programs:
            self._programs[columns] = Background(partial(self.made, columns))
        return self._programs[columns]

    def made(self, columns: Shape = ()) -> OpenProgram:
        """The program of the fastest engine; raises an error where none runs."""
        zeros = {key: zeros_like(x) for key, x in self.form.held.items()}
        turned = self.form.turned
        # raises an error before a product would
        self._computed({key: x.T if key in turned else x for key, x in zeros.items()})
        tried: list[tuple[float, OpenProgram]] = []
        for engine in self.engines:
            values = held(self.eliminated[0])
            behind = {key for key, x in values.items() if matrix_behind(x) is not x}
            there = by_torch(engine)
            recorder, inputs, residuals = opened(values, behind, by_torch=there)
            recording = recorded(recorder, self.dag(residuals), columns, inputs)
            kinds = {dtype_of(x).kind for x in recording.residuals.values()}
            if recording.meets_nothing or not kinds <= set("fiub"):
                raise EngineError("No engine takes empty tensors, or bfloat16 from NumPy.")
            if engine == "onnxruntime" and len(self.engines) > 1 and is_inexact(recording):
                continue
            with suppress(Exception):  # the exceptions of engines have no common base class
                names = {key: str(x.name) for key, x in recording.residuals.items()}
                recording, model = prepared(recording)
                program = compiler(engine)(recording)
                seconds = seconds_of(program, recording, engine)
                program = Prepared(program, model, names, engine) if model else program
                tried.append((seconds, program))
            if tried and tried[-1][0] > SHORT:
                break
        return min(tried, key=itemgetter(0))[1]

    def dag(self, arrays: Residuals) -> Dag:
        """The DAG after elimination, over other values."""
        dag = self.eliminated[0]
        edges = (Edge(e.start, e.end, fill(arrays) if (fill := fill_of(e.operator)) else e.operator)
                 for e in dag.edges)  # fmt: skip
        made = Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype)
        return made.T if self.transposed else made

    def dag_at(self, tape: Tape) -> Dag:
        """The DAG at a point, before elimination."""
        dag = tape.between(self.of, self.wrt)
        return dag.T if self.transposed else dag

    def product(self, program: OpenProgram, tape: Tape, v: np.ndarray) -> np.ndarray:
        """J v by a program at a point."""
        if program not in tape.known:
            tape.known[program] = program.at(self.arrays(tape))
        product: Way = tape.known[program]
        return product(np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v)

    def arrays(self, tape: Tape) -> Mapping[int, np.ndarray]:
        """The arrays that the programs of J and of Jᵀ read at a point."""
        return remembered(tape.known, self._ends, lambda: self._computed(tape.bound))

    def _computed(self, residuals: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
        """The arrays that the programs read, from the residuals."""
        _, model, names = self.eliminated
        given = dict(zip(model.inputs, residuals.values(), strict=True))
        missing = [name for name in names.values() if name not in given]
        known = {**given, **computed(model, given, missing, self.engines[0])}
        return {key: known[name] for key, name in names.items()}

    @property
    def eliminated(self) -> Eliminated:
        """The DAG of J after elimination, which programs of Jᵀ read too."""
        return remembered(self.form.known, self._ends, self._made)

    def _made(self) -> Eliminated:
        form = self.form
        recorder, inputs, residuals = opened(form.held, form.turned)
        entries = tuple(part.at(residuals) for part in form.parts if isinstance(part, Entry))
        dag = dag_of(entries, form.shapes, self.wrt, self.of, form.ends[2])
        dag = elimination(dag).after
        values = {key: matrix_behind(x) for key, x in held(dag).items()}
        made = {f"made_{k}": x for k, x in enumerate(values.values()) if x.producer() is not None}
        model = Model(build(recorder, inputs.values(), made, "eliminated"), form.model.limits)
        return dag, model, {key: str(x.name) for key, x in values.items()}


@dataclass(frozen=True, eq=False)
class Prepared:
    """A program that reads what a model computes of the residuals, once for each point."""

    program: OpenProgram
    model: Model
    names: Mapping[int, str]  # of the model's inputs, by the keys of residuals
    engine: str

    def __call__(self, v: np.ndarray) -> np.ndarray:
        return self.program(v)

    def at(self, residuals: Mapping[int, np.ndarray]) -> Program:
        given = {name: residuals[key] for key, name in self.names.items()}
        made = computed(self.model, given, self.model.outputs, self.engine)
        further = {-1 - k: made[name] for k, name in enumerate(self.model.outputs)}
        return self.program.at({**residuals, **further})


def computed(
    model: Model, given: Mapping[str, Any], names: Collection[str], engine: str
) -> dict[str, Any]:
    """The named tensors of a model, contiguous, where programs of an engine read them."""
    if not names:
        return {}
    if by_torch(engine):
        return evaluate_there(model, given, names, engine)
    made = evaluate(model, given, names, engine="numpy" if engine == "numpy" else None)
    return {name: np.asarray(x, order="C") for name, x in made.items()}


def moving(
    tape: Tape, of: Names, wrt: Names, engine: str | None, *, transposed: bool
) -> Moving | None:
    """The products between some tensors at all points; None if no program can compute them.

    None too where slopes are not finite that some operator may leave out: programs multiply by all.
    """
    form = tape.template
    if form is None or not form.closed or form.model.lean or not tape.is_finite:
        return None
    make = partial(Moving, form, of, wrt, engine, transposed=transposed)
    return remembered(form.known, (of, wrt, transposed), make)


# -- helpers of one point: clocks, ways and programs -----------------------------------------------


@dataclass
class Clock:
    """The time of products by one way: seconds of the fastest, and of all of them.

    `tries` counts products since its trial began, which took `spent` seconds; `others` are the
    seconds that other ways took since its last product. A way of NumPy's needs a shorter trial.
    """

    least: float = inf
    total: float = 0.0
    tries: int = 0
    spent: float = 0.0
    others: float = 0.0
    by_engine: bool = True

    def timed(self, way: Way, v: np.ndarray) -> tuple[np.ndarray, float]:
        """A product by this way, and the seconds that it took."""
        started = perf_counter()
        y = way(v)
        took = perf_counter() - started
        self.least, self.total = min(self.least, took), self.total + took
        self.tries, self.spent, self.others = self.tries + 1, self.spent + took, 0.0
        return y, took

    def wait(self, seconds: float) -> None:
        """Add the seconds of a product by another way; after enough of them, try this way again."""
        self.others += seconds
        trial = max(TRIES * self.least, SETTLED)
        if self.others > AGAIN * trial and self.least < FAR * seconds:
            self.tries, self.spent, self.others = 0, 0.0, 0.0

    @property
    def judged(self) -> bool:
        """Whether its trial is over."""
        return self.tries >= TRIES and (self.spent >= self.trial or self.tries >= ENOUGH)

    @property
    def trial(self) -> float:
        """The seconds of a trial."""
        return SETTLED if self.by_engine else SOON

    def order(self, best: float) -> float:
        """Sort key to find the fastest way: a way that is still to be tried comes first, unless its
        products took `FAR` times as long as the `best` product by any way.
        """
        tried = self.tries >= TRIES or self.spent >= self.trial
        far = tried and FAR * best < self.least < inf
        return self.least if self.judged or far else 0.0


@dataclass
class Kept:
    """A program, and for how many products it is still chosen."""

    program: Way
    left: int


Ways = Mapping[str, tuple[Clock, Way]]


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


# -- helpers of many points: graph values and their programs ---------------------------------------


def matrix_behind(value: ir.Value) -> ir.Value:
    """The input whose transpose a value is; the value itself if it is no transpose of an input."""
    node = value.producer()
    if node is None or not is_turned(node):
        return value
    (x,) = node.inputs
    return value if x is None or x.producer() is not None else x


def held(dag: Dag) -> Residuals:
    """The graph values that the operators of a DAG hold, by their identity."""
    return {id(x): x for edge in dag.edges for x in values_in(edge.operator)}


def seconds_of(program: OpenProgram, recording: Recording, engine: str) -> float:
    """The time of a product by a program, the second one with zeros."""
    take = where(engine).take if by_torch(engine) else np.asarray
    v = take(zeros_like(recording.v))
    arrays = {key: take(zeros_like(x)) for key, x in recording.residuals.items()}
    product = program.at(arrays)
    product(v)
    started = perf_counter()
    product(v)
    return perf_counter() - started


def zeros_like(value: ir.Value) -> np.ndarray:
    """Zeros of the shape and type of a value."""
    return np.zeros(shape_of(value), dtype_of(value))
