"""Curvature at another point: equal to a fresh operator, without recording again."""

import pickle
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from curvature.models import parsed
from onnxjac.jacobians import Identity
from onnxjac.modes import gradient

RNG = np.random.default_rng(5)
TEXT = """g (double[4, 3] x, int64[4] t, double[3, 2] w) => (double loss, double[4, 2] z,
                                                                 double square) {
    a = MatMul(x, w) z = Tanh(a) loss = SoftmaxCrossEntropyLoss<reduction = "mean">(z, t)
    square = ReduceSumSquare<keepdims = 0>(z)
}"""
WEIGHTS = RNG.standard_normal((4, 2))


def point():
    """Random values of fixed shapes."""
    return {"x": RNG.standard_normal((4, 3)), "t": RNG.integers(0, 2, 4),
            "w": RNG.standard_normal((3, 2))}  # fmt: skip


MAKERS = {
    "hessian": lambda m, p: oj.hessian(m, p, of="loss", wrt=["w", "x"]),
    "weighted": lambda m, p: oj.hessian(m, p, of="z", wrt="w", weights=WEIGHTS),
    "blocks": lambda m, p: oj.hessian(m, p, of="loss", wrt=["w", "x"], blocks="diagonal"),
    "gauss_newton": lambda m, p: oj.gauss_newton(m, p, of="loss", at="z", wrt=iter(["w", "x"])),
    "mean": lambda m, p: oj.gauss_newton(m, p, of="loss", at="z", wrt="w", reduction="sum"),
    "other loss": lambda m, p: oj.gauss_newton(m, p, of="square", at="z", wrt="w"),
    "fisher": lambda m, p: oj.fisher(m, p, at="z", wrt="w", reduction="sum"),
    "bernoulli": lambda m, p: oj.fisher(m, p, at="z", wrt="w", likelihood="bernoulli", samples=3),
    "empirical": lambda m, p: oj.empirical_fisher(m, p, of="loss", at="z", wrt="w"),
    "gram": lambda m, p: oj.gram(m, p, of="z", wrt="w"),
}

