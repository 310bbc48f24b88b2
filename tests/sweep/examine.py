"""One case of the sweep, differentiated and checked in four ways."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxjac.jacobians.errors import OnnxJacWarning, first_line
from onnxjac.jacobians.threads import cached_property
from onnxjac.modes.hessian import hessian
from onnxjac.modes.linear.check import dot_error
from onnxjac.modes.linear.linearization import Linearization
from onnxjac.modes.linearize import linearize
from onnxjac.modes.model.loading.load import load
from onnxjac.modes.model.primal.evaluate import evaluate
from onnxjac.modes.model.primal.inputs import is_float
from onnxjac.modes.model.primal.model import Model
from onnxjac.modes.model.programs import onnxruntime as ort
from onnxjac.modes.recording.derive import jvp_graph, vjp_graph
from onnxjac.modes.training.lowering import lower_gradients
from onnxjac.modes.verify.differences import mismatch
from onnxjac.ops.node import TRAINING

from .cases import BackendCase, between_tensors, moved, tag, with_constants
from .slopes import SINGLE, STEPS, is_single, slope_error

NUMPY = "numpy"

WAYS = ("slope", "adjoint", "graphs", "symmetry")
"""The checks of a case."""

MISSING = re.compile(r"NOT_IMPLEMENTED|no kernel|not supported|MLDataType|ValidateOpset")
"""ONNX Runtime's words for a kernel, a type or an opset that it lacks."""

EXCEPTIONS = {
    "test_affine_grid_2d.*_expanded": "ONNX's body gives Range a vector of one entry where the "
    "schema of Range has a scalar; ONNX Runtime refuses that once it knows the shapes, so the "
    "recorded graphs are run by NumPy",
}
"""Name of a case -> why ONNX Runtime cannot run its recorded graphs."""


@dataclass
class Result:
    """The outcome of a case: the error of each check over the error that the check allows."""

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


def examine(case: BackendCase, ways: Collection[str] = WAYS) -> Result:
    """Some checks of a case; an exception is a failure, and does not end the sweep."""
    result = Result(case.name, case.kind, case.op_type, tag(case.model))
    start = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", OnnxJacWarning)
        attempt(result, "jacobian", lambda: fill(result, plain(case), ways))
    result.seconds = time.perf_counter() - start
    return result


def attempt(result: Result, name: str, check: Callable[[], float]) -> None:
    """Record the error of a check; it is infinite after an exception."""
    try:
        result.errors[name] = check()
    except Exception as error:  # one case must not end the sweep
        result.errors[name] = np.inf
        result.message = result.message or f"{type(error).__name__}: {first_line(error)}"


def plain(case: BackendCase) -> BackendCase:
    """The case between tensors that have derivatives, without training operators."""
    case = with_constants(between_tensors(case))
    if any(node.domain == TRAINING for node in case.model.graph.node):
        return replace(case, model=lower_gradients(case.model))
    return case


def fill(result: Result, case: BackendCase, ways: Collection[str]) -> float:
    """Record the checks at the moved point; returns 0, the error of a successful linearisation."""
    point = moved(case.op_type, case.feeds)
    double = problem(case, point, "float64")
    if double is None:
        return 0.0
    result.zero = not np.any(double.J @ np.random.default_rng(5).standard_normal(double.J.shape[1]))
    checks: dict[str, Callable[[], float]] = {
        "slope": lambda: slopes(double),
        "adjoint": lambda: adjoint(double),
        "graphs": lambda: graphs(result, case, point, double),
        "symmetry": lambda: symmetry(double),
    }
    for way in ways:
        attempt(result, way, checks[way])
    return 0.0


def graphs(result: Result, case: BackendCase, point: dict[str, Any], double: Problem) -> float:
    """Recorded products in ONNX Runtime; in NumPy where ONNX Runtime cannot run them."""
    if ort.installed():
        own = problem(case, point, None)
        assert own is not None
        try:
            error = recorded(own, "onnxruntime")
            result.engine = "onnxruntime"
            return error
        except ort.EngineError as refusal:
            reasons = (why for name, why in EXCEPTIONS.items() if re.fullmatch(name, case.name))
            result.note = next(reasons, "")
            if not result.note and not excused(refusal, own):
                raise
            result.message = result.message or first_line(refusal)
    result.engine = NUMPY
    return recorded(double, NUMPY)


def excused(refusal: ort.EngineError, p: Problem) -> bool:
    """Whether ONNX Runtime lacks a kernel, or refuses the case itself as well."""
    if MISSING.search(str(refusal)):
        return True
    try:
        evaluate(p.model, p.point, p.model.outputs, engine="onnxruntime")
    except ort.EngineError:
        return True
    return False


