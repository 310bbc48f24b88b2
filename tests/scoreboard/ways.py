"""Ways: how each library takes dᵏ/dtᵏ of t ↦ Σ u f(x + t v), k = 1 … 4, at t = 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import onnxjac as oj

from .points import OPERATORS, Line, Place, Still

ORDER = 4
"""The highest order."""

ALL, SECOND, DEEP = range(1, ORDER + 1), (2,), (3, 4)

Curve = Callable[[Any], Any]


@dataclass(frozen=True)
class Way:
    """How a derivative is taken, of which orders; `together`: the result has all orders up to one.

    A way that traces functions for seconds goes `every` so many operators, at the points whose
    shapes are traced once.
    """

    name: str
    take: Callable[[Any, int], Any]
    orders: Sequence[int] = ALL
    together: bool = False
    every: int = 0

    def goes(self, place: Place) -> bool:
        """Whether the way is gone at a place."""
        if not self.every:
            return True
        return place.is_alike and OPERATORS.index(place.operator) % self.every == 0


@dataclass(frozen=True)
class Library:
    """A library: what a line is in it, and its ways of a derivative of an order.

    `curve` gives None where the library has no expression for the operator.
    """

    name: str
    package: str
    curve: Callable[[Line], Any]
    value: Callable[[Any], float]
    ways: tuple[Way, ...]

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package) is not None

    @property
    def version(self) -> str:
        """The version that is installed, as the package index names it."""
        for name in (self.package.replace("_", "-"), f"{self.package}-cpu"):
            try:
                return version(name)
            except ImportError:
                continue
        return "not known"


def compiled(text: str, count: int, names: dict[str, Any]) -> Callable[[list[Any]], Any]:
    """An operator as a function of its inputs, in the words of a library."""
    code = text.format(*(f"x[{k}]" for k in range(count)),
                       all=", ".join(f"x[{k}]" for k in range(count)))  # fmt: skip
    run: Callable[[list[Any]], Any] = eval(f"lambda x: {code}", names)  # of this folder's tables
    return run


def expression(line: Line, library: str, names: dict[str, Any]) -> Curve | None:
    """The operator at a line in the words of a library; None where it has none."""
    text = line.place.expressions.get(library)
    return None if text is None else compiled(text, len(line.case.inputs), names)


def moved(line: Line, t: Any, tensor: Callable[[np.ndarray], Any]) -> list[Any]:
    """x + t v."""
    x: list[Any] = []
    for name, a in zip(line.case.names, line.case.inputs, strict=True):
        if name in line.v:
            x.append(tensor(np.array(a)) + t * tensor(np.array(line.v[name])))
        else:
            x.append(a if a is None else tensor(np.array(a)))
    return x


def first(y: Any) -> Any:
    """The first output of several."""
    return y[0] if isinstance(y, tuple | list) else y


# -- PyTorch ---------------------------------------------------------------------------------------


def torch_curve(line: Line) -> Curve | None:
    import torch

    run = expression(line, "torch", {"torch": torch, "F": torch.nn.functional})
    u = torch.from_numpy(line.u)
    return run and (lambda t: (first(run(moved(line, t, torch.from_numpy))).reshape(-1) * u).sum())


def torch_zero() -> Any:
    import torch

    return torch.zeros((), dtype=torch.float64)


def torch_forward(f: Curve, order: int) -> Any:
    """All orders up to one: each nesting adds a derivative of the highest."""
    import torch

    def step(g: Curve) -> Curve:
        def run(t: Any) -> Any:
            before, after = torch.func.jvp(g, (t,), (torch.ones_like(t),))
            return (*before, after[-1])

        return run

    def value(t: Any) -> Any:
        return (f(t),)

    run: Curve = value
    for _ in range(order):
        run = step(run)
    return run(torch_zero())[1:]


def torch_backward(f: Curve, order: int) -> Any:
    import torch

    t = torch_zero().requires_grad_()
    y = f(t)
    for _ in range(order):
        if not y.requires_grad:
            return torch.zeros_like(t)
        y = torch.autograd.grad(y, t, create_graph=True, allow_unused=True)[0]
        y = torch.zeros_like(t) if y is None else y
    return y.detach()


def torch_mixed(f: Curve, order: int) -> Any:
    import torch

    return torch.func.hessian(f)(torch_zero())


# -- JAX -------------------------------------------------------------------------------------------


def jax_curve(line: Line) -> Line | None:
    return line if "jax" in line.place.expressions else None


def jax_value(line: Line) -> float:
    return jax_run(line, "value", 1)


def jax_run(line: Line, way: str, order: int) -> float:
    """A derivative by a compiled program of all orders, which lines of the same shapes share."""
    import jax

    with jax.enable_x64(True):
        program = jax_program(line.place.expressions["jax"], line.still, way)
        return float(program(*line.moving, line.u)[order - 1])


@lru_cache(64)
def jax_program(text: str, still: Still, way: str) -> Callable[..., list[Any]]:
    """(x, v, u) ↦ dᵏ/dtᵏ Σ u f(x + t v) for all orders k; jit: op by op compiles far more."""
    import jax
    import jax.numpy as jnp

    names = {"jnp": jnp, "nn": jax.nn, "lax": jax.lax, "linalg": jnp.linalg, "jax": jax,
             "special": jax.scipy.special}  # fmt: skip
    run = compiled(text, len(still), names)
    fixed = [None if held is None else np.frombuffer(held[2], held[0]).reshape(held[1])
             if held[2] else held[2] for held in still]  # fmt: skip

    def all_orders(x: list[Any], v: list[Any], u: Any) -> list[Any]:
        def f(t: Any) -> Any:
            steps = iter([a + t * b for a, b in zip(x, v, strict=True)])
            y = first(run([next(steps) if held == b"" else held for held in fixed]))
            return jnp.sum(y.reshape(-1) * u)

        return JAX_WAYS[way](f)

    return jax.jit(all_orders)


def jax_nested(step: Callable[[Curve], Curve]) -> Callable[[Curve], list[Any]]:
    """All orders by nesting a derivative."""

    def run(f: Curve) -> list[Any]:
        found = []
        for _ in ALL:
            f = step(f)
            found.append(f(0.0))
        return found

    return run


def jax_pushforward(f: Curve) -> Curve:
    import jax

    return lambda t: jax.jvp(f, (t,), (1.0,))[1]


def jax_gradient(f: Curve) -> Curve:
    import jax

    return jax.grad(f)


def jax_hessian(f: Curve) -> list[Any]:
    import jax

    return [0.0, jax.hessian(f)(0.0)]


def jax_taylor(f: Curve) -> list[Any]:
    """`jax.experimental.jet`: all orders in one pass."""
    import jax.numpy as jnp
    from jax.experimental.jet import jet

    series = [jnp.ones(()), *[jnp.zeros(())] * (ORDER - 1)]
    return jet(f, (jnp.zeros(()),), (series,))[1]


JAX_WAYS: dict[str, Callable[[Curve], list[Any]]] = {
    "value": lambda f: [f(0.0)], "jvp of jvp": jax_nested(jax_pushforward),
    "grad of grad": jax_nested(jax_gradient), "hessian": jax_hessian,
    "experimental.jet": jax_taylor,
}  # fmt: skip


# -- TensorFlow ------------------------------------------------------------------------------------


def tf_curve(line: Line) -> Curve | None:
    import tensorflow as tf

    run = expression(line, "tensorflow", {"tf": tf})
    u = tf.constant(line.u)
    if run is None:
        return None
    return lambda t: tf.reduce_sum(tf.reshape(first(run(moved(line, t, tf.constant))), [-1]) * u)


def tf_zero() -> Any:
    import tensorflow as tf

    return tf.zeros((), tf.float64)


def tf_forward(f: Curve, order: int) -> Any:
    for _ in range(order):
        f = partial(accumulated, f)
    return f(tf_zero())


def tf_mixed(f: Curve, order: int) -> Any:
    """An accumulator around tapes."""
    for _ in range(order - 1):
        f = partial(tape_gradient, f)
    return accumulated(f, tf_zero())


def accumulated(f: Curve, t: Any) -> Any:
    """df/dt by an accumulator."""
    import tensorflow as tf

    with tf.autodiff.ForwardAccumulator(t, tf.ones((), tf.float64)) as run:
        y = f(t)
    return run.jvp(y, tf.UnconnectedGradients.ZERO)


def tf_backward(f: Curve, order: int) -> Any:
    for _ in range(order):
        f = partial(tape_gradient, f)
    return f(tf_zero())


def tape_gradient(f: Curve, t: Any) -> Any:
    """df/dt by a tape."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(t)
        y = f(t)
    return tape.gradient(y, t, unconnected_gradients="zero")


