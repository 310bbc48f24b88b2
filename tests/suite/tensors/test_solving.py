"""Solvers of models over tensors: the iterates are tensors, and the same as over NumPy arrays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import parser

import onnxjac as oj
from interop.operators import MODEL, POINT, WRT
from onnxjac.jacobians import Dense, Diagonal

torch = pytest.importorskip("torch")
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers

RATE = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (double[4] x, double t) => (double[4] rate) <double[4] b = {1, 2, 3, 4}> {
        s = Sin(x) m = Mul(t, s) d = Sub(b, x) rate = Add(d, m) }"""))
START = {"x": np.array([0.5, -0.25, 1.0, 0.0]), "t": np.array(0.5)}

SOLVERS = {
    "newton_krylov": {}, "pseudo_transient": {"step": 0.1}, "levenberg_marquardt": {},
    "implicit_euler": {"step": 0.1, "steps": 3, "t": "t"},
}  # fmt: skip


@pytest.mark.parametrize("jacobi", [False, True], ids=["", "jacobi"])
@pytest.mark.parametrize("name", SOLVERS)
def test_roots_and_steps_are_found_on_the_device(name, jacobi, device):
    options = {"wrt": "x", **SOLVERS[name]}
    if jacobi:
        options["preconditioner"] = lambda J: Diagonal(1 / J.diagonal())
    there = {key: tensor(x, device) for key, x in START.items()}
    found = getattr(oj, name)(RATE, there, engine=f"torch:{device}", **options)
    wanted = getattr(oj, name)(RATE, START, **options)
    if name == "implicit_euler":
        found, wanted = (list(steps)[-1] for steps in (found, wanted))
    assert found.success
    for x, y in ((found.x, wanted.x), (found.tensors["x"], wanted.tensors["x"])):
        assert x.device.type == torch.device(device).type
        assert_allclose(host(x), y, rtol=1e-10)
    assert found.nit == wanted.nit
    assert_allclose(found.products, wanted.products, rtol=0.1)


@pytest.mark.parametrize("solve", ["newton_cg", "natural_gradient"])
def test_minima_are_found_on_the_device(solve, device):
    options = {"of": "loss", "wrt": WRT, "maxiter": 4}
    options |= {"at": "logits"} if solve == "natural_gradient" else {}
    there = {name: tensor(x, device) for name, x in POINT.items()}
    found = getattr(oj, solve)(MODEL, there, engine=f"torch:{device}", **options)
    if solve == "newton_cg":
        options["preconditioner"] = lambda H: np.eye(H.shape[0])
    wanted = getattr(oj, solve)(MODEL, POINT, **options)
    assert isinstance(found.x, torch.Tensor)
    assert (found.nit, found.status) == (wanted.nit, wanted.status)
    tolerance = {"rtol": 1e-2} if solve == "natural_gradient" else {"rtol": 1e-9}
    assert_allclose(float(found.fun), float(wanted.fun), **tolerance)


@pytest.mark.parametrize("method", ["BDF", "Rosenbrock"])
@pytest.mark.parametrize("linear_solver", ["dense", "sparse", "krylov"])
def test_a_stiff_solver_keeps_its_states_in_numpy(method, linear_solver, device):
    options = {"wrt": "x", "t": "t", "method": method, "t_eval": [0.5, 2.0],
               "linear_solver": linear_solver}  # fmt: skip
    there = {key: tensor(x, device) for key, x in START.items()}
    found = oj.solve_ivp(RATE, there, (0.5, 2), engine=f"torch:{device}", **options)
    assert_allclose(found.y, oj.solve_ivp(RATE, START, (0.5, 2), **options).y, rtol=1e-8)


RNG = np.random.default_rng(0)
FACTOR = RNG.standard_normal((60, 60))
MATRICES = {"cg": FACTOR @ FACTOR.T + np.eye(60), "minres": FACTOR + FACTOR.T}


@pytest.mark.parametrize("jacobi", [False, True], ids=["", "jacobi"])
@pytest.mark.parametrize("name", MATRICES)
def test_systems_are_solved_on_the_device(name, jacobi, device, monkeypatch):
    """As many iterations as SciPy's, or a few more, to a smaller residual; nothing is copied."""
    A, b = MATRICES[name], RNG.standard_normal((60, 2))
    M = Diagonal(tensor(1 / abs(np.diag(A)), device)) if jacobi else None
    J, there = Dense(tensor(A, device)), tensor(np.hstack([b, np.zeros((60, 1))]), device)
    copied = []
    for way in ("cpu", "numpy", "tolist"):
        monkeypatch.setattr(torch.Tensor, way, lambda *_, way=way: copied.append(way))
    x = oj.inverse(J, solver=name, preconditioner=M) @ there
    assert not copied
    monkeypatch.undo()
    size = np.linalg.norm(b)
    assert np.linalg.norm(A @ host(x)[:, :2] - b) <= 1e-10 * size
    assert not host(x)[:, 2].any()
    assert_allclose(host(x)[:, :2], np.linalg.solve(A, b), rtol=1e-5, atol=1e-8)


def test_systems_that_are_not_solved_raise(device):
    there = tensor(RNG.standard_normal(60), device)
    with pytest.raises(oj.NotConverged, match="cg did not solve"):
        oj.inverse(Dense(MATRICES["cg"]), solver="cg", maxiter=5) @ there
    singular = Dense(np.diag([1.0, 0.0]))
    with pytest.raises(oj.NotConverged, match="minres did not solve"):
        oj.inverse(singular, solver="minres") @ tensor(np.ones(2), device)
    with pytest.raises(oj.NotConverged, match="minres did not solve"):
        oj.inverse(singular, solver="minres") @ tensor(np.array([0.0, 1.0]), device)


@pytest.mark.parametrize("name", ["gmres", "bicgstab", "lsmr", "neumann"])
def test_other_solvers_take_copies(name, device):
    A = np.eye(5) + 0.1 * RNG.standard_normal((5, 5))
    x = oj.inverse(Dense(A), solver=name) @ tensor(np.ones(5), device)
    assert x.device.type == torch.device(device).type
    assert_allclose(host(x), np.linalg.solve(A, np.ones(5)), rtol=1e-8)
