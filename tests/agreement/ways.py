"""Ways: every way to compute products with J, each compared with the plain product.

A way is a generator of comparisons. `subject.plain` is J @ I of a fresh linearisation at the first
point; results at another point are compared with a fresh linearisation there.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

import onnxjac as oj
from onnxjac import jacobians
from onnxjac.modes.hessian import Hessian
from onnxjac.modes.linear.check import WRONG
from onnxjac.modes.model.primal.evaluate import evaluate

from .contrib import spelled
from .make import Case

Point = dict[str, np.ndarray]


class Compared(NamedTuple):
    """The result of a way, and the expected one."""

    label: str
    got: Any
    wanted: Any


Way = Callable[["Subject"], Iterator[Compared]]

APART = 0.1
"""The share of graphs of which every way linearises anew."""

ALWAYS: list[Way] = []
"""Ways that every trial takes."""

SAMPLED: list[Way] = []
"""Slower ways, of which a trial takes some, or all with --whole."""


def always(way: Way) -> Way:
    ALWAYS.append(way)
    return way


def sampled(way: Way) -> Way:
    SAMPLED.append(way)
    return way


class Subject:
    """A case with its model, its plain Jacobian and its points."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.case, self.rng = case, rng
        self.model = oj.load(case.model)
        self.apart = bool(rng.random() < APART)
        self.refusal = ""

    def linearize(self, point: Mapping[str, Any] | None = None, **options: Any) -> oj.Linearization:
        """J at the first point over residuals that others hold too; new ones for all else, and in
        some of the graphs.
        """
        if point is None and not options and not self.apart:
            return next(self.tapes)._with()
        return oj.linearize(
            self.model, point or self.case.point, of=self.case.of, wrt=self.case.wrt, **options
        )

    @cached_property
    def tapes(self) -> Iterator[oj.Linearization]:
        """J as all rules give it, and as its template does, in turns."""
        return cycle((self.J, self.J.relinearize(self.case.point)))

    def plainly(self, point: Mapping[str, Any]) -> np.ndarray:
        """J @ I of a fresh J, of a model that nothing but what is expected comes from."""
        J = oj.linearize(self.sources[False], point, of=self.case.of, wrt=self.case.wrt)
        return J @ np.eye(J.shape[1])

    def by_torch(self, point: Point) -> np.ndarray | None:
        """J by the interpreter over torch; None without torch, or where it lacks a kernel."""
        try:
            from . import judge

            made = judge.jacobian(spelled(self.case.model), point, self.case.of, self.case.wrt)
        except Exception:
            return None
        return made

    def fresh(self, scalar: bool = False) -> oj.Model:
        """The model, or the model with a loss, without caches left by earlier ways."""
        made: oj.Model = pickle.loads(self.stored_scalar if scalar else self.stored)
        return made

    @cached_property
    def sources(self) -> Mapping[bool, oj.Model]:
        """The model, and the one with a loss, of which results at all points are expected."""
        return Sources(self.fresh)

    @cached_property
    def stored(self) -> bytes:
        return pickle.dumps(oj.load(self.case.model))

    @cached_property
    def stored_scalar(self) -> bytes:
        return pickle.dumps(oj.load(self.scalar))

    @cached_property
    def J(self) -> oj.Linearization:
        return oj.linearize(self.model, self.case.point, of=self.case.of, wrt=self.case.wrt)

    @cached_property
    def plain(self) -> np.ndarray:
        """J @ I, the first product of all."""
        made: np.ndarray = self.J._with() @ np.eye(self.J.shape[1])
        return made

    @cached_property
    def hessian(self) -> Hessian:
        return oj.hessian(self.sources[True], self.case.point, of="loss", wrt=self.case.wrt)

    def random(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape)

    @cached_property
    def scalar(self) -> onnx.ModelProto:
        """The model with a loss: the weighted sum of the sines of the first tensor of `of`."""
        made = copy.deepcopy(self.case.model)
        out = self.case.of[0]
        shape = self.J.codomain[0].shape
        weights = numpy_helper.from_array(self.rng.uniform(0.5, 1.5, shape[1:]), "loss_weights")
        made.graph.initializer.append(weights)
        made.graph.node.extend([
            helper.make_node("Sin", [out], ["loss_sine"]),
            helper.make_node("Mul", ["loss_sine", "loss_weights"], ["loss_parts"]),
            helper.make_node("ReduceSum", ["loss_parts"], ["loss"], keepdims=0),
        ])  # fmt: skip
        kind = onnx.TensorProto.DOUBLE
        made.graph.output.append(helper.make_tensor_value_info("loss", kind, []))
        return made

    # --- points

    def points(self) -> Iterator[tuple[str, Point]]:
        """Points as in an optimiser's loop: other values, zeros, flipped masks, other sizes."""
        here = self.case.point
        yield "near", {n: self.moved(v) for n, v in here.items()}
        zeros = {n: self.moved(v) for n, v in here.items()}
        for value in zeros.values():
            if value.dtype.kind == "f" and value.size:
                value.flat[self.rng.integers(value.size)] = 0
        yield "zeros", zeros
        yield "flipped", {n: self.flipped(v) for n, v in here.items()}
        yield from self.sizes()

    def sizes(self) -> Iterator[tuple[str, Point]]:
        """Points of other batch sizes, where the model leaves the size free."""
        infos = {i.name: i.type.tensor_type.shape.dim for i in self.case.model.graph.input}
        free = {n: d and d[0].dim_param == "N" for n, d in infos.items()}
        sizes = {v.shape[0] for n, v in self.case.point.items() if free[n]}
        for n in (sizes.pop() + 1, 5, 8) if len(sizes) == 1 else ():
            point = {
                name: self.rng.uniform(-1.5, 1.5, (n, *value.shape[1:])) if free[name] else value
                for name, value in self.case.point.items()
            }
            if self.runs(point):
                yield f"batch {n}", point

    def runs(self, point: Point) -> bool:
        """Whether the `of` and `wrt` tensors are finite there."""
        names = [*self.case.of, *self.case.wrt]
        try:
            return finite(*evaluate(self.model, point, names).values())
        except oj.OnnxJacError:
            return False

    def moved(self, value: np.ndarray) -> np.ndarray:
        if value.dtype.kind != "f":
            return value
        return np.asarray(self.rng.uniform(-1.5, 1.5, value.shape), value.dtype)

    def flipped(self, value: np.ndarray) -> np.ndarray:
        if value.dtype.kind == "b":
            return np.asarray(~value)
        if value.dtype.kind == "i":
            return np.asarray(np.maximum(value - 1, 0), value.dtype)
        return np.asarray(-value)


