"""Gram matrices of Jacobians, and the last layer, whose Jacobian is a Kronecker product."""

import tracemalloc

import numpy as np
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.modes.curvature.gauss_newton import gram
from onnxjac.modes.curvature.over_data import ntk

from .models import network, parsed

WEIGHTS = ["6.weight", "2.bias"]


def test_the_kernel_of_a_batch_is_the_jacobian_times_its_transpose():
    model, point = network("mlp")
    J = oj.linearize(model, point, of="logits", wrt=WEIGHTS).toarray()
    K = ntk(model, point, of="logits", wrt=WEIGHTS)
    assert K.T is K
    assert_allclose(K.toarray(), J @ J.T, atol=1e-12)
    assert_allclose(K[10:20, 30:40].toarray(), J[10:20] @ J[30:40].T, atol=1e-12)
    V = np.random.default_rng(0).standard_normal((40, 3))
    assert_allclose(K @ V, J @ (J.T @ V), atol=1e-12)


def test_kernel_between_two_batches():
    model, point = network("mlp")
    other = {"x": point["x"][:2] + 1, "y": point["y"][:2]}
    J, J2 = (oj.linearize(model, at, of="logits", wrt=WEIGHTS).toarray() for at in (point, other))
    K = ntk(model, point, other, of="logits", wrt=WEIGHTS)
    assert K.shape == (40, 20)
    assert_allclose(K.toarray(), J @ J2.T, atol=1e-12)


def test_the_kernel_over_batches_agrees_with_all_samples():
    model, point = network("mlp")
    other = {name: array[:2] for name, array in point.items()}
    whole = ntk(model, point, of="logits", wrt=WEIGHTS).toarray()
    K = oj.ntk(model, point, batch_size=3, of="logits", wrt=WEIGHTS)
    assert_allclose(K.toarray(), whole, atol=1e-12)
    assert_allclose(K @ np.ones(40), whole @ np.ones(40), atol=1e-12)
    part = oj.ntk(model, [point], other, of="logits", wrt=WEIGHTS)
    assert_allclose(part.toarray(), whole[:, :20], atol=1e-12)


def test_the_kernel_over_data_has_the_names_of_that_of_one_batch():
    """Also for two tensors, whose rows alternate in the stacked Jacobian."""
    model, point = network("mlp")
    options = {"of": ["logits", "gelu"], "wrt": "2.bias"}
    whole = oj.ntk(model, point, **options)
    K = oj.ntk(model, point, batch_size=3, **options)
    assert K.T is K
    assert K.domain == whole.domain
    assert repr(K).startswith("J Jᵀ: (logits")
    assert_allclose(K.toarray(), whole.toarray(), atol=1e-12)
    assert_allclose(K["logits", "gelu"].toarray(), whole["logits", "gelu"].toarray(), atol=1e-12)
    other = {name: array[:2] for name, array in point.items()}
    expected = oj.ntk(model, other, point, **options).toarray()
    part = oj.ntk(model, other, point, batch_size=3, **options)
    assert_allclose(part.toarray(), expected, atol=1e-12)


def test_the_kernel_of_summed_jacobians_has_no_names():
    """A sum of rows is of no sample in particular."""
    model, point = network("mlp")
    J = oj.linearize(model, point, of="logits", wrt=WEIGHTS, batch_size=2, reduction="sum")
    K = oj.ntk(model, point, of="logits", wrt=WEIGHTS, batch_size=2, reduction="sum")
    assert not hasattr(K, "domain")
    assert_allclose(K.toarray(), J.toarray() @ J.toarray().T, atol=1e-12)


def test_the_gram_matrix_is_the_jacobian_transposed_times_itself():
    model, point = network("mlp")
    J = oj.linearize(model, point, of="logits", wrt=WEIGHTS).toarray()
    G = gram(model, point, of="logits", wrt=WEIGHTS)
    assert G.T is G
    assert_allclose(G.toarray(), J.T @ J, atol=1e-12)


def test_the_jacobian_of_a_last_layer_takes_megabytes():
    """128 inputs, 3,100 outputs, one sample: a dense J would have 3,100² · 128 numbers, 10 GB."""
    model = parsed("""g (double[1, 128] x, double[3100, 128] W, double[3100] b)
    => (double[1, 3100] logits) { logits = Gemm<transB = 1>(x, W, b) }""")
    rng = np.random.default_rng(0)
    x, W, b = rng.standard_normal((1, 128)), rng.standard_normal((3100, 128)), np.zeros(3100)
    v, u = rng.standard_normal(W.size), rng.standard_normal(3100)
    tracemalloc.start()
    J = oj.linearize(model, {"x": x, "W": W, "b": b}, of="logits", wrt="W")
    forward, back = J @ v, J.T @ u
    K = ntk(model, {"x": x, "W": W, "b": b}, of="logits", wrt="W") @ u
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert J.shape == (3100, 396_800)
    assert J.nbytes == x.nbytes
    assert peak < 64 * 2**20 < J.shape[0] * J.shape[1] * 8 / 100
    assert_allclose(forward, v.reshape(W.shape) @ x[0], rtol=1e-12)
    assert_allclose(back, np.outer(u, x[0]).ravel(), rtol=1e-12)
    assert_allclose(K, (x @ x.T).item() * u, rtol=1e-12)
