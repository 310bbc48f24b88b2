"""Derivatives of models over tensors of PyTorch and of JAX: those over NumPy arrays."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from interop.operators import KINDS, MODEL, POINT, WRT, damped, hessian, linearization
from onnxjac.jacobians import Jacobian

from ..ops.libraries import host, some_by_jax
from .examples import CONTROL_FLOW, LOOSE, SHIFTED, TIGHT, check, draw, loaded, moved, points

pytestmark = pytest.mark.peers


def of_logits(library, point=POINT, **options):
    wrt = options.pop("wrt", ["x", *WRT])
    return oj.linearize(MODEL, point, of="logits", wrt=wrt, engine=library.engine, **options)


@some_by_jax
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_operator_takes_tensors(kind, library):
    J = KINDS[kind]()
    solved = kind.startswith("inverse")
    check(J, J @ np.eye(J.shape[1]), library, LOOSE if solved else TIGHT)


CHANGES = {
    "as it is": lambda J, engine: J,
    "moved and back": lambda J, engine: J.relinearize(SHIFTED).relinearize(POINT),
    "transposed twice": lambda J, engine: J.T.T,
    "planned": lambda J, engine: J.plan(),
    "compiled by NumPy": lambda J, engine: J.compile("numpy"),
    "compiled by the library": lambda J, engine: J.compile(engine),
    "pickled": lambda J, engine: pickle.loads(pickle.dumps(J)),
    "with checkpoints": lambda J, engine: oj.linearize(
        MODEL, POINT, of="logits", wrt=["x", *WRT], engine=engine, checkpoint=True),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_jacobian_by_the_engine_of_the_library(change, library):
    J, K = CHANGES[change](of_logits(library), library.engine), linearization()
    assert isinstance(J, Jacobian)
    check(J, K.toarray(), library)
    if change == "as it is":
        assert all(type(a) is type(library.there(POINT["x"])) for a in J.arrays())
        check(J["logits", "fc1"], K["logits", "fc1"].toarray(), library)
        assert_allclose(J.primal["logits"], K.primal["logits"], **TIGHT)
        assert (J.nbytes, J.flops) == (K.nbytes, K.flops)


@pytest.mark.parametrize("make", [linearization, hessian])
def test_operators_compiled_by_the_engine_of_the_library(make, library):
    C = make().compile(library.engine)
    check(C, make().toarray(), library)
    check(C.relinearize(SHIFTED), make().relinearize(SHIFTED).toarray(), library)
    assert f"products by {library.engine.partition(':')[0]}" in str(C.explain())


def test_other_forms_come_from_the_same_residuals(library):
    J, K = of_logits(library), linearization()
    assert_allclose(J.toarray(), K.toarray(), **TIGHT)
    assert_allclose(J.tosparse().toarray(), K.toarray(), **TIGHT)
    assert_allclose(J.diagonal(), K.diagonal(), **TIGHT)
    assert_allclose(J.rmatvec(np.ones(18)), K.rmatvec(np.ones(18)), **TIGHT)
    assert "diag" in str(J.explain())
    assert J.check()
    assert [str(e.blocks) for e in J.entries] == [str(e.blocks) for e in K.entries]


@pytest.mark.parametrize("make", [linearization, hessian, damped])
def test_tensors_are_multiplied_by_name_as_numpy_arrays_are(make, library):
    C = make()
    tangents = {s.name: draw(*s.shape, seed=2) for s in C.domain}
    wanted = C.apply(tangents)
    found = C.apply(moved(library, tangents))
    mixed = C.apply({**tangents, "fc1": library.there(tangents["fc1"])})
    for name, y in wanted.items():
        assert found[name].shape == y.shape
        assert_allclose(host(found[name]), y, **TIGHT)
        assert_allclose(host(mixed[name]), y, **TIGHT)
    some = C.apply({"fc1": library.there(tangents["fc1"])})
    for name, y in C.apply({"fc1": tangents["fc1"]}).items():
        assert_allclose(host(some[name]), y, **TIGHT)


def test_tangents_that_do_not_fit_are_refused(library):
    J = linearization()
    with pytest.raises(oj.InputError, match="has shape"):
        J.apply({"fc1": library.there(np.ones((2, 2)))})
    with pytest.raises(oj.InputError, match="complex128 does not become float64"):
        J.apply({"fc1": library.there(np.ones((5, 4), complex))})


@pytest.mark.parametrize("over_tensors", [False, True], ids=["arrays", "tensors"])
def test_values_and_gradients_are_in_the_library_of_the_point(over_tensors, library):
    f, g = (oj.value_and_grad(MODEL, of="loss", wrt=WRT, engine=e) for e in (library.engine, None))
    J, K = of_logits(library), linearization()
    for point in points():
        given = moved(library, point) if over_tensors else point
        (value, slopes), (expected, wanted) = f(given), g(point)
        assert_allclose(host(value), expected, **TIGHT)
        for name in WRT:
            assert type(slopes[name]) is type(given[name])
            assert_allclose(host(slopes[name]), wanted[name], **TIGHT)
        run, by_numpy = MODEL.run(given, engine=library.engine), MODEL.run(point, engine="numpy")
        for name, y in by_numpy.items():
            assert_allclose(host(run[name]), y, **TIGHT)
        J, K = J.relinearize(given), K.relinearize(point)
        assert_allclose(host(J.primal["logits"]), by_numpy["logits"], **TIGHT)
        check(J, K.toarray(), library)
    assert J.at.derivative is not None


@pytest.mark.parametrize("kind", ["hessian", "gauss_newton", "fisher", "kfac"])
def test_curvature_at_one_point_and_at_the_next(kind, library):
    options = {"of": "loss"} if kind in ("hessian", "gauss_newton") else {}
    options |= {} if kind == "hessian" else {"at": "logits"}
    make = getattr(oj, kind)
    A, B = (make(MODEL, POINT, wrt=WRT, engine=e, **options) for e in (None, library.engine))
    for P, Q in ((A, B), (A.relinearize(SHIFTED), B.relinearize(SHIFTED))):
        check(Q, P @ np.eye(35), library, LOOSE)


@pytest.mark.parametrize("kind", CONTROL_FLOW)
def test_control_flow_at_two_points(kind, library):
    model, wrt = loaded(CONTROL_FLOW[kind]), ["x", "w"]
    point = {"x": np.array([0.3, -1.2, 2.0]), "w": draw(40, 3) if kind == "scan" else draw(3)}
    other = {"x": np.array([-2.0, 0.1, 0.2]), "w": -point["w"]}
    for at in (point, other):
        for name, y in model.run(at, engine=library.engine).items():
            assert_allclose(y, model.run(at, engine="numpy")[name], **TIGHT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)
        A, B = (oj.linearize(model, point, wrt=wrt, engine=e) for e in ("numpy", library.engine))
        C = B.relinearize(moved(library, other))
        for J, K in ((A, A), (A, B), (A.relinearize(other), C)):
            check(K, J.toarray(), library, LOOSE)


def test_plans_of_many_products_run_over_tensors(library):
    """Which multiply blocks out, sample by sample, over the tensors of the library."""
    model = loaded("""
    g (double[8,1,12,12] x, double[4,1,5,5] k, double[64,9] w, double[9,3] u) => (double[8,3] y) {
      c = Conv(x, k) p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(c) r = Relu(p)
      f = Flatten(r) h = MatMul(f, w) t = Tanh(h) y = MatMul(t, u) }""")
    shapes = {"x": (8, 1, 12, 12), "k": (4, 1, 5, 5), "w": (64, 9), "u": (9, 3)}
    point = {name: draw(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    A, J = (oj.linearize(model, point, wrt=["k", "w", "x"], engine=e)
            for e in ("numpy", library.engine))  # fmt: skip
    v, u = draw(A.shape[1]), draw(A.shape[0])
    for K in (J.plan(products=10**5), J.compile(library.engine, products=10**5)):
        assert_allclose(K @ v, A @ v, **TIGHT)
        assert_allclose(K.T @ u, A.T @ u, **TIGHT)


def test_sequences_of_tensors_give_what_numpy_gives(library):
    model = loaded("""g (double[1,N] x) => (double[1,M] y)
        { t = Tanh(x) s = SequenceConstruct(x, t) y = ConcatFromSequence<axis=1>(s) }""")
    x = np.array([[0.3, -0.7]])
    found = model.run({"x": library.there(x)}, engine=library.engine)["y"]
    assert_allclose(host(found), model.run({"x": x})["y"])


def test_entries_that_are_not_chosen(library):
    """0 · ∞ is no part of Where: its branch that is not taken drops √x at 0."""
    model = loaded("""g (double[3] x) => (double[3] y) {
        zero = Constant<value = double {0}>() c = Greater(x, zero) r = Sqrt(x) y = Where(c, r, x)
    }""")
    J = oj.linearize(model, {"x": np.array([0.0, 1.0, 4.0])}, engine=library.engine)
    check(J, np.diag([1, 0.5, 0.25]), library)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float"])
def test_models_of_other_floats_keep_their_dtype(dtype, library):
    model = loaded(f"""g ({dtype}[2,3] x, {dtype}[3,2] w) => ({dtype}[2,2] y) {{
        z = MatMul(x, w) y = Tanh(z) }}""")
    point = {"x": draw(2, 3).astype(np.float32), "w": draw(3, 2, seed=1).astype(np.float32)}
    J, K = oj.linearize(model, point), oj.linearize(model, point, engine=library.engine)
    v = draw(12).astype(J.dtype)
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype != "float" else {"rtol": 1e-5, "atol": 1e-5}
    for y in (J @ library.there(v), K @ library.there(v)):
        assert host(y).dtype == J.dtype
        assert_allclose(host(y).astype(float), (J @ v).astype(float), **tolerance)
