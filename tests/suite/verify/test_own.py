"""Proofs of a user's operators, functions and models, and their symbolic Jacobians."""

import numpy as np
import onnx
import pytest
import sympy as sp

import onnxjac as oj
from onnxjac.jacobians import Diagonal

MODEL = """<ir_version: 10, opset_import: ["": 21, "f": 1]>
g (float[n,2] x, float[2,3] W, float[3,1] V) => (float[n,1] y)
{ h = f.Layer (x, W)  y = MatMul (h, V) }
<opset_import: ["": 21], domain: "f"> Layer (x, W) => (a) { h = MatMul (x, W)  a = Tanh (h) }"""


def model():
    return onnx.parser.parse_model(MODEL)


def swiglu(op, node):
    x, g = node.inputs
    return (op.Mul(op.Mul(x, op.Sigmoid(x)), g),)


def rule(slope):
    """The blocks of swiglu, right for a slope of 1."""

    def blocks(op, node):
        x, g = node.inputs
        s = op.Sigmoid(x)
        d = op.Mul(s, op.Add(1.0, op.Mul(x, op.Sub(slope, s))))
        return {(0, 0): Diagonal(op.Mul(g, d)), (0, 1): Diagonal(op.Mul(x, s))}

    return blocks


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("text", [
    "x*tanh(log(1 + exp(x)))", "x*g*sigmoid(alpha*x)", "max(a, b)", "x - y*floor(x/y)",
    "abs(x)**1.5", "min(max(x, -1), 1)", "max(a, b, c)",
    "y[i,k] = sum(a[i,j]*b[j,k], j)", "y[i,j] = exp(x[i,j])/sum(exp(x[i,k]), k)",
    "y[o,i] = sum(w[o,c,k]*x[c,2*i + k], c, k)",
    "y = sum(log(sum(exp(x[n,k]), k)) - x[n,t[n]], n)",
])  # fmt: skip
def test_a_derived_operator_is_proved(text):
    oj.derive("my.domain::F", text, **({"alpha": 2.0} if "alpha" in text else {}))
    proof = oj.prove("my.domain::F")
    assert proof
    assert proof.outcome == "exact"
    assert "by its formula, entry by entry" in proof.markdown()


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", ["x**y", "log(x)", "sqrt(x)*z", "acos(x)", "acosh(x)"])
def test_a_proof_takes_numbers_for_which_the_operator_is_defined(text):
    oj.derive("my.domain::F", text)
    proof = oj.prove("my.domain::F")
    assert proof.outcome == "exact"
    assert "nan" not in proof.markdown()


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.filterwarnings("ignore:.*is not finite")
def test_a_power_is_proved_for_negative_numbers_too():
    """There it is complex, as is its logarithm."""
    oj.derive("my.domain::F", "x**y")
    x, y = np.linspace(-1.5, 2, 3)[:, None], np.linspace(-1, 2, 4)
    assert oj.prove("my.domain::F", shapes=[x, y])


@pytest.mark.usefixtures("clean_registry")
def test_a_wrong_derivation_is_refuted(monkeypatch):
    derived = oj.derive("my.domain::F", "y[i] = sum(a[i,j]*b[j], j)")
    slopes = derived.rule.stage.slopes
    for name, (tree,) in list(slopes.items()):
        monkeypatch.setitem(slopes, name, (("Mul", 2.0, tree),))
    assert not oj.prove("my.domain::F")


@pytest.mark.usefixtures("clean_registry")
def test_a_definition_and_a_rule():
    oj.defines("my.domain::SwiGlu")(swiglu)
    assert oj.prove("my.domain::SwiGlu", shapes=[(2, 2), (2,)]).outcome == "exact"
    with pytest.raises(oj.InputError, match="shapes="):
        oj.prove("my.domain::SwiGlu")
    oj.jacobian("my.domain::SwiGlu")(rule(1.0))
    assert oj.prove("my.domain::SwiGlu", shapes=[(2, 1), (2, 1)]).outcome == "exact"
    oj.jacobian("my.domain::SwiGlu")(rule(2.0))
    found = oj.prove("my.domain::SwiGlu", shapes=[(2, 1), (2, 1)])
    assert not found
    assert found.outcome == "refuted"


@pytest.mark.usefixtures("clean_registry")
def test_a_rule_alone_has_nothing_to_be_compared_with():
    oj.jacobian("my.domain::SwiGlu")(rule(1.0))
    with pytest.raises(oj.UnsupportedOp, match="no definition to compare"):
        oj.prove("my.domain::SwiGlu", shapes=[(2, 2), (2, 2)])
    with pytest.raises(oj.UnsupportedOp, match=r"my.domain::Unheard is unknown"):
        oj.prove("my.domain::Unheard")


