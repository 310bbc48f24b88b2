"""Models as operators of PyTensor: its own check, higher derivatives, a fit beside one by hand."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import onnxjac as oj

pytensor = pytest.importorskip("pytensor")
pt = pytest.importorskip("pytensor.tensor")
pytestmark = pytest.mark.peers


@pytest.fixture(autouse=True)
def interpreted():
    """Numba would take a minute to compile what is called a few times."""
    with pytensor.config.change_flags(linker="py"):
        yield


RNG = np.random.default_rng(0)

MODEL = oj.load(onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["": 21]>
curve (double[n, 1] t, double[1, 4] w, double[4] b, double[4, 1] v, int64[1] k)
    => (double[n, 1] y, double s)
{
    h = MatMul (t, w)
    hb = Add (h, b)
    a = Tanh (hb)
    y = MatMul (a, v)
    vv = Mul (v, v)
    g = Gather <axis = 0> (vv, k)
    s = ReduceSum <keepdims = 0> (g)
}"""))

T = np.linspace(-1, 1, 7).reshape(-1, 1)
POINT = [RNG.standard_normal(shape) for shape in ((1, 4), (4,), (4, 1))]


def by_hand(w, b, v):
    return pt.tanh(pt.constant(T) @ w + b) @ v


def variables():
    return pt.dmatrix("w"), pt.dvector("b"), pt.dmatrix("v")


def both(make):
    """A function of the variables, of the ONNX model and of the same by hand."""
    f = oj.to_pytensor(MODEL, of="y", wrt=["w", "b", "v"], inputs={"t": T, "k": [1]})
    args = variables()
    made = [make(g(*args), args) for g in (f, by_hand)]
    return [pytensor.function(args, outputs)(*POINT) for outputs in made]


def test_its_own_check_passes():
    f = oj.to_pytensor(MODEL, of="y", wrt=["w", "b", "v"], inputs={"t": T, "k": [1]})
    pytensor.gradient.verify_grad(f, POINT, rng=np.random.default_rng(1))


@pytest.mark.parametrize(
    "make",
    [
        lambda y, args: y,
        lambda y, args: pt.grad((y**2).sum(), list(args)),
        lambda y, args: pt.grad((pt.grad((y**2).sum(), args[0]) ** 2).sum(), list(args)),
        lambda y, args: pytensor.gradient.pushforward(
            y, list(args), [pt.ones_like(x) for x in args]),
    ],
    ids=["value", "gradient", "second", "pushforward"],
)  # fmt: skip
def test_derivatives_are_as_by_hand(make):
    found, expected = both(make)
    pairs = zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]
    for ours, theirs in pairs:
        assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


def test_a_fit_takes_the_steps_of_one_by_hand():
    """Robust regression, a Student t likelihood with a normal prior, by BFGS."""
    data = np.sin(3 * T) + 0.1 * RNG.standard_normal(T.shape)

    def objective(y, args):
        loss = pt.log1p((y - data) ** 2 / 0.05).sum() + 0.5 * sum((x**2).sum() for x in args)
        return [loss, *pt.grad(loss, list(args))]

    f = oj.to_pytensor(MODEL, of="y", wrt=["w", "b", "v"], inputs={"t": T, "k": [1]})
    ends = []
    for g in (f, by_hand):
        args = variables()
        compiled = pytensor.function(args, objective(g(*args), args))

        def value_and_grad(x, compiled=compiled):
            w, b, v = x[:4].reshape(1, 4), x[4:8], x[8:].reshape(4, 1)
            value, *slopes = compiled(w, b, v)
            return float(value), np.concatenate([slope.ravel() for slope in slopes])

        start = 0.3 * np.concatenate([x.ravel() for x in POINT])
        ends.append(minimize(value_and_grad, start, jac=True, method="BFGS", tol=1e-3))
    ours, theirs = ends
    assert ours.success
    assert ours.nit == theirs.nit > 3
    assert ours.nfev == theirs.nfev
    assert_allclose(ours.x, theirs.x, rtol=1e-5, atol=1e-7)


def test_several_outputs_and_other_inputs_by_name():
    f = oj.to_pytensor(MODEL, wrt="v", inputs={"w": POINT[0], "b": POINT[1]})
    v, k = pt.dmatrix("v"), pt.lvector("k")
    y, s = f(v, t=T, k=k)
    assert y.type.shape == (None, 1)
    slope = pytensor.function([v, k], pt.grad(s + 0 * y.sum(), v))
    assert_allclose(slope(POINT[2], [2]).ravel(), [0, 0, 2 * POINT[2][2, 0], 0])


def test_single_precision_stays_single():
    model = oj.load(onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]> square (float[2] x) => (float[2] y)
    { y = Mul (x, x) }"""))
    x = pt.fvector("x")
    y = oj.to_pytensor(model)(x)
    slope = pytensor.function([x], [y, pt.grad(y.sum(), x)])([1.0, 3.0])
    assert [array.dtype for array in slope] == [np.float32] * 2
    assert_allclose(slope[1], [2, 6])


def test_numba_calls_the_operator_in_object_mode():
    """The linker that PyTensor takes by itself."""
    f = oj.to_pytensor(MODEL, of="s", wrt="v", inputs={"t": T, "w": POINT[0], "b": POINT[1]})
    v = pt.dmatrix("v")
    warned = pytest.warns(UserWarning, match="object mode")
    with pytensor.config.change_flags(linker="auto"), warned:
        compiled = pytensor.function([v], pt.grad(f(v, k=[2]), v))
        found = compiled(POINT[2])
    assert_allclose(found.ravel(), [0, 0, 2 * POINT[2][2, 0], 0])
