"""Preconditioners are the documented inverses, and reduce iterations."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator, cg, lsmr, minres

import onnxjac as oj
from check_operator import check_operator
from estimators.examples import Hidden, rotated
from house import ROOT
from onnxjac import InputError, LimitError
from onnxjac.jacobians import BlockDiagonal, Dense, Diagonal, Eye, Identity, Kron, Scalar
from onnxjac.modes.estimators.estimate import Probed
from onnxjac.modes.solvers.inverse import identity_like
from onnxjac.modes.solvers.preconditioners import (
    block_jacobi,
    column_scaling,
    jacobi,
    kronecker,
    low_rank_plus_damping,
    within_samples,
)
from test_models import stored

RNG = np.random.default_rng(0)


def spd(n, spread=1.0, seed=0):
    """A random symmetric positive definite matrix, its condition number 10^spread."""
    return rotated(np.logspace(0, spread, n), seed)


class Solved(Exception):
    """Raised to stop a solver when the residual is small enough."""


def iterations(solver, dense, A, b, **options):
    """The number of iterations until ‖A x - b‖ ≤ 1e-6 ‖b‖, by the true residual."""
    count = 0

    def watch(x):
        nonlocal count
        count += 1
        if np.linalg.norm(dense @ x - b) <= 1e-6 * np.linalg.norm(b):
            raise Solved

    with pytest.raises(Solved):
        solver(A, b, rtol=1e-15, callback=watch, maxiter=20_000, **options)
    return count


def fall(solver, A, M, dense):
    """The ratio of iterations without and with M."""
    b = np.random.default_rng(1).standard_normal(len(dense))
    return iterations(solver, dense, A, b) / iterations(solver, dense, A, b, M=M)


@pytest.fixture
def mlp():
    return oj.load(ROOT / "tests" / "models" / "mlp.onnx", dtype="float64")


def weights(mlp, wrt):
    """∂logits/∂wrt."""
    return oj.linearize(mlp, {"x": stored("mlp")["x"]}, of="logits", wrt=wrt)


def scaled(n=300):
    """J = W D with column norms that span three decades."""
    W = np.random.default_rng(2).standard_normal((2 * n, n))
    return Dense(W) @ Diagonal(np.logspace(0, 3, n))


def test_jacobi_is_the_inverse_of_the_diagonal():
    J = scaled(30)
    G = J.T @ J
    diagonal = np.sum(J.toarray() ** 2, axis=0)
    check_operator(jacobi(G), np.diag(1 / diagonal))
    image = Scalar(2, (3, 4), float) + Kron(Eye(3), spd(4), ())
    check_operator(jacobi(image), np.diag(1 / np.diag(image.toarray())))
    check_operator(jacobi(G, damping=0.5), np.diag(1 / (diagonal + 0.5)))
    check_operator(jacobi(Hidden(G.toarray())), np.diag(1 / diagonal))
    assert_allclose(jacobi(aslinearoperator(G.toarray())).d, 1 / diagonal)
    R = column_scaling(J)
    assert_allclose(np.linalg.norm((J @ R).toarray(), axis=0), 1, rtol=1e-12)
    assert_allclose((R @ R).d, 1 / diagonal, rtol=1e-12)
    for shape in ((40, 30), (30, 40)):
        matrix = RNG.standard_normal(shape)
        assert_allclose(column_scaling(Hidden(matrix)).d, 1 / np.linalg.norm(matrix, axis=0))


@pytest.mark.parametrize("solver", [cg, minres])
def test_jacobi_lets_iterations_fall(solver):
    J = scaled()
    G = J.T @ J
    assert fall(solver, G, jacobi(G), G.toarray()) > 50


def test_column_scaling_lets_lsmr_iterations_fall():
    J = scaled()
    b, R = np.random.default_rng(0).standard_normal(J.shape[0]), column_scaling(J)
    options = {"atol": 1e-12, "btol": 1e-12, "maxiter": 10_000}
    plain, scaled_ = lsmr(J, b, **options), lsmr(J @ R, b, **options)
    assert plain[2] > 20 * scaled_[2]
    expected = np.linalg.lstsq(J.toarray(), b, rcond=None)[0]
    assert_allclose(R @ scaled_[0], expected, rtol=1e-8, atol=1e-12)


def test_block_jacobi_inverts_the_block_of_each_tensor(mlp):
    """The damped Gauss-Newton matrix of two weights, against the dense blocks."""
    J = weights(mlp, ["6.weight", "4.bias"])
    G = oj.modes.linear.symmetric.Symmetric(J.T @ J, J.domain)
    M = block_jacobi(G, damping=0.1)
    dense, cut = G.toarray(), J["logits", "6.weight"].shape[1]
    expected = np.zeros_like(dense)
    for part in (slice(0, cut), slice(cut, None)):
        block = dense[part, part]
        expected[part, part] = np.linalg.inv(block + 0.1 * np.eye(len(block)))
    check_operator(M, expected)


@pytest.mark.parametrize("hidden", [False, True])
def test_block_jacobi_inverts_the_block_of_each_sample(mlp, hidden):
    """JᵀJ by the inputs is block diagonal over four samples, so M is its inverse."""
    J = weights(mlp, ["x"])
    G = J.T @ J
    dense = G.toarray()
    P = Hidden(dense) if hidden else G
    M = block_jacobi(P, 4, damping=0.1)
    check_operator(M, np.linalg.inv(dense + 0.1 * np.eye(80)))
    if hidden:
        assert P.count == 80  # the structure of samples is unknown


def test_samples_take_the_products_of_one(mlp):
    J = weights(mlp, ["x"])
    batch = oj.modes.linear.elimination.samples.Batch(4, 20)
    assert within_samples(J.T @ J, batch)
    assert within_samples(J.T @ J + identity_like(J.T @ J), batch)
    assert not within_samples(J.T @ J, oj.modes.linear.elimination.samples.Batch(8, 10))
    mixed = J.T @ Dense(RNG.standard_normal((40, 40))) @ J
    assert not within_samples(mixed, batch)
    M = block_jacobi(mixed @ mixed.T, 4, damping=1)
    assert_allclose(M.toarray()[20:40, 20:40],
                    np.linalg.inv((mixed @ mixed.T).toarray()[20:40, 20:40] + np.eye(20)),
                    rtol=1e-7)  # fmt: skip


def test_block_jacobi_lets_iterations_fall():
    """Ill-conditioned blocks, weakly coupled, for which the diagonal does not help."""
    blocks = np.stack([spd(20, 5, seed) for seed in range(10)])
    coupling = RNG.standard_normal((200, 2))
    A = BlockDiagonal(blocks) + Dense(0.01 * coupling @ coupling.T, (10, 20), (10, 20))
    dense = A.toarray()
    assert fall(cg, A, block_jacobi(A, 10), dense) > 10
    assert fall(minres, A, block_jacobi(A, 10), dense) > 10
    assert fall(cg, A, jacobi(A), dense) < 4


STRUCTURED = [
    Kron(spd(4), spd(5), ()), Kron(Eye(3), spd(5), ()), Kron(spd(4), Eye(2), (3,)),
    Kron(np.stack([spd(4), spd(4, seed=1)]), spd(3), (2,)), Diagonal(np.arange(1.0, 7)),
    BlockDiagonal(np.stack([spd(4), spd(4, seed=1)])), Dense(spd(6)), Scalar(4, (3,), float),
    Identity((3, 2), float),
]  # fmt: skip


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("K", STRUCTURED, ids=str)
def test_the_kronecker_preconditioner_is_the_damped_inverse(K, damping):
    M = kronecker(K, damping=damping)
    check_operator(M, np.linalg.inv(K.toarray() + damping * np.eye(K.shape[0])))


ONE_SIDED = np.array([[2.0, 1.0], [0.0, 3.0]])
"""Not symmetric, with positive eigenvalues."""

NONSYMMETRIC = [
    Kron(ONE_SIDED, ONE_SIDED, ()), Kron(spd(3), ONE_SIDED, ()), Kron(ONE_SIDED, Eye(3), (2,)),
    Kron(np.stack([ONE_SIDED, spd(2)]), spd(3), (2,)), Dense(ONE_SIDED),
    Kron(RNG.standard_normal((20, 20)), RNG.standard_normal((15, 15)), ()),
    Kron(np.array([[0.0, 1], [-1, 0]]), np.array([[0.0, 2], [-2, 0]]), ()),
    BlockDiagonal(np.stack([ONE_SIDED, ONE_SIDED.T])), Dense(-spd(3) @ spd(3, seed=1)),
]  # fmt: skip


@pytest.mark.parametrize("K", NONSYMMETRIC, ids=str)
def test_kronecker_of_factors_that_are_not_symmetric(K):
    expected = np.linalg.inv(K.toarray())
    M = kronecker(K)
    assert_allclose(M.toarray(), expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())
    v = RNG.standard_normal(K.shape[0])
    assert_allclose(K @ (M @ v), v, rtol=1e-6, atol=1e-8)
    damped = np.linalg.inv(K.toarray() + 0.3 * np.eye(K.shape[0]))
    assert_allclose(kronecker(K, damping=0.3).toarray(), damped, rtol=1e-7, atol=1e-9)


def test_block_jacobi_of_blocks_that_are_not_symmetric():
    blocks = RNG.standard_normal((5, 4, 4)) + 4 * np.eye(4)
    for A in (BlockDiagonal(blocks), Hidden(BlockDiagonal(blocks).toarray())):
        M = block_jacobi(A, 5, damping=0.5).toarray()
        expected = BlockDiagonal(np.linalg.inv(blocks + 0.5 * np.eye(4))).toarray()
        assert_allclose(M, expected, rtol=1e-10, atol=1e-12)


def test_rounding_does_not_make_a_matrix_nonsymmetric():
    x = RNG.standard_normal((500, 300)).astype(np.float32)
    a = x.T @ x / 500 + np.eye(300, dtype=np.float32)
    a += 1e-6 * RNG.standard_normal(a.shape).astype(np.float32)
    M = kronecker(Kron(a, a[:10, :10], ()), damping=0.1)
    assert isinstance(M.factors[1], Diagonal)


@pytest.mark.parametrize(
    "K",
    [
        Dense(np.ones((2, 3))), Dense(np.array([[1.0, 1], [0, 0]])),
        Kron(ONE_SIDED, spd(3)[:2], ()), Diagonal(np.array([1j, 0])),
        Kron(np.ones((2, 3)), np.ones((3, 2)), ()), BlockDiagonal(np.ones((2, 2, 3))),
        Kron(ONE_SIDED, np.ones((2, 2)), ()), Dense(np.array([[1.0, 1], [1e-17, 1e-17]])),
    ],
    ids=str,
)  # fmt: skip
def test_kronecker_rejects_singular_factors(K):
    with pytest.raises(InputError, match=r"has no inverse|square"):
        kronecker(K)


@pytest.mark.parametrize(
    "make",
    [jacobi, lambda A: block_jacobi(A, 1), column_scaling, lambda A: A.inverse(solver="cg"),
     lambda A: low_rank_plus_damping(A, 1, damping=1.0), oj.estimators.trace, oj.estimators.logdet,
     oj.estimators.frobenius_norm, oj.estimators.spectral_norm, oj.estimators.diagonal],
)  # fmt: skip
def test_complex_operators_are_refused_where_numbers_are_real(make):
    with pytest.raises(InputError, match="real"):
        make(Dense(np.array([[1 + 2j, 3], [0, 1j]])))


def test_kronecker_of_complex_factors():
    A, B = (RNG.standard_normal((3, 3)) + 1j * RNG.standard_normal((3, 3)) for _ in range(2))
    for C in (A, A + A.T, A @ A.conj().T):
        expected = np.linalg.inv(np.kron(C, B))
        assert_allclose(kronecker(Kron(C, B, ())).toarray(), expected, rtol=1e-8)
    damped = np.linalg.inv(np.kron(A + A.T, B) + 0.1 * np.eye(9))
    assert_allclose(kronecker(Kron(A + A.T, B, ()), damping=0.1).toarray(), damped, rtol=1e-8)


def test_kronecker_asks_for_an_inverse():
    class Factored:
        def inverse(self, damping=0.0):
            return f"the inverse with {damping}"

    assert kronecker(Factored()) == "the inverse with 0.0"
    assert kronecker(Factored(), damping=1.0) == "the inverse with 1.0"
    with pytest.raises(InputError, match="no structure that gives its inverse"):
        kronecker(Hidden(np.eye(2)))


def test_kronecker_lets_iterations_fall():
    """A Kronecker product plus a small term: its inverse leaves a condition number near one."""
    K = Kron(spd(15, 2), spd(20, 3, 1), ())
    noise = RNG.standard_normal((300, 3))
    A = K + Dense(0.1 * noise @ noise.T, K.out_shape, K.in_shape)
    assert fall(cg, A, kronecker(K), A.toarray()) > 50
    assert fall(minres, A, kronecker(K, damping=0.01), A.toarray()) > 50


def test_nystrom_is_the_inverse_on_what_it_knows():
    u = RNG.standard_normal((60, 5))
    A, mu = Hidden(u @ u.T), 0.1
    M = low_rank_plus_damping(A, 8, damping=mu)
    damped = u @ u.T + mu * np.eye(60)
    assert A.count == 10  # 8, and two to check that A is symmetric
    assert_allclose(mu * np.linalg.inv(damped), M.toarray(), atol=1e-9)


@pytest.mark.parametrize("solver", [cg, minres])
def test_nystrom_lets_iterations_fall(solver):
    matrix = rotated(1e4 * 0.85 ** np.arange(300))
    A = Hidden(matrix) + Scalar(0.1, (300,), float)
    M = low_rank_plus_damping(Hidden(matrix), 90, damping=0.1)
    assert fall(solver, A, M, matrix + 0.1 * np.eye(300)) > 20


def test_preconditioners_reject_wrong_operators():
    A = Hidden(spd(6))
    with pytest.raises(InputError, match=r"entry 1 of the diagonal is 0.*damping"):
        jacobi(Diagonal(np.array([1.0, 0.0])))
    with pytest.raises(InputError, match="blocks"):
        block_jacobi(A)
    with pytest.raises(InputError, match="4 equal blocks"):
        block_jacobi(A, 4)
    with pytest.raises(LimitError, match="jacobi"):
        block_jacobi(Identity((10**5,), float), 1)
    with pytest.raises(InputError, match="damping"):
        block_jacobi(Hidden(np.zeros((4, 4))), 2)
    with pytest.raises(InputError, match="damping"):
        kronecker(Kron(np.zeros((2, 2)), np.eye(2), ()))
    with pytest.raises(InputError, match="above 0"):
        low_rank_plus_damping(A, 2, damping=0)
    assert Probed(A).products == 0


def test_completion_offers_the_preconditioners_alone():
    assert set(dir(oj.preconditioners)) == set(oj.preconditioners.__all__)


@pytest.mark.parametrize("fill_factor", [1e9, 1e30, np.inf])
def test_ilu_sets_no_endless_memory_aside(fill_factor):
    with pytest.raises(InputError, match=r"fill_factor=.* allows .* · 3 entries of LU, .* 2³¹"):
        oj.preconditioners.ilu(np.diag([1.0, 2.0, 3.0]), fill_factor=fill_factor)


@pytest.mark.parametrize("fill_factor", [0, 0.1, -1])
def test_ilu_comes_to_an_end(fill_factor):
    with pytest.raises(InputError, match=r"fill_factor=.* must be a number, at least 1"):
        oj.preconditioners.ilu(np.diag([1.0, 2.0, 3.0]), fill_factor=fill_factor)
