"""Influence and nearest gradients: against matrices that are formed by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import numpy_helper, parser

import onnxjac as oj
from onnxjac.modes.attribution import samples

RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((4, 3)), RNG.standard_normal(3)
X, Y = RNG.standard_normal((9, 4)), RNG.integers(0, 3, 9)
TRAIN, TEST = {"x": X, "label": Y}, {"x": X[:2] + 0.3, "label": Y[:2]}
DELTA = 0.05


def model(reduction="mean"):
    """Softmax regression, with the loss of each sample and their mean or sum."""
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (double[n,4] x, int64[n] label) => (double[n] losses, double loss, double[n,3] logits) {{
        z = MatMul(x, W) logits = Add(z, b)
        losses = SoftmaxCrossEntropyLoss<reduction="none">(logits, label)
        loss = SoftmaxCrossEntropyLoss<reduction="{reduction}">(logits, label) }}""")
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (("W", W), ("b", B)))
    return oj.load(proto)


def softmax(x):
    z = np.exp(x @ W + B)
    return z / z.sum(axis=1, keepdims=True)


def gradients(data):
    """∇ℓₙ by (W, b), a row for each sample."""
    x, off = data["x"], softmax(data["x"]) - np.eye(3)[data["label"]]
    return np.hstack([np.einsum("ni,nc->nic", x, off).reshape(len(x), -1), off])


def gauss_newton():
    """(1/N) Σ Jₙᵀ (diag p − p pᵀ) Jₙ."""
    total = np.zeros((15, 15))
    for x, p in zip(X, softmax(X), strict=True):
        J = np.hstack([np.kron(x, np.eye(3)), np.eye(3)])
        total += J.T @ (np.diag(p) - np.outer(p, p)) @ J / len(X)
    return total


def expected(C):
    return -gradients(TEST) @ np.linalg.solve(C + DELTA * np.eye(15), gradients(TRAIN).T)


GIVEN = {"of": "loss", "at": "logits", "wrt": ["W", "b"], "damping": DELTA}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_influence_agrees_with_the_matrices(reduction, batch_size):
    found = oj.influence(model(reduction), TRAIN, TEST, **GIVEN, reduction=reduction, rtol=1e-12,
                         batch_size=batch_size)  # fmt: skip
    assert found.shape == (2, 9)
    np.testing.assert_allclose(found, expected(gauss_newton()), rtol=1e-7)


def test_losses_of_samples_and_other_curvatures():
    losses = {"of": "losses", "wrt": ["W", "b"], "damping": DELTA}
    G = gradients(TRAIN)
    found = oj.influence(model(), TRAIN, TEST, **losses, curvature="empirical_fisher", rtol=1e-12)
    np.testing.assert_allclose(found, expected(G.T @ G / len(X)), rtol=1e-7)
    found = oj.influence(model(), TRAIN, TEST, **losses, curvature=None)
    np.testing.assert_allclose(found, -gradients(TEST) @ G.T / DELTA)
    found = oj.influence(model(), TRAIN, TEST, **losses, curvature=gauss_newton(), rtol=1e-12)
    np.testing.assert_allclose(found, expected(gauss_newton()), rtol=1e-7)


@pytest.mark.parametrize("name", ["kfac", "ekfac"])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_influence_by_kronecker_factors_agrees_with_their_matrix(name, batch_size):
    made = getattr(oj, name)(model(), TRAIN, at="logits", wrt=["W", "b"])
    for curvature in (name, made):
        found = oj.influence(model(), TRAIN, TEST, **GIVEN, curvature=curvature,
                             batch_size=batch_size)  # fmt: skip
        np.testing.assert_allclose(found, expected(made.toarray()), rtol=1e-8)


