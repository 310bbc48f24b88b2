"""Models, linearisations and compiled operators are pickled to other processes."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import onnxjac as oj
from data.makers import gram
from house import ROOT
from onnxjac.modes.data.shares import streamed

MODELS = ROOT / "tests" / "models"


def loaded(name):
    with np.load(MODELS / f"{name}.npz") as file:
        return oj.load(MODELS / f"{name}.onnx", dtype="float64"), {"x": file["x"].astype(float)}


def travelled(thing):
    """A copy by pickle protocol 5, with out-of-band arrays."""
    buffers = []
    message = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(message, buffers=buffers), len(message)


@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder"])
def test_a_pickled_model_runs_as_before(name):
    model, point = loaded(name)
    (before,) = model.run(point).values()
    copy, _ = travelled(model)
    assert type(copy) is oj.Model
    assert_array_equal(copy.run(point)[next(iter(copy.outputs))], before)
    assert (copy.opset, copy.inputs, copy.initializers) == (
        model.opset, model.inputs, model.initializers
    )  # fmt: skip


@pytest.mark.parametrize("function", [
    oj.linearize, oj.hessian, oj.gauss_newton, oj.fisher, oj.empirical_fisher, oj.gram,
], ids=lambda function: function.__name__)  # fmt: skip
def test_functions_travel_as_those_that_take_data(function):
    assert pickle.loads(pickle.dumps(function)) is function


def test_large_weights_leave_a_pickle_out_of_band():
    model, _ = loaded("mlp")
    weights = sum(a.nbytes for a in model.constants.values())
    assert travelled(model)[1] < weights / 4


@pytest.mark.parametrize("compiled", [False, True])
def test_a_pickled_linearisation_multiplies_and_moves_as_before(compiled):
    model, point = loaded("mlp")
    wrt = tuple(model.initializers)[:2]
    J = oj.linearize(model, point, wrt=wrt)
    J = J.compile("numpy") if compiled else J
    v, u = (np.random.default_rng(0).standard_normal(n) for n in J.shape[::-1])
    before = J @ v, J.T @ u
    copy, _ = travelled(J)
    assert_allclose(copy @ v, before[0], rtol=1e-13)
    assert_allclose(copy.T @ u, before[1], rtol=1e-13)
    moved = {"x": point["x"] + 1}
    assert_allclose(copy.relinearize(moved) @ v, J.relinearize(moved) @ v, rtol=1e-13)


def test_a_pickled_hessian_multiplies_as_before():
    model, point = loaded("mlp")
    (of,) = model.outputs
    weights = np.ones(model.run(point)[of].shape)
    H = oj.hessian(model, point, wrt=tuple(model.initializers)[:1], weights=weights)
    v = np.random.default_rng(0).standard_normal(H.shape[1])
    assert_allclose(travelled(H)[0] @ v, H @ v, rtol=1e-13)


@pytest.mark.peers
@pytest.mark.parametrize("reduction", ["sum", "stack"])
def test_a_copy_over_batches_of_tensors_knows_where_they_are(reduction):
    torch = pytest.importorskip("torch")
    data = [{"x": torch.ones((k, 4), dtype=torch.float64)} for k in (2, 3)]
    C = streamed(gram, data, reduction=reduction)
    for copy in (travelled(C)[0], travelled(C.T)[0].T):
        assert copy.place is not None
        assert copy.place == C.place
        assert_allclose(copy @ np.ones(4), C @ np.ones(4))


def test_a_pickle_holds_no_cached_work():
    model, point = loaded("mlp")
    J = oj.linearize(model, point)
    _, size = travelled(J)
    for k in range(3):
        J.relinearize({"x": point["x"] + k})
    J @ np.ones(J.shape[1])
    assert travelled(oj.linearize(model, point))[1] < 1.05 * size