class Sources(dict[bool, oj.Model]):
    """Models that are made when they are first asked for."""

    def __init__(self, make: Callable[[bool], oj.Model]) -> None:
        self.make = make

    def __missing__(self, scalar: bool) -> oj.Model:
        return self.setdefault(scalar, self.make(scalar))


def finite(*arrays: Any) -> bool:
    return all(np.isfinite(a).all() for a in arrays)


# --- at one point


@always
def products(s: Subject) -> Iterator[Compared]:
    m, n = s.J.shape
    yield Compared("J @ I", s.J @ np.eye(n), s.plain)
    yield Compared("J.T @ I", s.J.T @ np.eye(m), s.plain.T)
    J = s.linearize()
    for k in s.rng.permutation(n)[:4]:
        yield Compared(f"J @ e_{k}", J @ np.eye(n)[k], s.plain[:, k])
    for k in s.rng.permutation(m)[:4]:
        yield Compared(f"J.T @ e_{k}", J.T @ np.eye(m)[k], s.plain[k])


@always
def forms(s: Subject) -> Iterator[Compared]:
    m, n = s.J.shape
    J = s.linearize()
    yield Compared("toarray", J.toarray(), s.plain)
    yield Compared("J.T.toarray", J.T.toarray(), s.plain.T)
    J = s.linearize()
    if s.rng.random() < 0.5:
        yield Compared("tosparse", J.tosparse().toarray(), s.plain)
    else:
        yield Compared("J.T.tosparse", J.T.tosparse().toarray(), s.plain.T)
    J = s.linearize()
    if m == n:
        yield Compared("diagonal", J.diagonal(), np.diagonal(s.plain))
        trace = oj.estimators.trace(J, method="exact").value
        yield Compared("trace", trace, np.trace(s.plain))
    G = J.T @ J
    yield Compared("(JᵀJ).diagonal", G.diagonal(), np.diagonal(s.plain.T @ s.plain))


