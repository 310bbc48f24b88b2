"""SciPy's solvers, given J, agree with dense NumPy."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array, linalg
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import onnxjac as oj
from house import ROOT
from onnxjac.jacobians import Jacobian
from test_models import stored

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(params=["float64", "float32"])
def J(request):
    """∂logits/∂x of the MLP, 40×80, block diagonal over four samples."""
    path = ROOT / "tests" / "models" / "mlp.onnx"
    model = oj.load(path, dtype="float64" if request.param == "float64" else None)
    return oj.linearize(model, {"x": stored("mlp")["x"]})


@pytest.fixture
def dense(J):
    """The same matrix in double precision, from single products."""
    return np.stack([J.matvec(e) for e in np.eye(J.shape[1])], axis=1).astype(np.float64)


@pytest.fixture
def rtol(J):
    return 1e-9 if J.dtype == np.float64 else 2e-3


@pytest.fixture
def b(J):
    return np.random.default_rng(0).standard_normal(J.shape[0]).astype(J.dtype)


def near(actual, expected, rtol):
    assert_allclose(actual, expected, rtol=0, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize("solver", ["arpack", "propack", "lobpcg"])
def test_svds_finds_the_largest_singular_values(J, dense, rtol, solver):
    start = {} if solver == "lobpcg" else {"v0": np.ones(J.shape[0], J.dtype)}
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        if solver == "lobpcg":  # warns if it has not converged
            warnings.simplefilter("ignore", UserWarning)
        u, s, vt = linalg.svds(J, k=5, solver=solver, rng=rng, maxiter=400, **start)
    order = np.argsort(s)[::-1]
    loose = rtol if solver != "lobpcg" else 1e-3
    near(s[order], np.linalg.svd(dense, compute_uv=False)[:5], loose)
    near(u.T @ dense @ vt.T, np.diag(s), loose)


def test_eigsh_finds_the_largest_eigenvalues_of_normal_products(J, dense, rtol):
    normal = J.T @ J
    assert isinstance(normal, Jacobian)
    values, vectors = linalg.eigsh(normal, k=4, v0=np.ones(J.shape[1], J.dtype))
    near(values, np.linalg.eigvalsh(dense.T @ dense)[-4:], rtol)
    near(dense.T @ dense @ vectors, vectors * values, 10 * rtol)
    values = linalg.eigsh(J @ J.T, k=4, v0=np.ones(J.shape[0], J.dtype))[0]
    near(values, np.linalg.eigvalsh(dense @ dense.T)[-4:], rtol)


@pytest.mark.parametrize("solver", [linalg.lsmr, linalg.lsqr])
def test_damped_least_squares_reach_the_unique_minimum(J, dense, rtol, b, solver):
    """The minimum of ‖J x - b‖² + ‖x‖², which is unique."""
    tolerances = {"atol": rtol * 1e-4, "btol": rtol * 1e-4}
    x = solver(J, b, damp=1.0, **tolerances)[0]
    near(x, np.linalg.solve(dense.T @ dense + np.eye(80), dense.T @ b), 10 * rtol)


@pytest.mark.parametrize("solver", [linalg.gmres, linalg.cg, linalg.minres, linalg.bicgstab])
@pytest.mark.parametrize("form", ["own", "scipy"])
def test_krylov_solvers_take_sums_with_either_identity(J, dense, rtol, b, solver, form):
    """(JᵀJ + I) x = Jᵀ b, with the identity as ours and as SciPy's."""
    from onnxjac.jacobians import Identity

    normal = J.T @ J
    eye = Identity(normal.in_shape, J.dtype)
    A = normal + (eye if form == "own" else aslinearoperator(np.eye(80, dtype=J.dtype)))
    assert isinstance(A, Jacobian) == (form == "own")
    x, info = solver(A, J.T @ b, rtol=rtol * 1e-2, maxiter=500)
    assert info == 0
    near(x, np.linalg.solve(dense.T @ dense + np.eye(80), dense.T @ b), 10 * rtol)


