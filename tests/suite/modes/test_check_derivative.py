"""`check_derivative`: right derivatives of any code pass, and every planted mistake is found."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod
from scipy.sparse.linalg import LinearOperator

import onnxjac as oj

RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 3))
X = np.array([0.3, -1.2, 0.7])


def f(x):
    return np.tanh(W @ x)


def jvp(x, v):
    return (1 - f(x) ** 2) * (W @ v)


def vjp(x, u):
    return W.T @ ((1 - f(x) ** 2) * u)


def failed(check):
    return [o.name.partition(",")[0] for o in check.outcomes if o.verdict != "right"]


DOT, SLOPES = "dot test ⟨u", "⟨Jᵀu"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_right_products_pass(dtype):
    check = oj.check_derivative(f, jvp=jvp, vjp=vjp, at=X.astype(dtype))
    assert check.verdict == "right", check
    assert len(check.outcomes) == 5


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"jvp": lambda x, v: W @ v}, ["J v against central differences"]),
        ({"jvp": lambda x, v: jvp(x, v) + 1e-4}, ["J v against central differences", "J (v + 2 w) "
                                                  "against J v + 2 J w"]),
        ({"jvp": jvp, "vjp": lambda x, u: W.T @ u}, [SLOPES, DOT]),
        ({"vjp": lambda x, u: vjp(x, u) * [1, 1, 1.001]}, [SLOPES]),
        ({"vjp": lambda x, u: vjp(x, abs(u))}, [SLOPES, "Jᵀ (v + 2 w) against Jᵀ v + 2 Jᵀ w"]),
        ({"jvp": lambda x, v: W}, ["J v against central differences", "J (v + 2 w) against J v + "
                                   "2 J w"]),
    ],
)  # fmt: skip
def test_wrong_products_are_found(given, names):
    check = oj.check_derivative(f, **given, at=X)
    assert (check.verdict, failed(check)) == ("wrong", names)


def test_gradient_and_hessian_of_scipy_are_right():
    check = oj.check_derivative(rosen, grad=rosen_der, hvp=rosen_hess_prod, at=X)
    assert check.verdict == "right", check
    assert oj.check_derivative(rosen, hvp=rosen_hess_prod, at=X)


@pytest.mark.parametrize(
    ("grad", "hvp", "count"),
    [
        (lambda x: rosen_der(x) + x, rosen_hess_prod, 2),
        (rosen_der, lambda x, v: rosen_hess_prod(x, v) * 1.001, 2),
        (rosen_der, lambda x, v: rosen_hess_prod(x, v) + np.cross(x, v), 2),  # not symmetric
        (None, lambda x, v: rosen_hess_prod(x, v) + np.cross(x, v), 1),
        (None, lambda x, v: rosen_hess_prod(x, v) * 1.001, 1),
        (None, lambda x, v: rosen_hess_prod(x, abs(v)), 3),
    ],
)
def test_wrong_gradients_and_hessians_are_found(grad, hvp, count):
    check = oj.check_derivative(rosen, grad=grad, hvp=hvp, at=X)
    assert (check.verdict, len(failed(check))) == ("wrong", count), check


def test_the_wrong_array_is_named():
    def loss(p):
        return float(np.sum(np.tanh(p["W"] @ p["b"]) ** 2))

    def grad(p):
        y = np.tanh(p["W"] @ p["b"])
        s = 2 * y * (1 - y**2)
        return {"W": np.outer(s, p["b"]), "b": p["W"].T @ s * 1.01}

    check = oj.check_derivative(loss, grad=grad, at={"W": W, "b": X})
    assert [o.name for o in check.outcomes if not o.passed] == [
        "∇f v against differences of f, along b"
    ]


def test_a_kink_is_not_a_mistake():
    def grad(x):
        return np.sign(x)

    x = np.array([1.0, 0.0, -2.0])
    assert oj.check_derivative(lambda x: abs(x).sum(), grad=grad, at=x)
    wrong = oj.check_derivative(lambda x: abs(x).sum(), grad=lambda x: -np.sign(x), at=x)
    assert wrong.verdict == "wrong"


def test_random_values_and_steps_are_not_compared():
    draws = np.random.default_rng(1)
    check = oj.check_derivative(lambda x: x.sum() + draws.random(), grad=np.ones_like, at=X)
    assert check.verdict == "not compared"
    assert "random draws" in check.outcomes[0].note

    def noisy(x):  # no slope anywhere
        return float(np.sum(np.sin(1e9 * x)))

    assert oj.check_derivative(noisy, grad=np.ones_like, at=X).verdict == "not compared"


def test_a_wrong_adjoint_of_a_scipy_operator_is_found():
    def operator(adjoint):
        return LinearOperator((8, 8), np.fft.fft, adjoint, dtype=complex)

    assert oj.check_derivative(operator(lambda y: 8 * np.fft.ifft(y)))
    assert not oj.check_derivative(operator(np.fft.ifft))
    alone = oj.check_derivative(LinearOperator((8, 8), lambda v: np.roll(v, 1), dtype=float))
    assert (alone.verdict, len(alone.outcomes)) == ("right", 2)


def test_our_own_jacobian_is_an_operator_too():
    J = oj.asoperator(W)
    assert oj.check_derivative(J)


def test_an_exception_is_a_failed_test():
    def broken(x, v):
        raise ValueError("no derivative here")

    check = oj.check_derivative(f, jvp=broken, at=X)
    assert check.verdict == "wrong"
    assert "ValueError: no derivative here" in str(check)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": X}, "there is nothing to check"),
        ({"jvp": jvp}, "by at="),
        ({"grad": lambda x: x, "at": X}, "one number, but f gives [4]"),
        ({"jvp": jvp, "at": np.arange(3)}, "int64 has no derivative"),
        ({"jvp": 3, "at": X}, "jvp=3"),
    ],
)
def test_bad_calls_are_refused(options, message):
    with pytest.raises(oj.InputError) as error:
        oj.check_derivative(f, **options)
    assert message in str(error.value)


@pytest.mark.peers
def test_a_wrong_vjp_of_a_function_of_torch_is_found():
    torch = pytest.importorskip("torch")
    A = torch.as_tensor(W)

    def g(x):
        return torch.tanh(A @ x[0]) * x[1]

    at = (torch.as_tensor(X), torch.ones(4, dtype=torch.float64))

    def right(x, u):
        return torch.func.vjp(g, x)[1](u)[0]

    assert oj.check_derivative(g, vjp=right, jvp=lambda x, v: torch.func.jvp(g, (x,), (v,))[1],
                               at=at)  # fmt: skip
    wrong = oj.check_derivative(g, vjp=lambda x, u: (right(x, u)[0], u), at=at)
    assert "along [1]" in next(o.name for o in wrong.outcomes if not o.passed)


@pytest.mark.peers
def test_a_wrong_custom_vjp_of_jax_is_found():
    jax = pytest.importorskip("jax")

    @jax.custom_vjp
    def square(x):
        return (x * x).sum()

    square.defvjp(lambda x: (square(x), x), lambda x, u: (x * u,))  # a factor 2 is missing
    at = jax.numpy.asarray(X)
    assert oj.check_derivative(lambda x: (x * x).sum(), grad=jax.grad(lambda x: (x * x).sum()),
                               at=at)  # fmt: skip
    assert oj.check_derivative(square, grad=jax.grad(square), at=at).verdict == "wrong"
