"""Models to be shown: a small network with kinks, a hostile one, a very long one."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, parser

from onnxjac.modes.load import load

W = np.random.default_rng(0).standard_normal((4, 3))
X = np.array([[[[1.0, 0.0, -1.0, 2.0], [1.0, 0.0, 3.0, 3.0]]]])

BODY = """
    r = Relu(x) p = MaxPool<kernel_shape = [1, 2], strides = [1, 2]>(r)
    f = Flatten(p) h = MatMul(f, W) t = Tanh(h) n = Floor(h) y = Add(t, n)
"""


def network():
    """(1, 1, 2, 4) -> (1, 3), with a kink at some entries of X, and with a cut."""
    return parsed(BODY, "y")


def scalar():
    """The sum of its squares."""
    return parsed(f"{BODY} q = Mul(y, y) s = ReduceSum<keepdims = 0>(q)", "s")


def parsed(body, output):
    """The model of a body, with W."""
    shape = {"y": "[1, 3]", "s": "[]"}[output]
    text = f"""<ir_version: 10, opset_import: ["": 21]>
        g (double[1, 1, 2, 4] x) => (double{shape} {output}) {{ {body} }}"""
    proto = parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(W, "W"))
    return load(proto)


def chain(kinds, names, size=4):
    """One operator after the other, with these names of nodes and of tensors."""
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
    return load(helper.make_model(graph, opset_imports=imports, ir_version=10))


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
