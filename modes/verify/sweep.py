"""The sweep: every case that ONNX ships, differentiated and checked in four ways, and its page."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
import onnx

from ...jacobians.errors import OnnxJacWarning, UnknownTensor, closest, first_line
from ...jacobians.threads import cached_property
from ...ops.node import TRAINING
from ..hessian import hessian
from ..linear.check import dot_error
from ..linear.linearization import Linearization
from ..linearize import linearize
from ..model.loading.load import load
from ..model.loading.upgrade import MICROSOFT
from ..model.primal.engines import onnxruntime as ort
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import is_float
from ..model.primal.model import Model
from ..recording.derive import jvp_graph, vjp_graph
from ..training.lowering import lower_gradients
from .backend_cases import (
    DIFFERENTIABLE,
    NONE,
    UNKNOWN,
    BackendCase,
    all_cases,
    between_tensors,
    moved,
    tag,
    with_constants,
)
from .coverage import BODY, DOMAINS, RULE, beyond, schemas, status
from .differences import SINGLE, STEPS, is_single, mismatch, slope_error

Shard = tuple[int, int]
"""(k, n): every n-th case from the k-th on, k = 1 … n."""

NUMPY = "numpy"


def chosen(operators: Sequence[str], shard: Shard) -> list[int]:
    """The positions of the cases of some operators, or of all, in a shard."""
    known = {case.op_type for case in all_cases()}
    for name in operators:
        if name not in known:
            raise UnknownTensor(f"ONNX has no case of {name!r}.{closest(name, known)}")
    held = [k for k, case in enumerate(all_cases()) if not operators or case.op_type in operators]
    return held[shard[0] - 1 :: shard[1]]


def sweep(positions: Sequence[int], jobs: int) -> Iterator[Result]:
    """The results of some cases, one at a time in their order, from one process or several."""
    jobs = min(jobs, len(positions) // 32)
    if jobs < 2:
        yield from map(examine_at, positions)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(examine_at, positions, chunksize=8)


def examine_at(position: int) -> Result:
    """The case at a position, examined."""
    return examine(all_cases()[position])


# -- one case ------------------------------------------------------------------------------------

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


# -- the page: the same results give the same page -------------------------------------------------

HEAD = """\
# The sweep

Every case that onnx {version} ships to test its backends, differentiated.
`onnxjac sweep -o SWEEP.md` writes this page. A case passes where, at a point moved off kinks,
between all its floating inputs and outputs,

- J v is the slope of the model in double precision, by central differences of fourth order;
- ⟨u, J v⟩ = ⟨Jᵀ u, v⟩;
- J v and Jᵀ u, recorded as graphs, run in ONNX Runtime in the precision of the case, or by NumPy in
  double precision where ONNX Runtime lacks a kernel, a type or the opset, and give the same;
- the Hessian, the linearisation of the recorded gradient, is symmetric.
"""

COLUMNS = "| {} | cases | tagged | unknown | other | passed | of them in ONNX Runtime | |"

TAGS = {
    DIFFERENTIABLE: "have a path from a floating input to a floating output along ports that "
    "ONNX tags differentiable",
    UNKNOWN: "more count if ports of unknown kind do",
    NONE: "others have no such path; those with floating tensors on both ends are checked too",
}


def records(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A record of each case, with errors over allowed errors; null where they are not finite."""
    return [
        {**asdict(r), "failed": r.failed,
         "errors": {name: float(e) if np.isfinite(e) else None for name, e in r.errors.items()}}
        for r in results
    ]  # fmt: skip


def page(results: Sequence[Result]) -> str:
    """Totals, a table of the operators, a table of the whole models, the failures."""
    nodes = [r for r in results if r.kind == "node"]
    models = [r for r in results if r.kind != "node"]
    parts = [HEAD.format(version=onnx.__version__)]
    if nodes:
        parts += [totals(nodes), table("operator", nodes, [r.op_type for r in nodes])]
        parts += [other_domains()] if ort.installed() else []
    if models:
        parts += ["Whole models:\n", table("kind", models, [r.kind for r in models])]
    return "\n".join((*parts, *exceptions(results)))


BEYOND = """\
Operators outside ONNX's default domain, among them {com} of com.microsoft in ONNX Runtime
{version}, and how each is differentiated. A derivative that would pass a refused operator raises
`UnsupportedOp`.

| domain | operator | derivative | |
|---|---|---|---|
{rows}
"""


def other_domains() -> str:
    """A table of the operators of other domains, by how they are differentiated."""
    found = list(beyond())
    count = sum(domain == MICROSOFT for domain, *_ in found)
    rows = "\n".join(f"| {' | '.join(row)} |" for row in found)
    return BEYOND.format(com=count, version=ort.runtime().__version__, rows=rows)


def totals(results: Sequence[Result]) -> str:
    """The number of cases with each tag, and how many of these pass."""
    lines = [f"{len(results)} cases, of which:\n"]
    for kind, text in TAGS.items():
        held = [r for r in results if r.tag == kind]
        checked = [r for r in held if r.checked or r.failed]
        passed = sum(not r.failed for r in checked)
        lines.append(f"- {len(held)} {text}: **{passed} of {len(checked)} pass**")
    zero = sum(r.zero for r in results if r.tag != NONE)
    said = f"\nOf those with a path, {zero} have J = 0, as they compute what is piecewise constant"
    return "\n".join([*lines, said, "or have an empty tensor."]) + "\n"


def table(title: str, results: Sequence[Result], keys: Sequence[str]) -> str:
    """A table with a row for every key."""
    lines = [COLUMNS.format(title), "|---|" + "--:|" * 6 + "---|"]
    for key in sorted(set(keys), key=str.lower):
        group = [r for r, k in zip(results, keys, strict=True) if k == key]
        passed = [r for r in group if r.checked and not r.failed]
        counts = (len(group), *(sum(r.tag == kind for r in group) for kind in TAGS), len(passed),
                  sum(r.engine == "onnxruntime" for r in passed))  # fmt: skip
        lines.append(f"| {key} | {' | '.join(map(str, counts))} | {remark(key, group)} |")
    return "\n".join(lines) + "\n"


def remark(key: str, group: Iterable[Result]) -> str:
    """The checks that failed; else why the derivative is zero or does not exist."""
    failed = sorted({check for r in group for check in r.failed})
    if failed:
        return f"**fails: {', '.join(failed)}**"
    known = schemas()
    domain = next((d for d in DOMAINS if (key, d) in known), None)
    if domain is None:
        return ""
    if not domain and known[key, domain].deprecated:
        return "deprecated: raised to what replaces it when a model is loaded"
    kind, reason = status(key, domain)
    return "" if kind in (RULE, BODY) else reason


def exceptions(results: Sequence[Result]) -> Iterator[str]:
    """One line for every exception with its cases, and for every case that fails."""
    for note in sorted({r.note for r in results if r.note}):
        yield f"- {', '.join(r.name for r in results if r.note == note)}: {note}."
    for r in results:
        if r.failed:
            errors = ", ".join(f"{name} {r.errors[name]:.1e}" for name in r.failed)
            yield f"- {r.name} fails ({errors} times what is allowed): {r.message}"
