"""Tapes: the tape of a model at one point after the other.

At the first point all rules are read over the values of all tensors. At the second point of the
same shapes a template is made, which takes about as long as ten points without one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...jacobians import Dag, Shape, chosen, common
from ...jacobians.errors import OnnxJacError
from ...ops import numbers
from ..model import Model, TensorSpec
from ..naming.names import Specs, not_floating
from ..primal.engines import onnxruntime as ort
from ..primal.evaluate import evaluate
from ..primal.finite import Later, finite, tame
from ..support.locks import Lock
from ..support.once import Once, known
from .active import ActiveStep
from .record import Entry, Values, dag_of, has_tangent, record, shapes_in
from .template import ResidualsAtPoint, Signature, Template, names_of, template

KEPT = 8
"""The most routes that are cached for a model, and templates for a route."""

KEEPING = Lock()
"""The lock of all caches; an entry takes a microsecond."""

ENDS = "ends"
"""Key, in a template's cache, of the tensors behind columns and rows."""

ALIKE = "alike"
"""Key, in the cache of a DAG, of the cache of the template that the DAG was made from."""

Ends = tuple[Specs, Specs, np.dtype]
"""The tensors behind columns and rows, and their common dtype."""


@dataclass(frozen=True)
class Tape:
    """The model at a point: the tensors of `of`, the ends of J, its entries and their DAG.

    At a point of a template, entries and DAG are made from the `residuals` when they are first
    needed.
    """

    primal: Mapping[str, Any]
    ends: Ends
    entries: Once[tuple[Entry, ...]]
    dag: Once[Dag]
    residuals: ResidualsAtPoint | None = None

    def __getstate__(self) -> dict[str, Any]:
        """With entries and DAG in place of the residuals."""
        return {**vars(self), "residuals": None}