# -- onnx-ad ---------------------------------------------------------------------------------------

ONNX_WAYS = {"forward of forward": ("forward",) * ORDER, "reverse of reverse": ("reverse",) * ORDER,
             "forward of reverse": ("reverse", "forward")}  # fmt: skip


def onnx_curve(line: Line) -> Line:
    return line


def onnx_value(line: Line) -> float:
    return onnx_run(line, "forward of forward", 0)


def onnx_run(line: Line, way: str, order: int) -> float:
    """A derivative by a model, which lines of the same shapes share."""
    node, still = line.case.proto.graph.node[0], line.still
    opsets = tuple((o.domain, o.version) for o in line.case.proto.opset_import)
    run = onnx_program(node.SerializeToString(), line.case.names, opsets, (line.of, line.u.size),
                       still, ONNX_WAYS[way][:order])  # fmt: skip
    point = {"t": np.zeros(()), "weights": line.u}
    for name, x, v in zip(line.v, *line.moving, strict=True):
        point |= {f"{name}_at": x, f"{name}_along": v}
    return run(point)


def doubles(name: str, shape: Sequence[int | None]) -> onnx.ValueInfoProto:
    """The declaration of a tensor of doubles."""
    return helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, shape)


def onnx_line(node: onnx.NodeProto, names: Sequence[str], opsets: Sequence[tuple[str, int]],
              of: tuple[str, int], still: Still) -> onnx.ModelProto:  # fmt: skip
    """The curve as a model of t, x, v and u: t → x + t v → the operator → Σ u y; `of` has the name
    of y and how many entries it has.
    """
    nodes, constants = [], {"flat": np.array([of[1]])}
    inputs = [doubles("t", []), doubles("weights", [of[1]])]
    for name, held in zip(names, still, strict=True):
        if held is not None and held[2]:
            constants[name] = np.frombuffer(held[2], held[0]).reshape(held[1])
        elif held is not None:
            nodes += [helper.make_node("Mul", ["t", f"{name}_along"], [f"{name}_step"]),
                      helper.make_node("Add", [f"{name}_at", f"{name}_step"], [name])]  # fmt: skip
            inputs += [doubles(f"{name}_{end}", held[1]) for end in ("at", "along")]
    nodes += [node, helper.make_node("Reshape", [of[0], "flat"], ["entries"]),
              helper.make_node("Mul", ["entries", "weights"], ["weighted"]),
              helper.make_node("ReduceSum", ["weighted"], ["s"], keepdims=0)]  # fmt: skip
    graph = helper.make_graph(
        nodes, "curve", inputs, [doubles("s", [])],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in opsets],
                             ir_version=10)  # fmt: skip
    return onnx.shape_inference.infer_shapes(made)


