"""Typical first mistakes: invalid models, points, vectors and block names."""

from contextlib import nullcontext

import numpy as np
import onnx
import pytest
from onnx import parser
from scipy.sparse import coo_array

import onnxjac as oj
from onnxjac.jacobians import Dense

PROTO = parser.parse_model("""
<ir_version: 10, opset_import: ["": 21]>
squares (double[1, 2, 3] x) => (double[1, 2, 3] y) { s = Mul (x, x) y = Mul (s, x) }""")

X = np.arange(1.0, 7.0).reshape(1, 2, 3)


class Tensor:
    """An iterable array of another library."""

    def __array__(self, dtype=None, copy=None):
        return X

    def __iter__(self):
        return iter(X)


@pytest.fixture(scope="module")
def model():
    return oj.load(PROTO)


@pytest.fixture(scope="module")
def J(model):
    return oj.linearize(model, {"x": X})


SCALAR = oj.grad, oj.hessian


@pytest.mark.parametrize("call", [oj.linearize, oj.vjp, *SCALAR])
def test_a_file_is_loaded(call, tmp_path):
    onnx.save(PROTO, tmp_path / "model.onnx")
    for given in (PROTO, PROTO.SerializeToString(), tmp_path / "model.onnx"):
        refused = pytest.raises(oj.InputError, match=r"\[1, 2, 3\]")  # the gradient of 6 numbers
        with refused if call in SCALAR else nullcontext():
            call(given, {"x": X})
    with pytest.raises(oj.LoadError, match="there is no file"):
        call("nowhere.onnx", {"x": X})


@pytest.mark.parametrize("call", [oj.linearize, oj.vjp, oj.grad, oj.hessian])
@pytest.mark.parametrize("given", [None, 3, [PROTO]], ids=["none", "number", "list"])
def test_functions_reject_a_model_that_is_not_loaded(call, given):
    with pytest.raises(oj.InputError, match=rf"not {type(given).__name__}: load it first"):
        call(given, {"x": X})


POINTS = {"array": X, "Tensor": Tensor(), "list": X.tolist(), "arrays": [X], "tuple": (X,)}


@pytest.mark.parametrize("given", POINTS.values(), ids=POINTS)
def test_an_array_is_the_only_input(model, given):
    wanted = oj.linearize(model, {"x": X}).toarray()
    np.testing.assert_allclose(oj.linearize(model, given).toarray(), wanted)
    J = oj.linearize(model, {"x": 0 * X}).relinearize(given)
    np.testing.assert_allclose(J.toarray(), wanted)
    np.testing.assert_allclose(model.run(given)["y"], X**3)
    np.testing.assert_allclose(oj.vjp(model, given)[1](np.ones_like(X))["x"], 3 * X**2)
    H = oj.hessian(model, given, weights=np.ones_like(X))
    np.testing.assert_allclose(H.diagonal(), 6 * X.ravel())
    assert len(oj.export(model, "jvp", given).graph.output) == 2


def test_a_path_is_a_point(model, tmp_path):
    np.savez(tmp_path / "point.npz", x=X)
    for given in (tmp_path / "point.npz", str(tmp_path / "point.npz")):
        np.testing.assert_allclose(model.run(given)["y"], X**3)
        assert oj.linearize(model, given).shape == (6, 6)
    with pytest.raises(oj.InputError, match=r"cannot read .*nowhere"):
        model.run("nowhere.npz")


def test_several_inputs_in_their_order():
    two = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[2] a, double[2] b) => (double[2] y) { y = Sub(a, b) }"""))
    a, b = np.array([5.0, 7]), np.array([1.0, 2])
    np.testing.assert_allclose(two.run([a, b])["y"], [4, 5])
    assert oj.linearize(two, (a, b)).shape == (2, 4)
    for given, said in ((a, "not ndarray"), ([a], "not 1 arrays"), ([a, b, a], "not 3 arrays"),
                        ([1.0, 2.0], "not list"), (3, "not int")):  # fmt: skip
        with pytest.raises(oj.InputError, match=rf"{said}.* has the inputs a float64\[2\], b"):
            two.run(given)


def test_lists_of_points_are_data(model):
    assert oj.linearize(model, [{"x": X}, {"x": 2 * X}]).shape == (12, 6)
    with pytest.raises(oj.InputError, match="a batch is a dict from name to array, not tuple"):
        oj.linearize(model, [(X, X)])


def test_a_declared_shape_that_a_run_contradicts_is_corrected():
    model = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[N,2] x, int64[2] s) => (double[1,2] y) { y = Reshape(x, s) }"""))
    point = {"x": np.ones((3, 2)), "s": np.array([3, 2])}
    with pytest.warns(oj.OnnxJacWarning, match=r"declares y float64\[1,2\], .* the shape \[3, 2\]"):
        assert model.run(point)["y"].shape == (3, 2)
    assert model.outputs["y"].shape == (None, 2)
    assert model.run(point)["y"].shape == (3, 2)
    assert oj.linearize(model, point, wrt="x").shape == (6, 6)


