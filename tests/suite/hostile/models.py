"""Small models, and all operations on them, for tests with hostile numbers."""

import numpy as np
from onnx import numpy_helper, parser

import onnxjac as oj

ENGINES = ("numpy", "onnxruntime")
W = np.random.default_rng(0).standard_normal((3, 4)).round(2)


def model(body, signature="(float[N,3] x) => (float[N,4] y)", opset=21, **weights):
    """A loaded model in ONNX's text format, with initializers."""
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> g {signature} {{{body}}}'
    )
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return oj.load(proto)


def network(kind="float", dtype=np.float32):
    """y = softmax(tanh(x W) + relu(x W)) row by row, and the scalar l = Σ y ∘ y."""
    return model(
        """h = MatMul(x, w) t = Tanh(h) r = Relu(h) a = Add(t, r) y = Softmax(a)
        s = Mul(y, y) l = ReduceSum<keepdims = 0>(s)""",
        f"({kind}[N,3] x) => ({kind}[N,4] y, {kind} l)", w=W.astype(dtype),
    )  # fmt: skip


def ramp(n, dtype):
    """1, 2, 3 … n, scaled to (0, 1]: a vector for products."""
    return (np.arange(1, n + 1) / max(n, 1)).astype(dtype)


def product(J):
    return J @ ramp(J.shape[1], J.dtype)


def transposed(J):
    return J.T @ ramp(J.shape[0], J.dtype)


def compiled(J, engine):
    return product(J.compile(engine)), transposed(J.compile(engine))


def exported(m, x, mode):
    """The operators of an exported derivative."""
    return [node.op_type for node in oj.export(m, mode, {"x": x}, of="y").graph.node]


def of_y(m, x, engine):
    return oj.linearize(m, {"x": x}, of="y", engine=engine)


def of_l(m, x, engine):
    return oj.hessian(m, {"x": x}, of="l", engine=engine)


CALLS = {
    "run": lambda m, x, e: list(m.run({"x": x}, engine=e).values()),
    "J v": lambda m, x, e: product(of_y(m, x, e)),
    "Jᵀ u": lambda m, x, e: transposed(of_y(m, x, e)),
    "toarray": lambda m, x, e: of_y(m, x, e).toarray(),
    "tosparse": lambda m, x, e: of_y(m, x, e).tosparse().toarray(),
    "diagonal": lambda m, x, e: of_y(m, x, e).diagonal(),
    "apply": lambda m, x, e: of_y(m, x, e).apply({"x": np.ones(np.shape(x))})["y"],
    "relinearize": lambda m, x, e: product(of_y(m, np.zeros((2, 3)), e).relinearize({"x": x})),
    "by numpy": lambda m, x, e: compiled(of_y(m, x, e), "numpy"),
    "by onnxruntime": lambda m, x, e: compiled(of_y(m, x, e), "onnxruntime"),
    "jvp": lambda m, x, e: oj.jvp(m, {"x": x}, {"x": x}, of="y", engine=e)[1]["y"],
    "grad": lambda m, x, e: oj.grad(m, {"x": x}, of="l", engine=e)["x"],
    "hessian": lambda m, x, e: of_l(m, x, e).toarray(),
    "hvp": lambda m, x, e: oj.hvp(m, {"x": x}, {"x": x}, of="l", engine=e)[1]["x"],
    "export jvp": lambda m, x, e: exported(m, x, "jvp"),
    "export vjp": lambda m, x, e: exported(m, x, "vjp"),
}
"""The operations on a model at x, by an engine."""
