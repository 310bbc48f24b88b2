"""Small models with closed forms, and networks whose derivatives mpmath and PyTorch give."""

from itertools import pairwise

import numpy as np
import onnx
import onnx.helper as h
import onnx.parser
from onnx import numpy_helper

import onnxjac as oj

HEAD = '<ir_version: 10, opset_import: ["": 21]> g '


def parse(text):
    return oj.load(onnx.parser.parse_model(HEAD + text))


def mlp(widths, seed=0, activation="Tanh", dtype=np.float64):
    """A network u(x) with its weights: (model, [(W, b), ...])."""
    rng = np.random.default_rng(seed)
    weights = [(rng.standard_normal((a, b)).astype(dtype) / a**0.5,
                rng.standard_normal(b).astype(dtype) / 4)
               for a, b in pairwise(widths)]  # fmt: skip
    nodes, held, x = [], [], "x"
    for k, (W, b) in enumerate(weights):
        last = k == len(weights) - 1
        held += [numpy_helper.from_array(W, f"W{k}"), numpy_helper.from_array(b, f"b{k}")]
        nodes += [h.make_node("MatMul", [x, f"W{k}"], [f"m{k}"]),
                  h.make_node("Add", [f"m{k}", f"b{k}"], ["u" if last else f"z{k}"])]  # fmt: skip
        if not last:
            nodes.append(h.make_node(activation, [f"z{k}"], [f"h{k}"]))
            x = f"h{k}"
    kind = h.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [h.make_tensor_value_info(n, kind, ["n", k]) for n, k in (("x", widths[0]), ("u", 1))]
    graph = h.make_graph(nodes, "mlp", ends[:1], ends[1:], held)
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10)
    return oj.load(proto), weights
