"""J stays at its point, even if the caller overwrites the input arrays."""

import numpy as np
import pytest

import onnxjac as oj

from .models import ENGINES, W, model, network, product

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def held(x):
    """Whether a linearisation shares memory with x."""
    J = oj.linearize(network(), {"x": x}, of="y")
    return np.shares_memory(J.point["x"], x)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_point_that_is_overwritten(engine):
    m, x = network(), X.copy()
    J, H = oj.linearize(m, {"x": x}, of="y", engine=engine), oj.hessian(m, {"x": x}, of="l")
    compiled = J.compile("numpy")
    primal, of_J, of_H = J.primal["y"].copy(), product(J), product(H)
    x[...] = 7
    np.testing.assert_array_equal(J.primal["y"], primal)
    # a later product may be computed in another way
    np.testing.assert_allclose(product(J), of_J, rtol=1e-5)
    np.testing.assert_allclose(product(H), of_H, rtol=1e-5)
    np.testing.assert_allclose(product(compiled), of_J, rtol=1e-5)


def test_a_weight_that_is_overwritten():
    """y = x W, whose Jacobian is W itself."""
    w = W.astype(np.float32)
    J = oj.linearize(model("y = MatMul(x, w)", w=w), {"x": X, "w": w}, wrt="x")
    w[...] = 0
    np.testing.assert_array_equal(J.toarray(), np.kron(np.eye(2), W.astype(np.float32).T))


def test_a_batch_that_is_filled_anew():
    """The same array with other numbers is another point."""
    m, x = network(), X.copy()
    J = oj.linearize(m, {"x": x}, of="y")
    x[...] = X[::-1]
    fresh = oj.linearize(m, {"x": X[::-1]}, of="y")
    np.testing.assert_allclose(product(J.relinearize({"x": x})), product(fresh), rtol=1e-5)


def test_zero_and_minus_zero_are_two_points():
    m = model("y = Sqrt(x)", "(float[2] x) => (float[2] y)")
    J = oj.linearize(m, {"x": np.zeros(2, np.float32)})
    assert (J.diagonal() == np.inf).all()
    assert (J.relinearize({"x": -np.zeros(2, np.float32)}).diagonal() == -np.inf).all()


def test_only_writeable_arrays_are_copied(tmp_path):
    """Arrays that can still be written to are copied, immutable ones are not."""
    constant = np.frombuffer(X.tobytes(), np.float32).reshape(2, 3)
    view = X.copy()[:]
    view.flags.writeable = False  # its base is writeable
    lent = np.frombuffer(bytearray(X.tobytes()), np.float32).reshape(2, 3)
    lent.flags.writeable = False  # the same here
    X.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r", shape=(2, 3))
    assert [held(x) for x in (constant, mapped)] == [True, True]
    assert [held(x) for x in (X, view, lent, np.broadcast_to(X[:1].copy(), (2, 3)))] == [False] * 4


def test_a_sequence_that_is_overwritten():
    m = model("y = ConcatFromSequence<axis = 0>(s)", "(seq(float[2,3]) s) => (float[N,3] y)")
    x = X.copy()
    point = oj.linearize(m, {"s": [x, x]}, of="y", wrt="y").point
    x[...] = 7
    np.testing.assert_array_equal(point["s"][0], X)
