"""Points that do not fit the model, which say why, and unusual ones that do."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto, helper

import onnxjac as oj

from ..hostile.models import ENGINES, model
from .refusals import refused

X = np.ones((2, 3), np.float32)
POINT = {"x": X, "weight": X, "labels": np.zeros(2, np.int64)}


@pytest.fixture(scope="module")
def net():
    """y = tanh(x + weight + bias) at the given rows."""
    return model(
        "s = Add(x, weight) b = Add(s, bias) t = Tanh(b) y = Gather(t, labels)",
        "(float[N,3] x, float[N,3] weight, int64[K] labels) => (float[K,3] y)",
        bias=np.ones(3, np.float32),
    )


CHANGES = {
    "unknown name": ({"wieght": X}, oj.UnknownTensor, "no input 'wieght'. Did you mean 'weight'"),
    "unknown weight": ({"bais": X}, oj.UnknownTensor, r"no input 'bais'. Did you mean 'bias'\?"),
    "rank": ({"x": X[0]}, oj.InputError, r"input 'x', declared as float32\[N,3\], .* shape \[3\]"),
    "size": ({"x": X.T}, oj.InputError, r"'x', declared as float32\[N,3\], .* shape \[3, 2\]"),
    "size of a weight": ({"bias": X.T}, oj.InputError, r"shape \[3, 2\]"),
    "symbol": ({"weight": np.ones((4, 3), np.float32)}, oj.InputError,
               "shape .4, 3., but N is 2 in"),
    "ints for floats": ({"x": X.astype(np.int64)}, oj.InputError, "given as int64.*astype"),
    "floats for ints": ({"labels": np.zeros(2)}, oj.InputError, "int64.K., was given as float64"),
    "narrow ints": ({"labels": np.zeros(2, np.int32)}, oj.InputError, "was given as int32"),
    "complex": ({"x": X + 0j}, oj.InputError, "'x', declared as float32.*given as complex64"),
    "text": ({"x": "hello"}, oj.InputError, "input 'x'"),
    "strings": ({"x": [["a", "b", "c"]] * 2}, oj.InputError, "input 'x'"),
    "ragged": ({"x": [[1, 2, 3], [4, 5]]}, oj.InputError,
               "'x', .*cannot be made of the given value"),
    "float list for ints": ({"labels": [0.5, 1.0]}, oj.InputError, "reads as float64"),
    "huge integer": ({"labels": [2**70, 0]}, oj.InputError, "input 'labels'"),
    "none": ({"x": None}, oj.InputError, "input 'x'"),
}  # fmt: skip
"""What is changed in `POINT`, and what the error says."""

POINTS = {name: (POINT | change, *said) for name, (change, *said) in CHANGES.items()} | {
    "missing": ({"x": X}, oj.InputError,
                re.escape("missing input: weight float32[N,3], labels int64[K].")),
    "nothing": ({}, oj.InputError, "missing input: x"),
    "an array": (X, oj.InputError, "inputs must be a dict from name to array, not ndarray"),
    "a list": ([X], oj.InputError, "must be a dict"),
}  # fmt: skip

USES = {
    "run": oj.Model.run,
    "linearize": oj.linearize,
    "vjp": oj.vjp,
    "relinearize": lambda net, point: oj.linearize(net, POINT).relinearize(point),
}


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("use", USES)
def test_a_point_that_does_not_fit_is_refused(net, use, name):
    point, error, match = POINTS[name]
    refused(error, match, lambda: USES[use](net, point))


def test_inputs_that_are_left_out(net):
    slopes = (lambda net: oj.grad(net, of="s"), lambda net: oj.value_and_grad(net, of="s")())
    for call in (oj.linearize, oj.hessian, oj.gram, oj.vjp, *slopes):
        refused(
            oj.InputError, r"missing input: x float32\[N,3\], w.*, labels", lambda c=call: c(net)
        )
    bare = model("y = Mul(w, w)", "() => (double[2] y)", w=[1.0, 3.0])
    assert_allclose(oj.linearize(bare, wrt="w").toarray(), np.diag([2.0, 6.0]))


@pytest.mark.parametrize("engine", ["numpy", None])
def test_an_index_out_of_range_is_an_error_of_its_operator(net, engine):
    with pytest.raises(oj.OnnxJacError, match="Gather"):
        oj.linearize(net, POINT | {"labels": [5]}, engine=engine)


FITTING = {
    "wide": {"x": X.astype(np.float64)},
    "narrow": {"x": X.astype(np.float16)},
    "floats": {"x": X.tolist()},
    "ints": {"x": [[1, 1, 1], [1, 1, 1]], "labels": [0, 0]},
    "numpy ints": {"labels": [np.int64(0), np.int64(1)]},
    "strided": {"x": np.ones((3, 2), np.float32).T},
}


@pytest.mark.parametrize("name", FITTING)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_unusual_point_that_fits_is_taken(net, name, engine):
    y = net.run(POINT | FITTING[name], engine=engine)["y"]
    assert_allclose(y, np.tanh(3 * X), rtol=1e-6)
    assert y.dtype == np.float32


def test_numbers_are_taken_for_scalars():
    loaded = model("y = Mul(x, k)", "(float[2,3] x, float k) => (float[2,3] y)")
    for k in (2, 2.0, np.float32(2), np.array(2.0)):
        assert_array_equal(loaded.run({"x": X, "k": k})["y"], 2 * X)


def test_arrays_of_strings_are_taken():
    net = model("e = Equal(s, t) z = Cast<to=11>(e) y = Mul(x, z)",
                "(double[2] x, string[2] s, string[2] t) => (double[2] y)")  # fmt: skip
    point = {"x": np.ones(2), "s": np.array(["a", "b"]), "t": np.array(["a", "c"])}
    assert_array_equal(oj.linearize(net, point, wrt="x").diagonal(), [1, 0])


@pytest.mark.parametrize("engine", [None, "onnxruntime", "numpy"])
@pytest.mark.parametrize("loss", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize(("labels", "weights"), [(1, 3), (2, 2)])
def test_a_loss_refuses_labels_and_weights_that_do_not_fit(loss, labels, weights, engine):
    """ONNX Runtime accepts any number of labels."""
    signature = "(double[N, 3] x, int64[M] t, double[K] w) => (double y)"
    net = model(f"y = {loss}(x, t, w)", signature)
    point = {"x": np.ones((2, 3)), "t": np.zeros(labels, np.int64), "w": np.ones(weights)}
    with pytest.raises(oj.OnnxJacError, match=loss):
        net.run(point, engine=engine)
    fitting = {**point, "t": np.zeros(2, np.int64), "w": np.ones(3)}
    assert np.isfinite(net.run(fitting, engine=engine)["y"]).all()


def test_an_integer_that_shows_only_at_the_point():
    """The file does not declare the type of an intermediate; the values show it."""
    proto = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Thing", ["x"], ["n"], domain="my"),
                helper.make_node("Neg", ["x"], ["y"]),
            ],
            "g", [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [3])],
            [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [3])],
        ),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("my", 1)], ir_version=10,
    )  # fmt: skip
    m = oj.load(proto)
    assert m.spec("n").dtype is None
    with pytest.raises(oj.InputError, match="of='n' is a tensor of int64"):
        oj.linearize(m, {"x": X[0], "n": np.arange(3)}, of="n")


def test_a_model_without_floating_inputs():
    m = model("y = Cast<to=11>(n)", "(int64[2,3] n) => (double[2,3] y)")
    with pytest.raises(oj.InputError, match=r"no floating input, but n int64.2,3.; no other"):
        oj.linearize(m, {"n": np.zeros((2, 3), int)})


@pytest.mark.parametrize("node", [
    "Softmax(x)", "LogSoftmax(x)", "LpNormalization(x)", "CumSum(x, axis)", "Hardmax(x)",
    "LayerNormalization(x, x)", "Gather(x, axis)",
])  # fmt: skip
def test_an_axis_of_a_scalar_raises_no_text_of_python(node):
    """An answer, or a refusal that is no text of Python's."""
    net = model(f"y = {node}", "(double x) => (double y)", axis=np.array(0))
    said = ""
    try:
        assert not oj.linearize(net, {"x": np.array(0.5)}, engine="numpy").toarray().any()
    except oj.OnnxJacError as error:
        said = str(error)
    assert not re.search("ZeroDivision|IndexError|modulo|out of range", said)
