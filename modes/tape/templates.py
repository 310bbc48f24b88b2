"""Templates: what a route knows of its tape before it knows the numbers of a point."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians.errors import OnnxJacError
from ..model import Model
from ..primal.engines import onnxruntime as ort
from ..primal.evaluate import evaluate
from .active import ActiveStep
from .record import Past, Tape
from .template import Signature, Template, names_of, template
from .types import types_of

KEPT = 4
"""Templates of one route, one for each signature, that are kept."""


class Templates:
    """The tape of a model between `wrt` and `of` at any point, by a template for its shapes."""

    def __init__(
        self, model: Model, active: tuple[ActiveStep, ...], of: tuple[str, ...],
        wrt: tuple[str, ...], engine: str | None,
    ) -> None:  # fmt: skip
        self.model, self.active, self.of, self.wrt = model, active, of, wrt
        self.engine = engine or ("onnxruntime" if ort.installed() else "numpy")
        self._known: OrderedDict[Signature, Template | None] = OrderedDict()

    def tape(self, point: Mapping[str, Any], past: Past | None) -> Tape | None:
        """The tape at a point; None where there is no template for it, or no engine runs it."""
        signature = signature_of(point)
        found = None if signature is None else self._template(point, signature)
        if found is None or signature is None:
            return None
        try:
            values = evaluate(found.model, point, found.fetched, engine=self.engine)
        except OnnxJacError:  # the model alone may run, or will say what is wrong with it
            self._known[signature] = None
            return None
        primal = {name: values[name] for name in self.of}
        return Tape(primal, found.types, found.entries(values, past))

    def _template(self, point: Mapping[str, Any], signature: Signature) -> Template | None:
        if signature not in self._known:
            self._known[signature] = self._made(point, signature)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return self._known[signature]

    def _made(self, point: Mapping[str, Any], signature: Signature) -> Template | None:
        names = {*self.of, *self.wrt, *(name for a in self.active for name in names_of(a))}
        types = types_of(self.model, point, names)
        if types is None:
            return None
        return template(self.model, point, self.active, self.of, types, signature)


def signature_of(point: Mapping[str, Any]) -> Signature | None:
    """What a template is for: the shapes and types of a point of arrays."""
    if not all(isinstance(array, np.ndarray) for array in point.values()):
        return None
    return tuple((name, a.shape, a.dtype) for name, a in sorted(point.items()))
