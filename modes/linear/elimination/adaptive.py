"""Adaptive: how products are taken as they go on, each by the way that earlier products repay.

Which way a product takes follows from counted work: the estimated seconds of the products so far,
and their number. No clock is read, so that the same products give the same bits on every run.

For many points there is one program, whose inputs are the residuals: what is computed of a point
without v. They are computed in one run of the model at a new point, where nothing is recorded or
compiled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from math import prod
from sys import maxsize
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, Dag, Jacobian, Op, Shape, dtype_of, lead, shape_of
from ....jacobians.arrays import host, wide
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.readings import library_of, place_of_engine
from ....jacobians.text import time_text
from ....jacobians.threads import Lock, remembered
from ....ops import numbers
from ....ops.graphs.build import Graph
from ...model.programs.program import Program, compiler, engines_to_try
from ..derivatives.derivative import FINITE, Derivative
from ..derivatives.point import Point
from ..derivatives.record import Entry, Names, dag_of
from ..derivatives.settled import SETTLED
from ..products.calls import Calls, note_calls
from ..products.compiled import CACHED_PROGRAMS, Compiled, plain, product_values
from ..products.cut import cut
from .cost import MAKING, RECORDING, REPEATING, SWEEPING, seconds
from .plan import eliminated, planned, repays_decision, repays_elimination, seconds_of
from .vertex_elimination import elimination

Way = Callable[[np.ndarray], np.ndarray]
"""v ↦ J v; the result belongs to the caller."""

FIRST, FACTOR = 8, 8
"""A plan is considered after 8, 64, 512 … products; at points that share a program, from 64 on."""

CALLS = "calls"
"""The key of the products of a DAG whose calls are noted, by columns."""

AHEAD = 4
"""For each product so far, the products for which a plan is made."""


class Adaptive(Jacobian):
    """y = J x by the DAG as it is, then by a program, of the DAG or of a plan.

    The number of future products is unknown. The first products sweep the DAG, small ones by the
    calls that the first one made; it is eliminated, and then recorded as a program, once their
    counted work is as much as that takes. After 8, 64, 512 … products the DAG is planned for four
    times as many, if these may repay the decision, and the plan is recorded in its turn. Points
    that share a program record nothing of their own before they have a plan. Where the arrays are
    tensors on a device, a NumPy vector goes there, and y comes back.
    """

    holds = ("structure",)

    def __init__(
        self, dag: Dag | None, like: Jacobian | None = None, shared: Products | None = None,
        point: Point | None = None,
    ) -> None:  # fmt: skip
        like = like or dag
        assert like is not None
        super().__init__(like.out_shape, like.in_shape, like.dtype)
        self._dag, self._shared, self._point = dag, shared, point
        self.count, self._next = 0, FIRST * FACTOR if shared else FIRST
        self._next = maxsize if self._compiles else self._next
        self.work = defaultdict[Shape, float](float)  # seconds of sweeps, estimated, by columns
        self._planned: Jacobian | None = None
        self._compiled: Compiled | None = None
        self._programs: dict[Shape, Way] = {}  # by columns
        self._lock = Lock()

    @property
    def dag(self) -> Dag:
        """The DAG as the rules gave it, made when it is first needed."""
        if self._dag is None:
            assert self._shared is not None
            assert self._point is not None
            self._dag = self._shared.dag_at(self._point)
        return self._dag

    @property
    def structure(self) -> Jacobian:
        """The operator that computes products now, when no program does."""
        return self._planned or eliminated(self.dag)

    @property
    def place(self) -> Place | None:
        return self._point.place if self._point else None

    @property
    def _op(self) -> Op:
        return self.place.op if self.place else numbers

    @property
    def _compiles(self) -> bool:
        """Whether products are compiled before the first one."""
        return self.place is not None and self.place.compiles

    @property
    def _device(self) -> Any:
        return self.place.device if self.place else ""

    def _flat_product(self, v: Array, columns: Shape) -> Array:
        """Fast path: a program may take only a few microseconds."""
        program = self._programs.get(columns) if self.count < self._next else None
        program = None if SETTLED.get() else program
        is_numpy, place = isinstance(v, np.ndarray), self.place
        takes_numpy = place is None or place.compiles
        here = takes_numpy if is_numpy else place is not None and library_of(v) is place.op
        if program is None or not here or dtype_of(v) != self.dtype or self.dtype.itemsize < 4:
            return super()._flat_product(v, columns)
        self.count += prod(columns)
        x = np.ascontiguousarray(v) if is_numpy else v
        y = program(reshape_if_needed(x, (*columns, *self.in_shape)))
        return reshape_if_needed(y, (*columns, self.shape[0]))

    def _apply(self, op: Op, v: Array) -> Array:
        if (place := self.place) and isinstance(v, np.ndarray):
            return host(self._apply(place.op, place.take(v)))
        if op is not self._op or (op is numbers and not isinstance(v, np.ndarray)):
            return self.structure._apply(op, v)
        columns, taken = lead(v, self.in_shape), None
        if dtype_of(v) == wide(self.dtype) and 0 not in shape_of(v):
            taken = self._program(columns)
        self.count += prod(columns)
        return taken(v) if taken else self._swept(op, v, columns)

    def _program(self, columns: Shape) -> Way | None:
        """The program for products with these columns, made if it is due."""
        if SETTLED.get() and not self._compiles:
            return self._of_all_points(columns)
        with self._lock:
            if self.count >= self._next:
                self._replan()
            program = self._programs.get(columns)
            if program is None and has_room(self._programs, columns):
                program = self._due(columns)
                self._programs |= {columns: program} if program else {}
            return program

    def _of_all_points(self, columns: Shape) -> Way | None:
        """The program of all points, made now; None where there is none."""
        shared, point = self._shared, self._point
        if shared is None or point is None or (made := shared.prepare(columns)) is None:
            return None
        return partial(shared.product, made, point)

    def _replan(self) -> None:
        """Plan the DAG, if future products may repay that; programs of an older plan are left."""
        while self._next <= self.count:
            self._next *= FACTOR
        products = AHEAD * self.count
        known = self._shared.eliminated if self._shared else self.dag
        if not repays_decision(known, products):
            return
        with suppress(Exception):  # without a plan, products go on as before
            made, before = planned(self.dag, products), self.structure
            if made is not before:
                self._planned, self._compiled = made, None
                self._programs.clear()

    def _due(self, columns: Shape) -> Way | None:
        """A program of all points, or of this one once the sweeps repay that."""
        shared = self._shared if self._planned is None else None
        if shared and self._point:
            program = shared.program(columns)
            return program and partial(shared.product, program, self._point)
        if not self._compiles and self.work[columns] < RECORDING * len(self.dag.edges):
            return None
        engine = f"{self.place.op.engine}:{self._device}" if self.place else None
        try:
            self._compiled = self._compiled or Compiled(self.structure, engine)
            return self._compiled.program(columns, self._device)
        except Exception:  # the exceptions of engines have no common base class
            return partial(plain, self.structure)

    def _swept(self, op: Op, v: Array, columns: Shape) -> Array:
        """A product without a program, whose work is counted. Where it takes little arithmetic, its
        calls are noted, at a point of many the second time, and replayed from then on.
        """
        made = 0.0 if self._dag is not None else MAKING
        dag, arrays = self.dag, prod(columns) * seconds_of(self.dag)
        if SETTLED.get():
            found: Any = eliminated(dag)
        else:
            due = repays_elimination(dag, self.count)
            found = self._planned or (eliminated(dag) if due else dag)
        calls, again = None, self.work[columns] or not self._shared
        plain, y = op is numbers and v.dtype == wide(self.dtype), None
        if again and plain and arrays <= SWEEPING * len(dag.edges):
            known: dict[Shape, Calls | None] = remembered(found.known, CALLS, dict)
            if columns not in known and has_room(known, columns):
                calls, y = note_calls(found, v)
                known[columns] = calls
            calls = known.get(columns)
        work = ((REPEATING if calls else SWEEPING) + made) * len(dag.edges) + arrays
        self.work[columns] += work
        if self._shared:
            self._shared.work[columns] += work
        if y is None:
            y = calls(v) if calls else found._apply(op, v)
        return y

    @property
    def choice(self) -> str:
        """How the next product with one vector is taken, and why."""
        kind = "the plan" if self._planned else "the DAG"
        if () in self._programs:
            by = ", by XLA" if self._compiles else ""
            made = self._compiled.choice if self._compiled else f"by the program of all points{by}"
            return f"{made}, of {kind}" if self._planned else made
        shared = self._shared if self._planned is None else None
        work = (shared or self).work[()]
        cost = shared.cost if shared else RECORDING * len(self.dag.edges)
        return (f"by {kind}, until the counted work of products with one vector, {time_text(work)} "
                f"so far, repays a program, {time_text(cost)}")  # fmt: skip

    def _transpose(self) -> Jacobian:
        return Adaptive(self.dag.T, point=self._point)

    def __getstate__(self) -> dict[str, Any]:
        """The state without programs and a place."""
        kept = {name: part for name, part in vars(self).items() if name != "T"}
        kept |= dict.fromkeys(("_shared", "_point", "_compiled"))
        dag = placed(self.dag, HOST) if self.place else self.dag
        return kept | {"_dag": dag, "_programs": {}}

    def __repr__(self) -> str:
        return repr(self.structure) + (f", on {self.place.name}" if self.place else "")


class Products:
    """v ↦ J v, or Jᵀ v, at every point of a derivative: programs, one for each number of columns.

    The DAG is eliminated on graph values, a product with it is recorded beside the model, and cut
    off where the graph meets v. A program is compiled once the counted work of products without it,
    at whichever points, is as much as compiling takes, `cost`.
    """

    def __init__(
        self, form: Derivative, of: Names, wrt: Names, engine: str | None, *, transposed: bool
    ) -> None:
        self.form, self.of, self.wrt, self.transposed = form, of, wrt, transposed
        self.engine = engine
        entries = (part for part in form.parts if isinstance(part, Entry))
        self.cost = RECORDING * sum(len(e.blocks) for e in entries)
        if form.place is not None and form.place.compiles:  # operator by operator, it would be slow
            self.cost = 0.0
        self.work = defaultdict[Shape, float](float)  # at all points
        self._programs: dict[Shape, tuple[Program, Names] | None] = {}

    def program(self, columns: Shape) -> tuple[Program, Names] | None:
        """The program and what it reads, made once products repay that; None where none runs."""
        if self.work[columns] >= self.cost and has_room(self._programs, columns):
            return self.prepare(columns)
        return self._programs.get(columns)

    def prepare(self, columns: Shape = ()) -> tuple[Program, Names] | None:
        """The program and what it reads, made now, by the first engine that suits it."""
        with self.form.lock:
            if columns not in self._programs:
                self._programs[columns] = self._made(columns)
            return self._programs[columns]

    def _made(self, columns: Shape) -> tuple[Program, Names] | None:
        with suppress(Exception):  # what cannot be recorded
            v, y = self._recorded(columns)
            graph = cut(self.form.op, self.form.inputs, v, y, self.held)
            kinds = {dtype_of(x).kind for x in graph.residuals.values()}
            if graph.meets_nothing or not kinds <= set("fiub"):  # or bfloat16 from NumPy
                return None
            for engine in engines_to_try(self.engine, graph):
                with suppress(Exception):  # the exceptions of engines have no common base class
                    program = compiler(engine)(graph)
                    try_out(program, graph, engine)
                    return program, self.form.keep(graph.residuals.values())
        return None

    def _recorded(self, columns: Shape) -> tuple[ir.Value, ir.Value]:
        """v and y = J v, recorded once."""
        key = self.of, self.wrt, self.transposed, columns
        dag = self.eliminated.T if self.transposed else self.eliminated
        return remembered(self.form.known, key, lambda: product_values(self.form.op, dag, columns))

    @property
    def eliminated(self) -> Dag:
        """The DAG of J after elimination, on graph values, which programs of Jᵀ read too."""
        with self.form.lock:
            return self._eliminated[0]

    @property
    def held(self) -> frozenset[ir.Node]:
        """The nodes of the model and of the eliminated DAG."""
        return self._eliminated[1]

    @property
    def _eliminated(self) -> tuple[Dag, frozenset[ir.Node]]:
        def make() -> tuple[Dag, frozenset[ir.Node]]:
            form = self.form
            entries = tuple(part for part in form.parts if isinstance(part, Entry))
            dag = dag_of(entries, form.shapes, self.wrt, self.of, form.ends[2])
            return elimination(dag).after, frozenset(form.op.nodes)

        return remembered(self.form.known, (self.of, self.wrt), make)

    def dag_at(self, point: Point) -> Dag:
        """The DAG at a point, before elimination."""
        dag = point.between(self.of, self.wrt)
        return dag.T if self.transposed else dag

    def product(self, made: tuple[Program, Names], point: Point, v: np.ndarray) -> np.ndarray:
        """J v by a program at a point."""
        program, names = made
        product: Way | None = point.known.get(program)
        if product is None:
            arrays = point.arrays(names)
            product = program.bind(arrays)
            if all(library_of(x).knows(x) for x in arrays.values()):  # else JAX traces
                point.known[program] = product
        return product(np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v)


def products_of(
    point: Point, of: Names, wrt: Names, engine: str | None, *, transposed: bool
) -> Products | None:
    """The products between some tensors at all points; None if no program can compute them.

    None too where slopes are not finite that some operator may leave out: programs multiply by all.
    While a function is traced nobody knows, and 0 · ∞ is NaN there, in place of a number.
    """
    form = point.derivative
    if form is None or not form.closed or form.source.lean or not point.holds(FINITE):
        return None
    make = partial(Products, form, of, wrt, engine, transposed=transposed)
    return remembered(form.known, ("products", of, wrt, transposed), make)


@placed.register
def _(operator: Adaptive, place: Place) -> Any:
    """The operator itself, if its arrays are there: its programs take tensors."""
    return operator if operator.place == place else placed(operator.structure, place)


@planned.register
def _(operator: Adaptive, products: int, memory: int | None = None) -> Jacobian:
    return planned(operator.dag, products, memory)


@seconds.register
def _(operator: Adaptive) -> float:
    return seconds_of(operator.dag)


def reshape_if_needed(x: Array, shape: Shape) -> Array:
    """x in a shape; a library may take long to find that it has it already."""
    return x if x.shape == shape else x.reshape(shape)


def has_room(programs: Collection[Shape], columns: Shape) -> bool:
    """Whether a program for these columns may be kept: for one vector, or for few other numbers."""
    return columns in ((), *programs) or len(programs) < CACHED_PROGRAMS


def try_out(program: Program, graph: Graph, engine: str) -> None:
    """Take a product with zeros: an engine may find only then that it cannot. An engine that
    compiles whole functions is asked without a product.
    """
    if ask := getattr(program, "trace", None):
        ask({key: zeros_like(x) for key, x in graph.residuals.items()}, zeros_like(graph.v))
        return
    take = (place_of_engine(engine) or HOST).take
    arrays = {key: take(zeros_like(x)) for key, x in graph.residuals.items()}
    program.bind(arrays)(take(zeros_like(graph.v)))


def zeros_like(value: ir.Value) -> np.ndarray:
    """Zeros of the shape and type of a value."""
    return np.zeros(shape_of(value), dtype_of(value))
