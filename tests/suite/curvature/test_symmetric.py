"""The interface of symmetric operators: blocks by name, damping, SciPy's requirements."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose
from scipy.sparse.linalg import cg, eigsh

import onnxjac as oj
from onnxjac.jacobians import Dense, Diagonal, Identity
from onnxjac.modes.curvature.gauss_newton import gauss_newton
from onnxjac.modes.curvature.kfac import ekfac, kfac
from onnxjac.modes.linear.symmetric import Symmetric, diagonal_blocks

from ..check_operator import check_operator
from .models import network, regression

WEIGHTS = ["6.weight", "6.bias", "4.bias"]


@pytest.fixture(scope="module")
def G():
    model, point = network("mlp")
    return gauss_newton(model, point, of="loss", at="logits", wrt=WEIGHTS)


def test_a_name_gives_the_symmetric_block_of_its_tensor(G):
    dense, ends = G.toarray(), np.cumsum([0, 320, 10, 32])
    for a, start, stop in zip(WEIGHTS, ends[:-1], ends[1:], strict=True):
        block = G.block(a)
        assert block.T is block
        assert [spec.name for spec in block.domain] == [a]
        assert_allclose(block.toarray(), dense[start:stop, start:stop], atol=1e-14)
    assert_allclose(G["6.bias", "4.bias"].toarray(), dense[320:330, 330:], atol=1e-14)


def test_submatrix_by_name_slice_and_index(G):
    dense = G.toarray()
    assert_allclose(G.submatrix("6.bias", "4.bias").toarray(), dense[320:330, 330:], atol=1e-14)
    rows, columns = [5, 2, 300], slice(10, 20, 3)
    found = G.submatrix(rows, columns).toarray()
    assert_allclose(found, dense[rows][:, columns], atol=1e-14)


def test_damping_keeps_the_face(G):
    damped = G + 0.1 * Identity(G.in_shape, G.dtype)
    assert isinstance(damped, Symmetric)
    assert damped.T is damped
    assert_allclose(damped.toarray(), G.toarray() + 0.1 * np.eye(len(G.toarray())), atol=1e-14)
    assert isinstance(2 * G - G, Symmetric)
    assert isinstance(G + Diagonal(np.arange(362.0)), Symmetric)
    assert_allclose((2 * G - G).toarray(), G.toarray(), atol=1e-14)
    assert not isinstance(G + Dense(np.triu(np.ones(G.shape))), Symmetric)


def test_scipy_solves_and_diagonalises_a_symmetric_operator(G):
    damped = G + 0.1 * Identity(G.in_shape, G.dtype)
    b = np.random.default_rng(0).standard_normal(G.shape[0])
    x, info = cg(damped, b, rtol=1e-12)
    assert info == 0
    assert_allclose(damped @ x, b, atol=1e-9)
    top = eigsh(G, k=3, return_eigenvectors=False)
    assert_allclose(np.sort(top), np.linalg.eigvalsh(G.toarray())[-3:], rtol=1e-8)


def test_apply_multiplies_a_tangent_by_name(G):
    v = np.random.default_rng(1).standard_normal(10)
    product = G.apply({"6.bias": v})
    assert set(product) == set(WEIGHTS)
    assert_allclose(product["4.bias"], G.toarray()[330:, 320:330] @ v, atol=1e-14)
    with pytest.raises(oj.UnknownTensor):
        G.apply({"5.bias": v})


def test_an_operator_in_every_way_that_scipy_asks():
    rng = np.random.default_rng(3)
    point = {"x": rng.standard_normal((4, 2)), "W": rng.standard_normal((3, 2)), "y": [0, 2, 1, 1]}
    model = regression("categorical")
    point["y"] = np.array(point["y"])
    for C in (gauss_newton(model, point, of="loss", at="logits", wrt="W"),
              kfac(model, point, at="logits", wrt="W"),
              kfac(model, point, at="logits", wrt="W").inverse(0.5)):  # fmt: skip
        check_operator(C)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_blocks_diagonal_is_the_diagonal_of_the_hessian(name):
    model, point = network(name)
    weights = {"mlp": WEIGHTS, "cnn": ["0.bias", "9.weight", "1.weight"]}[name]
    H = oj.hessian(model, point, of="loss", wrt=weights)
    D = oj.hessian(model, point, of="loss", wrt=weights, blocks="diagonal")
    expected = np.zeros(H.shape)
    start = 0
    for spec in H.domain:
        n = int(np.prod(spec.shape))
        place = slice(start, start + n)
        expected[place, place] = H.toarray()[place, place]
        start += n
    assert D.T is D
    assert np.abs(H.toarray() - expected).max() > 1e-6  # the off-diagonal blocks are nonzero
    assert_allclose(D.toarray(), expected, atol=1e-14)


def test_diagonal_blocks_drop_the_blocks_between_tensors(G):
    D = diagonal_blocks(G)
    assert_allclose(D["6.bias", "6.bias"].toarray(), G["6.bias", "6.bias"].toarray(), atol=1e-14)
    assert not D["6.bias", "4.bias"].toarray().any()


def test_repr_is_the_formula(G):
    tensors = "(6.weight, 6.bias, 4.bias)², 362×362 float64"
    assert repr(G) == repr(G.compile("numpy")) == f"Jᵀ (∂²loss/∂logits²) J: {tensors}"
    assert repr(2 * G + 0.5 * oj.identity_like(G)) == (
        f"2 · Jᵀ (∂²loss/∂logits²) J + 0.5: {tensors}"
    )


def test_repr_of_blocks_and_inverses_is_their_formula(G):
    assert repr(diagonal_blocks(G)).startswith("blockdiag Jᵀ (∂²loss/∂logits²) J: (6.weight")
    assert repr(G.block("4.bias")) == "Jᵀ (∂²loss/∂logits²) J: (4.bias)², 32×32 float64"
    model, point = network("mlp")
    K = kfac(model, point, at="logits", wrt="6.weight")
    assert repr(K).startswith("blockdiag(A ⊗ B): (6.weight)²")
    assert repr(K.inverse(0.1)).startswith("blockdiag(Q Λ Qᵀ): (6.weight)²")


def test_factors_are_shown_with_their_sizes():
    model, point = network("mlp")
    K = kfac(model, point, at="logits", wrt="6.weight")
    E = ekfac(model, point, at="logits", wrt="6.weight")
    assert repr(K.factors) == "{'6.weight': [A 32×32 ⊗ B 10×10: (6.weight)]}"
    assert "Q diag(λ) Qᵀ in the eigenbasis of A 32×32 ⊗ B 10×10" in repr(E.factors)


@pytest.mark.parametrize("make", [oj.fisher, oj.kfac])
def test_one_of_several_outputs_has_to_be_named(make):
    point = {"x": np.ones((2, 3)), "W": np.ones((4, 3)), "y": np.zeros(2, np.int64)}
    with pytest.raises(oj.InputError, match=r"at is one tensor, not 'logits', 'loss': name it"):
        make(regression("categorical"), point, wrt="W")


@pytest.mark.parametrize("make", [oj.fisher, oj.kfac, oj.gauss_newton, oj.empirical_fisher])
def test_the_loss_is_not_the_tensor_where_it_begins(make):
    point = {"x": np.ones((2, 3)), "W": np.ones((4, 3)), "y": np.zeros(2, np.int64)}
    of = {"of": "loss"} if make in (oj.gauss_newton, oj.empirical_fisher) else {}
    with pytest.raises(oj.InputError, match=r"'loss' is .* such as the logits"):
        make(regression("categorical"), point, at="loss", wrt="W", **of)


@pytest.mark.parametrize("make", [oj.fisher, oj.kfac])
def test_classes_have_an_axis_of_their_own(make):
    """The losses of all samples are no logits of one."""
    model = oj.load(onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    g (double[n, 2] x, double[2] w) => (double[n] losses) { losses = MatMul(x, w) }"""))
    point = {"x": np.ones((3, 2)), "w": np.ones(2)}
    with pytest.raises(oj.InputError, match=r"one of classes, not the shape \[3\]"):
        make(model, point, wrt="w")
    make(model, point, wrt="w", likelihood="gaussian")
