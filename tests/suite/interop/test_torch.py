"""Operators and models inside autograd and torch.func: every mode, to the third order."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from curvature.models import parsed
from interop.operators import KINDS, MODEL, POINT, WEIGHTS, WRT, hessian, linearization

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

TIGHT = {"rtol": 1e-9, "atol": 1e-12}
# A Jacobian adapts to the number of products, so the last digits of two products may differ.
CHECK = {"fast_mode": True, "nondet_tol": 1e-12}


def leaves(names=WRT):
    return [torch.tensor(POINT[name], requires_grad=True) for name in names]


def plain(W1, W2, x=POINT["x"], y=POINT["y"]):
    """The loss of the model, by PyTorch."""
    logits = torch.tanh(torch.as_tensor(x) @ W1.T) @ W2.T
    return torch.nn.functional.cross_entropy(logits, torch.as_tensor(y))


@pytest.fixture(scope="module")
def loss():
    return MODEL.to_torch(of="loss", wrt=WRT, inputs={"x": POINT["x"], "y": POINT["y"]})


@pytest.mark.parametrize("kind", ["linearization", "transpose", "hessian", "kfac", "streamed"])
def test_operators_pass_gradcheck_to_the_second_order(kind):
    J = KINDS[kind]()
    f = J.to_torch()
    v = torch.randn(3, J.shape[1], dtype=torch.float64, requires_grad=True)
    assert_allclose(f(v).detach(), (J @ v.detach().numpy().T).T, **TIGHT)
    assert torch.autograd.gradcheck(f, (v,), check_forward_ad=True, **CHECK)
    assert torch.autograd.gradgradcheck(f, (v,), **CHECK)


def test_operators_under_torch_func():
    J = linearization()
    f, v = J.to_torch(), torch.randn(4, 59, dtype=torch.float64)
    assert_allclose(torch.func.jacrev(f)(v[0]), J.toarray(), **TIGHT)
    assert_allclose(torch.func.jacfwd(f)(v[0]), J.toarray(), **TIGHT)
    assert_allclose(torch.func.vmap(f, in_dims=1)(v.T), f(v), **TIGHT)


def test_the_type_of_a_vector_is_kept():
    f, v = hessian().to_torch(), torch.ones(35, requires_grad=True)
    f(v).sum().backward()
    assert f(v).dtype == v.grad.dtype == torch.float32


def test_losses_pass_gradcheck_to_the_second_order(loss):
    assert torch.autograd.gradcheck(loss, leaves(), check_forward_ad=True, **CHECK)
    assert torch.autograd.gradgradcheck(loss, leaves(), check_fwd_over_rev=True, **CHECK)


def test_second_derivatives_equal_pytorch(loss):
    ours, theirs = leaves(), leaves()
    for f, tensors in ((loss, ours), (plain, theirs)):
        value = f(*tensors)
        (0.5 * value**2 + value).backward()
    assert_allclose(loss(*ours).detach(), plain(*theirs).detach(), **TIGHT)
    for a, b in zip(ours, theirs, strict=True):
        assert_allclose(a.grad, b.grad, **TIGHT)


@pytest.mark.parametrize("outer", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("inner", ["jacrev", "jacfwd"])
def test_hessians_by_every_pair_of_modes(loss, inner, outer):
    W1, W2 = (t.detach() for t in leaves())
    modes = getattr(torch.func, inner), getattr(torch.func, outer)
    H = modes[1](modes[0](lambda W: loss(W1, W)))(W2)
    assert_allclose(H.reshape(15, 15), hessian()["fc2", "fc2"].toarray(), **TIGHT)


def test_a_compiled_program_calls_them(loss):
    """Compiled with its NumPy, a function had wrong gradients, also where it was called later."""
    J = linearization()
    Jv, found = J.to_torch(), leaves()
    torch.compile(lambda *weights: 2 * loss(*weights), backend="eager")(*found).backward()
    later, expected = leaves(), leaves()
    loss(*later).backward()
    plain(*expected).backward()
    for a, b, c in zip(found, later, expected, strict=True):
        assert_allclose(a.grad, 2 * c.grad, **TIGHT)
        assert_allclose(b.grad, c.grad, **TIGHT)
    v = torch.ones(J.shape[1], dtype=torch.float64)
    assert_allclose(torch.compile(lambda v: 2 * Jv(v), backend="eager")(v), 2 * (J @ v), **TIGHT)


PRODUCTS = {
    "J @ v": lambda J, V: J @ V[:, 0],
    "J @ V": lambda J, V: J @ V,
    "J.T @ u": lambda J, V: J.T @ (J @ V[:, 0]),
    "V.T @ J.T": lambda J, V: V.T @ J.T,
    "apply": lambda J, V: J.apply({"x": V[:, 0].reshape(4, 3)})["y"],
}


@pytest.mark.filterwarnings("ignore:Dynamo detected")  # of caches, at J.T
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_compiled_program_multiplies(name):
    model = parsed("""f (double[4, 3] x, double[3, 5] W) => (double[4, 5] y) {
        z = MatMul(x, W) p = Softmax(z) h = Tanh(x) g = MatMul(h, W) y = Mul(p, g) }""")
    J = oj.linearize(model, {"x": np.ones((4, 3)), "W": np.eye(3, 5)}, wrt="x")
    V = torch.ones((12, 2), dtype=torch.float64)
    torch._dynamo.reset()
    product = torch.compile(lambda V: 2 * PRODUCTS[name](J, V), backend="eager")
    assert_allclose(product(V), 2 * PRODUCTS[name](J, V), **TIGHT)


def test_third_derivatives_of_a_loss_agree_with_plain_pytorch(loss):
    W1, W2 = (t.detach() for t in leaves())
    third = [
        torch.func.grad(lambda t, f=f: torch.func.hessian(lambda s: f(W1, W2 * s))(t))(
            torch.ones((), dtype=torch.float64)
        )
        for f in (loss, plain)
    ]
    assert_allclose(*third, **TIGHT)


def test_other_inputs_by_name_and_samples():
    f = MODEL.to_torch(of=["logits", "loss"], wrt="x", inputs=WEIGHTS)
    x, y = torch.tensor(POINT["x"]), torch.tensor(POINT["y"])
    logits, value = f(x, y=y)
    assert_allclose(value, plain(*leaves()).detach(), **TIGHT)
    rows = torch.func.vmap(lambda x, y: f(x[None], y=y[None])[0][0])(x, y)
    assert_allclose(rows, logits, **TIGHT)


def test_a_step_of_training_lowers_the_loss(loss):
    weights = leaves()
    optimizer = torch.optim.SGD(weights, lr=0.5)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        value = loss(*weights)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[0] > losses[1] > losses[2]


def test_without_gradients_nothing_is_linearised(loss, monkeypatch):
    monkeypatch.setattr("onnxjac.modes.interop.functions.FunctionAtPoint", None)
    with torch.no_grad():
        assert_allclose(loss(*leaves()), plain(*leaves()).detach(), **TIGHT)


def test_to_torch_rejects_wrong_arguments(loss):
    with pytest.raises(oj.InputError, match=r"give 2 arguments, \['fc1', 'fc2'\], not 1"):
        loss(leaves()[0])
    with pytest.raises(oj.InputError, match="no further input 'z'"):
        loss(*leaves(), z=1)
    with pytest.raises(oj.InputError, match=r"vectors of 35 entries along the last.*\[3, 36\]"):
        hessian().to_torch()(torch.ones(3, 36))
    with pytest.raises(oj.InputError, match="'h' is computed by the model"):
        MODEL.to_torch(wrt="h")


def test_tensors_of_pytorch_as_inputs():
    point = {
        name: torch.tensor(a, requires_grad=a.dtype.kind == "f") for name, a in POINT.items()
    }
    J = oj.linearize(MODEL, point, of="logits", wrt=["x", *WRT])
    assert_allclose(J.toarray(), linearization().toarray(), **TIGHT)
    assert_allclose(torch.ones(18).double() @ J, J.T @ np.ones(18), **TIGHT)
    half = {**point, "x": point["x"].to(torch.bfloat16)}
    assert np.isfinite(MODEL.run(half)["loss"])
    with pytest.raises(oj.InputError, match="on meta cannot be read"):
        oj.linearize(MODEL, {**point, "x": point["x"].to("meta")}, of="logits")
    with torch.no_grad():  # as an optimiser does
        point["fc1"].mul_(2)
    assert_allclose(J.relinearize(J.point).toarray(), linearization().toarray(), **TIGHT)


def test_a_file_is_loaded():
    with pytest.raises(oj.LoadError, match=r"there is no file .*net\.onnx"):
        oj.to_torch("net.onnx")
    with pytest.raises(oj.InputError, match="a model is what `load` gives, not int"):
        oj.to_torch(3)
