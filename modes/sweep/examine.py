"""Examine: one case, checked in every way; nothing it does ends the sweep."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...jacobians.errors import OnnxJacWarning
from ...ops.node import TRAINING
from ..loading.messages import first_line
from ..primal.engines import onnxruntime as ort
from ..primal.evaluate import evaluate
from ..training.lowering import lower_gradients
from . import checks
from .cases import Case
from .checks import NUMPY, Problem, problem
from .constants import with_constants
from .containers import between_tensors
from .paths import tag
from .points import moved

WAYS = ("slope", "adjoint", "graphs", "symmetry")
"""The checks of a case: see `checks`."""

MISSING = re.compile(r"NOT_IMPLEMENTED|no kernel|not supported|MLDataType|ValidateOpset")
"""What ONNX Runtime says where it has no kernel, no such type or no such opset."""

EXCEPTIONS = {
    "test_affine_grid_2d.*_expanded": "ONNX's body gives Range a vector of one entry where the "
    "schema of Range has a scalar; ONNX Runtime refuses that once it knows the shapes, so the "
    "recorded graphs are run by NumPy",
}
"""Name of a case -> why its recorded graphs are none for ONNX Runtime."""


@dataclass
class Result:
    """What came of a case: the error of every check over the error that it allows."""

    name: str
    kind: str
    op_type: str
    tag: str
    errors: dict[str, float] = field(default_factory=dict)
    zero: bool = False
    engine: str = ""
    message: str = ""
    note: str = ""
    seconds: float = 0.0

    @property
    def checked(self) -> bool:
        """Whether there was anything to check: floating tensors on both ends."""
        return "slope" in self.errors

    @property
    def failed(self) -> tuple[str, ...]:
        """The checks that failed."""
        return tuple(name for name, error in self.errors.items() if not error <= 1)


def examine(case: Case, ways: Collection[str] = WAYS) -> Result:
    """The checks of one case, out of `WAYS`."""
    result = Result(case.name, case.kind, case.op_type, tag(case.model))
    start = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", OnnxJacWarning)
        attempt(result, "jacobian", lambda: fill(result, plain(case), ways))
    result.seconds = time.perf_counter() - start
    return result


def attempt(result: Result, name: str, check: Callable[[], float]) -> None:
    """A check of that name; an exception is a failure."""
    try:
        result.errors[name] = check()
    except Exception as error:
        result.errors[name] = np.inf
        result.message = result.message or f"{type(error).__name__}: {first_line(error)}"


def plain(case: Case) -> Case:
    """The case between tensors in which it has derivatives, without training operators."""
    case = with_constants(between_tensors(case))
    if any(node.domain == TRAINING for node in case.model.graph.node):
        return replace(case, model=lower_gradients(case.model))
    return case


def fill(result: Result, case: Case, ways: Collection[str]) -> float:
    """The checks at the moved point; 0, as there was no failure on the way."""
    point = moved(case.op_type, case.feeds)
    double = problem(case, point, "float64")
    if double is None:
        return 0.0
    result.zero = checks.is_zero(double)
    every = (
        lambda: checks.slopes(double),
        lambda: checks.adjoint(double),
        lambda: graphs(result, case, point, double),
        lambda: checks.symmetry(double),
    )
    for way, check in zip(WAYS, every, strict=True):
        if way in ways:
            attempt(result, way, check)
    return 0.0


def graphs(result: Result, case: Case, point: dict[str, Any], double: Problem) -> float:
    """Recorded products in ONNX Runtime; by NumPy where it cannot run them."""
    if ort.installed():
        own = problem(case, point, None)
        assert own is not None
        try:
            error = checks.recorded(own, "onnxruntime")
            result.engine = "onnxruntime"
            return error
        except ort.EngineError as refusal:
            result.note = exception(case.name)
            if not result.note and not excused(refusal, own):
                raise
            result.message = result.message or first_line(refusal)
    result.engine = NUMPY
    return checks.recorded(double, NUMPY)


def exception(name: str) -> str:
    """The reason that is listed for a case, empty where there is none."""
    return next((reason for case, reason in EXCEPTIONS.items() if re.fullmatch(case, name)), "")


def excused(refusal: ort.EngineError, p: Problem) -> bool:
    """Whether ONNX Runtime lacks a kernel, or refuses the case itself as well."""
    if MISSING.search(str(refusal)):
        return True
    try:
        evaluate(p.model, p.point, p.model.outputs, engine="onnxruntime")
    except ort.EngineError:
        return True
    return False
