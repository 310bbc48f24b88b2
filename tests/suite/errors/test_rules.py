"""Operators without a rule, and rules and definitions at fault: the error says where."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto, helper

import onnxjac as oj
from onnxjac.jacobians import Diagonal, Identity

from ..hostile.models import model as named

X = np.random.default_rng(0).standard_normal((2, 3))


def model(body):
    return named(body, "(double[2,3] x) => (double[2,3] y)")


def custom(op_type, domain, version, kind=TensorProto.DOUBLE, **attributes):
    """y = op(-x), a node of a domain of its own."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node(op_type, ["a"], ["y"], "special", domain=domain, **attributes),
    ]
    x, y = (helper.make_tensor_value_info(name, kind, [2, 3]) for name in "xy")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, version)]
    graph = helper.make_graph(nodes, "g", [x], [y])
    return oj.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_an_operator_that_cannot_be_run(engine):
    m = custom("Twice", "my.domain", 4)
    message = (
        r"my\.domain::Twice .*'special', opset 4.*"
        r"@onnxjac\.defines\('my\.domain::Twice'\).*constants"
    )
    with pytest.raises(oj.UnsupportedOp, match=message):
        oj.linearize(m, {"x": X}, engine=engine)
    J = oj.linearize(m, {"x": X, "y": 2 * X}, of="a", engine=engine)
    assert_array_equal(J["a", "x"].toarray(), -np.eye(6))


@pytest.mark.parametrize("wrong", [lambda op, node: op.Abs(node.x), lambda op, node: (None - 1,)])
def test_a_definition_at_fault_is_told_from_an_unsupported_operator(clean_registry, wrong):
    """An error in a user's definition is distinguished from one of an unsupported operator."""
    oj.defines("my.domain::Wrong")(wrong)
    message = r"'special', opset 1\) fails on a float64\[2, 3\]: .+\. Its definition may only call"
    with pytest.raises(oj.OnnxJacError, match=message):
        oj.linearize(custom("Wrong", "my.domain", 1), {"x": X})
    with pytest.raises(oj.InputError, match="defines takes names"):
        oj.defines(wrong)


def test_an_operator_of_another_domain(clean_registry):
    """ONNX Runtime runs it; its derivative is unknown until registered."""
    pytest.importorskip("onnxruntime")
    del clean_registry["QuickGelu", "com.microsoft"]  # as if unknown
    m = custom("QuickGelu", "com.microsoft", 1, TensorProto.FLOAT, alpha=1.5)
    message = (
        r"com\.microsoft::QuickGelu \(node 'special', opset 1\) has neither a rule nor a function "
        r"body: register one with @onnxjac\.jacobian\('com\.microsoft::QuickGelu'\).*"
        r"a float32\[2, 3\], y float32\[2, 3\]"
    )
    with pytest.raises(oj.UnsupportedOp, match=message):
        oj.linearize(m, {"x": X})

    @oj.jacobian("com.microsoft::QuickGelu")
    def quick_gelu(op, node):
        s = op.Sigmoid(op.Mul(node.x, np.float32(node.alpha)))
        slope = op.Add(s, op.Mul(op.Mul(node.y, np.float32(node.alpha)), op.Sub(np.float32(1), s)))
        return {(0, 0): Diagonal(slope)}

    assert oj.linearize(m, {"x": X}).check()


def test_an_operator_of_onnx_without_rule(clean_registry):
    m = model("a = Neg(x) y = Tanh(a)")
    del clean_registry["Tanh", ""]
    message = (
        r"Tanh \(node 'Tanh_1', opset 21\) has neither a rule nor a function body: register "
        r"one with @onnxjac\.jacobian\('Tanh'\).*a float64\[2, 3\], y float64\[2, 3\]"
    )
    with pytest.raises(oj.UnsupportedOp, match=message):
        oj.linearize(m, {"x": X})
    J = oj.linearize(m, {"x": X}, of="a")  # the rest of the model is still differentiable
    assert_array_equal(J.toarray(), -np.eye(6))


@pytest.mark.usefixtures("clean_registry")
def test_a_rule_that_fails_says_where():
    m = model("y = Tanh(x)")

    @oj.jacobian("Tanh")
    def broken(op, node):
        return {(0, 0): op.MatMul(node.x, node.x)}

    message = r"the rule of Tanh \(node 'Tanh_0', opset 21\) failed on x float64\[2, 3\], y"
    with pytest.raises(oj.OnnxJacError, match=message):
        oj.linearize(m, {"x": X})


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("wrong", ["shape", "kind", "key"])
def test_a_rule_that_returns_nonsense_says_where(wrong):
    m = model("y = Tanh(x)")
    nonsense = {"shape": {(0, 0): Identity((3, 2), np.float64)}, "kind": {(0, 0): X}, "key": X}

    @oj.jacobian("Tanh")
    def careless(op, node):
        return nonsense[wrong]

    with pytest.raises(oj.OnnxJacError, match=r"the rule of Tanh \(node 'Tanh_0', opset 21\)"):
        oj.linearize(m, {"x": X})