@lru_cache(256)
def onnx_derivative(node: bytes, names: tuple[str, ...], opsets: tuple[tuple[str, int], ...],
                    of: tuple[str, int], still: Still, modes: tuple[str, ...],
                    ) -> onnx.ModelProto:  # fmt: skip
    """The model of a derivative in t: one mode after another, of the last output each."""
    import onnx_ad

    if not modes:
        return onnx_line(onnx.NodeProto.FromString(node), names, opsets, of, still)
    model = onnx_derivative(node, names, opsets, of, still, modes[:-1])
    last = model.graph.output[-1].name
    found: onnx.ModelProto = getattr(onnx_ad, modes[-1])(model, ["t"], [last], layout="onnx")
    return found


@lru_cache(64)
def onnx_program(*of_what: Any) -> Callable[[dict[str, np.ndarray]], float]:
    """A point ↦ the last output, by ONNX Runtime, or by ONNX's own evaluator where that has no
    kernel in double precision; seeds are ones.
    """
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    model = onnx_derivative(*of_what)
    name = model.graph.output[-1].name
    shapes = {i.name: [1 for _ in i.type.tensor_type.shape.dim] for i in model.graph.input}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        held = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])  # fmt: skip
    except Exception:  # no kernel for doubles
        held = ReferenceEvaluator(model)

    def run(point: dict[str, np.ndarray]) -> float:
        seeds = {n: np.ones(s) for n, s in shapes.items() if n not in point}
        return float(np.ravel(held.run([name], {**seeds, **point})[0])[0])

    return run


