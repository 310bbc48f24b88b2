"""The gradient of a loss is recorded once for all batches of one size, where valid."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from curvature.models import network, parsed
from data.regressions import LABELS, W, X, softmax_hessian, softmax_regression
from onnxjac.modes import gradient

RNG = np.random.default_rng(11)


@pytest.fixture
def recorded(monkeypatch):
    """A list of all recordings of gradients."""
    met = []

    def watched(*arguments, **options):
        met.append(arguments[1])
        return original(*arguments, **options)

    original = gradient.vjp_graph
    monkeypatch.setattr(gradient, "vjp_graph", watched)
    return met


def test_batches_of_one_size_share_a_recording(recorded):
    batches = [{"x": X[k : k + 4], "y": LABELS[k : k + 4]} for k in range(0, 20, 4)]
    H = oj.hessian(
        softmax_regression(), batches, of="loss", wrt="W", shared={"W": W}, reduction="mean",
        check=False,
    )  # fmt: skip
    for _ in range(3):
        assert_allclose(H @ np.eye(12), softmax_hessian(X[:20]) / 20, rtol=1e-12, atol=1e-12)
    assert len(recorded) == 1


@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder"])
def test_a_shared_recording_is_right_at_other_points(name):
    """Other inputs, labels and weights than at the recording."""
    model, first = network(name)
    weight = next(n for n, s in model.initializers.items() if len(s.shape) == 2)
    bias = next(n for n, s in model.initializers.items() if len(s.shape) == 1)
    v = RNG.standard_normal(np.prod(model.initializers[bias].shape))
    points = [first]
    for _ in range(2):
        x = first["x"] + RNG.standard_normal(first["x"].shape)
        points.append({"x": x, "y": RNG.integers(0, 10, len(x))})
    for point in points:
        held = {**point, weight: model.constants[weight] + RNG.standard_normal()}
        shared = oj.hessian(model, held, of="loss", wrt=bias)
        fresh = oj.hessian(network(name)[0], held, of="loss", wrt=bias)
        assert_allclose(shared @ v, fresh @ v, rtol=1e-10, atol=1e-12)
        assert_allclose(shared.gradient[bias], fresh.gradient[bias], rtol=1e-10, atol=1e-12)


KEPT = """g (double[4, 3] x, bool[4] keep) => (double loss) <int64 zero = {0}> {
    y = Compress<axis = 0>(x, keep)
    total = CumSum(y, zero)
    square = Mul(total, total) cube = Mul(square, total)
    loss = ReduceSum<keepdims = 0>(cube)
}"""


def test_compress_is_recorded_at_every_point(recorded):
    """The rule of Compress reads the condition. Where recording with symbolic sizes fails, it is
    repeated without them.
    """
    model = parsed(KEPT)
    for keep in ([1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 1]):
        point = {"x": RNG.standard_normal((4, 3)), "keep": np.array(keep, bool)}
        H = oj.hessian(model, point, of="loss", wrt="x").toarray()
        assert_allclose(H, oj.hessian(parsed(KEPT), point, of="loss", wrt="x").toarray())
    assert len(recorded) >= 8


def test_integers_among_the_inputs_are_followed(recorded):
    text = """g (double[4, 3] x, int64[3] lengths) => (double loss) <int64 zero = {0}> {
        y = ReverseSequence<batch_axis = 1, time_axis = 0>(x, lengths)
        total = CumSum(y, zero)
        square = Mul(total, total) cube = Mul(square, total)
        loss = ReduceSum<keepdims = 0>(cube)
    }"""
    model = parsed(text)
    for lengths in ([4, 1, 2], [1, 4, 3], [2, 2, 4], [3, 1, 1]):
        point = {"x": RNG.standard_normal((4, 3)), "lengths": np.array(lengths)}
        H = oj.hessian(model, point, of="loss", wrt="x").toarray()
        assert_allclose(H, oj.hessian(parsed(text), point, of="loss", wrt="x").toarray())
    assert len(recorded) == 1 + 4


def test_weights_are_never_shared():
    model = softmax_regression()
    z = {"x": X, "y": LABELS, "W": W}
    for _ in range(3):
        c = RNG.standard_normal((23, 3))
        G = oj.hessian(model, z, of="logits", wrt="x", weights=c)
        assert_allclose(G.gradient["x"], c @ W.T, rtol=1e-12)
