"""Contrib: operators of com.microsoft in a random graph, each with its meaning in ONNX's operators.

The meaning is a function written here, from ONNX Runtime's description of the operator. Values and
the judge's derivatives come from a model in which calls of such functions stand for the nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper

from .graph import Graph, Unfit, contained

DOMAIN = "com.microsoft"

MEANINGS: dict[str, Callable[..., str]] = {}
"""Operator -> its attributes and number of inputs ↦ the inputs, outputs and nodes of a function."""

HEAD = '<domain: "spelled", opset_import: ["": 18]> '


def means(*operators: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    def register(text: Callable[..., str]) -> Callable[..., str]:
        MEANINGS.update(dict.fromkeys(operators, text))
        return text

    return register


def spelled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with calls of functions in place of nodes of com.microsoft."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    count = 0
    for holder in (made.graph, *made.functions):
        for node in contained(holder.node):
            if node.domain != DOMAIN:
                continue
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            text = MEANINGS[node.op_type](len([n for n in node.input if n]), **attributes)
            node.op_type, node.domain = f"{node.op_type}{count}", "spelled"
            count += 1
            del node.attribute[:]
            made.functions.append(onnx.parser.parse_function(HEAD + node.op_type + " " + text))
    if count:
        for holder in (made, *made.functions):
            if not any(i.domain == "spelled" for i in holder.opset_import):
                holder.opset_import.append(helper.make_opsetid("spelled", 1))
    return made


def number(name: str, value: float) -> str:
    """A node that makes a constant."""
    return f"{name} = Constant<value = double {{{float(value)!r}}}>()"


# --- the meanings


@means("Gelu", "BiasGelu")
def gelu(n: int) -> str:
    return f"""{added(n)} {number("two", 2)} {number("one", 1)} {number("half", 0.5)}
    r = Sqrt(two) d = Div(t, r) e = Erf(d) s = Add(one, e) h = Mul(t, s) y = Mul(h, half) }}"""


@means("FastGelu")
def fast_gelu(n: int) -> str:
    numbers = {"c": 0.044715, "r": np.sqrt(2 / np.pi), "one": 1, "half": 0.5}
    return f"""{added(n)} {" ".join(number(*pair) for pair in numbers.items())}
    t2 = Mul(t, t) t3 = Mul(t2, t) d = Mul(c, t3) u = Add(t, d) w = Mul(r, u) v = Tanh(w)
    p = Add(one, v) q = Mul(t, p) y = Mul(half, q) }}"""


def added(n: int) -> str:
    """The beginning of a function of t = x, or t = x + b."""
    return "(x, b) => (y) { t = Add(x, b)" if n > 1 else "(x) => (y) { t = Identity(x)"


@means("QuickGelu")
def quick_gelu(n: int, alpha: float = 1.702) -> str:
    return f"""(x) => (y) {{ {number("a", np.float32(alpha))}
    t = Mul(a, x) s = Sigmoid(t) y = Mul(x, s) }}"""


@means("FusedMatMul", "TransposeMatMul")
def fused_matmul(n: int, transA: int = 0, transB: int = 0, alpha: float = 1.0) -> str:
    a, b = ("Transpose" if turned else "Identity" for turned in (transA, transB))
    return f"""(a, b) => (y) {{ {number("c", np.float32(alpha))}
    l = {a}(a) r = {b}(b) p = MatMul(l, r) y = Mul(c, p) }}"""


@means("FusedGemm")
def fused_gemm(n: int, activation: bytes = b"", **attributes: Any) -> str:
    said = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    return f"(a, b, c) => (y) {{ t = Gemm<{said}>(a, b, c) y = {activation.decode()}(t) }}"


@means("SkipLayerNormalization")
def skip_layer(n: int, epsilon: float = 1e-12) -> str:
    inputs = ", ".join(["x", "skip", "gamma", "beta", "bias"][:n])
    return f"""({inputs}) => (y) {{ t0 = Add(x, skip) {number("e", np.float32(epsilon))}
    t = {"Add(t0, bias)" if n > 4 else "Identity(t0)"} last = Constant<value_ints = [-1]>()
    m = ReduceMean<keepdims = 1>(t, last) d = Sub(t, m) s = Mul(d, d)
    v = ReduceMean<keepdims = 1>(s, last) w = Add(v, e) r = Sqrt(w) z = Div(d, r)
    g = Mul(z, gamma) y = {"Add(g, beta)" if n > 3 else "Identity(g)"} }}"""


@means("SkipSimplifiedLayerNormalization")
def skip_simplified(n: int, epsilon: float = 1e-12) -> str:
    return f"""(x, skip, gamma) => (y) {{ t = Add(x, skip) {number("e", np.float32(epsilon))}
    last = Constant<value_ints = [-1]>() s = Mul(t, t) v = ReduceMean<keepdims = 1>(s, last)
    w = Add(v, e) r = Sqrt(w) z = Div(t, r) y = Mul(z, gamma) }}"""


@means("Inverse")
def inverse(n: int) -> str:
    """Of a matrix 2 × 2: the adjugate over the determinant."""
    return """(x) => (y) { j = Constant<value = double[2,2] {0, 1, -1, 0}>() k = Transpose(j)
    t = Transpose(x) l = MatMul(j, t) a = MatMul(l, k) d = Det(x) y = Div(a, d) }"""


@means("CDist")
def cdist(n: int, metric: bytes = b"sqeuclidean") -> str:
    root = "Sqrt" if metric == b"euclidean" else "Identity"
    return f"""(a, b) => (y) {{ one = Constant<value_ints = [1]>()
    nought = Constant<value_ints = [0]>() last = Constant<value_ints = [-1]>()
    u = Unsqueeze(a, one) v = Unsqueeze(b, nought) d = Sub(u, v) s = Mul(d, d)
    t = ReduceSum<keepdims = 0>(s, last) y = {root}(t) }}"""


@means("ExpandDims")
def expand_dims(n: int) -> str:
    return """(x, axis) => (y) { one = Constant<value_ints = [1]>() a = Cast<to = 7>(axis)
    i = Reshape(a, one) y = Unsqueeze(x, i) }"""


@means("GatherND")
def gather_nd(n: int) -> str:
    return "(x, i) => (y) { y = GatherND(x, i) }"


@means("Trilu")
def trilu(n: int, upper: int = 1) -> str:
    return f"(x, k) => (y) {{ y = Trilu<upper = {upper}>(x, k) }}"


# --- the makers


def make(g: Graph, op: str) -> None:
    """A node of com.microsoft with what stands before it."""
    if g.opset < 13:
        raise Unfit
    for names, maker in MAKERS:
        if op in names:
            operands, attributes = maker(g, op)
            g.node(op, operands, domain=DOMAIN, **attributes)


Made = tuple[list[str], dict[str, Any]]


def one_operand(g: Graph, op: str) -> Made:
    return [g.pick()], {"alpha": g.one_of([0.7, 1.3])} if op == "QuickGelu" else {}


def with_bias(g: Graph, op: str) -> Made:
    x = g.pick(lambda s: len(s) > 0)
    bias = [g.fresh(g.shape(x)[-1:])] if op == "BiasGelu" or g.chance(0.5) else []
    return [x, *bias], {}


def product(g: Graph, op: str) -> Made:
    a = g.ranked(2, full=True)
    turned = [int(g.chance(0.4)) for _ in range(2)]
    inner = g.shape(a)[0 if turned[0] else 1]
    shape = [inner, g.integer(1, 3)]
    b = g.fresh(shape[::-1] if turned[1] else shape)
    attributes: dict[str, Any] = {"transA": turned[0], "transB": turned[1]}
    if op == "FusedGemm":
        attributes["activation"] = g.one_of(["Tanh", "Sigmoid"])
        return [a, b, g.fresh(shape[1:])], attributes
    return [a, b], {**attributes, "alpha": g.one_of([1.0, 0.5])}


def skip(g: Graph, op: str) -> Made:
    x = g.pick(lambda s: len(s) == 3 and 0 not in s)
    n = g.shape(x)[-1:]
    count = 1 + (g.integer(0, 2) if op == "SkipLayerNormalization" else 0)
    rows = [g.initializer(g.uniform(n)) for _ in range(count)]  # an input might grow at other sizes
    return [x, g.fresh(g.shape(x)), *rows], {"epsilon": 0.1}


def square(g: Graph, op: str) -> Made:
    x = g.bounded(g.pick(lambda s: s == (2, 2)))
    if abs(np.linalg.det(g.values[x])) < 0.1:
        raise Unfit
    return [x], {}


def distances(g: Graph, op: str) -> Made:
    a = g.ranked(2, full=True)
    return [a, g.fresh([g.integer(1, 3), g.shape(a)[1]])], {
        "metric": g.one_of(["euclidean", "sqeuclidean"])
    }


def axis(g: Graph, op: str) -> Made:
    x = g.pick(lambda s: len(s) < 4)
    return [x, g.constant(g.integer(0, g.rank(x)), np.int32)], {}


def places(g: Graph, op: str) -> Made:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    return [x, g.constant([[g.integer(0, g.shape(x)[0] - 1)] for _ in range(2)])], {}


def triangle(g: Graph, op: str) -> Made:
    x = g.pick(lambda s: len(s) > 1)
    return [x, g.constant(g.integer(-1, 1))], {"upper": g.integer(0, 1)}


MAKERS = [
    ({"Gelu", "QuickGelu"}, one_operand), ({"BiasGelu", "FastGelu"}, with_bias),
    ({"FusedMatMul", "TransposeMatMul", "FusedGemm"}, product),
    ({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}, skip),
    ({"Inverse"}, square), ({"CDist"}, distances), ({"ExpandDims"}, axis), ({"GatherND"}, places),
    ({"Trilu"}, triangle),
]  # fmt: skip


def any_of(g: Graph) -> None:
    make(g, g.one_of(sorted(MEANINGS)))