def test_arithmetic_with_foreign_operators(J, dense, rtol):
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((40, 40)).astype(J.dtype)
    v = rng.standard_normal(80).astype(J.dtype)
    foreign = aslinearoperator(matrix)
    for operator, expected in (
        (foreign @ J, matrix @ dense),
        (foreign @ J + J, matrix @ dense + dense),
        (J + foreign @ J, matrix @ dense + dense),
        (J - foreign @ J, dense - matrix @ dense),
        (2 * (foreign @ J), 2 * matrix @ dense),
        (aslinearoperator(csr_array(matrix)) @ J, matrix @ dense),
    ):
        assert isinstance(operator, LinearOperator)
        assert operator.dtype in (J.dtype, np.float64)  # SciPy's scaling by an int gives float64
        near(operator @ v, expected @ v, rtol)
        near(operator.T @ np.ones(40, J.dtype), expected.sum(axis=0), rtol)
    near((J.T @ foreign) @ matrix[0], dense.T @ matrix @ matrix[0], rtol)
    near(((J @ J.T) ** 2) @ matrix[0], (dense @ dense.T) @ (dense @ dense.T) @ matrix[0], rtol)


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_a_sum_with_a_matrix_is_an_operator(J, dense, rtol, kind):
    matrix = np.diag(np.arange(80.0))[:40].astype(J.dtype)
    A = kind(matrix)
    for operator, expected in ((J + A, dense + matrix), (A + J, dense + matrix),
                               (J - A, dense - matrix), (A - J, matrix - dense)):  # fmt: skip
        assert isinstance(operator, Jacobian)
        near(operator.toarray(), expected, rtol)
    near(A.T @ J, matrix.T @ dense, rtol)


def test_j_is_a_linear_operator_of_its_dtype(J):
    """SciPy need not probe it with an int8 vector to determine its dtype."""
    assert aslinearoperator(J) is J
    for K in (J, J.T, J.H, J.T @ J, 2 * J, J + J, J["logits", "x"], J[:5, 3:]):
        assert isinstance(K, LinearOperator)
        assert K.dtype in (np.float32, np.float64)
        assert K.dtype == J.dtype


def test_products_never_meet_int8(J, monkeypatch):
    met = []
    apply = type(J)._apply

    def watching(self, op, v):
        met.append(v.dtype)
        return apply(self, op, v)

    monkeypatch.setattr(type(J), "_apply", watching)
    aslinearoperator(J)
    linalg.svds(J, k=2, v0=np.ones(40, J.dtype))
    linalg.lsqr(J, np.ones(40, J.dtype), iter_lim=3)
    (J.T @ J) @ np.ones(80, J.dtype)
    assert set(met) == {J.dtype}


def test_one_and_many_right_hand_sides(J, dense, rtol):
    v = np.random.default_rng(2).standard_normal((80, 3)).astype(J.dtype)
    near(J @ v[:, 0], dense @ v[:, 0], rtol)
    near(J @ v[:, :1], dense @ v[:, :1], rtol)
    near(J @ v, dense @ v, rtol)
    near(v.T @ J.T, (dense @ v).T, rtol)
    near(J.matmat(v), dense @ v, rtol)
    near(J.rmatmat(dense.astype(J.dtype)), dense.T @ dense, rtol)
    for wrong in (v.T, v[:4], v[:4, 0]):
        with pytest.raises(ValueError, match="mismatch"):
            J @ wrong


@pytest.mark.parametrize("method", ["expm_multiply", "onenormest"])
def test_functions_of_a_square_operator(J, dense, rtol, method):
    square = J @ J.T
    matrix = dense @ dense.T / np.trace(dense @ dense.T)
    scaled = square / float(np.trace(dense @ dense.T))
    if method == "onenormest":
        near(linalg.onenormest(scaled), np.abs(matrix).sum(axis=0).max(), max(rtol, 1e-6))
    else:
        v = np.ones(40, J.dtype)
        values, vectors = np.linalg.eigh(matrix)
        expected = vectors @ (np.exp(values) * (vectors.T @ v))
        near(linalg.expm_multiply(scaled, v, traceA=1.0), expected, rtol)
