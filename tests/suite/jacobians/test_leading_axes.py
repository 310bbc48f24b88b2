"""Factors with leading axes, and arrays of other libraries: as SciPy has them from 1.18 on."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

import onnxjac as oj
from interop.operators import linearization
from onnxjac.jacobians import Dense

RNG = np.random.default_rng(8)
A = RNG.standard_normal((5, 4)) + 1j * RNG.standard_normal((5, 4))
OPERATORS = {
    "dense": lambda: Dense(A.real, (5,), (4,)),
    "complex": lambda: Dense(A, (5,), (4,)),
    "model": linearization,
    "row": lambda: Dense(A.real[:1], (1,), (4,)),
    "column": lambda: Dense(A.real[:, :1], (5,), (1,)),
}
NEWEST = tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 18)

every_operator = pytest.mark.parametrize("J", OPERATORS.values(), ids=OPERATORS, indirect=True)


@pytest.fixture
def J(request):
    return request.param()


def products(A, m, n, make=np.asarray):
    """Each product with leading axes, the last ones empty."""
    for K in ((2, 3), (3,), (1,), (0,)):
        draw = np.random.default_rng(sum(K)).standard_normal
        yield from (
            A @ make(draw((*K, n, 2))), A.dot(make(draw((*K, n, 1)))),
            A.matmat(make(draw((*K, n, 2)))), A.rmatmat(make(draw((*K, m, 2)))),
            A.matvec(make(draw((*K, 2, n)))), A.rmatvec(make(draw((*K, 2, m)))),
        )  # fmt: skip


class Matrix:
    """The same products by NumPy."""

    def __init__(self, A):
        self.A = A

    def matmat(self, X):
        return self.A @ X

    dot = __matmul__ = matmat

    def rmatmat(self, X):
        return self.A.conj().T @ X

    def matvec(self, x):
        return x @ self.A.T

    def rmatvec(self, x):
        return x @ self.A.conj()


@every_operator
def test_products_agree_with_numpy(J):
    for found, expected in zip(
        products(J, *J.shape), products(Matrix(J.toarray()), *J.shape), strict=True
    ):
        assert type(found) is np.ndarray
        assert found.shape == expected.shape
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@every_operator
def test_left_products_agree_with_numpy(J):
    U = RNG.standard_normal((2, 3, J.shape[0]))
    for u in (U, U[0], U[0, 0], U[:, :0]):
        assert_allclose(u @ J, u @ J.toarray(), rtol=1e-12, atol=1e-12)
        assert_allclose(J.rdot(u), u @ J.toarray(), rtol=1e-12, atol=1e-12)


@every_operator
@pytest.mark.skipif(not NEWEST, reason="SciPy < 1.18 has no leading axes")
def test_products_agree_with_scipy(J):
    for found, expected in zip(
        products(J, *J.shape), products(aslinearoperator(J.toarray()), *J.shape), strict=True
    ):
        assert found.shape == expected.shape
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_complex_numbers_scale_from_both_sides():
    J, v = Dense(A.real, (5,), (4,)), np.arange(4.0)
    for scaled in (2j * J, J * 2j, J.rdot(2j)):
        assert_allclose(scaled @ v, 2j * A.real @ v)


def test_products_reject_wrong_leading_axes():
    J = Dense(A.real, (5,), (4,))
    for wrong in (
        lambda: J @ np.ones((2, 5, 3)), lambda: J.matvec(np.ones((4, 2))), lambda: J @ np.ones(()),
        lambda: J.matmat(np.ones((4, 5, 4))), lambda: np.ones((2, 5, 4)) @ J,
    ):  # fmt: skip
        with pytest.raises(oj.InputError, match=r"dimension mismatch: .*not an array of shape \["):
            wrong()


@pytest.mark.peers
def test_tensors_of_pytorch_give_the_products_of_matrices():
    torch = pytest.importorskip("torch")
    J = Dense(A.real, (5,), (4,))
    for found, expected in zip(
        products(J, 5, 4, torch.tensor), products(Matrix(J.toarray()), 5, 4), strict=True
    ):
        assert isinstance(found, torch.Tensor)
        assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.peers
@every_operator
def test_arrays_of_the_standard_stay_in_their_library(J):
    strict = pytest.importorskip("array_api_strict")
    for found, expected in zip(
        products(J, *J.shape, strict.asarray), products(J, *J.shape), strict=True
    ):
        assert found.__array_namespace__() is strict
        assert_allclose(np.asarray(found), expected)
    v, u = strict.ones(J.shape[1]), strict.ones((3, J.shape[0]))
    for found, expected in ((J @ v, J @ np.ones(J.shape[1])), (J.rdot(u), np.ones(u.shape) @ J)):
        assert found.__array_namespace__() is strict
        assert_allclose(np.asarray(found), expected)
    with pytest.raises(oj.InputError, match=r"cannot be read as an array: .*bring it to the CPU"):
        J @ v.to_device(strict.Device("device1"))


BY_SCIPY = """
import array_api_strict as xp, numpy as np
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from onnxjac.jacobians import Dense
A = np.arange(20.0).reshape(5, 4)
J = Dense(A, (5,), (4,))
L = LinearOperator(J.shape, J.matvec, J.rmatvec, J.matmat, xp.float64, J.rmatmat, xp=xp)
S = aslinearoperator(xp.asarray(A))
X = xp.asarray(np.arange(24.0).reshape(2, 4, 3))
for made, expected in ((L, S), (L.T @ S, S.T @ S), (S.T @ L + 2 * L.T @ L, 3 * S.T @ S)):
    found = made @ X
    assert found.__array_namespace__() is xp and xp.all(found == expected @ X)
"""
"""J in expressions of SciPy's operators over another library, which SciPy has as an option."""


@pytest.mark.peers
@pytest.mark.skipif(not NEWEST, reason="SciPy < 1.18 has no xp=")
def test_scipys_operators_over_another_library_take_its_products():
    pytest.importorskip("array_api_strict")
    found = subprocess.run([sys.executable, "-c", BY_SCIPY], capture_output=True, text=True,
                           env={**os.environ, "SCIPY_ARRAY_API": "1"})  # fmt: skip
    assert found.returncode == 0, found.stderr
