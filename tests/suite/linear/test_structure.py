"""The structure of a model's Jacobian: its formula, with names, and its inverse by structure."""

import numpy as np
import onnx.parser
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac import InputError
from onnxjac.jacobians import Dag, Dense, Diagonal, Edge, Sylvester
from onnxjac.jacobians.dag import composed
from onnxjac.jacobians.products import factors_of

RNG = np.random.default_rng(0)


def model(body, **shapes):
    inputs = ", ".join(f"double[{','.join(map(str, shape))}] {x}" for x, shape in shapes.items())
    loaded = oj.load(onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => (double[] y) {{ {body} }}'
    ))  # fmt: skip
    return loaded, {x: RNG.standard_normal(shape) for x, shape in shapes.items()}


def test_the_structure_prints_as_a_formula_with_names():
    layers = "h = MatMul(x, W1) a = Tanh(h) b = MatMul(a, W2) y = Tanh(b)"
    loaded, point = model(layers, x=(5, 4), W1=(4, 3), W2=(3, 2))
    J = oj.linearize(loaded, point, wrt="x")
    assert repr(J.structure) == "diag(5×2) · (I(5) ⊗ W2ᵀ) · diag(5×3) · (I(5) ⊗ W1ᵀ)"
    assert repr(J.T.structure) == "(I(5) ⊗ W1) · diag(5×3) · (I(5) ⊗ W2) · diag(5×2)"
    assert repr(J.plan().structure) == repr(J.structure)
    both = repr(oj.linearize(loaded, point, wrt=("x", "W2")).structure)
    assert both.startswith("[[diag(5×2) · ")
    assert both.endswith(", diag(5×2) · (A[5×3] ⊗ I(2))]]")
    residual, point = model("h = MatMul(x, W) t = Tanh(h) y = Add(t, x)", x=(5, 3), W=(3, 3))
    J = oj.linearize(residual, point, wrt="x")
    assert repr(J.structure) == "I(5×3) + diag(5×3) · (I(5) ⊗ Wᵀ)"
    square, point = model("y = MatMul(x, x)", x=(3, 3))
    J = oj.linearize(square, point)
    assert repr(J.structure) == "(x ⊗ I(3)) + (I(3) ⊗ xᵀ)"
    conv, point = model("h = Conv(x, k) y = Mul(h, w)", x=(1, 1, 9), k=(1, 1, 3), w=(7,))
    assert repr(oj.linearize(conv, point, wrt="x").structure) == "diag(w) · conv_x[k]"


def test_long_formulas_are_folded():
    body = " ".join(f"x{k + 1} = Tanh(x{k})" for k in range(60)) + " y = Sin(x60)"
    loaded, point = model(body, x0=(4,))
    text = repr(oj.linearize(loaded, point).dag)
    assert len(text) < 250
    assert "… " in text


def grid():
    """A DAG that is not in series and in parallel: a bridge."""
    ends = (0, 1), (0, 2), (1, 2), (1, 3), (2, 3)
    edges = [Edge(i, o, Dense(RNG.standard_normal((3, 3)))) for i, o in ends]
    return Dag(((3,),) * 4, edges, (0,), (3,), np.dtype(float))


def test_a_grid_has_no_formula():
    dag = grid()
    assert composed(dag) is None
    assert repr(dag) == "dag(5 edges, 3×3)"
    assert dag.inverse().shape == (3, 3)


def test_diamonds_are_composed_in_linear_time():
    """Sixty diamonds have 2⁶⁰ paths."""
    half = Diagonal(np.full(2, 0.5))
    edges = [Edge(k, o, half) for k in range(0, 120, 2) for o in (k + 1, k + 2)]
    edges += [Edge(k + 1, k + 2, Diagonal(np.ones(2))) for k in range(0, 120, 2)]
    J = composed(Dag(((2,),) * 121, edges, (0,), (120,), np.dtype(float)))
    assert_allclose(J.toarray(), np.eye(2))
    assert len(factors_of(J)) == 1