def test_influence_is_the_change_after_training_again():
    """Newton steps at a minimum with and without a little more weight on a sample."""

    def trained(weights):
        theta = np.zeros(15)
        for _ in range(20):
            w, b = theta[:12].reshape(4, 3), theta[12:]
            z = np.exp(X @ w + b)
            p = z / z.sum(axis=1, keepdims=True)
            J = np.concatenate([np.einsum("ni,cd->ncid", X, np.eye(3)).reshape(9, 3, 12),
                                np.broadcast_to(np.eye(3), (9, 3, 3))], axis=2)  # fmt: skip
            g = np.einsum("n,ncp,nc->p", weights, J, p - np.eye(3)[Y]) + DELTA * theta
            H = np.einsum("n,ncp,nc,ncq->pq", weights, J, p, J) + DELTA * np.eye(15)
            mean = np.einsum("nc,ncp->np", p, J)
            theta = theta - np.linalg.solve(H - np.einsum("n,np,nq->pq", weights, mean, mean), g)
        return theta

    def loss(theta):
        z = TEST["x"] @ theta[:12].reshape(4, 3) + theta[12:]
        return np.log(np.exp(z).sum(axis=1)) - z[range(2), TEST["label"]]

    start, eps = np.full(9, 1 / 9), 1e-5
    theta = trained(start)
    point = {**TRAIN, "W": theta[:12].reshape(4, 3), "b": theta[12:]}
    there = {**TEST, "W": point["W"], "b": point["b"]}
    found = oj.influence(model(), point, there, **GIVEN, rtol=1e-12)
    for n in (0, 5):
        moved = [trained(start + s * eps * np.eye(9)[n]) for s in (1, -1)]
        slope = (loss(moved[0]) - loss(moved[1])) / (2 * eps)
        np.testing.assert_allclose(found[:, n], slope, rtol=1e-5)


def test_gradients_are_formed_some_at_a_time(monkeypatch):
    monkeypatch.setattr(samples, "CHUNK_BYTES", 8 * 15 * 2)
    rows = samples.losses_of(model(), "losses", None, ["W", "b"], "mean", None).rows(TRAIN)
    J, widths = rows.J, []

    class Transposed:
        def __matmul__(self, V):
            widths.append(V.shape[1])
            return J.T @ V

    rows = replace(rows, J=SimpleNamespace(shape=J.shape, dtype=J.dtype, T=Transposed()))
    np.testing.assert_allclose(rows.dense(), gradients(TRAIN).T)
    assert widths == [2, 2, 2, 2, 1]
    np.testing.assert_allclose(rows.norms(), np.linalg.norm(gradients(TRAIN), axis=1))


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("cosine", [True, False])
def test_nearest_gradients_agree_with_the_gradients_by_hand(cosine, batch_size):
    G, g = gradients(TRAIN), gradients(TEST)
    scale = np.outer(np.linalg.norm(g, axis=1), np.linalg.norm(G, axis=1)) if cosine else 1
    whole = g @ G.T / scale
    found = oj.nearest_gradients(model(), TRAIN, TEST, of="losses", wrt=["W", "b"], k=4,
                                 cosine=cosine, batch_size=batch_size)  # fmt: skip
    np.testing.assert_array_equal(found.samples, np.argsort(-whole, axis=1)[:, :4])
    np.testing.assert_allclose(found.similarity, -np.sort(-whole, axis=1)[:, :4])
    itself = oj.nearest_gradients(model(), TRAIN, TRAIN, of="losses", wrt=["W", "b"], k=1)
    if cosine:
        np.testing.assert_allclose(itself.similarity, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curvature": "kfc"}, "kfac"),
        ({"curvature": "kfac", "at": None, "of": "losses"}, "needs at="),
        ({"curvature": np.eye(4)}, "15 entries"),
        ({"damping": 0}, "damping=0"),
        ({"wrt": "V"}, "'V'"),
    ],
)
def test_bad_calls_are_refused(options, message):
    with pytest.raises(oj.OnnxJacError) as error:
        oj.influence(model(), TRAIN, TEST, **{**GIVEN, **options})
    assert message in str(error.value)
    with pytest.raises(oj.InputError, match="no batches"):
        oj.influence(model(), [], TEST, **{**GIVEN, "curvature": None})
