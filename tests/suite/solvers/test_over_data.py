"""Losses, gradients and solvers over batches are those of all samples at once."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((9, 3)), RNG.integers(0, 4, 9)
W = 0.1 * RNG.standard_normal((3, 4))
TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (double[N,3] x, double[3,4] W) => (double[N,4] z) { z = MatMul(x, W) }"""
DATA = {"x": X, "target": Y}
WEIGHTS = {"W": W}


class Loader:
    """Batches of uneven sizes, in every pass anew, as a data loader gives them."""

    def __iter__(self):
        return (({"x": X[a:b], "target": Y[a:b]}) for a, b in ((0, 4), (4, 5), (5, 9)))


WAYS = {
    "list": ([*Loader()], {}), "function": (lambda: iter(Loader()), {}),
    "loader": (Loader(), {}), "arrays": (DATA, {"batch_size": 4}),
}  # fmt: skip
every_way = pytest.mark.parametrize(("data", "options"), WAYS.values(), ids=WAYS)


@pytest.fixture(scope="module")
def network():
    return oj.load(onnx.parser.parse_model(TEXT))


def loss(network, reduction="mean", **options):
    return oj.with_loss(network, "cross_entropy", reduction=reduction, **options)


@every_way
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_and_gradient_over_batches_agree_with_all_samples(network, data, options, reduction):
    model = loss(network, reduction)
    f = oj.value_and_grad(model, wrt="W")
    wanted, slopes = f({**DATA, **WEIGHTS})
    value, found = f(data, reduction=reduction, shared=WEIGHTS, **options)
    assert_allclose(value, wanted)
    assert_allclose(found["W"], slopes["W"])
    over = {"wrt": "W", "reduction": reduction, "shared": WEIGHTS, **options}
    assert_allclose(oj.grad(model, data, **over)["W"], slopes["W"])
    for C in (oj.hessian(model, data, **over), oj.gauss_newton(model, data, **over)):
        assert_allclose(C.loss, wanted)
        assert_allclose(C.gradient["W"], slopes["W"])
        assert_allclose(C.compile().gradient["W"], slopes["W"])
        whole = oj.hessian(model, {**DATA, **WEIGHTS}, wrt="W")
        assert_allclose(C.toarray(), whole.toarray(), atol=1e-12)
        assert C.formula.startswith("Σ_b")
        assert_allclose(C.apply({"W": W})["W"], whole.apply({"W": W})["W"], atol=1e-12)


def test_weights_of_classes_and_masks_weigh_batches(network):
    share = np.array([0.2, 1.0, 3.0, 0.7])
    model = loss(network, weight=share, ignore_index=1)
    wanted, slopes = oj.value_and_grad(model, wrt="W")({**DATA, **WEIGHTS})
    f = oj.value_and_grad(model, wrt="W")
    value, found = f([*Loader()], reduction="mean", shared=WEIGHTS)
    assert_allclose(value, wanted)
    assert_allclose(found["W"], slopes["W"])


def test_the_reduction_must_be_said(network):
    model = loss(network)
    batches = [*Loader()]
    for call in (lambda: oj.grad(model, batches, wrt="W"),
                 lambda: oj.value_and_grad(model, wrt="W")(batches),
                 lambda: oj.newton_cg(model, batches, wrt="W", shared=WEIGHTS),
                 lambda: oj.natural_gradient(model, batches, wrt="W", shared=WEIGHTS)):  # fmt: skip
        with pytest.raises(oj.InputError, match="needs reduction='mean' or 'sum'"):
            call()
    with pytest.raises(oj.InputError, match="no samples"):
        oj.value_and_grad(model, wrt="W")([], reduction="mean")
    with pytest.raises(oj.InputError, match="checkpoint= is for one point"):
        oj.grad(model, batches, wrt="W", reduction="mean", shared=WEIGHTS, checkpoint=True)


@every_way
@pytest.mark.parametrize("solve", [oj.newton_cg, oj.natural_gradient])
def test_descent_over_batches_takes_the_steps_of_all_samples(network, data, options, solve):
    """The same steps as for all samples at once."""
    model = loss(network)
    more = {"at": "z"} if solve is oj.natural_gradient else {}
    common = {"of": "loss", "wrt": "W", "maxiter": 3, **more}
    whole = solve(model, {**DATA, **WEIGHTS}, **common)
    found = solve(model, data, reduction="mean", shared=WEIGHTS, **common, **options)
    assert_allclose(found.fun, whole.fun, rtol=1e-7)
    assert_allclose(found.tensors["W"], whole.tensors["W"], rtol=1e-5, atol=1e-7)
    assert found.fun < model.run({**DATA, **WEIGHTS})["loss"]


def test_natural_gradient_of_an_appended_loss(network):
    model = loss(network)
    found = oj.natural_gradient(model, [*Loader()], wrt="W", reduction="mean", shared=WEIGHTS,
                                maxiter=2)  # fmt: skip
    whole = oj.natural_gradient(model, {**DATA, **WEIGHTS}, wrt="W", maxiter=2)
    assert_allclose(found.x, whole.x, rtol=1e-6)


@every_way
def test_least_squares_over_batches_fit_the_same_curve(data, options):
    """A curve whose residuals come in batches."""
    model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (double[N,3] x, int64[N] target, double[3] c) => (double[N] r)
    { h = MatMul(x, c) e = Exp(h) t = Cast<to=11>(target) r = Sub(e, t) }"""))
    start = {"c": np.array([0.1, -0.2, 0.3])}
    whole = oj.levenberg_marquardt(model, {**DATA, **start}, of="r", wrt="c")
    found = oj.levenberg_marquardt(model, data, of="r", wrt="c", shared=start, **options)
    assert found.success
    assert_allclose(found.cost, whole.cost, rtol=1e-9)
    assert_allclose(found.tensors["c"], whole.tensors["c"], rtol=1e-4)
    assert found.fun.shape == (9,)
