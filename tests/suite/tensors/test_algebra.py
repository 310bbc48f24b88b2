"""Every kind of operator multiplies tensors of PyTorch as it multiplies NumPy arrays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from check_operator import TIGHT, check_operator
from onnxjac.jacobians import Block, Dense, Diagonal, Jacobian, Kron, LowRank, Scatter
from onnxjac.jacobians.errors import InputError, NotConverged
from onnxjac.jacobians.placing import PLACED, placed
from onnxjac.modes.linear.products.compiled import Compiled

from ..jacobians.convolutions import GEOMETRIES, PAIRS, convolution
from ..jacobians.examples import EXAMPLES, Draw
from ..jacobians.test_closed import KINDS as CLOSED
from ..jacobians.test_functions import OTHERS, POSITIVE

torch = pytest.importorskip("torch")
from onnxjac.ops.torch import place  # noqa: E402
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers


def check_tensors(J, dense, device, tolerance=TIGHT):
    """J v, J V, Jᵀ u, u J, U J, and products with leading axes, are tensors on the device."""
    draw = Draw(5)
    m, n = J.shape
    v, V, u, U = draw.normal(n), draw.normal(n, 3), draw.normal(m), draw.normal(3, m)
    moved = [tensor(x.astype(J.dtype), device) for x in (v, V, u, U)]
    a, b, c, d = moved
    products = (J @ a, J @ b, J.T @ c, J.T @ d.T, c @ J, d @ J, J.matvec(a), J.rmatmat(d.T))
    H = np.conj(dense.T)
    wanted = (dense @ v, dense @ V, dense.T @ u, dense.T @ U.T, u @ dense, U @ dense, dense @ v,
              H @ U.T)  # fmt: skip
    kept = [x.clone() for x in moved]
    for y, expected in zip(products, wanted, strict=True):
        assert isinstance(y, torch.Tensor)
        assert (y.device, y.dtype) == (a.device, a.dtype)
        assert_allclose(host(y), expected, **tolerance)
        y += 1  # the result belongs to the caller
    for x, before in zip(moved, kept, strict=True):
        assert torch.equal(x, before)
    assert_allclose(host(J @ a), wanted[0], **tolerance)


def check_compiled(J, dense, device):
    """Products by the program of PyTorch: of arrays, and of tensors from both sides."""
    C = Compiled(J, f"torch:{device}")
    check_operator(C, dense)
    check_tensors(C, dense, device)


@pytest.mark.parametrize("name", EXAMPLES)
def test_operator_multiplies_tensors(name, device):
    J, dense = EXAMPLES[name][1](Draw(1))
    check_tensors(J, dense, device)
    check_compiled(J, dense, device)
    check_tensors(
        2 * (J.T @ J) + J.T @ J, 3 * dense.T @ dense, device, {"rtol": 1e-11, "atol": 1e-11}
    )


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_operator_of_other_numbers_multiplies_tensors(name, dtype, device):
    J, dense = EXAMPLES[name][1](Draw(1, dtype))
    check_tensors(
        J, dense, device, TIGHT if dtype == np.complex128 else {"rtol": 1e-4, "atol": 1e-4}
    )


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
def test_convolution_multiplies_tensors(name, pair, device):
    J, dense = convolution(Draw(3), *pair, GEOMETRIES[name])
    check_tensors(J, dense, device)
    check_compiled(J, dense, device)


METHODS = {
    "inverse": Jacobian.inverse, "pinv": Jacobian.pinv, "expm": Jacobian.expm,
    "sqrt": Jacobian.sqrt, "cholesky": Jacobian.cholesky, "cube": lambda A: A.power(3),
    "det": Jacobian.slogdet, "σ": Jacobian.svdvals, "λ": Jacobian.eigvalsh,
    "norm": Jacobian.norm, "diagonal": Jacobian.diagonal,
    "U Σ Vᴴ": lambda A: multiplied(*A.svd()), "V Λ Vᴴ": lambda A: multiplied(*A.eigh()[::-1]),
}  # fmt: skip


def multiplied(U, values, V=None):
    """U diag(values) Vᴴ."""
    return U @ Diagonal(values.reshape(U.in_shape)) @ (U if V is None else V).H


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("kind", CLOSED | POSITIVE | OTHERS)
def test_algebra_of_tensors_agrees_with_arrays(kind, dtype, device):
    """The same numbers as over NumPy arrays, or the same error."""
    J = (CLOSED | POSITIVE | OTHERS)[kind](Draw(1, dtype))
    A, close = placed(J, place(device)), 1e-9 if dtype == np.float64 else 2e-3
    for name, method in METHODS.items():
        found, wanted = (outcome(method, one) for one in (A, J))
        assert isinstance(found, str) or found.dtype == wanted.dtype
        if isinstance(wanted, str):
            assert found == wanted, name
        else:
            scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
            assert_allclose(found, wanted, rtol=close, atol=close * scale, err_msg=name)


def outcome(method, A):
    """The result in numbers, or the name of the error."""
    try:
        with np.errstate(over="ignore"):
            found = method(A)
    except (InputError, NotConverged) as error:
        return type(error).__name__
    return found.toarray() if isinstance(found, Jacobian) else np.asarray(found)


@pytest.mark.parametrize("kind", ["dense", "blocks", "kron", "kron + δ I", "I + low rank"])
@pytest.mark.parametrize("name", ["inverse", "pinv", "sqrt", "det"])
def test_matrices_are_decomposed_where_they_are(kind, name, device, monkeypatch):
    """No more than eigenvalues, as in `d` of a diagonal, and a few vectors go to the host."""
    A, copied = placed(POSITIVE[kind](Draw(1)), place(device)), []
    for way in ("cpu", "numpy"):
        before = getattr(torch.Tensor, way)

        def noted(x, *rest, before=before, **how):
            copied.append(x.numel())
            return before(x, *rest, **how)

        monkeypatch.setattr(torch.Tensor, way, noted)
    found = METHODS[name](A)
    monkeypatch.undo()
    assert max(copied, default=0) <= 6 * A.shape[0]
    if isinstance(found, Jacobian):
        assert any(isinstance(a, torch.Tensor) for a in found.arrays())


def test_operators_of_tensors_and_of_arrays(device):
    """Closed forms of sums whose matrices are in both places."""
    a = Draw(0).normal(5, 5)
    there = Dense(tensor(a @ a.T, device)) + Diagonal(np.ones(5))
    for A in (there, Kron(tensor(a, device), a, ()), LowRank(tensor(a, device), a)):
        dense = A.toarray()
        assert_allclose(A.inverse().toarray() @ dense, np.eye(len(dense)), atol=1e-6)
        assert_allclose(A.svdvals(), np.linalg.svd(dense)[1], rtol=1e-8)


def test_arrays_are_moved_once_and_freed_with_the_operator(device):
    J = Dense(Draw(0).normal(3, 4))
    assert J.to(device) is J
    (there,) = PLACED[J].values()
    v = torch.ones(4, dtype=torch.float64, device=device)
    J @ v, J @ v
    assert list(PLACED[J].values()) == [there]
    before = len(PLACED)
    del J, there
    assert len(PLACED) == before - 1


def test_tensors_as_the_arrays_of_an_operator(device):
    a = tensor(Draw(0).normal(3, 4), device)
    v = torch.ones(4, dtype=torch.float64, device=device)
    assert_allclose(host(Dense(a) @ v), host(a).sum(1), **TIGHT)
    whole = torch.tensor([1, 2, 3, 4], device=device)
    assert (Diagonal(whole) @ v).dtype == torch.float64


def test_a_grid_stays_where_it_is(device):
    """Also its transpose and its inverse."""
    grid = Block([[Dense(2 * np.eye(2)), None], [None, Dense(np.eye(3))]])
    there = placed(grid, place(device))
    for J in (there, there.T, there.inverse(), there.inverse().T):
        assert J.place == place(device)
    assert_allclose(host(there.T @ tensor(np.ones(5), device)), [2, 2, 1, 1, 1])


def test_complex_vectors_and_halves(device):
    a = Draw(0).normal(3, 4)
    z = Draw(1, np.complex128).normal(4)
    assert_allclose(host(Dense(a) @ tensor(z, device)), a @ z, **TIGHT)
    for dtype in (torch.float16, torch.bfloat16):
        half = host(torch.tensor(a).to(dtype))
        y = Dense(half) @ torch.ones(4, dtype=dtype, device=device)
        assert y.dtype == dtype
        assert_allclose(host(y.double()), a.sum(1), atol=0.1)


def test_gradients_are_not_tracked(device):
    v = torch.ones(4, dtype=torch.float64, device=device, requires_grad=True)
    assert not (Dense(Draw(0).normal(3, 4)) @ v).requires_grad


def test_tensors_that_do_not_fit_are_refused(device):
    J = Dense(np.ones((3, 4)))
    v = torch.ones(3, dtype=torch.float64, device=device)
    with pytest.raises(InputError, match="multiplies a vector of 4 or a matrix of 4 rows"):
        J @ v
    with pytest.raises(InputError, match="ravel"):
        J @ v.new_ones(2, 2)
    with pytest.raises(InputError, match="float8"):
        J @ torch.ones(4).to(torch.float8_e5m2)
    with pytest.raises((IndexError, RuntimeError)):
        Scatter(torch.tensor([7]), 0, (3,), np.float64) @ torch.ones(1, dtype=torch.float64)