@pytest.mark.parametrize("form", ["A X + X B", "X + A X B", "X Aᵀ - B X - 2 X"])
def test_a_sylvester_model_is_solved_by_its_factors(form):
    body = {
        "A X + X B": "p = MatMul(A, X) q = MatMul(X, B) r = Add(p, q) y = Sub(r, C)",
        "X + A X B": "p = MatMul(A, X) q = MatMul(p, B) y = Add(X, q)",
        "X Aᵀ - B X - 2 X": "t = Transpose(A) p = MatMul(X, t) q = MatMul(B, X) r = Sub(p, q) "
        "two = Constant<value = double {2.0}>() s = Mul(X, two) y = Sub(r, s)",
    }[form]
    loaded, point = model(body, A=(6, 6), X=(6, 6), B=(6, 6), C=(6, 6))
    J, r = oj.linearize(loaded, point, wrt="X"), RNG.standard_normal(36)
    M = J.inverse()
    assert any(isinstance(f, Sylvester) for f in factors_of(M))
    assert_allclose(M @ r, np.linalg.solve(J.toarray(), r), rtol=1e-8, atol=1e-8)
    assert_allclose(M.T @ r, np.linalg.solve(J.toarray().T, r), rtol=1e-8, atol=1e-8)
    assert_allclose(J.slogdet(), np.linalg.slogdet(J.toarray()), rtol=1e-9)
    if form == "A X + X B":
        expected = scipy.linalg.solve_sylvester(point["A"], point["B"], r.reshape(6, 6))
        assert_allclose(M @ r, expected.ravel(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", [(3,), (2, 3), (5, 4)])
def test_a_convolution_with_circular_padding_is_inverted_by_fourier(kernel):
    """x - k ∗ x with Pad(mode="wrap"): its inverse is a circulant."""
    rank = len(kernel)
    pads = [0, 0, *(n // 2 for n in kernel), 0, 0, *(n - 1 - n // 2 for n in kernel)]
    pads = ", ".join(map(str, pads))
    body = (f"w = Constant<value_ints = [{pads}]>() p = Pad<mode = \"wrap\">(x, w) "
            "h = Conv(p, k) y = Sub(x, h)")  # fmt: skip
    loaded, point = model(body, x=(2, 1, *(8,) * rank), k=(1, 1, *kernel))
    point["k"] /= 20
    J = oj.linearize(loaded, point, wrt="x")
    M, dense = J.inverse(), J.toarray()
    assert "circulant" in repr(M)
    assert_allclose(M.toarray(), np.linalg.inv(dense), rtol=1e-9, atol=1e-9)
    assert_allclose(J.T.inverse().toarray(), np.linalg.inv(dense).T, rtol=1e-9, atol=1e-9)
    assert_allclose(J.slogdet(), np.linalg.slogdet(dense), rtol=1e-9)
    assert_allclose(J.power(-2).toarray(), np.linalg.inv(dense @ dense), rtol=1e-9, atol=1e-9)


def test_other_paddings_and_channels_are_no_circulants():
    for mode, channels in (("reflect", 1), ("edge", 1), ("wrap", 2)):
        body = (f"w = Constant<value_ints = [0, 0, 1, 0, 0, 1]>() p = Pad<mode = \"{mode}\">(x, w) "
                "h = Conv(p, k) y = Sub(x, h)")  # fmt: skip
        loaded, point = model(body, x=(1, channels, 8), k=(channels, channels, 3))
        point["k"] /= 20
        J = oj.linearize(loaded, point, wrt="x")
        assert "circulant" not in repr(J.inverse())
        assert_allclose(J.slogdet(), np.linalg.slogdet(J.toarray()), rtol=1e-9)


def test_a_network_of_square_layers_is_inverted_layer_by_layer():
    body = "h = MatMul(x, W) a = Tanh(h) y = MatMul(a, V)"
    loaded, point = model(body, x=(4, 3), W=(3, 3), V=(3, 3))
    J = oj.linearize(loaded, point, wrt="x")
    assert_allclose(J.inverse().toarray(), np.linalg.inv(J.toarray()), rtol=1e-8, atol=1e-8)
    assert_allclose(J.svd()[1].prod(), np.exp(J.slogdet()[1]), rtol=1e-8)
    with pytest.raises(InputError, match="no inverse: its right factor is singular"):
        oj.linearize(loaded, {**point, "W": np.ones((3, 3))}, wrt="x").inverse()
