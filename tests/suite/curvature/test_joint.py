"""A weight and its bias as one matrix: detected from the structure, for any kind of node."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.modes.curvature.fisher import fisher
from onnxjac.modes.curvature.gradients import per_sample
from onnxjac.modes.curvature.kfac import ekfac, kfac, shampoo
from onnxjac.modes.curvature.kronecker import KroneckerFactored
from onnxjac.modes.linear.symmetric import Symmetric

from ..check_operator import check_operator
from .models import gradients, parsed

RNG = np.random.default_rng(4)
N = 5
OPTIONS = {"at": "out", "likelihood": "gaussian", "reduction": "sum"}

CASES = {
    "matmul, add": ({"W": (4, 3), "b": (3,)}, "m = MatMul(x, W) z = Add(m, b)", (N, 4), ["Wb"]),
    "the bias first": ({"b": (3,), "W": (4, 3)}, "m = MatMul(x, W) z = Add(b, m)", (N, 4), ["Wb"]),
    "gemm, scaled": ({"W": (3, 4), "b": (3,)},
                     "z = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, W, b)", (N, 4), ["Wb"]),
    "reshaped between": (
        {"W": (4, 6), "b": (6,)}, """m = MatMul(x, W) s = Constant<value = int64[4] {0, 0, 2, 3}>()
        r = Reshape(m, s) i = Identity(r) e = Constant<value = int64[3] {0, 0, -1}>()
        q = Reshape(i, e) z = Add(q, b)""", (N, 2, 4), ["Wb"],
    ),
    "conv": ({"W": (3, 2, 2, 2), "b": (3,)}, "z = Conv(x, W, b)", (N, 2, 3, 4), ["Wb"]),
    "conv, groups": ({"W": (6, 2, 3), "b": (6,)}, "z = Conv<group = 2>(x, W, b)", (N, 4, 5),
                     ["Wb"]),
    "transposed conv, groups": ({"W": (4, 3, 2), "b": (6,)},
                                "z = ConvTranspose<group = 2>(x, W, b)", (N, 4, 3), ["Wb"]),
    "two layers that share both": (
        {"W": (4, 4), "b": (4,)}, """m = MatMul(x, W) a = Add(m, b) t = Tanh(a)
        k = MatMul(t, W) z = Add(k, b)""", (N, 4), ["Wb"],
    ),
    "two layers that are added": (
        {"W": (4, 3), "V": (4, 3), "c": (3,), "b": (3,)}, """m = MatMul(x, W) a = Add(m, b)
        k = MatMul(x, V) d = Add(k, c) z = Add(a, d)""", (N, 4), ["Wb", "Vc"],
    ),
    "one bias of two weights": (
        {"W": (4, 3), "V": (4, 3), "b": (3,)}, """m = MatMul(x, W) k = MatMul(x, V) a = Add(m, k)
        z = Add(a, b)""", (N, 4), ["Wb", "V"],
    ),
    "a sum of two weights": (
        {"W": (4, 3), "V": (4, 3), "b": (3,)}, "u = Add(W, V) m = MatMul(x, u) z = Add(m, b)",
        (N, 4), ["Wb", "V"],
    ),
    "fused, of several": (
        {"W": (4, 2), "V": (4, 2), "c": (2,), "b": (2,)}, """u = Concat<axis = 1>(W, V)
        d = Concat<axis = 0>(b, c) m = MatMul(x, u) z = Add(m, d)""", (N, 4), ["Wb", "Vc"],
    ),
    "the shared bias of different weights": (
        {"W": (4, 4), "V": (4, 4), "b": (4,)}, """m = MatMul(x, W) a = Add(m, b) t = Tanh(a)
        k = MatMul(t, V) z = Add(k, b)""", (N, 4), ["W", "V", "b"],
    ),
    "a bias behind a nonlinearity": (
        {"W": (4, 3), "b": (3,)}, "m = MatMul(x, W) t = Tanh(m) z = Add(t, b)", (N, 4), ["W", "b"],
    ),
    "a bias behind a nonlinearity that does nothing here": (
        {"W": (4, 3), "b": (3,)}, """l = Constant<value = double {-99}>() m = MatMul(x, W)
        t = Clip(m, l) z = Add(t, b)""", (N, 4), ["W", "b"],
    ),
    "a product that is used twice": (
        {"W": (4, 3), "b": (3,)}, "m = MatMul(x, W) a = Add(m, b) z = Mul(a, m)", (N, 4),
        ["W", "b"],
    ),
    "scale and shift": ({"W": (4,), "b": (4,)}, "z = LayerNormalization(x, W, b)", (N, 4),
                        ["W", "b"]),
    "a position is no bias": ({"W": (4, 3), "b": (2, 3)}, "m = MatMul(x, W) z = Add(m, b)",
                              (N, 2, 4), ["W", "b"]),
}  # fmt: skip


def made(case, samples=N):
    """A model with these weights and a nonlinear function of all outputs of a sample."""
    weights, body, shape, _ = CASES[case]
    shape = (samples, *shape[1:])
    declared = ", ".join(f"double{list(dims)} {name}" for name, dims in weights.items())
    model = parsed(f"""g (double{list(shape)} x, {declared}) => (double out)
    {{ {body} f = Flatten(z) g = Tanh(f) h = Exp(g) out = Mul(g, h) }}""")
    values = {name: RNG.standard_normal(dims) for name, dims in weights.items()}
    return model, {"x": RNG.standard_normal(shape), **values}, list(weights)


@pytest.mark.parametrize("case", CASES)
def test_weights_and_biases_are_joined(case):
    """Σₛ xₙₛ gₙₛᵀ, scattered to the tensors, is Jₙᵀ u for every sample n."""
    model, point, weights = made(case)
    found = gradients(model, point, wrt=weights, joint=True, **OPTIONS)
    assert ["".join(layer.parts) for layer in found.layers] == CASES[case][3]
    u = RNG.standard_normal((1, *found.z.shape))
    J = found.J.toarray().reshape(N, -1, found.J.shape[1])
    total = {name: np.zeros((N, point[name].size)) for name in weights}
    for layer, g in found.cotangents(u):
        G = per_sample(layer.x, g)[0]
        for name, part in layer.parts.items():
            total[name] += np.stack([part.T @ G[:, n].ravel() for n in range(N)])
    expected = np.einsum("nc,ncw->nw", u[0], J)
    assert_allclose(np.concatenate([*total.values()], axis=1), expected, atol=1e-12)


@pytest.mark.parametrize("case", ["matmul, add", "the bias first", "gemm, scaled"])
@pytest.mark.parametrize("make", [kfac, ekfac])
def test_one_sample_is_exact_with_all_that_couples_weight_and_bias(case, make):
    model, point, weights = made(case, samples=1)
    F = fisher(model, point, wrt=weights, **OPTIONS).toarray()
    K = make(model, point, wrt=weights, joint=True, **OPTIONS)
    assert_allclose(K.toarray(), F, atol=1e-12)
    assert np.abs(K["W", "b"].toarray()).max() > 1e-3 * np.abs(F).max()


def test_the_inputs_of_a_joint_factor_end_in_one():
    model, point, weights = made("matmul, add")
    K = kfac(model, point, wrt=weights, joint=True, **OPTIONS)
    (f,), x = K.blocks, np.column_stack([point["x"], np.ones(N)])
    assert K.factors["W"] == K.factors["b"] == [f]
    assert_allclose(f.left[0], x.T @ x / N, atol=1e-12)
    apart = kfac(model, point, wrt=weights, **OPTIONS)
    assert_allclose(f.right, apart.factors["W"][0].right, atol=1e-12)


FOLLOW = ["matmul, add", "the bias first", "conv, groups", "two layers that are added",
          "fused, of several"]  # fmt: skip


@pytest.mark.parametrize("case", FOLLOW)
@pytest.mark.parametrize("make", [kfac, ekfac, shampoo])
def test_functions_of_joint_factors_match_the_matrix(case, make):
    model, point, weights = made(case)
    K = make(model, point, wrt=weights, joint=True, **OPTIONS)
    A, n = K.toarray(), K.shape[0]
    Q, values = K.eigenvectors().toarray(), K.eigenvalues()
    assert_allclose(Q.T @ Q, np.eye(n), atol=1e-12)
    assert_allclose((Q * values) @ Q.T, A, atol=1e-10)
    assert_allclose(K.trace(), np.trace(A), rtol=1e-10)
    assert_allclose(K.diagonal(), np.diag(A), atol=1e-10)
    inverse = K.inverse(0.1)
    assert_allclose(inverse.toarray(), np.linalg.inv(A + 0.1 * np.eye(n)), atol=1e-10)
    assert_allclose(inverse.logdet(), -np.linalg.slogdet(A + 0.1 * np.eye(n))[1], rtol=1e-10)
    root = K.function(np.sqrt).toarray()
    assert_allclose(root @ root, A, atol=1e-10)
    assert_allclose((3 * K).toarray(), 3 * A, atol=1e-10)
    assert isinstance(3 * K, KroneckerFactored)
    assert not isinstance(-1 * K, KroneckerFactored)
    assert_allclose((-1 * K).toarray(), -A, atol=1e-10)
    check_operator(K)


def test_the_determinant_and_inverse_of_joint_kfac_agree_with_its_matrix():
    model, point, weights = made("matmul, add", samples=9)
    K = kfac(model, point, wrt=weights, joint=True, **OPTIONS)
    sign, logdet = np.linalg.slogdet(K.toarray())
    assert sign == 1
    assert_allclose(K.logdet(), logdet, rtol=1e-10)
    assert_allclose(K.det(), np.linalg.det(K.toarray()), rtol=1e-8)
    assert_allclose(K.inverse().toarray() @ K.toarray(), np.eye(15), atol=1e-8)


def test_heuristic_damping_splits_over_the_joint_matrix():
    model, point, weights = made("matmul, add")
    K = kfac(model, point, wrt=weights, joint=True, **OPTIONS)
    (f,) = K.blocks
    (A,), (B,), delta = f.left, f.right, 0.3
    pi = np.sqrt((np.trace(A) / len(A)) / (np.trace(B) / len(B)))
    left = np.linalg.inv(A + pi * np.sqrt(delta) * np.eye(len(A)))
    right = np.linalg.inv(B + np.sqrt(delta) / pi * np.eye(len(B)))
    found = K.inverse(delta, heuristic=True)
    assert_allclose(found.toarray(), np.kron(left, right), atol=1e-12)
    assert_allclose(found.trace(), np.trace(left) * np.trace(right), rtol=1e-12)


@pytest.mark.parametrize("case", ["the bias first", "conv, groups", "fused, of several"])
def test_one_name_gives_its_part_of_the_joint_block_and_both_the_whole(case):
    """One tensor gives its part of the joint block, both give the whole block."""
    model, point, weights = made(case)
    K = kfac(model, point, wrt=weights, joint=True, **OPTIONS)
    A = K.toarray()
    ends = dict(zip(weights, np.cumsum([point[w].size for w in weights]), strict=True))
    place = {w: range(ends[w] - point[w].size, ends[w]) for w in weights}
    for name in weights:
        block = K.block(name)
        assert isinstance(block, KroneckerFactored)
        assert_allclose(block.toarray(), A[np.ix_(place[name], place[name])], atol=1e-12)
        assert_allclose(K.submatrix(name, "W").toarray(), A[np.ix_(place[name], place["W"])],
                        atol=1e-12)  # fmt: skip
    both = [*place["b"], *place["W"]]
    assert_allclose(K.block("b", "W").toarray(), A[np.ix_(both, both)], atol=1e-12)
    assert_allclose(K.submatrix(slice(1, 5), [0, 2]).toarray(), A[1:5, [0, 2]], atol=1e-12)


def test_a_part_of_corrected_eigenvalues_is_no_kronecker_product():
    model, point, weights = made("fused, of several")
    E = ekfac(model, point, wrt=weights, joint=True, **OPTIONS)
    A = E.toarray()
    assert isinstance(E.block("W"), Symmetric)
    assert_allclose(E.block("W").toarray(), A[:8, :8], atol=1e-12)
    assert isinstance(E.block("W", "b"), KroneckerFactored)
    with pytest.raises(oj.InputError, match="corrected"):
        E.block("W", "c")
    with pytest.raises(oj.UnknownTensor):
        E.block("nothing")
