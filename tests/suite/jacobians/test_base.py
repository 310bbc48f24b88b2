"""Behaviour that every Jacobian inherits: limits, chunks, indexing, scalars, SciPy's functions."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh, gmres, lsmr, svds

from onnxjac.jacobians import (
    Broadcast,
    Dag,
    Dense,
    Diagonal,
    Eye,
    Identity,
    Jacobian,
    Kron,
    Reshape,
    Scalar,
    Scatter,
    Sum,
    Take,
    Zero,
    base,
    implicit_kron,
)
from onnxjac.jacobians.base import Wrapper
from onnxjac.jacobians.errors import LimitError, OnnxJacError

from .examples import Draw
from .test_dag import Counted

N = Draw(0).normal


def test_toarray_over_the_limit_is_refused():
    J = Identity((40_000,), float)
    with pytest.raises(LimitError, match=r"40000×40000 \(float64\) needs 11.92 GiB.*limit of 2.00"):
        J.toarray()
    with pytest.raises(MemoryError):
        Dense(N(3, 4)).toarray(limit=95)
    with pytest.raises(OnnxJacError):
        Dense(N(3, 4)).toarray(limit=95)
    assert Dense(N(3, 4)).toarray(limit=96).shape == (3, 4)


@pytest.mark.parametrize(("m", "n"), [(3, 20), (20, 3)])
def test_toarray_comes_from_the_narrow_side_in_one_call(m, n):
    count, A = [0], N(m, n)
    assert_allclose(Counted(Dense(A), count).toarray(), A)
    assert count == [1]


@pytest.mark.parametrize(("m", "n"), [(6, 20), (20, 6), (7, 7)])
def test_columns_are_multiplied_in_chunks(m, n, monkeypatch):
    monkeypatch.setattr(base, "CHUNK_BYTES", 8 * 20 * 4)
    count, A = [0], N(m, n)
    J = Counted(Dense(A), count)
    assert_allclose(J.toarray(), A)
    assert count == [-(-min(m, n) // J_width(m, n))]
    assert_allclose(J.diagonal(), np.diagonal(A))


def J_width(m, n):
    return 80 // max(m, n)


def test_many_right_hand_sides_are_one_call():
    count = [0]
    J = Counted(Dense(N(3, 4)), count)
    J @ N(4, 50)
    assert count == [1]


@pytest.mark.parametrize(
    "key",
    [
        (slice(1, 5), slice(None)), (slice(None, None, -2), slice(2, 3)), ([0, 0, 5], [3, -1]),
        (np.array([True, False] * 3), slice(None)), (2, slice(None)), (slice(None), -1),
        (slice(4, 4), slice(None)), slice(2), [1, 2],
    ],
    ids=str,
)  # fmt: skip
def test_rows_and_columns_are_selected_as_in_numpy(key):
    A = N(6, 4)
    rows, columns = key if isinstance(key, tuple) else (key, slice(None))
    expected = A[np.atleast_1d(np.arange(6)[rows])][:, np.atleast_1d(np.arange(4)[columns])]
    J = Dense(A, (2, 3), (2, 2))[key]
    assert isinstance(J, Jacobian)
    assert_allclose(J.toarray(), expected)
    assert_allclose(J.T.toarray(), expected.T)


def test_the_transpose_is_built_once():
    J = implicit_kron(N(2, 3), Eye(4))
    assert J.T is J.T


def test_bytes_of_shared_data_count_once():
    a = N(100, 100)
    J = Dense(a) @ Reshape((100,), (10, 10), float) @ Dense(a.T, (10, 10), (100,))
    assert J.nbytes == a.nbytes


def test_no_column_is_probed_on_construction():
    """SciPy determines a missing dtype with a product of an int8 vector."""
    count = [0]
    J = Counted(Dense(N(3, 4)), count)
    aslinearoperator(J), J.T, J + J, J @ J.T, 2 * J
    assert count == [0]


def test_a_foreign_operator_is_a_partner():
    A, B = N(3, 3), N(3, 3)
    J, F = implicit_kron(A, Eye(1)), aslinearoperator(B)
    v = N(3)
    for K, expected in ((J @ F, A @ B), (F @ J, B @ A), (J + F, A + B), (J - F, A - B)):
        assert isinstance(K, LinearOperator)
        assert_allclose(K @ v, expected @ v)


def test_powers_and_complex_factors():
    A, v = N(3, 3), N(3)
    assert_allclose((Dense(A) ** 3) @ v, A @ A @ A @ v)
    assert_allclose((Dense(A) * (1 + 2j)) @ v, (1 + 2j) * A @ v)


def test_scipy_is_a_client():
    normal = Draw(7).normal
    A = normal(30, 20)
    J = Dense(A[:, :10]) @ Dense(np.eye(10, 20)) + Dense(A - A[:, :10] @ np.eye(10, 20))
    s = np.linalg.svd(A, compute_uv=False)
    assert_allclose(np.sort(svds(J, k=3)[1])[::-1], s[:3])
    assert_allclose(eigsh(J.T @ J, k=2)[0][::-1], s[:2] ** 2)
    b, S = normal(30), Dense(A[:20] + 10 * np.eye(20))
    tight = {"atol": 1e-14, "btol": 1e-14, "maxiter": 200}  # 20 steps leave rounding errors
    assert_allclose(lsmr(J, b, **tight)[0], np.linalg.lstsq(A, b)[0], rtol=1e-8)
    assert_allclose(gmres(S, b[:20], rtol=1e-12)[0], np.linalg.solve(S.a, b[:20]), rtol=1e-8)


@pytest.mark.parametrize(
    ("J", "text"),
    [
        (Identity((2, 3), float), "I(2×3)"),
        (Zero((2,), (3, 4), float), "0(2, 3×4)"),
        (Scalar(0.5, (3,), float), "0.5"),
        (Diagonal(N(512)) @ Dense(N(512, 2)[:, :1]), "dense(512×1)"),
        (Kron(Eye(2), N(4, 3), ()), "(I(2) ⊗ A[4×3])"),
        (Diagonal(N(6)) @ Broadcast((6,), (1,), float), "diag(6) · bcast(1 → 6)"),
        (Dense(N(2, 2)) - Diagonal(N(2)), "dense(2×2) + diag(2)"),
        (Dense(N(2, 2)) + Scalar(-0.5, (2,), float), "dense(2×2) - 0.5"),
        (Dense(N(2, 3)) @ (Dense(N(3, 3)) + Diagonal(N(3))), "dense(2×3) · (dense(3×3) + diag(3))"),
    ],
    ids=str,
)
def test_repr_is_mathematics(J, text):
    assert repr(J) == text


@pytest.mark.parametrize("kind", [OnnxJacError, *OnnxJacError.__subclasses__()])
def test_errors_survive_pickling_and_new(kind):
    """Also via `__new__`, as in libraries that pickle tracebacks."""
    for again in (pickle.loads(pickle.dumps(kind("why"))), kind.__new__(kind, "why")):
        assert type(again) is kind
        assert isinstance(again, OnnxJacError)
        assert again.args == ("why",)


def test_numpy_reads_the_dense_matrix():
    A = np.arange(6.0).reshape(2, 3)
    J = Dense(A) @ Dense(2 * np.eye(3))
    assert_allclose(np.asarray(J), 2 * A, rtol=0, atol=0)
    assert np.array(J, np.float32, copy=True).dtype == np.float32
    assert_allclose(np.linalg.svd(J, compute_uv=False), np.linalg.svd(2 * A, compute_uv=False))
    with pytest.raises(ValueError, match="no memory"):
        np.asarray(J, copy=False)
    J.dense_limit = 8
    with pytest.raises(LimitError):
        np.asarray(J)


@pytest.mark.parametrize("missing", ["_apply", "_transpose"])
def test_an_operator_says_what_it_does_and_what_its_transpose_is(missing):
    given = {name: lambda *_: None for name in {"_apply", "_transpose"} - {missing}}
    with pytest.raises(TypeError, match=missing):
        type("Half", (Jacobian,), given)((2,), (2,), float)


def test_a_sum_counts_its_additions():
    d = Diagonal(np.arange(1.0, 6.0))
    assert Sum((d, d, d)).flops == 3 * d.flops + 2 * 5


def test_a_factor_that_is_the_identity_costs_nothing():
    assert Kron(np.ones((3, 4)), Eye(5), batch=()).flops == 2 * 3 * 4 * 5
    assert Kron(Eye(3), np.ones((5, 2)), batch=()).flops == 2 * 3 * 2 * 5


def test_a_graph_without_edges_costs_nothing():
    assert Dag(((2,), (3,)), (), (0,), (1,), np.dtype(float)).flops == 0


def test_lists_are_arrays():
    assert_array_equal(Diagonal([1.0, 2.0]) @ np.ones(2), [1, 2])
    assert_array_equal(Take([1, 0, 1], 0, (2,), float) @ np.array([3.0, 4.0]), [4, 3, 4])
    assert_array_equal(Scatter([1, 1], 0, (2,), float) @ np.array([3.0, 4.0]), [0, 7])


def test_a_wrapper_multiplies_out_in_the_order_of_its_operator(inside):
    J = Dense(np.arange(6.0).reshape(2, 3))
    inside.forbid_columns()
    named = type("Named", (Wrapper,), {"_transpose": lambda self: self.operator.T})
    assert_array_equal(named(J).toarray(), J.a)