@always
def blocks(s: Subject) -> Iterator[Compared]:
    row = 0
    for out in s.J.codomain:
        column, rows = 0, int(np.prod(out.shape))
        for x in s.J.domain:
            columns = int(np.prod(x.shape))
            wanted = s.plain[row : row + rows, column : column + columns]
            B = s.J[out.name, x.name]
            label = f"J[{out.name!r}, {x.name!r}]"
            yield Compared(label, B @ np.eye(columns), wanted)
            yield Compared(f"{label}.toarray", B.toarray(), wanted)
            column += columns
        row += rows
    v = s.random(s.J.shape[1])
    parts = np.split(v, np.cumsum([np.prod(x.shape, dtype=int) for x in s.J.domain])[:-1])
    named = {x.name: p.reshape(x.shape) for x, p in zip(s.J.domain, parts, strict=True)}
    made = s.J.apply(named)
    rows_made = np.concatenate([made[o.name].ravel() for o in s.J.codomain])
    yield Compared("apply", rows_made, s.plain @ v)


@always
def planned(s: Subject) -> Iterator[Compared]:
    J = s.linearize()
    for count in (10, 300, 10**5):
        yield from both(s, f"plan(products={count})", J.plan(products=count))


def both(s: Subject, label: str, J: Any, wanted: np.ndarray | None = None) -> Iterator[Compared]:
    """JVPs and VJPs: all columns at once of the ones, twice a vector of the others."""
    wanted = s.plain if wanted is None else wanted
    sides = (label, J, wanted), (f"{label}.T", J.T, wanted.T)
    (whole, A, R), (single, B, S) = sides if s.rng.random() < 0.5 else sides[::-1]
    v = s.random(S.shape[1])
    yield Compared(f"{whole} @ I", A @ np.eye(R.shape[1]), R)
    yield Compared(f"{single} @ v", B @ v, S @ v)
    yield Compared(f"{single} @ v again", B @ v, S @ v)


@always
def numpy_engine(s: Subject) -> Iterator[Compared]:
    yield from both(s, "compile('numpy')", s.linearize().compile("numpy"))


@always
def tensors(s: Subject) -> Iterator[Compared]:
    """Products with tensors of PyTorch, where it is installed: also by a program of its own, and
    of a J whose residuals it computed.
    """
    if find_spec("torch") is None:
        return
    import torch

    J, (m, n) = s.linearize(), s.J.shape
    ways = {"J": J, "compile('torch')": J.compile("torch"), "torch": s.linearize(engine="torch")}
    for label, K in ways.items():
        v, u = torch.tensor(s.random(n)), torch.tensor(s.random(m))
        if s.rng.random() < 0.5:
            yield Compared(f"{label} @ tensor", (K @ torch.eye(n).double()).numpy(), s.plain)
            yield Compared(f"{label}.T @ vector", (K.T @ u).numpy(), s.plain.T @ u.numpy())
        else:
            yield Compared(f"{label}.T @ tensor", (K.T @ torch.eye(m).double()).numpy(), s.plain.T)
            yield Compared(f"{label} @ vector", (K @ v).numpy(), s.plain @ v.numpy())
    yield from both(s, "engine='torch'", ways["torch"])
    yield Compared("engine='torch'.toarray", ways["torch"].toarray(), s.plain)


