"""Estimators and preconditioners use the structure of K-FAC: exact, without products."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse.linalg import cg

import onnxjac as oj
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.curvature.kfac import ekfac, kfac, shampoo
from onnxjac.modes.curvature.kronecker import KroneckerFactored, Moment

from .models import network, parsed

WEIGHTS = ["4.bias", "6.weight", "6.bias"]
DAMPING = 0.01
OPTIONS = {"at": "logits", "wrt": WEIGHTS}


CASES = {"kfac": (kfac, False), "kfac, joint": (kfac, True), "ekfac, joint": (ekfac, True),
         "shampoo": (shampoo, False)}  # fmt: skip


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def K(request):
    make, joint = request.param
    return make(*network("mlp"), joint=joint, **OPTIONS)


@pytest.fixture(params=["K", "damped", "shifted", "inverse"])
def operator(request, K):
    """K, K + δ I, the indefinite K - I, or (K + δ I)⁻¹."""
    if request.param == "inverse":
        return K.inverse(DAMPING)
    shift = {"K": None, "damped": DAMPING, "shifted": -1.0}[request.param]
    return K if shift is None else K + shift * oj.identity_like(K)


def test_trace_diagonal_and_norms(operator):
    A = operator.toarray()
    expected = {
        "trace": np.trace(A), "diagonal": np.diag(A),
        "frobenius_norm": np.linalg.norm(A), "spectral_norm": np.linalg.norm(A, 2),
    }  # fmt: skip
    for name, value in expected.items():
        found = getattr(oj.estimators, name)(operator)
        assert found.method == "exact by structure"
        assert found.products == 0
        assert_allclose(found.value, value, rtol=1e-10, atol=1e-12)


def test_the_spectrum_of_kfac_is_exact_without_products(K):
    for operator in (K + DAMPING * oj.identity_like(K), K.inverse(DAMPING)):
        A = operator.toarray()
        found = oj.estimators.logdet(operator)
        assert (found.method, found.products) == ("exact by structure", 0)
        assert_allclose(found.value, np.linalg.slogdet(A)[1], rtol=1e-10)
        kappa = oj.estimators.condition_number(operator)
        assert (kappa.method, kappa.products) == ("exact by structure", 0)
        assert_allclose(kappa.value, np.linalg.cond(A), rtol=1e-8)
        density = oj.estimators.spectral_density(operator)
        assert_allclose(np.sort(density.nodes.ravel()), np.linalg.eigvalsh(A), atol=1e-10)


def test_the_kronecker_preconditioner_inverts_damped_kfac(K):
    """The damping is an argument, part of the operator, or both."""
    A = K.toarray() + DAMPING * np.eye(len(K.toarray()))
    damped = K + DAMPING * oj.identity_like(K)
    for M in (oj.preconditioners.kronecker(K, damping=DAMPING),
              oj.preconditioners.kronecker(damped),
              oj.preconditioners.kronecker(damped - 0.5 * DAMPING * oj.identity_like(K),
                                           damping=DAMPING / 2)):  # fmt: skip
        assert_allclose(M.toarray() @ A, np.eye(len(A)), atol=1e-9)


def test_iterations_fall_with_the_joint_preconditioner():
    """Softmax regression on inputs of very different scales and nonzero mean."""
    model = parsed("""g (double[n, 8] x, int64[n] y, double[8, 4] W, double[4] b)
        => (double[n, 4] z, double loss)
        { m = MatMul(x, W) z = Add(m, b) loss = SoftmaxCrossEntropyLoss(z, y) }""")
    rng, wrt = np.random.default_rng(0), ["W", "b"]
    point = {"x": (1 + rng.standard_normal((200, 8))) * np.logspace(-2, 2, 8),
             "y": rng.integers(0, 4, 200), "W": 1e-3 * rng.standard_normal((8, 4)),
             "b": rng.standard_normal(4)}  # fmt: skip
    G = oj.gauss_newton(model, point, of="loss", at="z", wrt=wrt)
    damped, v = G + 1e-4 * oj.identity_like(G), rng.standard_normal(G.shape[0])
    counts = []
    for joint in (None, False, True):
        K = None if joint is None else kfac(model, point, at="z", wrt=wrt, joint=joint)
        steps = []
        M = None if K is None else K.inverse(1e-4)
        _, info = cg(damped, v, rtol=1e-8, M=M, callback=steps.append, maxiter=2000)
        assert info == 0
        counts.append(len(steps))
    assert counts[2] < counts[1] < counts[0] / 5


def test_two_structures_that_are_added_have_no_such_inverse(K):
    """As one matrix they are singular; where selections are among their parts, nothing is tried."""
    with pytest.raises(InputError, match=r"no structure that gives its inverse|matrix is singular"):
        oj.preconditioners.kronecker(K + 2 * K)


def test_uses_that_overlap_are_estimated():
    model = parsed("""g (double[5, 4] x, double[4, 4] W) => (double[5, 4] out)
    { a = MatMul(x, W) t = Transpose<perm = [1, 0]>(W) out = MatMul(a, t) }""")
    rng = np.random.default_rng(0)
    point = {"x": rng.standard_normal((5, 4)), "W": rng.standard_normal((4, 4))}
    K = kfac(model, point, at="out", wrt="W", likelihood="gaussian")
    found = oj.estimators.frobenius_norm(K)
    assert found.method == "exact by products"
    assert_allclose(found.value, np.linalg.norm(K.toarray()), rtol=1e-10)
    assert oj.estimators.trace(K).method == "exact by structure"


@pytest.mark.parametrize("damping", [0.0, 1e-18, 1e-15])
def test_a_determinant_that_rounding_decides_is_said(damping):
    """More inputs than samples: eigenvalues are 0, up to rounding of either sign."""
    K = kfac(*network("mlp"), **OPTIONS)
    (values, vectors), f = K.blocks[0].b.basis, K.blocks[0]
    low = np.array([0.0] + [1.0] * (values.shape[-1] - 1))
    moment = Moment((vectors * low) @ vectors.swapaxes(-1, -2) + 1e-17 * np.eye(len(low)))
    K = KroneckerFactored([replace(f, b=moment), *K.blocks[1:]], K.domain)
    J = K + damping * oj.identity_like(K) if damping else K
    for logdet in (lambda: J.slogdet()[1], lambda: oj.estimators.logdet(J).value):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                value = logdet()
            except InputError:  # it has an eigenvalue that is not positive
                continue
        known = any("its condition number is" in str(s.message) for s in said)
        assert known or value == -np.inf