@pytest.mark.usefixtures("clean_registry")
def test_the_rule_gives_derivatives_and_the_definition_values():
    oj.defines("my.domain::SwiGlu")(swiglu)
    oj.jacobian("my.domain::SwiGlu")(rule(1.0))
    one = oj.load(onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21, "my.domain": 1]>
    g (double[3] x, double[3] g) => (double[3] y) { y = my.domain.SwiGlu (x, g) }"""))
    point = {"x": np.array([-1.0, 0.5, 2.0]), "g": np.array([1.0, 2.0, -1.0])}
    J = oj.linearize(one, point)
    assert J.check()
    assert [type(J) for J in J.entries[0].blocks.values()] == [Diagonal, Diagonal]
    assert not any(node.domain for node in oj.export(one, "vjp", point).graph.node)


@pytest.mark.usefixtures("clean_registry")
def test_a_function_of_a_model_is_proved():
    (function,) = model().functions
    assert oj.prove(function).outcome == "exact"
    oj.jacobian("f::Layer")(lambda op, node: {(0, 0): Diagonal(node.y)})
    assert not oj.prove(function)


def test_a_model_is_proved():
    proof = oj.prove(oj.load(model()))
    assert proof.outcome == "exact"
    assert "the definitions of its operators" in proof.markdown()


def test_symbols_have_the_values_of_the_jacobian():
    rng = np.random.default_rng(0)
    x, W, V = rng.standard_normal((2, 2)), rng.standard_normal((2, 3)), rng.standard_normal((3, 1))
    loaded = oj.load(model(), dtype="float64")
    J = oj.linearize(loaded, {"x": x, "W": W, "V": V}, wrt=["W", "V"])
    found = oj.symbolic(model(), wrt=["W", "V"])
    named = {"x": x, "W": W, "V": V}
    values = {sp.Symbol(f"{n}_{i}{j}", real=True): a[i, j]
              for n, a in named.items() for i, j in np.ndindex(a.shape)}  # fmt: skip
    numbers = np.array(found.subs(values), float)
    np.testing.assert_allclose(numbers, J.toarray(), rtol=1e-12)
    assert "tanh" in found._repr_latex_()


def test_a_model_with_a_layer_normalization_is_proved():
    """In a model of doubles its statistics are doubles too, for which ONNX has no body."""
    normal = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (double[1,2] x) => (double[1,2] y, double[1,1] m)
    <double[2] s = {1, 2}, double[2] b = {0, 1}> { y, m = LayerNormalization (x, s, b) }""")
    assert oj.prove(normal).outcome == "exact"


def scaled(op, node):
    """x / √2.00001: the root is computed where the model is made flat, and exact in a proof."""
    return (op.Div(node.x, op.Sqrt(op.Add(op.ReduceSum(np.ones(2)), 0.00001))),)


@pytest.mark.usefixtures("clean_registry")
def test_a_definition_with_a_constant_that_is_computed():
    oj.defines("my.domain::F")(scaled)
    proof = oj.prove("my.domain::F", shapes=[(2,)])
    assert proof.outcome == "14 digits"
    assert "14 digits" in proof.markdown()


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(("error", "outcome"), [(0, "14 digits"), (1e-12, "refuted")])
def test_a_rule_with_a_constant_in_double_precision(error, outcome):
    oj.defines("my.domain::F")(scaled)
    oj.jacobian("my.domain::F")(lambda op, node: {
        (0, 0): Diagonal(np.full(2, (1 + error) / np.sqrt(2.00001)))})  # fmt: skip
    assert oj.prove("my.domain::F", shapes=[(2,)]).outcome == outcome


NUMBERS = {
    "Max": lambda op, x: op.Max(x, 0.0), "three of Max": lambda op, x: op.Max(0.5, x, 1),
    "Min, whole": lambda op, x: op.Min(op.Max(x, -1), 1), "Mul": lambda op, x: op.Mul(2, x),
    "Where": lambda op, x: op.Where(op.Greater(x, 0.0), x, 0.0),
    "Equal": lambda op, x: op.Where(op.Equal(x, 0), 1.0, op.Mul(x, x)),
    "And": lambda op, x: op.Where(op.And(op.Less(x, 1), True), x, 0),
    "Clip": lambda op, x: op.Clip(x, -0.5, 1.0), "Pow": lambda op, x: op.Pow(x, 2),
    "Sum": lambda op, x: op.Sum(x, 1.0, x), "Mean": lambda op, x: op.Mean(x, 1),
    "PRelu": lambda op, x: op.PRelu(x, 0.25), "Mod": lambda op, x: op.Mod(x, 1.5, fmod=1),
    "Gemm": lambda op, x: op.Gemm(x, x, 1.0), "Add": lambda op, x: op.Add(op.Neg(2.0), x),
    "Gather": lambda op, x: op.Gather(x, -1, axis=1), "CumSum": lambda op, x: op.CumSum(x, 1),
}  # fmt: skip


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("name", NUMBERS)
def test_python_numbers_are_operands_of_a_definition(name):
    """As in a recording, they have the type of the tensor beside them."""
    oj.defines("my.domain::F")(lambda op, node: (NUMBERS[name](op, node.x),))
    proof = oj.prove("my.domain::F", shapes=[(2, 2)])
    assert (proof.outcome, proof.verdict) == ("exact", "right")


@pytest.mark.usefixtures("clean_registry")
def test_a_number_as_the_constant_of_a_pad():
    oj.defines("my.domain::F")(lambda op, node: (op.Pad(op.Mul(node.x, node.x), (1, 0), 2.0),))
    assert oj.prove("my.domain::F", shapes=[(2,)]).outcome == "exact"


def test_large_models_are_refused():
    wide = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[100] x) => (float[100] y) { y = Tanh (x) }""")
    with pytest.raises(oj.InputError, match="100 × 100 entries"):
        oj.symbolic(wide)
    with pytest.raises(oj.InputError, match="100 × 100 entries"):
        oj.prove(wide)