def xla(s: Subject) -> Iterator[Compared]:
    """Values, J v, Jᵀ u and a gradient by XLA beside NumPy's, here and at another point of the same
    shapes; `s.refusal` is what XLA cannot run of it.
    """
    with suppressed("JAX", "XLA") as refused:
        values = s.model.run(s.case.point, engine="jax")
        for name, value in s.model.run(s.case.point, engine="numpy").items():
            if value.dtype.kind in "fiub":
                yield Compared(f"XLA: value of {name}", values[name], value)
        J = s.linearize(engine="jax")
        yield from both(s, "XLA: J", J)
        near = {n: s.moved(v) for n, v in s.case.point.items()}
        for point in (s.case.point, near):
            grad, wanted = (oj.value_and_grad(s.fresh(True), of="loss", wrt=s.case.wrt, engine=e)
                            for e in ("jax", "numpy"))  # fmt: skip
            yield from slopes(grad, wanted, point)
        if s.runs(near) and finite(wanted := s.plainly(near)):
            yield from both(s, "XLA: J (near)", J.relinearize(near), wanted)
    s.refusal = refused.text


def slopes(grad: Any, wanted: Any, point: Point) -> Iterator[Compared]:
    """The value and the gradient of a loss at a point where all numbers are finite."""
    (value, found), (expected, slopes) = grad(point), wanted(point)
    if finite(expected, *slopes.values()):
        yield Compared("XLA: loss", value, expected)
        for name, slope in slopes.items():
            yield Compared(f"XLA: gradient by {name}", found[name], slope)


@sampled
def default_engine(s: Subject) -> Iterator[Compared]:
    yield from both(s, "compile()", s.linearize().compile())


@sampled
def runtime_engine(s: Subject) -> Iterator[Compared]:
    J = s.linearize().compile("onnxruntime", products=s.rng.choice([10, 1000]))
    with suppressed("ONNX Runtime"):
        yield from both(s, "compile('onnxruntime')", J)


class suppressed:
    """Suppress errors that name a known reason, such as a missing kernel of ONNX Runtime."""

    def __init__(self, *reasons: str) -> None:
        self.reasons, self.text = reasons, ""

    def __enter__(self) -> suppressed:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        known = isinstance(error, oj.OnnxJacError) and any(r in str(error) for r in self.reasons)
        self.text = str(error) if known else ""
        return known


@always
def worn(s: Subject) -> Iterator[Compared]:
    """Plain J after 3,000 products."""
    J = s.linearize()
    for side in (J, J.T):
        V = np.ones((side.shape[1], 600))
        for _ in range(5):
            side @ V
    yield from both(s, "after 3,000 products: J", J)


@always
def repeated(s: Subject) -> Iterator[Compared]:
    """A second run, and a second J, at one point; and nobody's arrays are written to."""
    point = {n: np.array(v) for n, v in s.case.point.items()}
    held = {n: np.array(v) for n, v in s.model.constants.items()}
    J = s.linearize()
    K = J.relinearize(s.case.point)
    yield Compared("relinearized here", K @ np.eye(K.shape[1]), s.plain)
    for engine in () if "drawn" in s.case.traits else (None, "numpy"):
        first = s.model.run(s.case.point, engine=engine)
        again = s.model.run(s.case.point, engine=engine)
        for name, value in first.items():
            same = np.array_equal(value, again[name], equal_nan=value.dtype.kind == "f")
            yield Compared(f"run again: {name}", float(same), 1.0)
    for name, value in K.primal.items():
        yield Compared(f"relinearized here: {name}", value, J.primal[name])
    for before, after in ((point, s.case.point), (held, s.model.constants)):
        for name, value in before.items():
            same = np.array_equal(after[name], value)
            yield Compared(f"{name} is as it was", float(same), 1.0)


@sampled
def checkpointed(s: Subject) -> Iterator[Compared]:
    """Two segments, or √n of them."""
    how = bool(s.rng.random() < 0.5) or 2
    yield from both(s, f"checkpoint={how}", s.linearize(checkpoint=how))


