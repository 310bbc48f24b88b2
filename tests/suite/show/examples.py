"""Models to be shown and drawn: small ones, one with kinks, a hostile one, a very long one."""

import warnings

import numpy as np
from onnx import TensorProto, helper, numpy_helper, parser

import onnxjac as oj

RNG = np.random.default_rng(0)
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def parsed(text):
    """A model from ONNX text."""
    return oj.load(parser.parse_model(f"{HEAD} {text}"))


def dense(n=3):
    """∂(y, z)/∂(x, W) with y = tanh(x W) for n samples of 4 features; z = x alone."""
    model = parsed("""g (double[n, 4] x, double[4, 2] W) => (double[n, 2] y, double[n, 4] z) {
        a = MatMul(x, W) y = Tanh(a) z = Neg(x) }""")
    point = {"x": RNG.standard_normal((n, 4)), "W": RNG.standard_normal((4, 2))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)  # z does not depend on W: a zero block
        return oj.linearize(model, point)


def images(channels=2):
    """∂y/∂x for y = conv(x)² of two images, 5 × 6 pixels."""
    model = parsed("""g (double[n, c, 5, 6] x, double[3, c, 2, 2] w) => (double[n, 3, 4, 5] y) {
        a = Conv(x, w) y = Mul(a, a) }""")
    shapes = {"x": (2, channels, 5, 6), "w": (3, channels, 2, 2)}
    return oj.linearize(model, {k: RNG.standard_normal(s) for k, s in shapes.items()}, wrt="x")


def curved():
    """∂²(Σ weights ∘ y)/∂(x, W)²."""
    model = parsed("""g (double[3, 4] x, double[4, 2] W) => (double[3, 2] y) {
        a = MatMul(x, W) y = Tanh(a) }""")
    point = {"x": RNG.standard_normal((3, 4)), "W": RNG.standard_normal((4, 2))}
    return oj.hessian(model, point, weights=np.ones((3, 2)))


def steps(n, *, residual):
    """n times tanh, with or without a residual connection."""
    x, nodes = "x", []
    for k in range(n):
        nodes.append(f"t{k} = Tanh({x})")
        nodes += [f"a{k} = Add(t{k}, {x})"] * residual
        x = f"a{k}" if residual else f"t{k}"
    model = parsed(f"g (double[3] x) => (double[3] y) {{ {' '.join(nodes)} y = Neg({x}) }}")
    return oj.linearize(model, {"x": RNG.standard_normal(3)})


# -- a network with kinks, names that are markup, thousands of nodes -------------------------------

W = np.random.default_rng(0).standard_normal((4, 3))
X = np.array([[[[1.0, 0.0, -1.0, 2.0], [1.0, 0.0, 3.0, 3.0]]]])

BODY = """
    r = Relu(x) p = MaxPool<kernel_shape = [1, 2], strides = [1, 2]>(r)
    f = Flatten(p) h = MatMul(f, W) t = Tanh(h) n = Floor(h) y = Add(t, n)
"""


def network():
    """(1, 1, 2, 4) -> (1, 3), with a kink at some entries of X, and with a cut."""
    return with_weights(BODY, "y")


def scalar():
    """The sum of squares of the network."""
    return with_weights(f"{BODY} q = Mul(y, y) s = ReduceSum<keepdims = 0>(q)", "s")


def with_weights(body, output):
    """The model of a body, with W."""
    shape = {"y": "[1, 3]", "s": "[]"}[output]
    text = f"""{HEAD}
        g (double[1, 1, 2, 4] x) => (double{shape} {output}) {{ {body} }}"""
    proto = parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(W, "W"))
    return oj.load(proto)


def chain(kinds, names, size=4):
    """A chain of operators with these names of nodes and tensors."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, [size])
        for name in (names[0][1], names[-1][1])
    ]
    nodes = [
        helper.make_node(kind, [before], [after], name=node)
        for kind, (_, before), (node, after) in zip(kinds, names, names[1:], strict=False)
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 21)]
    return oj.load(helper.make_model(graph, opset_imports=imports, ir_version=10))


EVIL = [
    ("", 'x"><img src=x onerror=alert(1)>'),
    ("<script>alert(1)</script>", "</table></details><b>"),
    ("' onclick='alert(2)", "&lt;script&gt;"),
]


def hostile():
    """A model whose names are markup."""
    return chain(["Tanh", "Relu"], EVIL)


def long(n=5000):
    """A chain of so many nodes."""
    kinds = ("Tanh", "Relu", "Sigmoid", "Neg", "Softplus")
    names = [(f"/features/block.{k}/activation & more/Node_{k}", f"t{k}") for k in range(n + 1)]
    return chain([kinds[k % 5] for k in range(n)], names)
