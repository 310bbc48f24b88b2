"""Empty tensors, scalars and axes of length 1: shapes that code forgets."""

import contextlib
import warnings

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.modes.linear.products.compiled import record_product
from onnxjac.modes.model.programs.program import compile_by

from .models import CALLS, ENGINES, model, network

KERNEL = np.ones((2, 3, 2, 2), np.float32)
TURNED = np.ones((3, 2, 3, 3), np.float32)
ROW = np.ones(3, np.float32)

EMPTY = {
    "a batch": ("h = MatMul(x, w) y = Tanh(h)", "[N,3]", "[N,3]", (0, 3), {"w": np.eye(3)}),
    "a convolution": ("y = Conv(x, w)", "[N,3,5,5]", "[N,2,4,4]", (0, 3, 5, 5), {"w": KERNEL}),
    "a pool": ("y = MaxPool<kernel_shape = [2,2]>(x)", "[N,1,4,4]", "[N,1,3,3]", (0, 1, 4, 4), {}),
    "a normalisation": ("y = LayerNormalization(x, w)", "[N,3]", "[N,3]", (0, 3), {"w": ROW}),
    "a sum": ("s = ReduceSum<keepdims = 0>(x) y = Exp(s)", "[2,K]", "", (2, 0), {}),
    "a mean": ("s = ReduceMean<keepdims = 0>(x) y = Exp(s)", "[2,K]", "", (2, 0), {}),
    "a product": ("t = Transpose(x) y = MatMul(x, t)", "[2,K]", "[2,2]", (2, 0), {}),
    "a softmax": ("y = Softmax(x)", "[2,K]", "[2,K]", (2, 0), {}),
    "a logarithm of one": ("y = LogSoftmax(x)", "[2,K]", "[2,K]", (2, 0), {}),
    "a choice": ("y = Gather(x, w)", "[2,K]", "[0,K]", (2, 3), {"w": np.zeros(0, np.int64)}),
    "an image": ("y = ConvTranspose(x, w)", "[1,3,K,4]", "[1,2,L,M]", (1, 3, 0, 4), {"w": TURNED}),
    "a loss": ('y = NegativeLogLikelihoodLoss<reduction = "sum">(p, t, x)', "[K]", "", (5,),
               {"p": np.zeros((0, 5, 6, 6)), "t": np.zeros((0, 6, 6), np.int64)}),
    "a part": ("a, b = Split<axis = 0>(x, w) c = Mul(b, b) y = Concat<axis = 0>(a, c)",
               "[2,K]", "[2,K]", (2, 3), {"w": np.array([0, 2])}),
}  # fmt: skip
"""Empty part -> (nodes, shape of x, shape of y, x, weights)."""


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", EMPTY)
def test_empty_tensors_have_jacobians_of_their_shape(case, engine):
    body, of_x, of_y, shape, weights = EMPTY[case]
    weights = {k: w.astype(np.float32) if w.dtype.kind == "f" else w for k, w in weights.items()}
    m = model(body, f"(float{of_x} x) => (float{of_y} y)", **weights)
    x = np.ones(shape, np.float32)
    J = oj.linearize(m, {"x": x}, engine=engine)
    v, u = (np.ones(n, np.float32) for n in J.shape[::-1])
    for K in (J, J.compile("numpy"), J.compile("onnxruntime"), J.relinearize({"x": x})):
        assert (K @ v).shape == u.shape
        assert (K.T @ u).shape == v.shape
        assert (K @ np.ones((len(v), 2), np.float32)).shape == (len(u), 2)
        for L in (K, K.T):
            assert L.toarray().shape == L.tosparse().shape == L.shape
            assert L.diagonal().shape == (min(J.shape),)
        if x.size == 0:
            assert not np.any(K @ v)
    ones = np.ones(J.codomain[0].shape, np.float32)
    assert oj.hessian(m, {"x": x}, of="y", weights=ones).toarray().shape == (x.size, x.size)
    assert J.check() or not np.isfinite(J.primal["y"]).all()


