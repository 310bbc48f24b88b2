"""Layers of roots have the derivatives of their equations in PyTorch and JAX, and train."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from implicit.equations import batch, equilibrium, optimality, square, squared_error, weights

NAMES = ["W", "U", "b", "x"]


@pytest.fixture(scope="module")
def R():
    return oj.root(equilibrium(), batch(), x="z", wrt=NAMES, fixed_point=True, atol=1e-13)


def test_an_equilibrium_in_torch_passes_gradcheck(R):
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(a, requires_grad=True) for a in (*weights(6, 4), batch()["x"])]
    assert torch.autograd.gradcheck(R.to_torch(), leaves)
    with pytest.raises(oj.InputError, match=r"first derivatives alone.*oj\.hessian"):
        torch.autograd.grad(R.to_torch()(*leaves).sum(), leaves, create_graph=True)
    with pytest.raises(oj.InputError, match=r"give 4 arguments, \['W', 'U', 'b', 'x'\], not 1"):
        R.to_torch()(leaves[0])


def test_an_optimum_of_two_tensors_in_torch():
    torch = pytest.importorskip("torch")
    point = {"x": np.zeros(3), "l": 0.0, "Q": np.diag([2.0, 1.0, 3.0]), "c": np.ones(3),
             "a": np.array([1.0, 1.0, 2.0])}  # fmt: skip
    layer = oj.root(optimality(), point, x=["x", "l"], wrt=["Q", "c", "a"]).to_torch()
    leaves = [torch.tensor(point[name], requires_grad=True) for name in ("Q", "c", "a")]
    assert torch.autograd.gradcheck(layer, leaves)


def test_an_equilibrium_in_torch_trains(R):
    torch = pytest.importorskip("torch")
    layer, x = R.to_torch(), torch.tensor(batch()["x"])
    W, U, b = (torch.tensor(0.5 * a, requires_grad=True) for a in weights(6, 4))
    target = torch.tensor(R.tensors["z"])
    optimizer = torch.optim.Adam([W, U, b], lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = ((layer(W, U, b, x) - target) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 100


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        yield jax


def test_an_equilibrium_in_jax_to_second_order(jax, R):
    layer, leaves, y = R.to_jax(), (*weights(6, 4), batch()["x"]), np.ones((3, 6))

    def loss(*leaves):
        return ((layer(*leaves) - y) ** 3).sum() / 3

    slopes = jax.jit(jax.grad(loss, range(4)))(*leaves)
    for name, slope in zip(NAMES, slopes, strict=True):
        assert_allclose(slope, oj.grad(squared_error(), {"h": R, "y": y})[name], atol=1e-9)
    H = oj.hessian(squared_error(), {"h": R, "y": y}, wrt="b")
    assert_allclose(jax.hessian(loss, 2)(*leaves), H.toarray(), atol=1e-9)


@pytest.mark.parametrize("n", [2, 150])  # by GMRES beyond 100 unknowns
def test_many_square_roots_in_jax(jax, n):
    """dx/dp = 1 / 2√p, and NaN where there is no root."""
    layer = oj.root(square(), {"x": np.ones(n), "p": np.full(n, 2.0)}, x="x").to_jax()
    p = np.linspace(1, 9, n)
    assert_allclose(jax.grad(lambda p: layer(p).sum())(p), 0.5 / np.sqrt(p), rtol=1e-7)
    mapped = jax.vmap(layer)(np.stack([p, 4 * p]))
    assert_allclose(mapped, np.sqrt([p, 4 * p]), rtol=1e-7)
    assert np.isnan(layer(-p)).all()
