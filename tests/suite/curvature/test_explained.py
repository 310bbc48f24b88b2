"""`explain()` and `check()` of symmetric operators."""

import json

import numpy as np
import onnx.parser
import pytest

import onnxjac as oj
from onnxjac.jacobians import Diagonal, Identity
from onnxjac.modes.linear.symmetric import Symmetric

MODEL = """<ir_version: 10, opset_import: ["": 21]>
    net (double[n, 4] x, int64[n] t, double[4, 3] W) => (double l, double[n, 3] z) {
        a = MatMul(x, W) z = Relu(a) l = SoftmaxCrossEntropyLoss(z, t) }"""
RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 4))
X[0] = 0.0
POINT = {"x": X, "t": np.array([0, 1, 2, 0, 1]), "W": RNG.standard_normal((4, 3))}

DOT, COLUMNS, DEFINITE = "dot test ⟨u, Cv⟩ = ⟨Cu, v⟩", "C V against its columns C v", "vᵀ C v ≥ 0"
MATRICES = tuple(f"C.{way}() against products" for way in ("toarray", "diagonal", "tosparse"))
MODELS = "J v against central differences"
LOSS = ("loss Hessian against the recorded one",
        "H v against central differences of the gradient",
        "∇f v against differences of f", "vᵀ H v against second differences of f")  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return oj.load(onnx.parser.parse_model(MODEL))


@pytest.fixture(scope="module")
def G(model):
    return oj.gauss_newton(model, POINT, of="l", at="z", wrt="W", reduction="sum")


@pytest.fixture(scope="module")
def found(G):
    return G.explain()


def names(outcome):
    """The names of the tests, without the suffix for a nearby kink."""
    return [o.name.removesuffix(", beside a kink") for o in outcome.outcomes]


def test_a_gauss_newton_matrix_is_a_loss_hessian_between_two_jacobians(G, found):
    assert [part.name for part in found.parts] == ["Jᵀ", "loss Hessian", "J"]
    assert [part.shape for part in found.parts] == [(12, 15), (15, 15), (15, 12)]
    assert sum(part.flops for part in found.parts) == G.flops
    assert "made by gauss_newton(model, inputs, of='l', at='z', wrt=('W',), reduction='sum')" in (
        found.lines
    )
    assert f"one product: {G.flops:,} flops" in str(found)


def test_the_kinks_that_j_meets_are_told(found):
    (kink,) = found.kinks
    assert (kink.op, kink.count) == ("Relu", 3)
    assert "3 of 15" in str(found)


def test_as_data_and_in_a_notebook(found):
    assert json.loads(json.dumps(found.to_dict()))["parts"][0]["name"] == "Jᵀ"
    assert "loss Hessian" in found._repr_html_()
    assert found.asked.replace("'", "&#x27;") in found._repr_html_()


def test_every_test_of_a_gauss_newton_matrix_passes(G):
    outcome = G.check()
    assert outcome
    assert names(outcome) == [DOT, COLUMNS, DEFINITE, *MATRICES, MODELS, *LOSS]


@pytest.mark.parametrize("change", [
    lambda G: 2 * G, lambda G: G.plan(), lambda G: G.compile("numpy"), lambda G: G.block("W"),
    lambda G: G + 0.5 * Identity(G.in_shape, G.dtype),
], ids=["scaled", "planned", "compiled", "block", "damped"])  # fmt: skip
def test_derived_operators_keep_explanation_and_checks(G, change):
    C = change(G)
    assert C.explain().asked == G.explain().asked
    assert C.explain().kinks == G.explain().kinks
    assert names(C.check()) == names(G.check())
    assert C.check()


def test_a_sum_has_terms(G):
    parts = (G + 0.5 * Identity(G.in_shape, G.dtype)).explain().parts
    assert [(part.term, part.structure) for part in parts if part.term > 1] == [(2, "0.5")]


MADE = {
    "fisher": lambda m: oj.fisher(m, POINT, at="z", wrt="W"),
    "samples": lambda m: oj.fisher(m, POINT, at="z", wrt="W", samples=2),
    "empirical": lambda m: oj.empirical_fisher(m, POINT, of="l", at="z", wrt="W"),
    "gram": lambda m: oj.gram(m, POINT, of="z", wrt="W"),
    "kernel": lambda m: oj.ntk(m, POINT, of="z", wrt="W"),
}


@pytest.mark.parametrize("name", MADE)
def test_others_are_semidefinite_and_of_a_jacobian_that_is_right(model, name):
    C = MADE[name](model)
    outcome = C.check()
    assert outcome
    assert names(outcome) == [DOT, COLUMNS, DEFINITE, *MATRICES, MODELS]
    assert {"J", "Jᵀ"} <= {part.name for part in C.explain().parts}


def test_over_data_it_says_how_many_batches(model):
    halves = [{k: POINT[k][rows] for k in "xt"} for rows in (slice(3), slice(3, 5))]
    C = oj.gauss_newton(
        model, halves, of="l", at="z", wrt="W", reduction="mean", shared={"W": POINT["W"]}
    )
    assert "one product: a pass over 2 batches" in C.explain().cost
    assert names(C.check()) == [DOT, COLUMNS, *MATRICES]


def test_check_fails_an_asymmetric_operator(G):
    wrong = Symmetric(Diagonal(np.arange(12.0)) @ G.operator, G.domain)
    failed = [o.name for o in wrong.check().outcomes if not o.passed]
    assert failed == [DOT]


def test_check_fails_an_indefinite_fisher(model):
    C = MADE["fisher"](model)
    wrong = Symmetric(-1.0 * C.operator, C.domain, C.again)
    failed = [o.name for o in wrong.check().outcomes if not o.passed]
    assert failed == [DEFINITE]


def test_a_wrong_loss_hessian_fails(G):
    J, *H, K = G.operator.factors
    wrong = J @ (Diagonal(np.arange(1.0, 16.0)) @ K)
    C = Symmetric(wrong, G.domain, G.again)
    failed = [o.name for o in C.check().outcomes if not o.passed]
    assert failed == [LOSS[0]]
    assert len(H) > 1


def test_a_loss_that_is_not_convex_need_not_be_semidefinite():
    text = """<ir_version: 10, opset_import: ["": 21]> net (double[4] x) => (double l, double[4] z)
        { z = Tanh(x) c = Cos(z) q = Mul(c, c) l = ReduceSum<keepdims = 0>(q) }"""
    model = oj.load(onnx.parser.parse_model(text))
    C = oj.gauss_newton(model, {"x": np.zeros(4)}, of="l", at="z", wrt="x")
    outcome = C.check()
    assert outcome
    assert DEFINITE not in names(outcome)
    assert np.linalg.eigvalsh(C.toarray()).max() < 0


def test_a_hessian_has_those_of_its_gradient(model):
    H = oj.hessian(model, POINT, of="l", wrt="W")
    assert H.check()
    assert H.explain().rows
    with pytest.raises(oj.UnknownTensor, match="nothing"):
        H.explain("nothing")