def test_a_program_that_meets_nothing():
    """`compile` builds no such program, but sweeps may."""
    body, of_x, of_y, shape, weights = EMPTY["a loss"]
    m = model(body, f"(float{of_x} x) => (float{of_y} y)", p=weights["p"].astype(np.float32),
              t=weights["t"])  # fmt: skip
    dag = oj.linearize(m, {"x": np.ones(shape, np.float32)}).dag
    for J in (dag, dag.T):
        program, _ = compile_by("numpy", record_product(J))
        assert not np.any(program(np.ones(J.in_shape, np.float32)))


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("space", [(0,), (2, 0), (0, 4, 2), (3, 0, 2)])
def test_a_kernel_that_meets_nothing(space):
    """y is nothing but padding around an image without pixels, so w has no effect."""
    d = len(space)
    free = ",".join("ABC"[:d])
    m = model("y = ConvTranspose(x, w)", f"(float[1,1,{free}] x, float[1,1{',3' * d}] w) => "
              f"(float[1,1{',?' * d}] y)")  # fmt: skip
    x, w = np.ones((1, 1, *space), np.float32), np.ones((1, 1, *(3,) * d), np.float32)
    J = oj.linearize(m, {"x": x, "w": w}, wrt=["x", "w"])
    assert J.shape == (J.primal["y"].size, w.size)
    for K in (J, J.T, J.compile("numpy"), J.compile("onnxruntime").T):
        assert not np.any(K @ np.ones(K.shape[1], np.float32))
    with contextlib.suppress(oj.OnnxJacError):  # the engine raises an error instead of crashing
        oj.linearize(m, {"x": x, "w": w}, engine="onnxruntime")


@pytest.mark.parametrize("engine", [None, *ENGINES])
@pytest.mark.parametrize("window", ["window", ", none"])
def test_frames_of_no_length_end_in_a_result_or_our_error(engine, window):
    m = model(f"y = STFT(x, step, {window})", "(float[1,16,1] x) => (float[?,?,?,?] y)",
              step=np.int64(4), none=np.int64(0), window=np.ones(0, np.float32))  # fmt: skip
    with contextlib.suppress(oj.OnnxJacError):  # refused, or computed by NumPy
        oj.linearize(m, {"x": np.ones((1, 16, 1), np.float32)}, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("call", CALLS)
def test_every_call_with_a_batch_of_none(call, engine):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = CALLS[call](network(), np.zeros((0, 3), np.float32), engine)
    assert found is not None


def test_a_derivative_recorded_without_a_sample_takes_any_batch():
    m = network()
    proto = oj.export(m, "jvp", {"x": np.zeros((0, 3), np.float32)}, of="y")
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    found = oj.load(proto).run({"x": x, "x_tangent": x})["y_tangent"]
    np.testing.assert_allclose(found, oj.jvp(m, {"x": x}, {"x": x}, of="y")[1]["y"], rtol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("x", [np.float32(0.5), np.array(0.5, np.float32), 0.5])
def test_a_number_of_rank_0_has_derivatives_of_one_entry(x, engine):
    m = model("s = Mul(x, x) y = Mul(s, x)", "(float x) => (float y)")
    J = oj.linearize(m, {"x": x}, engine=engine)
    for K in (J, J.compile("numpy"), J.compile("onnxruntime")):
        assert K.shape == (1, 1)
        np.testing.assert_allclose(K @ np.ones(1), [0.75])
        np.testing.assert_allclose(K.toarray(), [[0.75]])
    np.testing.assert_allclose(J.apply({"x": 2.0})["y"], 1.5)
    np.testing.assert_allclose(oj.hessian(m, {"x": x}).toarray(), [[3.0]])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 3), (2, 1), (1, 1, 3), (4, 1, 1)])
def test_axes_of_length_1_are_broadcast_in_every_product(shape):
    """y = x ∘ b with all broadcasts of x."""
    own, full = (str(list(s)) if s else "" for s in (shape, np.broadcast_shapes(shape, (2, 3))))
    m = model("y = Mul(x, b)", f"(float{own} x, float[2,3] b) => (float{full} y)")
    x, b = np.full(shape, 2, np.float32), np.full((2, 3), 3, np.float32)
    J = oj.linearize(m, {"x": x, "b": b}, wrt=["x", "b"])
    assert J.check()
    for engine in ENGINES:
        np.testing.assert_allclose(J.compile(engine) @ np.ones(J.shape[1]), 5)
