"""Tapes: the tape of a model at one point after the other.

At the first point all rules are asked, over the values of all tensors; at the next one of the
same shapes, a template is made. It takes as long as some ten points without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians import chosen, common
from ...jacobians.errors import OnnxJacError
from ...ops import numbers
from ..model import Model, TensorSpec
from ..naming.names import Specs, not_floating
from ..primal.engines import onnxruntime as ort
from ..primal.evaluate import evaluate
from ..primal.finite import Later, finite, tame
from ..support.locks import Lock
from .active import ActiveStep
from .record import Drawn, Tape, Values, dag_of, has_tangent, record, shapes_in
from .template import Filled, Signature, Template, names_of, template

KEPT = 8
"""What is remembered of one kind: routes of a model, signatures of a route."""

KEEPING = Lock()
"""Threads remember one after the other: it takes a microsecond."""

ENDS = "ends"
"""Key of the tensors behind columns and rows in what is known of a template."""

Ends = tuple[Specs, Specs, np.dtype]
"""The tensors behind columns and rows, and the dtype that all of them fit into."""


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

    def at(self, point: Mapping[str, Any], signature: Signature | None) -> Tape | Filled:
        """The tape at a point."""
        form = self._met(signature, point)
        filled = form and self._filled(form, point)
        if form and filled and not filled.holds:
            form = self._template(form.types, point, signature or (), nan=True)
            keep(self._known, signature, form)
            filled = form and self._filled(form, point)
        if form and not filled:
            keep(self._known, signature, None)
        return filled or self._read(point, signature)

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

    def _filled(self, form: Template, point: Mapping[str, Any]) -> Filled | None:
        """The template at a point; None where no engine runs what it adds to the model."""
        names = form.residuals if form.few else form.fetched
        try:
            values = self._evaluated(form.model, point, names)
            if form.few and all(map(tame if form.at_hand else finite, values.values())):
                primal: Mapping[str, Any] = Later(self.model, point, self.of, self.engine)
            elif form.few:  # the model says where it is not
                primal = evaluate(self.model, point, self.of, engine=self.engine)
            else:
                primal = self._primal(values)
            tape = Filled(form, values, primal)
            if not form.closed and tape.holds:
                tape.entries  # noqa: B018 - what rules have to say is said now
        except OnnxJacError:  # the model alone may run, or will say what is wrong with it
            return None
        return tape

    def _evaluated(
        self, model: Model, point: Mapping[str, Any], names: tuple[str, ...]
    ) -> dict[str, np.ndarray]:
        """Tensors of the model with its residuals, whose sizes are known."""
        engine = self.engine or ("onnxruntime" if ort.installed() else "numpy")
        try:
            return evaluate(model, point, names, engine=engine)
        except ort.EngineError:
            if self.engine:
                raise
            return evaluate(model, point, names, engine="numpy")

    def _read(self, point: Mapping[str, Any], signature: Signature | None) -> Tape:
        """The tape by all rules; the first one of a signature leaves its shapes and types."""
        values = evaluate(self.model, point, self.names, engine=self.engine)
        if self.model.lean:
            self.model.sessions.clear()  # the template has its own
        types = {name: described(name, value) for name, value in values.items()}
        with self._lock:
            if signature is not None and signature not in self._known:
                keep(self._known, signature, types)
        primal = self._primal(values)
        return Tape(primal, types, record(self.active, values))

    def _primal(self, values: Values) -> dict[str, Any]:
        return {name: values[name] for name in self.of}


def keep(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Remember a value; of too many, the one set first is forgotten."""
    with KEEPING:
        known[key] = value
        known.move_to_end(key)
        if len(known) > KEPT:
            known.popitem(last=False)


def described(name: str, value: Any) -> Any:
    """Shape and dtype of a tensor; what is none, a sequence, stays as it is."""
    return TensorSpec(name, value.shape, value.dtype) if hasattr(value, "dtype") else value


def signature_of(point: Mapping[str, Any]) -> Signature | None:
    """What a template is for: the shapes and types of a point of arrays."""
    if not all(isinstance(array, np.ndarray) for array in point.values()):
        return None
    return tuple((name, a.shape, a.dtype) for name, a in sorted(point.items()))


def drawn(tape: Tape | Filled, of: tuple[str, ...], wrt: tuple[str, ...]) -> Drawn:
    """The DAG of a tape, with its entries."""
    shapes = tape.template.shapes if isinstance(tape, Filled) else shapes_in(tape.types)
    dag = dag_of(tape.entries, shapes, wrt, of, ends_of(tape, of, wrt)[2])
    return Drawn(chosen(numbers, dag), tape.entries)


def ends_of(tape: Tape | Filled, of: tuple[str, ...], wrt: tuple[str, ...]) -> Ends:
    """The tensors at both ends of J; the same at all points of a template."""
    known = tape.template.known if isinstance(tape, Filled) else {}
    if ENDS not in known:
        domain = tuple(floating("wrt", name, tape.types[name]) for name in wrt)
        codomain = tuple(floating("of", name, tape.types[name]) for name in of)
        known[ENDS] = domain, codomain, common(*(spec.dtype for spec in (*domain, *codomain)))
    found: Ends = known[ENDS]
    return found


def floating(role: str, name: str, value: Any) -> TensorSpec:
    """A tensor as it is at the point, where it must be a floating one."""
    if not has_tangent(value):
        raise not_floating(role, name, getattr(value, "dtype", type(value).__name__))
    return TensorSpec(name, value.shape, value.dtype)
