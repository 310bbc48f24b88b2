"""Operators as PyLops operators, alone and combined with its own."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from interop.operators import KINDS, linearization

pylops = pytest.importorskip("pylops")
pytestmark = pytest.mark.peers


@pytest.mark.parametrize("kind", ["linearization", "transpose", "block", "hessian", "streamed"])
def test_operators_pass_the_dot_test_of_pylops(kind):
    J = KINDS[kind]()
    P = J.to_pylops()
    assert P.shape == J.shape
    assert pylops.utils.dottest(P, *J.shape, rtol=1e-10)
    assert_allclose(P.todense(), J.toarray(), rtol=1e-10, atol=1e-12)


def test_a_side_of_one_tensor_has_its_shape():
    P = linearization()["logits", "fc1"].to_pylops()
    assert (P.dims, P.dimsd) == ((5, 4), (6, 3))
    assert (P @ np.ones((5, 4))).shape == (6, 3)
    assert (linearization().to_pylops().dims) == (59,)


def test_columns_go_through_at_once(inside):
    J, calls = linearization(), []
    noted = lambda product, *given: calls.append(given[-1]) or product(*given)  # noqa: E731
    inside.change_products(type(J), noted)
    J.to_pylops() @ np.ones((59, 7))
    assert calls == [(7,)]


def test_regularised_least_squares_by_pylops_reach_the_minimum():
    J = linearization()
    d = np.random.default_rng(0).standard_normal(18)
    stacked = pylops.VStack([J.to_pylops(), 0.1 * pylops.Identity(59)])
    x = pylops.optimization.basic.lsqr(stacked, np.concatenate([d, np.zeros(59)]), niter=300)[0]
    A = J.toarray()
    assert_allclose(A.T @ (A @ x - d) + 0.01 * x, 0, atol=1e-6)