@pytest.mark.parametrize("v", [X, Tensor(), X.reshape(1, 6)], ids=["tensor", "foreign", "row"])
def test_a_tensor_is_no_vector(J, v):
    sizes = r"J, Linearization of shape 6×6, .* of 6 .* shape \[1, .*"
    message = sizes + r": x.ravel\(\) is such a vector; J.apply\("
    for operator in (J, J.T):
        with pytest.raises(oj.InputError, match=message):
            operator @ v
    np.testing.assert_array_equal(J @ X.ravel(), J.apply({"x": X})["y"].ravel())


@pytest.mark.parametrize("names", ["x,s", "x s"])
def test_several_names_are_not_one(model, names):
    with pytest.raises(oj.UnknownTensor, match="'x' and 's' are names of their own"):
        oj.linearize(model, {"x": X}, wrt=names)


def test_tensors_by_name_are_for_apply(J):
    with pytest.raises(oj.InputError, match=r"J\.apply\({name: x}\) takes tensors"):
        J @ {"x": X}
    with pytest.raises(oj.InputError, match="an operator multiplies numbers, not <U1"):
        J @ np.array(list("abcdef"))


TIMES = {"J * x": lambda J, x: J * x, "x * J": lambda J, x: x * J, "J / x": lambda J, x: J / x}


@pytest.mark.parametrize("x", ["a", b"a"], ids=["text", "bytes"])
@pytest.mark.parametrize("way", TIMES)
def test_text_scales_no_operator(J, way, x):
    with pytest.raises(oj.InputError, match=f"an operator multiplies numbers, not {x!r}"):
        TIMES[way](J, x)
    with pytest.raises(oj.InputError, match=f"J @ v multiplies an array, not {x!r}: 2"):
        J @ x


def test_nothing_is_no_operand(J):
    for what in (lambda: J + None, lambda: None + J, lambda: J - None, lambda: None - J):
        with pytest.raises(oj.InputError, match=r"J \+ K adds an operator or a matrix, not None"):
            what()
    for what in (lambda: J @ None, lambda: None @ J):
        with pytest.raises(oj.InputError, match=r"dimension mismatch: .*, not NoneType"):
            what()


@pytest.mark.parametrize("odd", [None, "1", 1j], ids=["none", "text", "complex"])
def test_objects_that_are_no_numbers(J, odd):
    x = np.array([1.0] * 5 + [odd], object)
    for product in (lambda: J @ x, lambda: J * x, lambda: x * J, lambda: J.compile() @ x):
        with pytest.raises(oj.InputError, match=f"numbers, not objects such as {odd!r}"):
            product()
    with pytest.raises(oj.InputError, match=r"not an array of shape \[1\]"):
        J * np.array([None])
    np.testing.assert_allclose((J @ np.arange(6).astype(object)).astype(float), J @ np.arange(6.0))


def test_powers_and_sparse_vectors(J):
    A, x = J.toarray(), np.arange(6.0)
    np.testing.assert_allclose((J**2).toarray(), A @ A)
    np.testing.assert_allclose(J @ coo_array(x), A @ x)


@pytest.mark.parametrize("shape", [(2,), (2, 3), (3, 1, 1)])
def test_a_product_names_the_sizes(shape):
    message = r"J, Dense of shape 2×3, multiplies a vector of 3 .* not an array of shape \[[^;]*\]"
    with pytest.raises(oj.InputError, match=message) as caught:
        Dense(np.ones((2, 3)), (2,), (3,)) @ np.ones(shape)
    assert "apply" not in str(caught.value)
    assert ("ravel" in str(caught.value)) == (np.prod(shape) == 3)


def test_one_name_is_no_block(J):
    with pytest.raises(oj.InputError, match=r"'y' alone is no block.*J\[\"of\", \"wrt\"\]"):
        J["y"]


def test_a_beginning_of_a_name_finds_what_begins_so(J):
    model = oj.load(
        parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    g (double[2] x, double[2] layer_weight, double[2] layer_bias) => (double[2] y) {
        s = Mul (x, layer_weight) y = Add (s, layer_bias) }""")
    )
    with pytest.raises(oj.UnknownTensor, match=r"mean 'layer_weight' or 'layer_bias'\?"):
        oj.linearize(model, dict.fromkeys(model.inputs, X[0, 0, :2]), wrt="la")


def test_the_declaration_of_a_rule_takes_no_model(model):
    with pytest.raises(oj.InputError, match=r"linearize\(model, inputs\)"):
        oj.jacobian(model, {"x": X})


def test_a_hessian_can_be_checked(model):
    H = oj.hessian(model, {"x": X}, weights=np.ones((1, 2, 3)))
    assert H.check()
    assert len(H.check().outcomes) == 13
    np.testing.assert_allclose(H.gradient["x"], 3 * X**2)
    np.testing.assert_allclose(H.diagonal(), 6 * X.ravel())


def test_an_operator_that_is_in_a_stretch_twice_names_it_once(model):
    rows = oj.linearize(model, {"x": X}).explain().rows
    assert {row.after for row in rows} == {"in 1"}