class Tapes:
    """The tape between `wrt` and `of` at any point."""

    def __init__(
        self, model: Model, active: tuple[ActiveStep, ...], of: tuple[str, ...],
        wrt: tuple[str, ...], engine: str | None,
    ) -> None:  # fmt: skip
        self.model, self.active, self.of, self.wrt, self.engine = model, active, of, wrt, engine
        met = (name for a in active for name in names_of(a))
        self.names = tuple(dict.fromkeys((*met, *of, *wrt)))
        self._known: OrderedDict[Signature | None, dict[str, Any] | Template | None] = OrderedDict()
        self._lock = Lock()

    def at(self, point: Mapping[str, Any], signature: Signature | None) -> Tape:
        """The tape at a point."""
        form = self._met(signature, point)
        tape = form and self._filled(form, point)
        if form and tape and tape.residuals is not None and not tape.residuals.fit:
            form = self._template(form.types, point, signature or (), nan=True)
            keep(self._known, signature, form)
            tape = form and self._filled(form, point)
        if form and not tape:
            keep(self._known, signature, None)
        return tape or self._read(point, signature)

    def _met(self, signature: Signature | None, point: Mapping[str, Any]) -> Template | None:
        """The template of a signature, from its second point on."""
        with self._lock:
            known = self._known.get(signature)
            if isinstance(known, dict):
                known = self._template(known, point, signature or ())
                keep(self._known, signature, known)
            return known

    def _template(
        self, types: Mapping[str, Any], point: Mapping[str, Any], signature: Signature,
        *, nan: bool = False,
    ) -> Template | None:  # fmt: skip
        try:
            return template(
                self.model, point, self.active, self.of, types, self.engine, nan=nan
            )
        except OnnxJacError:  # something cannot be recorded, or not run
            return None
        finally:
            if self.model.lean:
                self.model.sessions.clear()

    def _filled(self, form: Template, point: Mapping[str, Any]) -> Tape | None:
        """The tape from a template; None where no engine runs the nodes that it adds."""
        names = form.residuals if form.few else form.fetched
        try:
            values = self._evaluated(form.model, point, names)
            if form.few and all(map(tame if form.at_hand else finite, values.values())):
                primal: Mapping[str, Any] = Later(self.model, point, self.of, self.engine)
            elif form.few:  # the model itself says where a tensor is not finite
                primal = evaluate(self.model, point, self.of, engine=self.engine)
            else:
                primal = self._primal(values)
            residuals = ResidualsAtPoint(form, values)
            entries = Once(residuals.entries)
            if ENDS not in form.known:
                form.known[ENDS] = ends_of(form.types, self.of, self.wrt)
            if not form.closed and residuals.fit:
                entries.value  # noqa: B018 - what rules have to say is said now
        except OnnxJacError:  # the model without residuals may run, or its error is clearer
            return None
        dag = entries.then(partial(self._built, form))
        return Tape(primal, form.known[ENDS], entries, dag, residuals)

    def _built(self, form: Template, entries: tuple[Entry, ...]) -> Dag:
        """The DAG at a point of a template, alike at all points unless integers differ."""
        dag = self._dag(entries, form.shapes, form.known[ENDS][2])
        if form.closed and not form.has_integers:
            dag.known[ALIKE] = form.known
        return dag

    def _dag(
        self, entries: tuple[Entry, ...], shapes: Mapping[str, Shape], dtype: np.dtype
    ) -> Dag:
        return chosen(numbers, dag_of(entries, shapes, self.wrt, self.of, dtype))

    def _evaluated(
        self, model: Model, point: Mapping[str, Any], names: tuple[str, ...]
    ) -> dict[str, np.ndarray]:
        """Tensors of the model that computes residuals; it has static shapes."""
        engine = self.engine or ("onnxruntime" if ort.installed() else "numpy")
        try:
            return evaluate(model, point, names, engine=engine)
        except ort.EngineError:
            if self.engine:
                raise
            return evaluate(model, point, names, engine="numpy")

    def _read(self, point: Mapping[str, Any], signature: Signature | None) -> Tape:
        """The tape by all rules; the first one of a signature leaves types for a template."""
        values = evaluate(self.model, point, self.names, engine=self.engine)
        if self.model.lean:
            self.model.sessions.clear()  # the template has its own
        types = {name: described(name, value) for name, value in values.items()}
        with self._lock:
            if signature is not None and signature not in self._known:
                keep(self._known, signature, types)
        primal, ends = self._primal(values), ends_of(types, self.of, self.wrt)
        entries = record(self.active, values)
        dag = self._dag(entries, shapes_in(types), ends[2])
        return Tape(primal, ends, known(entries), known(dag))

    def _primal(self, values: Values) -> dict[str, Any]:
        return {name: values[name] for name in self.of}


def keep(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Cache a value; the oldest entry goes where there are too many."""
    with KEEPING:
        known[key] = value
        known.move_to_end(key)
        if len(known) > KEPT:
            known.popitem(last=False)


def described(name: str, value: Any) -> Any:
    """Shape and dtype of a tensor; a sequence stays as it is."""
    return TensorSpec(name, value.shape, value.dtype) if hasattr(value, "dtype") else value


def signature_of(point: Mapping[str, Any]) -> Signature | None:
    """The shapes and types of a point, for which a template holds; None if it is not all arrays."""
    if not all(isinstance(array, np.ndarray) for array in point.values()):
        return None
    return tuple((name, a.shape, a.dtype) for name, a in sorted(point.items()))


def ends_of(types: Mapping[str, Any], of: tuple[str, ...], wrt: tuple[str, ...]) -> Ends:
    """The tensors at both ends of J."""
    domain = tuple(floating("wrt", name, types[name]) for name in wrt)
    codomain = tuple(floating("of", name, types[name]) for name in of)
    return domain, codomain, common(*(spec.dtype for spec in (*domain, *codomain)))


def floating(role: str, name: str, value: Any) -> TensorSpec:
    """The spec of a tensor at the point; raises `InputError` for a tensor that is not floating."""
    if not has_tangent(value):
        raise not_floating(role, name, getattr(value, "dtype", type(value).__name__))
    return TensorSpec(name, value.shape, value.dtype)
