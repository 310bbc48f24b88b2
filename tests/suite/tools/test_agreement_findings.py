"""Bugs found by random graphs, each as the smallest graph that shows it, in all ways."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from agreement.make import Case
from agreement.trial import examined

HEAD = '<ir_version: 10, opset_import: ["": {opset}]>'


def case(text: str, of: str, wrt: str, opset: int = 21, **point: object) -> Case:
    """A case from the text of a graph; its free dimension is N."""
    model = onnx.parser.parse_model(HEAD.format(opset=opset) + text)
    arrays = {name: np.asarray(value) for name, value in point.items()}
    operators = [node.op_type for node in model.graph.node]
    return Case(model, arrays, of.split(), wrt.split(), "[N" in text, operators)


CASES = {
    "the largest of one, planned and compiled": case(
        """g (double[1] x) => (double[1] y, double[1] t) <int64[1] k = {1}, double w = {0.1}>
        { t, i = TopK(x, k) y = Mul(t, w) }""",
        "t y", "x w", x=[0.97],
    ),
    "a sum of one row, one vector at a time": case(
        'g (double[2,1] x) => (double t) { t = Einsum<equation="ij->">(x) }', "t x", "x",
        x=[[0.3], [-0.7]],
    ),
    "an empty part of a batch": case(
        """g (double[N] x, double[N] z) => (double[A] y, double[B] t)
        { n = Constant<value_ints=[0, 3]>() y, t = Split<axis=0>(x, n) }""",
        "y", "z x", x=[0.1, 0.2, 0.3], z=[0.4, 0.5, 0.6],
    ),
    "integers between the segments of a checkpointed model": case(
        """g (double[2] x) => (double[2] y, double[2] z)
        { a = Mul(x, x) y = Abs(a) i = Cast<to=7>(a) z = Cast<to=11>(i) }""",
        "y z", "x", x=[0.3, -1.7],
    ),
    "a differentiated tensor of a size that numbers decide": case(
        """g (double[3] x, int64[3] n) => (double[k] t)
        { i = CastLike(n, x) t = Unique<sorted=1>(i) }""",
        "x t", "t", x=[0.1, 0.2, 0.3], n=[3, 1, 0],
    ),
    "a pool whose last window begins behind the last entry": case(
        """g (double[1,3,4] x) => (double[1,3,2] y)
        { y = MaxPool<ceil_mode=1, dilations=[2], kernel_shape=[1], strides=[2]>(x) }""",
        "y", "x", x=[[[0.1, 0.5, 0.3, 0.7], [1.1, 0.9, -0.3, 0.6], [0.2, 0.4, 0.8, -0.1]]],
    ),
    "rows of truth values, one for each sample": case(
        """g (double[N,1] x) => (double[N,1] y)
        { k = Constant<value_int=0>() y = Trilu<upper=0>(x, k) }""",
        "y", "x", x=[[0.3], [0.7]],
    ),
    "an empty tensor in a dense Jacobian": case(
        "g (double[1,4,2] x, double[0,3] z) => (double[1,4,2] y) { y = Sin(x) }", "y", "z x",
        x=[[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]]], z=np.zeros((0, 3)),
    ),
    "a Hessian in a tensor and in one computed from it": case(
        "g (double[2] x) => (double[2] s) { t = Exp(x) s = Mul(t, x) }", "s", "x t", x=[0.3, -0.7]
    ),
    "norms of samples, one of which is 0 at another point": case(
        """g (double[N,1,2] x) => (double[k] y)
        { a = Constant<value_ints=[0, 1]>() y = ReduceL2<keepdims=0>(x, a) }""",
        "y", "x", x=[[[0.8, -1.4]]],
    ),
    "a derivative that is nothing but rounding": case(
        """g () => (double[2,2,1] y) <double[2,2,1] w = {-0.467934, -0.0859195, 0.4559121, 0.46302},
        double b = {0.3}> { t = Add(w, b) y = LogSoftmax<axis=1>(t) }""",
        "y", "b",
    ),
    "numbers that one size takes for constants and another does not": case(
        """g (double[N,2] x, double[N,1] z, int64[1] k) => (double[1] y)
        { y = NegativeLogLikelihoodLoss<reduction="none">(x, k) }""",
        "y", "z", x=[[-1.4, 0.2]], z=[[0.1]], k=[1],
    ),
    "groups that ONNX Runtime normalises in single precision": case(
        """g (double[1,2,2] x) => (double[1,2,2] y)
        <double[2] w = {1.3, 0.3}, double[2] b = {-0.3, 1}>
        { y = GroupNormalization<epsilon=0.1, num_groups=2>(x, w, b) }""",
        "y", "x b", x=[[[0.7, -1.1], [0.4, 0.2]]],
    ),
    "a pool with a window longer than the axis": case(
        """g (double[1,1,2,2] x) => (double[1,1,1,1] y)
        { y = AveragePool<kernel_shape=[2, 3], strides=[1, 2]>(x) }""",
        "y", "x", x=[[[[0.8, -1.4], [0.3, 0.2]]]],
    ),
    "an imaginary part that is nothing but rounding": case(
        """g (double[2,2,1] x) => (double[2,2,2] y) <double[2] w = {0, 1}>
        { f = DFT<axis=1>(x) y = Mul(f, w) }""",
        "y", "x", opset=18, x=[[[-0.3], [-1.3]], [[-0.8], [-1.3]]],
    ),
    "an output declared shorter than it is": case(
        """g (double[1,1,4] x) => (double[1,1,3] y)
        { y = MaxPool<ceil_mode=1, kernel_shape=[2], pads=[0, 1], strides=[1]>(x) }""",
        "y", "x", x=[[[0.8, -1.4, 0.3, 0.2]]],
    ),
    "the slope by the ratio of a Dropout that keeps all": case(
        """g (double[2] x) => (double[2] y) <double r = {0}, bool t = {1}>
        { y = Dropout<seed=2>(x, r, t) }""",
        "y", "x r", x=[0.3, -0.7],
    ),
    "the norm of a negative number": case(
        """g (double[2] x) => (double y)
        { s = ReduceSum<keepdims=0>(x) y = ReduceL2<keepdims=0>(s) }""",
        "y", "x", x=[0.3, -0.7],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_all_ways_agree_on_a_graph_that_once_failed(name):
    verdict = examined(CASES[name], seed=0, number=0, dear=100)
    assert verdict.kind == "agreed", verdict.text