# -- ours ------------------------------------------------------------------------------------------


def own_taylor(line: Line, order: int) -> list[float]:
    """All orders up to one, from one pass."""
    series = {n: np.stack([v, *np.zeros((order - 1, *v.shape))]) for n, v in line.v.items()}
    _, found = oj.jet(line.case.model, line.case.point, series, of=[line.of], engine="numpy")
    return [float(y.ravel() @ line.u) for y in found[line.of]]


def own_forward(line: Line, order: int) -> float:
    """J v: the order 1 alone."""
    J = oj.linearize(line.case.model, line.case.point, of=[line.of], wrt=[*line.v], engine="numpy")
    return float(line.u @ (J @ np.concatenate([v.ravel() for v in line.v.values()])))


def own_backward(line: Line, order: int) -> float:
    """Jᵀ u for the order 1, H v for the order 2."""
    model, point, wrt = line.case.model, line.case.point, [*line.v]
    v = np.concatenate([v.ravel() for v in line.v.values()])
    if order == 1:
        J = oj.linearize(model, point, of=[line.of], wrt=wrt, engine="numpy")
        return float(v @ (J.T @ line.u))
    weights = line.u.reshape(np.shape(model.run(point)[line.of]))
    return float(v @ (oj.hessian(model, point, of=line.of, wrt=wrt, weights=weights,
                                 engine="numpy") @ v))  # fmt: skip


OWN = Library("onnxjac", "onnxjac", lambda line: line,
              lambda line: float(line.case.model.run(line.case.point)[line.of].ravel() @ line.u),
              (Way("jet", own_taylor, together=True), Way("J v", own_forward, (1,)),
               Way("Jᵀ u, hessian", own_backward, (1, 2))))  # fmt: skip
"""Ourselves, by NumPy."""


def call_by_name(run: Callable[[Line, str, int], float], way: str, line: Line, order: int) -> float:
    """The order of the arguments that a way has."""
    return run(line, way, order)


LIBRARIES: dict[str, Library] = {
    "torch": Library("PyTorch", "torch", torch_curve, lambda f: float(f(torch_zero())), (
        Way("jvp of jvp", torch_forward, together=True),
        Way("backward of backward", torch_backward), Way("func.hessian", torch_mixed, SECOND))),
    "jax": Library("JAX", "jax", jax_curve, jax_value, tuple(
        Way(name, partial(call_by_name, jax_run, name), SECOND if name == "hessian" else ALL)
        for name in JAX_WAYS if name != "value")),
    "tensorflow": Library("TensorFlow", "tensorflow", tf_curve, lambda f: float(f(tf_zero())), (
        Way("tape in tape", tf_backward),
        # an accumulator traces each operator and shape: for seconds where accumulators are nested
        Way("accumulator", tf_forward, (1,), every=1),
        Way("accumulator over tape", tf_mixed, SECOND, every=1),
        Way("accumulator in accumulator", tf_forward, SECOND, every=8),
        Way("accumulator over 2 and 3 tapes", tf_mixed, DEEP, every=30),
        Way("accumulators, 3 and 4 nested", tf_forward, DEEP, every=34))),
    "onnx_ad": Library("onnx-ad", "onnx_ad", onnx_curve, onnx_value, tuple(
        Way(name, partial(call_by_name, onnx_run, name), ALL if len(modes) > 2 else SECOND)
        for name, modes in ONNX_WAYS.items())),
}  # fmt: skip
"""Key -> the library."""


def installed() -> Iterator[tuple[str, Library]]:
    """The libraries that can be imported."""
    yield from ((key, library) for key, library in LIBRARIES.items() if library.is_installed)