@sampled
def pickled(s: Subject) -> Iterator[Compared]:
    J = s.linearize()
    yield from both(s, "pickled", pickle.loads(pickle.dumps(J)))
    J @ np.ones(J.shape[1])
    yield Compared("pickled later", pickle.loads(pickle.dumps(J.T)) @ np.eye(J.shape[0]), s.plain.T)


@always
def algebra(s: Subject) -> Iterator[Compared]:
    J, R = s.linearize(), s.plain
    m, n = R.shape
    yield Compared("(J.T @ J) @ I", (J.T @ J) @ np.eye(n), R.T @ R)
    yield Compared("(J @ J.T) @ I", (J @ J.T) @ np.eye(m), R @ R.T)
    yield Compared("(J + J) @ I", (J + J) @ np.eye(n), 2 * R)
    yield Compared("(3 J - J).T @ I", (3 * J - J).T @ np.eye(m), 2 * R.T)
    yield Compared("(J.T @ J).toarray", (J.T @ J).toarray(), R.T @ R)
    yield Compared("J[...]", J[: m // 2, n // 3 :] @ np.eye(n - n // 3), R[: m // 2, n // 3 :])


# --- at other points


@sampled
def moved(s: Subject) -> Iterator[Compared]:
    """J relinearised along a path, plain, planned and compiled."""
    plain, ready = s.linearize(), s.linearize().plan(products=1000)
    compiled = s.linearize().compile("numpy")
    for label, point in s.points():
        try:
            wanted = s.plainly(point)
        except oj.OnnxJacError:
            continue
        if not finite(wanted):
            continue
        if label in ("near", "flipped") and (known := s.by_torch(point)) is not None:
            yield Compared(f"torch ({label})", wanted, known)
        for name, J in (("", plain), ("plan", ready), ("compile", compiled)):
            K = J.relinearize(point)
            yield from both(s, f"{name} relinearize({label})", K, wanted)
            yield Compared(f"{name} relinearize({label}).toarray", K.toarray(), wanted)
        plain = plain.relinearize(point)
        yield Compared(f"relinearize({label}).tosparse", plain.tosparse(), wanted)
        back = plain.relinearize(s.case.point)
        if label == "near":
            forward = s.rng.random() < 0.5
            yield from by_program(*((back, s.plain) if forward else (back.T, s.plain.T)))
        yield Compared(f"relinearize({label}) and back", back.toarray(), s.plain)


def by_program(J: oj.Linearization, wanted: np.ndarray) -> Iterator[Compared]:
    """Products by the program that all points share, built at once."""
    n = J.shape[1]
    shared = J.structure._shared
    if shared and J.dtype == np.float64 and (program := shared.prepare((n,))):
        products = shared.product(program, J.at, np.eye(n))
        yield Compared("by the program of all points", products.T, wanted)


@sampled
def moved_tensors(s: Subject) -> Iterator[Compared]:
    """J of tensors along a path of points, by its template and its program, and gradients there."""
    if find_spec("torch") is None:
        return
    import torch

    def there(point: Point) -> dict[str, Any]:
        return {n: torch.tensor(x) if x.dtype.kind in "biuf" else x for n, x in point.items()}

    J = s.linearize(there(s.case.point), engine="torch")
    f = oj.value_and_grad(s.fresh(scalar=True), of="loss", wrt=s.case.wrt, engine="torch")
    g = oj.value_and_grad(s.fresh(scalar=True), of="loss", wrt=s.case.wrt)
    for label, point in (("here", s.case.point), *s.points()):
        try:
            wanted, (value, slopes) = s.plainly(point), g(point)
        except oj.OnnxJacError:
            continue
        if not finite(wanted, value, *slopes.values()):
            continue
        J = J.relinearize(there(point))
        (m, n), columns = J.shape, torch.eye(J.shape[1], dtype=torch.float64)
        yield Compared(f"tensors: relinearize({label})", (J @ columns).numpy(), wanted)
        made = J.T @ torch.eye(m, dtype=torch.float64)
        yield Compared(f"tensors: relinearize({label}).T", made.numpy(), wanted.T)
        shared = J.structure._shared
        if shared and J.dtype == np.float64 and (program := shared.prepare((n,))):
            made = shared.product(program, J.at, columns)
            yield Compared(f"tensors: program ({label})", made.numpy().T, wanted)
        found, made = f(there(point))
        yield Compared(f"tensors: value ({label})", np.asarray(found), value)
        for name, slope in slopes.items():
            yield Compared(f"tensors: ∂/∂{name} ({label})", np.asarray(made[name]), slope)


@sampled
def gradients(s: Subject) -> Iterator[Compared]:
    """One `value_and_grad` for all points, which records its program again where it must."""
    f = oj.value_and_grad(s.fresh(scalar=True), of="loss", wrt=s.case.wrt)
    ranks = [len(spec.shape or ()) for spec in s.J.domain]
    for label, point in (("here", s.case.point), *s.points(), ("here again", s.case.point)):
        try:
            J = oj.linearize(s.sources[True], point, of="loss", wrt=s.case.wrt)
            wanted = (J.T @ np.eye(1)).ravel()
        except oj.OnnxJacError:
            continue
        if ranks != [len(spec.shape or ()) for spec in J.domain]:
            continue  # without a turn, the rank of a loop's rows is what a runtime guesses
        if finite(wanted, J.primal["loss"]):
            value, slopes = f(point)
            yield Compared(f"value ({label})", value, J.primal["loss"])
            yield Compared(f"value_and_grad ({label})", flat(J.domain, slopes, ""), wanted)


# --- curvature


def curvature(
    label: str, make: Callable[[], Any], other: Callable[[Point], Any], s: Subject
) -> Iterator[Compared]:
    """A symmetric operator in every way; `make` builds a fresh one, `other` at another point."""
    H = make()
    n = H.shape[1]
    wanted = make() @ np.eye(n)
    if not finite(wanted):
        return
    yield Compared(f"{label} symmetric", wanted, wanted.T)
    yield Compared(f"{label}.toarray", make().toarray(), wanted)
    yield Compared(f"{label}.tosparse", make().tosparse().toarray(), wanted)
    yield Compared(f"{label}.diagonal", make().diagonal(), np.diagonal(wanted))
    yield from both(s, f"{label}.plan", make().plan(products=1000), wanted)
    yield from both(s, f"{label}.compile('numpy')", make().compile("numpy"), wanted)
    for name, point in s.points():
        try:
            there = other(point)
            elsewhere = there @ np.eye(there.shape[1])
        except oj.OnnxJacError:
            continue
        if finite(elsewhere):
            H = H.relinearize(point)
            yield Compared(f"{label}.relinearize({name})", H @ np.eye(H.shape[1]), elsewhere)


@sampled
def hessians(s: Subject) -> Iterator[Compared]:
    def at(point: Point) -> Any:
        return oj.hessian(s.sources[True], point, of="loss", wrt=s.case.wrt)

    model = s.fresh(scalar=True)
    H = oj.hessian(model, s.case.point, of="loss", wrt=s.case.wrt)
    try:
        from . import judge

        wanted = judge.hessian(spelled(s.scalar), s.case.point, "loss", s.case.wrt)
    except Exception:  # no torch, or no kernel there
        wanted = None
    if wanted is not None:
        yield Compared("hessian by torch", H @ np.eye(H.shape[1]), wanted)
    yield from curvature("hessian", lambda: Hessian(H.J._with(), H.function), at, s)


@sampled
def gauss_newton(s: Subject) -> Iterator[Compared]:
    out = s.case.of[0]
    if out in s.case.wrt:
        return
    options: dict[str, Any] = {"of": "loss", "at": out, "wrt": s.case.wrt}
    model = s.fresh(scalar=True)
    rows = int(np.prod(s.J.codomain[0].shape))
    J = s.plain[:rows]
    H = oj.hessian(model, s.case.point, of="loss", wrt=out) @ np.eye(rows)
    G = oj.gauss_newton(model, s.case.point, **options)
    yield Compared("gauss_newton", G @ np.eye(J.shape[1]), J.T @ H @ J)
    yield from curvature(
        "gauss_newton", lambda: oj.gauss_newton(model, s.case.point, **options),
        lambda point: oj.gauss_newton(s.sources[True], point, **options), s,
    )  # fmt: skip


# --- exports


def runner(model: onnx.ModelProto) -> Callable[[Point], Point]:
    """The outputs by ONNX Runtime, or by our NumPy engine where ONNX Runtime lacks kernels or
    infers wrong shapes: it counts pooling windows that start behind the last entry.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
    except Exception as error:
        refusals = "NOT_IMPLEMENTED", "implementation for", "ShapeInferenceError"
        if not any(text in str(error) for text in refusals):
            raise
        return partial(oj.load(model).run, engine="numpy")
    names = [o.name for o in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def exported(mode: str, s: Subject) -> Iterator[Compared]:
    """An exported derivative at the point, at other points, and at other batch sizes."""
    scalar = mode in ("grad", "hvp")
    model, of = s.fresh(scalar), ["loss"] if scalar else s.case.of
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            made = oj.export(model, mode, s.case.point, of=of, wrt=s.case.wrt)
        except oj.UnsupportedOp:
            return
    told = " ".join(str(w.message) for w in said)
    shapes, known = {i.name: dims_of(i) for i in made.graph.input}, None
    run = runner(made)
    for label, point in (("here", s.case.point), *s.points()):
        frozen = label != "here" and any(
            name not in shapes and not np.array_equal(value, s.case.point[name])
            for name, value in point.items()
        )
        fits = all(
            all(d in (None, k) for d, k in zip(shapes[n], v.shape, strict=True))
            for n, v in point.items() if n in shapes
        )  # fmt: skip
        if frozen or not fits or (label != "here" and "holds only" in told):
            continue
        try:
            J = oj.linearize(s.sources[scalar], point, of=of, wrt=s.case.wrt)
            R = J @ np.eye(J.shape[1])
        except oj.OnnxJacError:
            continue
        if not finite(R, *J.primal.values()):
            continue
        ranks = [len(x.shape) for x in (*J.domain, *J.codomain)]
        if label == "here":
            known = ranks
        if ranks != known:  # stacks of no iterations, whose shape is unknown
            continue
        feeds = {n: v for n, v in point.items() if n in shapes}
        at = Exported(f"export {mode} ({label})", s, run, feeds, J, R, point)
        yield from EXPORTS[mode](at)


def dims_of(info: onnx.ValueInfoProto) -> list[int | None]:
    """The dimensions of an input; None for a free size."""
    dims = info.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else None for d in dims]


def by_name(specs: Any, v: np.ndarray, suffix: str) -> Point:
    sizes = [int(np.prod(x.shape)) for x in specs]
    parts = np.split(v, np.cumsum(sizes)[:-1])
    return {f"{x.name}{suffix}": p.reshape(x.shape) for x, p in zip(specs, parts, strict=True)}


def flat(specs: Any, values: Point, suffix: str) -> np.ndarray:
    """The tensors, concatenated; an output whose name an input has already ends in `_1`."""
    names = (f"{x.name}{suffix}" for x in specs)
    return np.concatenate([np.ravel(values[n if n in values else f"{n}_1"]) for n in names])


class Exported(NamedTuple):
    """An exported model at a point, beside J there."""

    label: str
    subject: Subject
    run: Callable[[Point], Point]
    feeds: Point
    J: oj.Linearization
    R: np.ndarray
    point: Point


def primals(at: Exported, made: Point) -> Iterator[Compared]:
    for name, value in at.J.primal.items():
        if name in made:
            yield Compared(f"{at.label} {name}", made[name], value)


def as_jvp(at: Exported) -> Iterator[Compared]:
    v = at.subject.random(at.R.shape[1])
    values = at.run(at.feeds | by_name(at.J.domain, v, "_tangent"))
    yield from primals(at, values)
    yield Compared(at.label, flat(at.J.codomain, values, "_tangent"), at.R @ v)


def as_vjp(at: Exported) -> Iterator[Compared]:
    u = at.subject.random(at.R.shape[0])
    values = at.run(at.feeds | by_name(at.J.codomain, u, "_cotangent"))
    yield from primals(at, values)
    yield Compared(at.label, flat(at.J.domain, values, "_cotangent"), at.R.T @ u)


def as_grad(at: Exported) -> Iterator[Compared]:
    values = at.run(at.feeds)
    yield from primals(at, values)
    yield Compared(at.label, flat(at.J.domain, values, "_grad"), at.R[0])


def as_hvp(at: Exported) -> Iterator[Compared]:
    v = at.subject.random(at.R.shape[1])
    values = at.run(at.feeds | by_name(at.J.domain, v, "_tangent"))
    yield Compared(f"{at.label} grad", flat(at.J.domain, values, "_grad"), at.R[0])
    wanted = at.subject.hessian.relinearize(at.point) @ v
    if finite(wanted):
        yield Compared(at.label, flat(at.J.domain, values, "_hvp"), wanted)


def as_jacobian(at: Exported) -> Iterator[Compared]:
    values = at.run(at.feeds)
    row = 0
    for out in at.J.codomain:
        rows, column = int(np.prod(out.shape)), 0
        for x in at.J.domain:
            columns = int(np.prod(x.shape))
            block = at.R[row : row + rows, column : column + columns]
            wanted = block.reshape((*out.shape, *x.shape))
            got = values[f"{out.name}_{x.name}_jacobian"]
            if got.shape != wanted.shape:  # per sample: (batch, *of, *wrt)
                got = spread(got, wanted.shape, len(out.shape))
            yield Compared(f"{at.label} {out.name} by {x.name}", got, wanted)
            column += columns
        row += rows


def spread(blocks: np.ndarray, shape: tuple[int, ...], rank: int) -> np.ndarray:
    """The whole Jacobian from blocks per sample, zero between samples."""
    whole = np.zeros(shape)
    for k, block in enumerate(blocks):
        whole[(k, *[slice(None)] * (rank - 1), k)] = block
    return whole


EXPORTS: dict[str, Callable[..., Iterator[Compared]]] = {
    "jvp": as_jvp, "vjp": as_vjp, "grad": as_grad, "hvp": as_hvp, "jacobian": as_jacobian,
}  # fmt: skip


@sampled
def export_jvp(s: Subject) -> Iterator[Compared]:
    yield from exported("jvp", s)


@sampled
def export_vjp(s: Subject) -> Iterator[Compared]:
    yield from exported("vjp", s)


@sampled
def export_jacobian(s: Subject) -> Iterator[Compared]:
    yield from exported("jacobian", s)


@sampled
def export_grad(s: Subject) -> Iterator[Compared]:
    yield from exported("grad", s)


@sampled
def export_hvp(s: Subject) -> Iterator[Compared]:
    yield from exported("hvp", s)


@sampled
def checked(s: Subject) -> Iterator[Compared]:
    found = s.linearize().check()
    right = found.verdict != WRONG  # on kinks there is nothing to compare with
    yield Compared("check" if right else f"check: {found}", float(right), 1.0)


@always
def block_and_stack(s: Subject) -> Iterator[Compared]:
    J, R = s.linearize(), s.plain
    m, n = R.shape
    A = jacobians.Block([[J, J], [None, J]])
    wanted = np.block([[R, R], [np.zeros((m, n)), R]])
    yield Compared("Block", A @ np.eye(2 * n), wanted)
    yield Compared("Block.T", A.T @ np.eye(2 * m), wanted.T)
    yield Compared("stack", jacobians.stack([J, 2 * J]) @ np.eye(n), np.vstack([R, 2 * R]))


QUIET = (products, forms, blocks, planned, numpy_engine, worn, repeated, algebra, block_and_stack,
         pickled)  # fmt: skip
"""Ways that do not draw random numbers again."""
