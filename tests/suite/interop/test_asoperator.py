"""`asoperator`: what other libraries call an operator, with its matrix."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

import onnxjac as oj
from check_operator import check_operator
from onnxjac import InputError
from onnxjac.jacobians import Identity

RNG = np.random.default_rng(0)
MATRIX = np.where(RNG.random((6, 6)) < 0.4, RNG.standard_normal((6, 6)), 0) + 3 * np.eye(6)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.dia_array])
@pytest.mark.parametrize("matrix", [MATRIX, MATRIX[:4], MATRIX[:, :4]], ids=lambda a: str(a.shape))
def test_a_sparse_matrix_keeps_its_products_and_entries(make, matrix):
    J = oj.asoperator(make(matrix))
    check_operator(J, matrix)
    check_operator(J.T, matrix.T)
    assert J.tosparse().nnz == np.count_nonzero(matrix)


@pytest.mark.parametrize("dtype", [float, complex, int])
def test_a_sparse_matrix_is_inverted_unless_it_is_singular(dtype):
    matrix = np.round(4 * MATRIX[::-1]).astype(dtype) * (1 + 1j if dtype is complex else 1)
    J, expected = oj.asoperator(sp.csr_array(matrix)), np.linalg.inv(matrix)
    M = J.inverse()
    assert_allclose(M.toarray(), expected, atol=1e-12)
    assert_allclose(M.T.toarray(), expected.T, atol=1e-12)
    assert_allclose(M.H.toarray(), expected.conj().T, atol=1e-12)
    assert_allclose(J.slogdet(), np.linalg.slogdet(matrix))
    singular = oj.asoperator(sp.csr_array(np.diag([1.0, 0.0])))
    assert singular.logdet() == -np.inf
    with pytest.raises(InputError, match=r"has no inverse.*pivot"):
        singular.inverse()


@pytest.mark.parametrize("make", [
    aslinearoperator, np.array, np.ndarray.tolist, lambda a: oj.asoperator(a),
])  # fmt: skip
def test_dense_and_matrix_free_operators_multiply_and_add(make):
    J = oj.asoperator(make(MATRIX))
    v = RNG.standard_normal((6, 2))
    assert_allclose(J @ v, MATRIX @ v)
    assert_allclose(J.H @ v, MATRIX.T @ v)
    assert_allclose((J + 2 * Identity((6,), float)).toarray(), MATRIX + 2 * np.eye(6))


@pytest.mark.peers
def test_an_operator_of_pylops_keeps_its_matrix():
    pylops = pytest.importorskip("pylops")
    D = pylops.FirstDerivative(8, dtype="float64")
    J = oj.asoperator(D)
    assert_allclose(J.toarray(), D.todense())
    assert_allclose((J.T @ J).toarray(), D.todense().T @ D.todense())


def test_a_function_needs_a_shape_and_for_its_transpose_an_adjoint():
    J = oj.asoperator(lambda x: MATRIX @ x, (6, 6))
    assert_allclose(J @ np.ones(6), MATRIX.sum(axis=1))
    with pytest.raises(InputError, match="adjoint="):
        J.T @ np.ones(6)
    with pytest.raises(InputError, match="shape="):
        oj.asoperator(np.sin)
    with pytest.raises(InputError, match="str is no operator"):
        oj.asoperator("A")
