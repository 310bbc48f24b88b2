"""Drawing: the DAG of a tape between some tensors, and these tensors as they are at the point."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import chosen, common
from ...ops import numbers
from ..model import TensorSpec
from ..naming.names import Specs, not_floating
from .record import Drawn, Tape, dag_of, has_tangent, shapes_in
from .template import Filled

ENDS = "ends"
"""Key of the tensors behind columns and rows in what is known of a template."""

Ends = tuple[Specs, Specs, np.dtype]
"""The tensors behind columns and rows, and the dtype that all of them fit into."""


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
