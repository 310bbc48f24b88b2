"""The vocabulary of the workloads in ONNX: primitive operators, as exporters write them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

EPSILON = 1e-5
OPSET = 21


class Graph:
    """A graph under construction; its tensors are `Symbol`s."""

    def __init__(self) -> None:
        self.tape = ir.tape.Tape()
        self.weights: list[ir.Value] = []

    def tensor(self, array: np.ndarray, name: str | None = None) -> Symbol:
        """An initializer."""
        name = name or f"constant_{len(self.weights)}"
        self.weights.append(self.tape.initializer(ir.tensor(array, name=name), name=name))
        return Symbol(self, self.weights[-1], array.dtype)

    def input(self, array: np.ndarray, name: str) -> Symbol:
        """A graph input with the shape and dtype of the array."""
        kind = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        value = ir.Value(name=name, type=kind, shape=ir.Shape(array.shape))
        return Symbol(self, value, array.dtype)

    def model(self, inputs: list[Symbol], outputs: dict[str, Symbol]) -> ir.Model:
        """The model from the inputs to the named outputs."""
        for name, symbol in outputs.items():
            symbol.value.name = name
            symbol.value.type = ir.TensorType(ir.DataType.from_numpy(symbol.dtype))
        graph = ir.Graph(
            [x.value for x in inputs], [y.value for y in outputs.values()],
            nodes=self.tape.nodes, initializers=self.weights,
            opset_imports={"": OPSET}, name="workload",
        )  # fmt: skip
        return ir.Model(graph, ir_version=10)


class Symbol:
    """A tensor of a graph under construction, with arithmetic."""

    __array_ufunc__ = None

    def __init__(self, graph: Graph, value: ir.Value, dtype: np.dtype) -> None:
        self.graph, self.value, self.dtype = graph, value, dtype

    def op(self, kind: str, *others, **attributes) -> Symbol:
        """An operator applied to this tensor first; numbers and indices become constants."""
        values = [self.value, *(self.lift(other).value for other in others)]
        return Symbol(self.graph, self.graph.tape.op(kind, values, attributes), self.dtype)

    def lift(self, other) -> Symbol:
        """An operand as a tensor of the graph: indices as int64, numbers in the dtype of self."""
        if isinstance(other, Symbol):
            return other
        whole = isinstance(other, (tuple, list, np.ndarray))
        return self.graph.tensor(np.asarray(other, np.int64 if whole else self.dtype))

    def __add__(self, other):
        return self.op("Add", other)

    def __sub__(self, other):
        return self.op("Sub", other)

    def __mul__(self, other):
        return self.op("Mul", other)

    def __matmul__(self, other):
        return self.op("MatMul", other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self.op("Neg")

    def reshape(self, shape) -> Symbol:
        """The same numbers in another shape."""
        return self.op("Reshape", shape)

    def __getitem__(self, key) -> Symbol:
        """Slices of the leading axes, with bounds."""
        far = np.iinfo(np.int64).max
        starts = [part.start or 0 for part in key]
        stops = [far if part.stop is None else part.stop for part in key]
        return self.op("Slice", starts, stops)


def tanh(x):
    """Tanh x."""
    return x.op("Tanh")


def relu(x):
    """max(x, 0)."""
    return x.op("Relu")


def gelu(x):
    """x (1 + erf(x / √2)) / 2."""
    return x.op("Gelu")


def mean(x, axes, keepdims=0):
    """The mean over some axes."""
    return x.op("ReduceMean", list(axes), keepdims=keepdims)


def swapped(x, order):
    """The axes in another order."""
    return x.op("Transpose", perm=list(order))


def pad(x, width):
    """Zeros around both axes of a matrix."""
    return x.op("Pad", [width] * 4)


def conv(x, w, stride=1, padding=0):
    """The correlation of images (n, c, h, w) with kernels."""
    return x.op("Conv", w, strides=[stride] * 2, pads=[padding] * 4)


def max_pool(x):
    """The maximum of every 2×2 block."""
    return x.op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])


def batch_norm(x, gamma, beta, mu, var):
    """γ (x − μ) / √(σ² + ε) + β per channel, with the statistics given."""
    return x.op("BatchNormalization", gamma, beta, mu, var, epsilon=EPSILON)


def layer_norm(x, gamma, beta):
    """γ (x − mean) / √(var + ε) + β over the last axis."""
    return x.op("LayerNormalization", gamma, beta, axis=-1, epsilon=EPSILON)


def attention(q, k, v, width, mask=None):
    """softmax(q kᵀ / √width + mask) v, the axes being (batch, heads, tokens, width)."""
    scores = q @ swapped(k, (0, 1, 3, 2)) * width**-0.5
    scores = scores if mask is None else scores + mask
    return scores.op("Softmax", axis=-1) @ v


def cross_entropy(logits, labels):
    """−mean log softmax(logits) at the labels."""
    return logits.op("SoftmaxCrossEntropyLoss", labels)


def lstm(x, w, r, b, width):
    """The states of an LSTM, (length, batch, width), gates in the order i, o, f, c."""
    bias = b.op("Concat", b * 0.0, axis=0)
    parameters = (part.op("Unsqueeze", [0]) for part in (w, r, bias))
    return x.op("LSTM", *parameters, hidden_size=width).op("Squeeze", [1])


def positive(x):
    """Whether the mean of a matrix is positive."""
    return mean(x, [0, 1]).op("Greater", 0.0)


def branch(test, x, first, second):
    """first(x) if the test holds, else second(x); both capture the same outer tensors."""
    bodies = {}
    for name, part in (("then_branch", first), ("else_branch", second)):
        inside = Graph()
        y = part(Symbol(inside, x.value, x.dtype))
        for k, node in enumerate(inside.tape.nodes):
            node.outputs[0].name = f"{name}_{k}"
        bodies[name] = ir.Graph([], [y.value], nodes=inside.tape.nodes, name=name)
    return Symbol(x.graph, x.graph.tape.op("If", [test.value], bodies), x.dtype)


def looped(x, w, turns):
    """h after `turns` iterations of h ← tanh(h w + x) from 0."""
    inside, dtype = Graph(), x.dtype
    turn = inside.input(np.zeros((), np.int64), "turn")
    go, h = inside.input(np.ones((), np.bool_), "go"), inside.input(np.zeros((1, 1), dtype), "h")
    h.value.shape = None
    results = [go.op("Identity"), tanh(h @ w + x)]
    for k, node in enumerate(inside.tape.nodes):
        node.outputs[0].name = f"turn_{k}"
    body = ir.Graph([turn.value, go.value, h.value], [y.value for y in results],
                    nodes=inside.tape.nodes, name="turn")  # fmt: skip
    operands = [x.graph.tensor(np.array(turns)).value, None, (x * 0.0).value]
    return Symbol(x.graph, x.graph.tape.op("Loop", operands, {"body": body}), dtype)
