"""Tape: the model at a point, with the Jacobian blocks of its steps and the DAG that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ....jacobians import Dag, chosen
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.threads import Lock, cached_property
from ....ops import numbers
from .record import Ends, Entry, Names, Values, dag_of, entry_of
from .template import Template


class Tape:
    """The model at a point: `primal` are the tensors of `of`, `ends` the tensors behind columns and
    rows of J; `entries` and `dag` are its structure, over tensors of PyTorch if there is a `place`.

    A tape of a `template` holds the `values` that one run of the template's model gave; its items
    are the residuals, the arrays of the graph values that the template's operators hold, by the
    identity of these. Residuals, entries, DAG and a `primal` that is given as a function are made
    when they are first needed, and once for all threads.
    """

    def __init__(
        self, primal: Mapping[str, Any] | Callable[[], Mapping[str, Any]], ends: Ends, *,
        entries: tuple[Entry, ...] | None = None, dag: Dag | None = None,
        template: Template | None = None, values: Values | None = None, place: Place | None = None,
    ) -> None:  # fmt: skip
        self.ends, self.template, self.place = ends, template, place
        self._primal, self._entries, self._dag = primal, entries, dag
        self._parts: WeakValueDictionary[tuple[Names, Names], Dag] = WeakValueDictionary()
        self._lock = Lock()
        self._values, self._views = values or {}, template.views if template else {}
        self._shown = dict[int, Any]()
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
        self.__init__(**state)  # type: ignore[misc]

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

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The active steps with their blocks; arrays that no operator holds are released."""
        with self._lock:
            if self._entries is None:
                assert self.template is not None
                residuals, values = self.residuals, self._values
                self._entries = tuple(
                    part.at(residuals, self.place) if isinstance(part, Entry)
                    else entry_of(part, values, numbers, self.place) for part in self.template.parts
                )  # fmt: skip
                self._shown = residuals
                self._views = {key: self._views[key] for key in self._shown}
                self._values = {}
            return self._entries

    @property
    def dag(self) -> Dag:
        """The DAG of the blocks."""
        with self._lock:
            if self._dag is None:
                assert self.template is not None
                shapes, (wrt, of) = self.template.shapes, self.names
                dag = dag_of(self.entries, shapes, wrt, of, self.ends[2])
                self._dag = chosen(self._op, dag)
            return self._dag

    def between(self, of: Names, wrt: Names) -> Dag:
        """The part of the DAG from some of the tensors of `wrt` to some of those of `of`."""
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

    def __getitem__(self, key: int) -> Any:
        # read in the opposite order in which `entries`, in another thread, replaces them
        values, shown = self._values, self._shown
        if key not in shown:
            name, view = self._views[key]
            shown.setdefault(key, view(values[name]))
        return shown[key]

    @property
    def residuals(self) -> dict[int, np.ndarray]:
        """All residuals."""
        return {key: self[key] for key in self.template.held} if self.template else {}

    @cached_property
    def bound(self) -> Mapping[int, np.ndarray]:
        """The residuals as a program for all points is bound to them: C-contiguous, and the
        `turned` ones of the template transposed.
        """
        turned = self.template.turned if self.template else ()
        found = {key: x.T if key in turned else x for key, x in self.residuals.items()}
        if self.place is not None:
            return found
        return {key: np.asarray(array, order="C") for key, array in found.items()}

    @cached_property
    def fits(self) -> bool:
        """Whether no tensor that a rule of the template asked about has a NaN."""
        asked = self.template.not_nan if self.template else ()
        return not any((self[key] != self[key]).any() for key in asked)
