"""Jacobians whose DAG is made on first access, once for all threads."""

import gc
import pickle
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import onnxjac as oj
from onnxjac.modes.linear.derivatives import point
from onnxjac.modes.linear.derivatives.record import dag_of


@pytest.fixture(scope="module")
def J():
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (double[3] x, double[3] y) => (double[3] f) { a = Exp(y) b = Tanh(x) f = Mul(a, b) }"""
    model = oj.load(onnx.parser.parse_model(text))
    J = oj.linearize(model, {"x": np.ones(3), "y": np.zeros(3)})
    J.relinearize({"x": np.ones(3), "y": np.ones(3)}).toarray()  # builds the template
    return J


def test_the_dag_of_a_point_is_made_once_by_several_threads(J, monkeypatch):
    made = []

    def making(*arguments):
        time.sleep(0.02)  # gives other threads time to arrive
        made.append(1)
        return dag_of(*arguments)

    monkeypatch.setattr(point, "dag_of", making)
    K = J.relinearize({"x": np.ones(3), "y": np.ones(3)})
    with ThreadPoolExecutor(8) as pool:
        found = {id(x) for x in pool.map(lambda _: K.at.dag, range(64))}
    assert (len(found), made) == (1, [1])


def test_a_point_travels_with_its_dag(J, inside):
    K = J.relinearize({"x": np.ones(3), "y": np.ones(3)})
    there = pickle.loads(pickle.dumps(K))
    assert inside.has_dag(there)
    assert there.at.derivative is None
    assert_array_equal(there.toarray(), K.toarray())


def test_relinearize_makes_no_operators(J, inside):
    K = J.relinearize({"x": np.zeros(3), "y": np.ones(3)})
    T, block = K.T, K["f", "x"]
    assert not any(inside.has_dag(J) for J in (K, T, block))
    assert K.shape == (3, 6)
    assert T.shape == (6, 3)
    assert_allclose(block.toarray(), np.e * np.eye(3), rtol=1e-15)
    assert inside.has_dag(K)
    assert_array_equal(T.toarray(), K.toarray().T)


def test_relinearize_copies_the_point(J):
    x, y = np.zeros(3), np.zeros(3)
    K = J.relinearize({"x": x, "y": y})
    x += 5
    y += 5
    assert_array_equal(K["f", "x"].toarray(), np.eye(3))
    L = K.relinearize({"x": x, "y": y})
    assert_array_equal(L.toarray(), J.relinearize({"x": x.copy(), "y": y.copy()}).toarray())


def test_a_sequence_at_which_nobody_looks_is_not_kept(J, inside):
    first = K = J.relinearize({"x": np.ones(3), "y": np.ones(3)})
    gone = [weakref.ref(K := K.relinearize({"x": np.full(3, float(n)), "y": np.ones(3)}))
            for n in range(3)]  # fmt: skip
    gc.collect()
    assert [r() is None for r in gone] == [True, True, False]
    assert not inside.has_dag(first)
    assert_array_equal(K.toarray(), J.relinearize(K.point).toarray())


def test_names_of_a_recording_do_not_meet_other_names_of_a_point(J):
    """A segment of a checkpointed model is given tensors that its recording does not read."""
    K = J.relinearize({"x": np.ones(3), "y": np.ones(3)})
    form = K.at.derivative
    K.toarray()
    made = [name for name in form.bases if name not in form.given]
    taken = {**K.point, **dict.fromkeys(made, np.zeros(3))}
    assert made
    for name, x in form.evaluate(taken, tuple(made)).items():
        assert_array_equal(x, K.at.read((name,))[name])
        assert x.any()


@pytest.mark.parametrize("reads", ["y = BatchNormalization<training_mode=1>(h, w, w, w, w)",
                                   "y = GroupNormalization<num_groups=1>(h, w, w)"])  # fmt: skip
def test_a_definition_is_not_simplified_past_a_tensor_of_wrt(reads):
    """Both definitions begin with a Reshape, and a Reshape of a Reshape is one, but here."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (double[2,6] x, double[1] w, bool c) => (double[2,1,2,3] z)
    <int64[4] sizes = {{2, 1, 2, 3}}>
    {{
        h = Reshape(x, sizes)  {reads}
        z = If (c) <then_branch = one () => (double[2,1,2,3] u) {{ u = Identity(y) }},
                    else_branch = other () => (double[2,1,2,3] v) {{ v = Neg(y) }}>
    }}"""
    inputs = {"x": np.arange(12.0).reshape(2, 6) ** 2, "w": np.full(1, 2.0), "c": np.array(True)}
    J = oj.linearize(oj.load(onnx.parser.parse_model(text)), inputs, wrt=["x", "h"])
    assert np.abs(J["z", "h"].toarray()).max() > 1e-3
    assert_allclose(J["z", "h"].toarray(), J["z", "x"].toarray(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_long_recurrent_network_in_single_precision_moves(op, gates):
    """Its values are those of the operator, and its tangents those of a loop beside it."""
    text = f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[120,1,2] x, float[1,{2 * gates},2] w, float[1,{2 * gates},2] r)
      => (float[120,1,1,2] y) {{ y = {op} <hidden_size = 2> (x, w, r) }}"""
    rng = np.random.default_rng(0)
    shapes = {"x": (120, 1, 2), "w": (1, 2 * gates, 2), "r": (1, 2 * gates, 2)}
    point = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    model = onnx.parser.parse_model(text)
    exact = oj.linearize(oj.load(model, dtype="float64"), point, wrt=["w", "r"], engine="numpy")
    J = oj.linearize(oj.load(model), point, wrt=["w", "r"], engine="numpy").relinearize(point)
    v, u = (rng.standard_normal(n).astype(np.float32) for n in J.shape[::-1])
    assert_allclose(J @ v, exact @ v, rtol=1e-3, atol=1e-4)
    assert_allclose(J.T @ u, exact.T @ u, rtol=1e-3, atol=1e-4 * np.abs(u).sum())
