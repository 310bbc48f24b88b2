"""Point: the model at a point, by the tensors that its derivative needs there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ....jacobians import Dag, chosen
from ....jacobians.arrays import host
from ....jacobians.conditions import Condition
from ....jacobians.errors import OnnxJacError
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.readings import is_kept, library_of
from ....jacobians.threads import Lock, cached_property
from ....ops import numbers
from ...model.primal.evaluate import evaluate
from ...model.primal.inputs import finite, warn_nonfinite
from .derivative import FITS, Derivative
from .record import Ends, Entry, Names, dag_of, entry_of


class Point:
    """The model at a point: `primal` are the tensors of `of`, `ends` the tensors behind columns and
    rows of J; `entries` and `dag` are its structure, over tensors of PyTorch if there is a `place`.

    A point of a `derivative` holds `values`, tensors by name; further ones are computed, by
    `compute`, when they are asked for. Entries, DAG and a `primal` that is given as a function are
    made when they are first needed, and once for all threads.
    """

    def __init__(
        self, primal: Mapping[str, Any] | Callable[[], Mapping[str, Any]], ends: Ends, *,
        entries: tuple[Entry, ...] | None = None, dag: Dag | None = None,
        derivative: Derivative | None = None, values: Mapping[str, Any] | None = None,
        compute: Callable[[Names], Mapping[str, Any]] | None = None, place: Place | None = None,
    ) -> None:  # fmt: skip
        self.ends, self.derivative, self.place = ends, derivative, place
        self._primal, self._entries, self._dag = primal, entries, dag
        self._parts: WeakValueDictionary[tuple[Names, Names], Dag] = WeakValueDictionary()
        self._lock = Lock()
        self._values, self._compute = dict(values or {}), compute
        self._read, self._number = set[str](), 0
        self._op = numbers if place is None else place.op
        self.known: dict[Any, Any] = {}  # results at this point, by the object that computed them
        self.read_by: Any = None  # a reading that is known to fit the residuals

    def __getstate__(self) -> dict[str, Any]:
        """With primal, entries and DAG in place of the residuals."""
        entries, dag = self.entries, self.dag
        if self.place is not None:
            entries, dag = tuple(e.placed(HOST) for e in entries), placed(dag, HOST)
        return {"primal": self.primal, "ends": self.ends, "entries": entries, "dag": dag}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a new point, called by pickle alone

    @property
    def is_lazy(self) -> bool:
        """Whether the tensors of `of` are still to be computed."""
        return callable(self._primal)

    @property
    def primal(self) -> Mapping[str, Any]:
        """The tensors of `of`."""
        with self._lock:
            if callable(self._primal):
                self._primal = self._primal()
            return self._primal

    def read(self, names: Iterable[str]) -> dict[str, Any]:
        """The named tensors. The next points compute what this one was asked for in one run."""
        with self._lock:
            names, values = tuple(names), self._values
            missing = tuple(name for name in names if name not in values)
            if missing:
                assert self._compute is not None
                values = {**values, **self._compute(missing)}
                if all(library_of(x).knows(x) for x in values.values()):  # else JAX traces
                    self._values = values
            if self.derivative is not None and not self._read.issuperset(names):
                self._number = self.derivative.note(names, self._number)
                self._read.update(names)
            return {name: values[name] for name in names}

    def arrays(self, names: Iterable[str]) -> dict[str, Any]:
        """The named tensors as programs read them: C-contiguous."""
        found = self.read(names)
        if self.place is not None:
            return found
        return {name: np.asarray(x, order="C") for name, x in found.items()}

    def __getitem__(self, key: int) -> Any:
        """The array of a value that operators of the derivative hold, by its identity."""
        return self.residuals[key]

    @cached_property
    def residuals(self) -> dict[int, np.ndarray]:
        """The arrays of all values that operators of the derivative hold, by their identity."""
        if self.derivative is None:
            return {}
        values = self.read(self.derivative.bases)
        return {key: view(values[n]) for key, (n, view) in self.derivative.views.items()}

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The active steps with their blocks; arrays that neither these nor programs hold are
        released.
        """
        with self._lock:
            if self._entries is None:
                assert self.derivative is not None
                residuals, values = self.residuals, self._values
                self._entries = tuple(
                    part.at(residuals, self.place) if isinstance(part, Entry)
                    else entry_of(part, values, numbers, self.place)
                    for part in self.derivative.parts
                )  # fmt: skip
                free = {*self.derivative.bases} - self.derivative.residuals
                self._values = {name: x for name, x in values.items() if name not in free}
            return self._entries

    @property
    def dag(self) -> Dag:
        """The DAG of the blocks."""
        with self._lock:
            if self._dag is None:
                assert self.derivative is not None
                shapes, (wrt, of) = self.derivative.shapes, self.names
                dag = dag_of(self.entries, shapes, wrt, of, self.ends[2])
                self._dag = chosen(self._op, dag)
            return self._dag

    def between(self, of: Names, wrt: Names) -> Dag:
        """The part of the DAG from some tensors of `wrt` to some tensors of `of`."""
        if (wrt, of) == self.names:
            return self.dag
        with self._lock:
            part = self._parts.get((wrt, of))
            if part is None:
                sides = zip((wrt, of), self.names, (self.dag.sources, self.dag.sinks), strict=True)
                starts, ends = (tuple(vertices[names.index(name)] for name in some)
                                for some, names, vertices in sides)  # fmt: skip
                part = self._parts[wrt, of] = chosen(self._op, self.dag.between(starts, ends))
            return part

    @cached_property
    def names(self) -> tuple[Names, Names]:
        """The names of the tensors behind columns and rows."""
        domain, codomain = (tuple(spec.name for spec in side) for side in self.ends[:2])
        return domain, codomain

    def holds(self, name: str) -> bool:
        """Whether a condition of the derivative holds here, if it has one of this name."""
        condition = self.derivative and self.derivative.conditions.get(name)
        return not condition or condition.holds(self._values) is not False


def point_of(
    form: Derivative, inputs: Mapping[str, Any], conditions: Iterable[Condition] = ()
) -> Point | None:
    """The point at some inputs, by one run of the recorded model.

    None where no engine runs the nodes that it adds, or where one of further `conditions`, whose
    tensors the same run computes, does not hold.
    """
    of, model, compute = form.of, form.source, partial(form.evaluate, inputs)

    def outputs() -> Mapping[str, Any]:
        values = evaluate(model, inputs, of, engine=form.engine)
        warn_nonfinite(model, values, inputs)
        return values

    wanted = tuple(dict.fromkeys((*form.wanted(), *(c.name for c in conditions))))
    primal: Any = outputs
    try:
        values = compute(wanted if form.leaves_out(wanted) else (*wanted, *of))
        if not all(c.holds(values) for c in conditions):
            return None
        if values.keys() >= {*of}:
            primal = given_out(values, of, inputs, form.place)
        elif not all(map(finite, values.values())):
            primal = evaluate(model, inputs, of, engine=form.engine)
        made = Point(primal, form.ends, derivative=form, values=values, compute=compute,
                     place=form.place)  # fmt: skip
        if not form.closed and made.holds(FITS):
            made.entries  # noqa: B018 - raises the errors of rules
    except OnnxJacError:  # the model without residuals may run, or its error is clearer
        return None
    return made


def given_out(
    values: Mapping[str, Any], names: Names, inputs: Mapping[str, Any], place: Place | None
) -> dict[str, Any]:
    """The named values: NumPy arrays, unless the inputs hold tensors."""
    take = place.take if place and any(map(is_kept, inputs.values())) else host
    return {name: values[name] if place is None else take(values[name]) for name in names}