# -- the checks: the greatest error over the error that is allowed -------------------------------

WIDTHS = {8: 1e-9, 4: 1e-4, 2: 5e-2}
"""Bytes of a float -> the rounding error that a product may have."""


@dataclass(frozen=True)
class Problem:
    """A model at a point, and its Jacobian between all floating inputs and outputs."""

    model: Model
    point: Mapping[str, Any]
    J: Linearization

    @cached_property
    def single(self) -> bool:
        """Whether the model has single precision inside."""
        return is_single(self.model)

    @property
    def tolerance(self) -> float:
        """The rounding error that a product may have, by the narrowest input or output."""
        ends = (np.dtype(spec.dtype).itemsize for spec in (*self.J.domain, *self.J.codomain))
        return WIDTHS[min(self.J.dtype.itemsize, 4 if self.single else 8, *ends)]

    def draw(self, seed: int, specs: Any) -> dict[str, np.ndarray]:
        """Standard normal numbers, in the shape and type of every tensor."""
        rng = np.random.default_rng(seed)
        return {s.name: np.asarray(rng.standard_normal(s.shape), s.dtype) for s in specs}


def problem(case: BackendCase, point: Mapping[str, Any], dtype: str | None) -> Problem | None:
    """The case in double precision or its own; None without floating tensors on both ends.

    A whole model is differentiated with respect to its weights, too.
    """
    model = load(case.model, dtype=dtype)
    weights = {} if case.kind == "node" else model.initializers
    of, wrt = (
        tuple(n for n, spec in side.items() if spec.dtype is not None and is_float(spec.dtype))
        for side in (model.outputs, {**model.inputs, **weights})
    )
    if not of or not wrt:
        return None
    given = {name: x.astype(model.inputs[name].dtype) for name, x in point.items()}
    given.update((name, model.constants[name]) for name in weights if name in wrt)
    return Problem(model, given, linearize(model, given, of=of, wrt=wrt, engine=NUMPY))


def slopes(p: Problem) -> float:
    """J v against central differences, with v in each floating input in turn."""
    steps, enough = (SINGLE, 2e-3) if p.single else (STEPS, 1e-6)
    model = p.J.route.model  # with the draws of random operators fixed

    def run(point: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return evaluate(model, point, p.model.outputs, engine=NUMPY)

    errors = [
        slope_error(run, p.point, {name: v}, finite_part(p, p.J.apply({name: v})), steps, enough)
        for name, v in p.draw(0, p.J.domain).items()
        if v.size
    ]
    return max(errors, default=0.0) / enough


def finite_part(p: Problem, pushed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tangents, with 0 where the primal is infinite, as masks are, and has no slope."""
    return {name: np.where(np.isinf(p.J.primal[name]), 0, dy) for name, dy in pushed.items()}


def adjoint(p: Problem) -> float:
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩."""
    rng = np.random.default_rng(1)
    u, v = (rng.standard_normal(n).astype(p.J.dtype) for n in p.J.shape)
    return dot_error(p.J, u, v) / p.tolerance


def recorded(p: Problem, engine: str) -> float:
    """The JVP and the VJP as graphs, run by an engine, against the products with numbers."""
    of, wrt = (tuple(spec.name for spec in side) for side in (p.J.codomain, p.J.domain))
    errors = []
    for make, K, kind in ((jvp_graph, p.J, "tangent"), (vjp_graph, p.J.T, "cotangent")):
        seeds = p.draw(2, K.domain)
        graph = make(p.model, p.point, of, wrt, NUMPY).model(kind)
        given = {**p.point, **{f"{name}_{kind}": seed for name, seed in seeds.items()}}
        found = evaluate(graph, given, graph.outputs, engine=engine)
        for name, y in K.apply(seeds).items():
            product = found[f"{name}_{kind}"].astype(float)
            errors.append(mismatch(product, y.astype(float), floor=1.0))
    return max(errors) / p.tolerance


def symmetry(p: Problem) -> float:
    """⟨u, H v⟩ = ⟨v, H u⟩ for the Hessian H of a random combination of each output.

    The error is relative to ‖u‖ ‖H v‖.
    """
    wrt = tuple(spec.name for spec in p.J.domain)
    errors = []
    for of, w in p.draw(3, p.J.codomain).items():
        H = hessian(p.model, p.point, of=of, wrt=wrt, weights=w, engine=NUMPY)
        u, v = np.random.default_rng(4).standard_normal((2, H.shape[0])).astype(H.dtype)
        Hu, Hv = H @ u, H @ v
        scale = max(float(np.linalg.norm(u) * np.linalg.norm(Hv)), 1.0)
        errors.append(abs(float(u @ Hv) - float(v @ Hu)) / scale)
    return max(errors) / p.tolerance
