"""Moving: products at many points by one program, whose inputs are the residuals.

Vertices are eliminated once for all points, on graph values: what that multiplies out of the
residuals is computed at each point by a model of its own. Programs read all of it in place, so that
nothing is recorded or compiled at a new point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import itemgetter
from time import perf_counter

import numpy as np
import onnx_ir as ir

from ....jacobians import Dag, Edge, Shape, chosen, dtype_of, shape_of
from ....jacobians.threads import Background, remembered
from ....ops.graphs import build
from ...model.primal.engines.onnxruntime import EngineError, installed
from ...model.primal.engines.torch import where
from ...model.primal.evaluate import by_torch, evaluate, evaluate_there
from ...model.primal.model import Model
from ..products.compiled import OpenProgram, compiler, is_inexact
from ..products.record import Recording, Residuals, opened, recorded
from ..tape.record import Entry, Names, dag_of
from ..tape.tape import Tape
from ..tape.template import Template, fill_of, is_turned, values_in
from .cost import RECORDING
from .vertex_elimination import elimination

Way = Callable[[np.ndarray], np.ndarray]
"""v ↦ J v."""

Eliminated = tuple[Dag, Model, Mapping[int, str]]
"""A DAG after elimination, over graph values, for all points; the model that computes these values
from the residuals; and their names there, by their identity.
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
                program = compiler(engine)(recording)
                tried.append((seconds_of(program, recording, engine), program))
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
        if by_torch(self.engines[0]):
            made = evaluate_there(model, given, missing, self.engines[0]) if missing else {}
            return {key: {**given, **made}[name] for key, name in names.items()}
        engine = "numpy" if self.engines == ["numpy"] else None
        made = evaluate(model, given, missing, engine=engine) if missing else {}
        made = {name: np.asarray(x, order="C") for name, x in made.items()}
        return {key: {**given, **made}[name] for key, name in names.items()}

    @property
    def eliminated(self) -> Eliminated:
        """The DAG of J after elimination, which programs of Jᵀ read too."""
        return remembered(self.form.known, self._ends, self._made)

    def _made(self) -> Eliminated:
        form = self.form
        recorder, inputs, residuals = opened(form.held, form.turned)
        entries = tuple(part.at(residuals) for part in form.parts if isinstance(part, Entry))
        dag = dag_of(entries, form.shapes, self.wrt, self.of, form.ends[2])
        dag = elimination(chosen(recorder, dag)).after
        values = {key: matrix_behind(x) for key, x in held(dag).items()}
        made = {f"made_{k}": x for k, x in enumerate(values.values()) if x.producer() is not None}
        model = Model(build(recorder, inputs.values(), made, "eliminated"), form.model.limits)
        return dag, model, {key: str(x.name) for key, x in values.items()}


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


def moving(
    tape: Tape, of: Names, wrt: Names, engine: str | None, *, transposed: bool
) -> Moving | None:
    """The products between some tensors at all points; None if no program can compute them."""
    form = tape.template
    if form is None or not form.closed or form.model.lean:
        return None
    make = partial(Moving, form, of, wrt, engine, transposed=transposed)
    return remembered(form.known, (of, wrt, transposed), make)
