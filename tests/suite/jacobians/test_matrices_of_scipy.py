"""Matrices of NumPy and SciPy as factors and summands of J."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

from onnxjac.jacobians import Dense
from onnxjac.jacobians.errors import LimitError

RNG = np.random.default_rng(8)
A, B = RNG.standard_normal((5, 4)), RNG.standard_normal((5, 4)) * (RNG.random((5, 4)) < 0.5)
J = Dense(A, (5,), (4,))
KINDS = [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.lil_array]


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_is_a_factor(kind):
    for made, expected in (
        (J @ kind(B.T), A @ B.T), (kind(B.T) @ J, B.T @ A), (J.T @ kind(B), A.T @ B),
        (kind(B) @ J.T, B @ A.T), (J.dot(kind(B.T)), A @ B.T),
    ):  # fmt: skip
        assert type(made) is np.ndarray
        assert_allclose(made, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_is_a_summand(kind):
    v, u = RNG.standard_normal(4), RNG.standard_normal(5)
    for made, expected in (
        (J + kind(B), A + B), (kind(B) + J, A + B), (J - kind(B), A - B), (kind(B) - J, B - A),
    ):  # fmt: skip
        assert_allclose(made @ v, expected @ v)
        assert_allclose(made.T @ u, expected.T @ u)


def test_sparse_matrices_of_another_shape_are_refused():
    for wrong in (lambda: J @ sp.csr_array(B), lambda: J + sp.csr_array(B.T), lambda: J + B.T):
        with pytest.raises(ValueError, match=r"mismatch|cannot add"):
            wrong()


def test_a_product_that_would_be_too_large_names_the_lazy_one():
    with pytest.raises(LimitError, match="aslinearoperator"):
        J @ sp.csr_array((4, 10**9))
    lazy = J @ aslinearoperator(sp.csr_array(B.T))
    assert_allclose(lazy @ np.eye(5), A @ B.T)
