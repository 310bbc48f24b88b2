"""Ports: which inputs and outputs of an operator a derivative passes, as its cases show."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np

from ...jacobians.errors import OnnxJacError, OnnxJacWarning
from ...ops.registry import version
from ..linearize import linearize
from .case import Case
from .cases import CASES

Slot = tuple[int, int]


def passed(op_type: str, domain: str) -> frozenset[Slot]:
    """(output, input) of every block that is not zero in some case of the operator."""
    return _passed(op_type, domain, version())


@cache
def _passed(op_type: str, domain: str, declared: int) -> frozenset[Slot]:
    """The same by one version of the declarations."""
    return frozenset(slot for case in CASES.get((op_type, domain), ()) for slot in slots(case))


@cache
def met(op_type: str, domain: str) -> tuple[frozenset[int], frozenset[int]]:
    """The outputs and the inputs that some case has."""
    cases = CASES.get((op_type, domain), ())
    outputs = {o for case in cases for o in range(case.outputs)}
    inputs = {i for case in cases for i, x in enumerate(case.inputs) if x is not None}
    return frozenset(outputs), frozenset(inputs)


def slots(case: Case) -> set[Slot]:
    """The blocks of a case that are not zero."""
    wrt = case.floating(None)
    try:
        values = case.model.run(case.point, engine="numpy")
    except OnnxJacError:  # an attribute that the reference implementation does not know
        return set()
    of = tuple(n for n in case.results if values[n].dtype.kind == "f")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)
        J = linearize(case.model, case.point, of=of, wrt=wrt, engine="numpy")
    blocks = {(o, i): J[o, i].toarray() for o in of for i in wrt}
    return {
        (case.results.index(o), case.names.index(i)) for (o, i), J in blocks.items() if np.any(J)
    }
