"""Rounding errors of float32 products, and of the dot test."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import onnxjac as oj
from estimators.examples import Hidden
from house import ROOT
from onnxjac.jacobians import Dense, Diagonal
from precision.measure import rows
from precision.networks import makers

from .models import ENGINES, model

EPS = float(np.finfo(np.float32).eps)


def test_the_bound_of_one_reduction():
    """|⟨u, Av⟩ - ⟨Aᵀu, v⟩| ≤ c ε ‖u‖ ‖|A| |v|‖ with c = 4: rounding errors mostly cancel.

    The worst-case bound has n in place of c. A sum in half precision, or one with a relative error
    of 10⁻⁴, is far outside the tested bound.
    """
    rng = np.random.default_rng(0)
    for n in (10, 1000, 100_000):
        A = rng.standard_normal((3, n)).astype(np.float32)
        u, v = (rng.standard_normal(k).astype(np.float32) for k in A.shape)
        for engine in (None, *ENGINES):
            J = Dense(A) if engine is None else Dense(A).compile(engine)
            assert residual(J, u, v) <= 4 * np.sqrt(n) * EPS * scale(A, u, v)


def scale(A, u, v):
    """‖u‖ ‖|A| |v|‖ / n^½: the scale of the terms of a product."""
    terms = np.abs(A.astype(float)) @ np.abs(v.astype(float))
    return np.linalg.norm(u.astype(float)) * np.linalg.norm(terms) / np.sqrt(A.shape[1])


def residual(J, u, v):
    """|⟨u, Jv⟩ - ⟨Jᵀu, v⟩|, with both sums in float64."""
    u, v, forward, reverse = (x.astype(float) for x in (u, v, J @ v, J.T @ u))
    return abs(u @ forward - reverse @ v)


def test_the_bound_sees_an_error():
    A = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)
    wrong = A + 1e-4 * np.abs(A)  # as if the transpose were rounded differently
    u, v = np.ones(3, np.float32), np.ones(1000, np.float32)
    mixed = abs(u @ (A.astype(float) @ v) - (wrong.T.astype(float) @ u) @ v)
    assert mixed > 4 * np.sqrt(1000) * EPS * scale(A, u, v)


def test_a_long_chain_of_diagonals():
    """n ulps for n = 200 factors, applied one by one and multiplied out."""
    rng = np.random.default_rng(0)
    factors = [Diagonal(rng.uniform(0.9, 1.1, 50).astype(np.float32)) for _ in range(200)]
    J, exact = factors[0], factors[0].d.astype(float)
    for factor in factors[1:]:
        J, exact = J @ factor, exact * factor.d
    found = J @ np.ones(50, np.float32)
    assert np.abs(found / exact - 1).max() <= 200 * EPS


@pytest.mark.parametrize("name", ["mlp", "ode.legacy"])
def test_networks_in_single_precision(name):
    """The short form of docs/results/precision.md: errors of a few ulps, each engine and way."""
    for row in rows(makers()[name]()):
        assert row.primal <= 1e-6
        for errors in row.ways:
            assert errors.jvp <= 2e-6
            assert errors.vjp <= 2e-6
            assert errors.dot <= 1e-6


def test_the_page_has_every_network():
    text = (ROOT / "docs/results/precision.md").read_text()
    shown = [line.split("|")[1].strip() for line in text.splitlines() if " × " in line]
    assert shown[1:] == [name for name in makers() for _ in ENGINES]


SCRIPT = """
import json
import numpy as np
import onnx
import onnxjac as oj
text = '<ir_version: 10, opset_import: ["": 21]> g (float[64,300] x) => (float[64,300] y)'
proto = onnx.parser.parse_model(text + "{ h = MatMul(x, w) t = Tanh(h) y = MatMul(t, w) }")
w = np.cos(np.arange(90_000, dtype=np.float32)).reshape(300, 300)
proto.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
found = {}
for engine in ("numpy", "onnxruntime"):
    point = {"x": 0.01 * w[:64], "w": w}
    J = oj.linearize(oj.load(proto), point, wrt=["x", "w"], engine=engine)
    v, u = (np.sin(np.arange(n, dtype=np.float32)) for n in J.shape[::-1])
    for K, name in ((J, "@"), (J.compile("numpy"), "numpy"), (J.compile("onnxruntime"), "ort")):
        found[engine + name] = [(K @ v)[::97].tolist(), (K.T @ u)[::97].tolist()]
print(json.dumps(found))
"""


def by_threads(count):
    """A process that computes all products with `count` threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(count))
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], env=environment, stdout=subprocess.PIPE
    )


def test_the_number_of_threads_does_not_matter():
    """Within the rounding bound: only the order of summation may change."""
    running = [by_threads(count) for count in (1, 2)]  # side by side
    one, two = (json.loads(process.communicate(timeout=120)[0]) for process in running)
    for way, pair in one.items():
        for a, b in zip(map(np.array, pair), map(np.array, two[way]), strict=True):
            assert np.linalg.norm(a) > 0
            assert np.linalg.norm(a - b) <= 4 * np.sqrt(300) * EPS * np.linalg.norm(a), way


DRAWS = {
    "a trace": lambda m, point, seed: (
        oj.estimators.trace(gram(m, point), products=8, seed=seed).value
    ),
    "a diagonal": lambda m, point, seed: (
        oj.estimators.diagonal(gram(m, point), method="xdiag", products=8, seed=seed).value
    ),
    "a low rank": lambda m, point, seed: applied(
        oj.estimators.low_rank(gram(m, point), 3, seed=seed).value
    ),
    "a Fisher matrix": lambda m, point, seed: applied(
        oj.fisher(m, point, at="logits", samples=2, seed=seed)
    ),
    "K-FAC": lambda m, point, seed: applied(
        oj.kfac(m, point, at="logits", fisher_type="mc", samples=2, seed=seed)
    ),
}


def gram(m, point):
    J = oj.linearize(m, point, engine="numpy")
    return Hidden(J @ J.T)


def applied(A):
    return A @ np.ones(A.shape[1], A.dtype)


@pytest.mark.parametrize("name", DRAWS)
def test_the_seed_decides_every_bit_of_a_draw(name):
    """The same seed gives the same numbers to the last bit, another seed different ones."""
    network = makers()["mlp"]()
    first, again, other = (
        DRAWS[name](oj.load(network.source), network.point, seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_the_seed_of_a_random_operator_decides(engine):
    """y = n ∘ x with n sampled by the model: J = diag(n), the same at every point and in each run;
    ONNX Runtime goes on from run to run, and is not asked.
    """
    m = model("n = RandomNormalLike<seed = 3.0>(x) y = Mul(x, n)", "(float[8] x) => (float[8] y)")
    first, again = (oj.linearize(m, {"x": np.ones(8)}, engine=engine).diagonal() for _ in "ab")
    np.testing.assert_array_equal(first, again)
    for _ in "ab":
        np.testing.assert_array_equal(m.run({"x": np.ones(8)}, engine=engine)["y"], first)
    assert len(set(first.tolist())) == 8
