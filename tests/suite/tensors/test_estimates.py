"""Estimators of operators over tensors: as over NumPy arrays, with the vectors on the device."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from estimators.examples import decaying
from interop.operators import MODEL, POINT, WRT
from onnxjac import estimators as est
from onnxjac.jacobians import Dense, Diagonal, Product

torch = pytest.importorskip("torch")
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers

PRECONDITIONERS = oj.preconditioners

ESTIMATES = {
    "trace": lambda A: est.trace(A, method="xtrace", products=20).value,
    "hutch++": lambda A: est.trace(A, method="hutch++", products=20).value,
    "hutchinson": lambda A: est.trace(A, method="hutchinson", products=20).value,
    "diagonal": lambda A: est.diagonal(A, method="xdiag", products=20).value,
    "its error": lambda A: est.diagonal(A, method="xdiag", products=20).error,
    "exact diagonal": lambda A: est.diagonal(A, method="exact").value,
    "norm": lambda A: est.frobenius_norm(A, exact=False).value,
    "exact norm": lambda A: est.frobenius_norm(A, exact=True).value,
    "σ₁": lambda A: est.spectral_norm(A, exact=False).value,
    "exact σ₁": lambda A: est.spectral_norm(A, exact=True).value,
    "κ": lambda A: est.condition_number(A, exact=False).value,
    "density": lambda A: est.spectral_density(A, exact=False, steps=6, probes=3).nodes,
    "eigenvalues": lambda A: est.spectral_density(A, exact=True).nodes,
    "log det": lambda A: est.logdet(A, exact=False, steps=6, probes=3).value,
    "svd": lambda A: est.low_rank(A, 5).value.toarray(),
    "nystrom": lambda A: est.low_rank(A, 5, method="nystrom").value.toarray(),
    "jacobi": lambda A: PRECONDITIONERS.jacobi(A).d,
    "column norms": lambda A: PRECONDITIONERS.column_scaling(A).d,
    "of low rank": lambda A: PRECONDITIONERS.low_rank_plus_damping(A, 9, damping=0.1).toarray(),
}  # fmt: skip


def damped(**options):
    """G + I of 35 weights."""
    G = oj.gauss_newton(MODEL, POINT, of="loss", at="logits", wrt=WRT, **options)
    return G + oj.identity_like(G)


@pytest.mark.parametrize("name", ESTIMATES)
@pytest.mark.usefixtures("same_draws")
def test_estimates_over_tensors_are_those_over_numpy(name, device):
    """The same numbers as over NumPy arrays, where the same probes are drawn."""
    A, B = damped(engine=f"torch:{device}"), damped()
    found, wanted, moved = (ESTIMATES[name](one) for one in (A, B, damped().to(device)))
    scale = np.abs(wanted).max()
    assert_allclose(host(found), wanted, rtol=1e-12, atol=1e-12 * scale)
    assert_allclose(host(moved), wanted, rtol=1e-12, atol=1e-12 * scale)


def test_vectors_stay_on_the_device(device, monkeypatch):
    """Numbers and small matrices go to the host, and no vector of 200 entries."""
    A = Dense(tensor(decaying() + np.eye(200), device))
    moved = []

    def noted(name, before):
        return lambda x, *rest, **how: (moved.append((name, x.numel())), before(x, *rest, **how))[1]

    for name in ("cpu", "numpy", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, noted(name, getattr(torch.Tensor, name)))
    found = est.diagonal(A, method="xdiag")
    low = est.low_rank(A, 5).value
    for x in (found.value, low.u, low.v):
        assert isinstance(x, torch.Tensor)
        assert x.device.type == torch.device(device).type
    moved.clear()
    est.trace(A, method="xtrace"), est.frobenius_norm(A, exact=False)
    est.spectral_norm(A, exact=False), est.logdet(A, exact=False, steps=8, probes=4)
    assert all(count < 200 for _, count in moved)


def test_a_seed_gives_the_same_probes_again(device):
    A = tensor(decaying(), device)  # a matrix
    first, again, other = (est.trace(A, method="xtrace", seed=k) for k in (3, 3, 4))
    assert first.value == again.value
    assert first.value != other.value
    assert abs(other.value - np.trace(decaying())) < 4 * other.error


def test_numpy_vectors_go_where_the_arrays_are(device):
    """A sum or product that holds tensors multiplies NumPy arrays, before and after a pickle."""
    a, d = decaying(20), np.arange(20.0)
    J = Product((Dense(tensor(a, device)), Diagonal(d))) + Dense(a)
    wanted, v = a @ np.diag(d) + a, np.ones(20)
    for one in (J, pickle.loads(pickle.dumps(J))):
        assert isinstance(one @ v, np.ndarray)
        assert_allclose(one @ v, wanted @ v, rtol=1e-12)
        assert_allclose(one.T @ np.ones((20, 2)), wanted.T @ np.ones((20, 2)), rtol=1e-12)
        assert (one @ v.astype(np.float32)).dtype == np.float64
    assert_allclose(J.toarray(), wanted, rtol=1e-12)


def test_to_moves_the_products(device):
    K = Dense(decaying(20)).to(device)
    assert K.place is K.T.place is not None
    assert_allclose(K @ np.ones(20), decaying(20) @ np.ones(20), rtol=1e-12)
    L = oj.linearize(MODEL, POINT, of="logits", wrt=WRT)
    before = L @ np.ones(35)
    assert_allclose(L.to(device) @ np.ones(35), before, rtol=1e-12)
    assert isinstance(est.diagonal(L.T @ L, method="xdiag", products=8).value, torch.Tensor)
