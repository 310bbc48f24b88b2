"""The values of a sparse Jacobian at the next point: in place, and vectorised."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto, helper
from scipy.sparse import csr_array

import onnxjac as oj
from onnxjac.jacobians import Diagonal
from onnxjac.jacobians.errors import InputError

from .models import finite_elements, stencil_by_slices
from .test_relinearize import linearized, point


@pytest.fixture(scope="module", params=[stencil_by_slices, finite_elements])
def J(request):
    return linearized(request.param(24))


def at(J, seed):
    return J.relinearize(point(J.route.model, seed))


def test_tosparse_writes_new_numbers_in_place(J):
    out = J.tosparse()
    data = out.data
    for seed in (1, 2):
        K = at(J, seed)
        assert K.tosparse(out=out) is out
        assert out.data is data
        assert_array_equal(out.data, K.tosparse().data)
        v = np.random.default_rng(seed).standard_normal(J.shape[1])
        assert_allclose(out @ v, K @ v, rtol=1e-12, atol=1e-12)


def test_only_what_depends_on_the_point_is_written():
    J = linearized(stencil_by_slices(40))
    out = J.tosparse()
    out.data[:] = 7
    at(J, 1).tosparse(out=out)
    assert np.count_nonzero(out.data != 7) == 40**2  # the diagonal


def test_a_copy_may_be_refreshed():
    J = linearized(stencil_by_slices(8))
    out = J.tosparse().copy()
    K = at(J, 3)
    assert_array_equal(K.tosparse(out=out).toarray(), K.tosparse().toarray())


def test_tosparse_rejects_an_out_of_another_pattern(J):
    other = csr_array(np.eye(J.shape[0]))
    dense, single = np.eye(3), J.tosparse().astype(np.float32)
    fixed = J.tosparse()
    fixed.data.flags.writeable = False
    for out, why in ((dense, "ndarray"), (other, "pattern"), (single, "float32"),
                     (other[:3], "3×"), (fixed, "in place")):  # fmt: skip
        with pytest.raises(InputError, match=why):
            J.tosparse(out=out)
    with pytest.raises(InputError, match="csc"):
        J.tosparse("csc", out=J.tosparse())


def test_where_entries_stand_is_shared_and_protected(J):
    A, B = J.tosparse(), at(J, 1).tosparse()
    assert A.indices is B.indices
    assert A.data is not B.data
    with pytest.raises(ValueError, match="read-only"):
        A.eliminate_zeros()
    own = A.copy()
    own.eliminate_zeros()
    assert_array_equal((A @ B).toarray(), (A.copy() @ B.copy()).toarray())


def test_an_operator_of_its_own_is_refreshed():
    J = Diagonal(np.array([2.0, 3.0]))
    assert J.tosparse(out=J.tosparse()).data.tolist() == [2, 3]


def test_several_threads_at_a_time():
    J = linearized(stencil_by_slices(20))
    points = [at(J, seed) for seed in range(8)]
    expected = [K.tosparse().data for K in points]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda K: K.tosparse().data, points * 5)
        for data, numbers in zip(found, expected * 5, strict=True):
            assert_array_equal(data, numbers)


@pytest.mark.parametrize("transposed", [False, True])
def test_new_numbers_need_no_operators(transposed, inside):
    """From the second point on, residuals are read directly from the engine's outputs."""
    J = linearized(stencil_by_slices(12))
    J = J.T if transposed else J
    for seed in (1, 2):
        at(J, seed).tosparse()
    K = at(J, 3)
    A = K.tosparse()
    assert not inside.has_dag(K)
    assert_allclose(A.toarray(), K.toarray(), rtol=1e-13, atol=1e-13)
    assert inside.has_dag(K)
    assert_array_equal(K.tosparse().data, A.data)


def test_residuals_that_coincide_at_one_point_only():
    """Where x and y are one array, x ∘ y reads it once; at the next point it must not."""
    J = oj.linearize(oj.load(product()), {"x": np.ones(3), "y": np.full(3, 2.0)})
    same = np.full(3, 5.0)
    same.flags.writeable = False  # otherwise each input is copied
    for _ in range(2):
        K = J.relinearize({"x": same, "y": same})
        assert_array_equal(K.tosparse().toarray(), K.toarray())
    K = J.relinearize({"x": np.ones(3), "y": np.full(3, 3.0)})
    assert_array_equal(K.tosparse().toarray(), K.toarray())


def product():
    ends = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [3]) for n in "xyf"]
    nodes = [helper.make_node("Mul", ["x", "y"], ["f"])]
    graph = helper.make_graph(nodes, "product", ends[:2], ends[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