CHANGES = {
    "planned": lambda C: C.plan(products=1000),
    "compiled": lambda C: C.compile("numpy"),
    "damped": lambda C: 2 * C + 0.1 * Identity(C.in_shape, C.dtype),
    "block": lambda C: C.block("w"),
    "pickled": lambda C: pickle.loads(pickle.dumps(C)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_relinearize_equals_a_fresh_operator(make):
    model, C = parsed(TEXT), None
    for p in (point(), point(), point()):
        C = C.relinearize(p) if C else make(model, p)
        fresh = make(parsed(TEXT), p)
        assert type(C) is type(fresh)
        assert C.domain == fresh.domain
        assert_allclose(C.toarray(), fresh.toarray(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("by_torch", [False, pytest.param(True, marks=pytest.mark.peers)])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_later_writes_to_the_point_have_no_effect(make, by_torch):
    """The caller may write to the arrays before the first product."""
    p = point()
    take = pytest.importorskip("torch").tensor if by_torch else np.array
    given, moved = ({name: take(x) for name, x in p.items()} for _ in range(2))
    C = make(parsed(TEXT), given)
    made = C, C.relinearize(moved)
    for x in (*given.values(), *moved.values()):
        x[:] = 0
    for found in made:
        expected = make(parsed(TEXT), p).toarray()
        assert_allclose(found.toarray(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("make", [MAKERS["hessian"], MAKERS["fisher"]], ids=["hessian", "fisher"])
def test_relinearize_repeats_changes_of_the_operator(make, change):
    C, p = change(make(parsed(TEXT), point())), point()
    moved, expected = C.relinearize(p).relinearize(p), change(make(parsed(TEXT), p))
    assert_allclose(moved.toarray(), expected.toarray(), rtol=1e-12, atol=1e-14)
    assert type(moved.structure) is type(expected.structure)


def test_the_gradient_of_a_hessian_moves_with_it():
    p = point()
    H = MAKERS["hessian"](parsed(TEXT), point()).relinearize(p)
    expected = oj.grad(parsed(TEXT), p, of="loss", wrt=["w", "x"])
    for name, slope in expected.items():
        assert_allclose(H.gradient[name], slope, rtol=1e-12)


@pytest.mark.parametrize("kind", ["hessian", "weighted"])
def test_nothing_is_recorded_at_other_points(monkeypatch, kind):
    recorded, record = [], gradient.vjp_graph

    def counting(*arguments, **options):
        recorded.append(options)
        return record(*arguments, **options)

    monkeypatch.setattr(gradient, "vjp_graph", counting)
    H = MAKERS[kind](parsed(TEXT), point())
    for _ in range(4):
        H = H.relinearize(point())
    assert len(recorded) == 1


BUILDING = {
    "gauss_newton", "fisher", "empirical_fisher", "gram", "hessian", "linearize", "value_and_grad",
    "grad", "check_model", "name_of", "names_of", "closed_form", "atoms", "combination", "record",
    "active_steps", "trace", "differentiated", "vjp_graph", "unrolled", "elimination",
}  # fmt: skip
"""Functions that check arguments, recognise a loss, record or eliminate."""


def entered(run):
    """The names of the functions of the package that a call enters, and how often."""
    found = {}

    def note(frame, event, _):
        if event == "call" and "onnxjac" in frame.f_code.co_filename:
            found[frame.f_code.co_name] = found.get(frame.f_code.co_name, 0) + 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_third_point_moves_derivatives_and_builds_nothing(make):
    C, p = make(parsed(TEXT), point()).relinearize(point()), point()
    found = entered(lambda: C.relinearize(p))
    assert not BUILDING & found.keys()
    assert found["check_inputs"] == 1


def test_one_recording_serves_all_weights():
    """With weights in any order, and also without weights."""
    model = parsed(TEXT)
    for weight in (2.0, -1.0, 3.0):
        p = point()
        H = oj.hessian(model, p, of="loss", wrt="w").toarray()
        assert_allclose(oj.hessian(model, p, of="loss", wrt="w", weights=weight).toarray(),
                        weight * H, rtol=1e-12)  # fmt: skip
    with pytest.raises(oj.InputError, match=r"weights have shape \[2\], 'loss' \[\]"):
        oj.hessian(model, point(), of="loss", wrt="w", weights=[1.0, 2.0])


def test_solvers_move_their_hessian():
    p = oj.as_scipy(parsed(TEXT), point(), of="loss", wrt="w")
    met = [p.curvature(p.x0 + shift) for shift in (0, 1, 2)]
    assert len({id(H.function) for H in met}) == 1


def test_an_operator_over_batches_says_that_it_is_of_no_single_point():
    def make(p):
        return MAKERS["gram"](model, p)

    model = parsed(TEXT)
    with pytest.raises(oj.InputError, match="make it again"):
        oj.streamed(make, [point(), point()], reduction="sum").relinearize(point())


def test_a_loss_whose_exponent_is_an_input_is_recognised_again():
    """z² is a square and has a closed form; z³ is another loss."""
    model = parsed("""g (double[4, 2] z, double p) => (double loss) {
        s = Pow(z, p) loss = ReduceSum<keepdims = 0>(s) }""")
    z = 1 + RNG.random((4, 2))
    G = oj.gauss_newton(model, {"z": z, "p": 2.0}, of="loss", at="z", wrt="z")
    for p in (2.0, 3.0, 2.0):
        G = G.relinearize({"z": z, "p": p})
        assert_allclose(G.toarray(), np.diag(p * (p - 1) * z.ravel() ** (p - 2)), rtol=1e-12)


def test_a_loss_of_samples_that_a_mask_selects_changes_its_shapes():
    model = parsed("""g (double[4, 2] z, bool[4] mask) => (double loss) {
        d = Compress<axis = 0>(z, mask) l = LogSoftmax(d) s = Mul(d, d) k = Add(l, s)
        loss = ReduceSum<keepdims = 0>(k) }""")
    G = None
    for mask in ([1, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 1], [1, 0, 0, 0]):
        p = {"z": RNG.standard_normal((4, 2)), "mask": np.array(mask, bool)}
        G = G.relinearize(p) if G else oj.gauss_newton(model, p, of="loss", at="z", wrt="z")
        H = oj.hessian(model, p, of="loss", wrt="z")
        assert_allclose(G.toarray(), H.toarray(), rtol=1e-12, atol=1e-14)
