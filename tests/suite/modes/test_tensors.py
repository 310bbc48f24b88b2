"""Operators of models over tensors of PyTorch: by position, by name, and with `engine="torch"`."""

import json
import pickle
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import parser

import onnxjac as oj
from house import ROOT
from interop.operators import KINDS, MODEL, POINT, WEIGHTS, WRT, damped, hessian, linearization

torch = pytest.importorskip("torch")
from onnxjac.jacobians import Jacobian  # noqa: E402
from onnxjac.modes.linear.derivatives import route  # noqa: E402
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
LOOSE = {"rtol": 1e-9, "atol": 1e-10}


def loaded(text):
    return oj.load(parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))


def check(J, dense, device, tolerance=TIGHT):
    """Products with tensors are those of the matrix, on the device and in double precision."""
    V = tensor(np.random.default_rng(0).standard_normal((J.shape[1], 3)), device)
    U = tensor(np.random.default_rng(1).standard_normal(J.shape[0]), device)
    for y, wanted in ((J @ V, dense @ host(V)), (J.T @ U, dense.T @ host(U)),
                      (J @ V[:, 0], dense @ host(V[:, 0])), (U @ J, host(U) @ dense)):  # fmt: skip
        assert (y.device, y.dtype) == (V.device, torch.float64)
        assert_allclose(host(y), wanted, **tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_operator(kind, device):
    J = KINDS[kind]()
    solved = kind.startswith("inverse")
    check(J, J @ np.eye(J.shape[1]), device, LOOSE if solved else TIGHT)


def test_compiled_by_torch(device):
    check(linearization().compile("torch"), linearization().toarray(), device)
    check(hessian().compile("torch"), hessian().toarray(), device)
    assert "products by torch" in linearization().compile("torch").structure.choice


@pytest.mark.parametrize("make", [linearization, hessian, damped])
def test_products_by_name(make, device):
    C = make()
    drawn = np.random.default_rng(2)
    tangents = {s.name: drawn.standard_normal(s.shape) for s in C.domain}
    wanted = C.apply(tangents)
    found = C.apply({name: tensor(v, device) for name, v in tangents.items()})
    mixed = C.apply({**tangents, "fc1": tensor(tangents["fc1"], device)})
    for name, y in wanted.items():
        assert found[name].shape == y.shape
        assert_allclose(host(found[name]), y, **TIGHT)
        assert_allclose(host(mixed[name]), y, **TIGHT)
    some = C.apply({"fc1": tensor(tangents["fc1"], device)})
    for name, y in C.apply({"fc1": tangents["fc1"]}).items():
        assert_allclose(host(some[name]), y, **TIGHT)


def test_tangents_that_do_not_fit(device):
    J = linearization()
    with pytest.raises(oj.InputError, match="has shape"):
        J.apply({"fc1": torch.ones(2, 2, device=device)})
    with pytest.raises(oj.InputError, match="complex128 does not become float64"):
        J.apply({"fc1": torch.ones(5, 4, dtype=torch.complex128, device=device)})


def by_torch(device, **options):
    options = {"of": "logits", "wrt": ["x", *WRT], **options}
    return oj.linearize(MODEL, POINT, engine=f"torch:{device}", **options)


def test_residuals_are_tensors(device):
    J, K = by_torch(device), linearization()
    assert all(isinstance(a, torch.Tensor) for a in J.arrays())
    check(J, K.toarray(), device)
    check(J["logits", "fc1"], K["logits", "fc1"].toarray(), device)
    assert_allclose(J @ np.ones(J.shape[1]), K @ np.ones(J.shape[1]), **TIGHT)
    assert_allclose(J.primal["logits"], K.primal["logits"], **TIGHT)
    assert (J.nbytes, J.flops) == (K.nbytes, K.flops)


@pytest.mark.parametrize(
    "change",
    [
        lambda J: J.relinearize({**POINT, "x": 2 * POINT["x"]}).relinearize(POINT),
        lambda J: J.T.T,
        lambda J: J.plan(),
        lambda J: J.compile("numpy"),
        lambda J: J.compile("torch"),
        lambda J: pickle.loads(pickle.dumps(J)),
    ],
    ids=["relinearize", "T", "plan", "numpy", "torch", "pickle"],
)
def test_changed(change, device):
    check(change(by_torch(device)), linearization().toarray(), device)


CURVATURE = {"at": "logits", "wrt": WRT}


@pytest.mark.parametrize("make", [
    lambda point, **how: oj.linearize(MODEL, point, of="logits", wrt=WRT, **how),
    lambda point, **how: oj.hessian(MODEL, point, of="loss", wrt=WRT, **how)
    + oj.gauss_newton(MODEL, point, of="loss", **CURVATURE, **how),
    lambda point, **how: oj.kfac(MODEL, point, **CURVATURE, **how),
    lambda point, **how: oj.fisher(MODEL, point, **CURVATURE, **how).compile("torch"),
    lambda point, **how: oj.linearize(
        MODEL, [{**point, "x": point["x"][k : k + 3], "y": point["y"][k : k + 3]} for k in (0, 3)],
        of="logits", wrt=WRT, **how),
    lambda point, **how: oj.estimators.low_rank(
        oj.gauss_newton(MODEL, point, of="loss", **CURVATURE, **how), 9).value,
], ids=["J", "H + G", "kfac", "compiled", "stacked", "low rank"])  # fmt: skip
@pytest.mark.parametrize("form", [
    lambda A: A @ np.ones(A.shape[1]), lambda A: A.T @ np.ones((A.shape[0], 2)),
    lambda A: A.toarray(), lambda A: A.tosparse().toarray(), lambda A: A.diagonal(),
    lambda A: A.svdvals(), lambda A: A.norm(),
    lambda A: pickle.loads(pickle.dumps((A @ np.ones(A.shape[1]), A)))[1] @ np.ones(A.shape[1]),
], ids=["v", "Uᵀ", "dense", "sparse", "diagonal", "σ", "norm", "pickle"])  # fmt: skip
def test_operators_of_tensors_for_numpy(make, form, device):
    """NumPy vectors, matrices and spectra of operators over tensors, with no tensor read by it."""
    there = {name: tensor(x, device) for name, x in POINT.items()}
    A, B = make(there, engine=f"torch:{device}"), make(POINT)
    assert_allclose(form(A), form(B), **LOOSE)


def test_other_forms_come_from_the_same_residuals(device):
    J, K = by_torch(device), linearization()
    assert_allclose(J.toarray(), K.toarray(), **TIGHT)
    assert_allclose(J.tosparse().toarray(), K.toarray(), **TIGHT)
    assert_allclose(J.diagonal(), K.diagonal(), **TIGHT)
    assert "diag" in str(J.explain())
    assert J.check()
    assert [str(e.blocks) for e in J.entries] == [str(e.blocks) for e in K.entries]


@pytest.mark.parametrize("kind", ["hessian", "gauss_newton", "fisher", "kfac"])
def test_curvature_by_torch(kind, device):
    options = {"wrt": WRT, "engine": f"torch:{device}"}
    options |= {"of": "loss"} if kind in ("hessian", "gauss_newton") else {}
    options |= {} if kind == "hessian" else {"at": "logits"}
    C = getattr(oj, kind)(MODEL, POINT, **options)
    check(C, KINDS[kind]() @ np.eye(35), device, LOOSE)


def test_gradients_and_runs_by_torch(device):
    engine = f"torch:{device}"
    for name, y in MODEL.run(POINT).items():
        assert_allclose(MODEL.run(POINT, engine=engine)[name], y, **TIGHT)
    slopes = oj.grad(MODEL, POINT, of="loss", wrt=WRT, engine=engine)
    for name, g in oj.grad(MODEL, POINT, of="loss", wrt=WRT).items():
        assert_allclose(slopes[name], g, **TIGHT)


def test_checkpoints(device):
    check(by_torch(device, checkpoint=True), linearization().toarray(), device)


@pytest.mark.parametrize("turns", [4, 60], ids=["unrolled", "recorded"])
def test_loops(turns, device):
    model = loaded(f"""g (double[3] x, double[3,3] W) => (double[3] y, double[{turns},3] rows) {{
        n = Constant<value = int64 {{{turns}}}>() go = Constant<value = bool {{1}}>()
        y, rows = Loop<body = b (int64 i, bool c, double[3] h) => (bool d, double[3] k, double[3] r)
        {{ d = Identity(c) m = MatMul(W, h) k = Sin(m) r = Identity(k) }}>(n, go, x) }}""")
    rng = np.random.default_rng(0)
    point = {"x": rng.standard_normal(3), "W": rng.standard_normal((3, 3))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)
        J = oj.linearize(model, point)
        check(J, J @ np.eye(12), device, LOOSE)
        there = oj.linearize(model, point, engine=f"torch:{device}")
        check(there, J @ np.eye(12), device, LOOSE)
        other = {name: x / 2 for name, x in point.items()}
        moved = there.relinearize({name: tensor(x, device) for name, x in other.items()})
        check(moved, J.relinearize(other) @ np.eye(12), device, LOOSE)


def test_sequences(device):
    model = loaded("""g (double[1,N] x) => (double[1,M] y)
        { t = Tanh(x) s = SequenceConstruct(x, t) y = ConcatFromSequence<axis=1>(s) }""")
    x = tensor(np.array([[0.3, -0.7]]), device)
    assert_allclose(host(model.run({"x": x}, engine="torch")["y"]), model.run({"x": host(x)})["y"])


def test_entries_that_are_not_chosen(device):
    """0 · ∞ is no part of Where: its branch that is not taken drops √x at 0."""
    model = loaded("""g (double[3] x) => (double[3] y) {
        zero = Constant<value = double {0}>() c = Greater(x, zero) r = Sqrt(x) y = Where(c, r, x)
    }""")
    point = {"x": np.array([0.0, 1.0, 4.0])}
    J = oj.linearize(model, point, engine=f"torch:{device}")
    check(J, np.diag([1, 0.5, 0.25]), device)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float"])
def test_models_of_other_floats(dtype, device):
    model = loaded(f"""g ({dtype}[2,3] x, {dtype}[3,2] w) => ({dtype}[2,2] y) {{
        z = MatMul(x, w) y = Tanh(z) }}""")
    rng = np.random.default_rng(0)
    point = {"x": rng.standard_normal((2, 3)), "w": rng.standard_normal((3, 2))}
    point = {name: x.astype(np.float32) for name, x in point.items()}
    J, K = oj.linearize(model, point), oj.linearize(model, point, engine=f"torch:{device}")
    v = rng.standard_normal(12).astype(J.dtype)
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype != "float" else {"rtol": 1e-5, "atol": 1e-5}
    for y in (J @ tensor(v, device), K @ tensor(v, device)):
        assert host(y).dtype == J.dtype
        assert_allclose(host(y).astype(float), (J @ v).astype(float), **tolerance)


def test_weights_are_moved_once(device):
    model = loaded("g (double[2] x) => (double[2] y) <double[2] w = {2, 3}> { y = Mul(x, w) }")
    J = oj.linearize(model, {"x": np.ones(2)}, engine=f"torch:{device}")
    K = J.relinearize({"x": np.zeros(2)})
    (a,), (b,) = J.arrays(), K.arrays()
    assert a.data_ptr() == b.data_ptr()


def test_the_device_is_named_after_a_colon():
    with pytest.raises(oj.InputError, match="cannot use the device 'cloud'"):
        oj.linearize(MODEL, POINT, of="logits", engine="torch:cloud")
    with pytest.raises(oj.InputError, match="not one of"):
        MODEL.run(POINT, engine="numpy:cuda")


def test_operators_without_a_kernel_are_named(device):
    from onnxjac.ops.torch import tensors

    x = torch.ones(2, dtype=torch.uint8, device=device)
    assert tensors.BitShift(x, x, direction="LEFT").device == x.device
    assert "BitShift" in tensors.on_host


def test_a_transposed_convolution_may_leave_nothing(device):
    from onnxjac.ops.torch import tensors

    x, w = torch.ones(1, 2, 1, device=device), torch.ones(2, 1, 2, device=device)
    assert tensors.ConvTranspose(x, w, pads=(1, 1)).shape == (1, 1, 0)


def test_torch_is_imported_when_a_tensor_is_met():
    script = "import sys, onnxjac; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_jacobian_is_an_operator_of_scipy_still(device):
    J = by_torch(device)
    assert isinstance(J, Jacobian)
    assert_allclose(J.rmatvec(np.ones(18)), linearization().rmatvec(np.ones(18)), **TIGHT)
    assert WEIGHTS.keys() <= {s.name for s in J.domain}


def points(device):
    """Three points as NumPy arrays and as tensors: the last one is a run of a template."""
    rng = np.random.default_rng(3)
    for _ in range(3):
        point = {n: x + 0.1 * rng.standard_normal(x.shape) if x.dtype.kind == "f" else x
                 for n, x in {**POINT, **WEIGHTS}.items()}  # fmt: skip
        yield point, {name: tensor(x, device) for name, x in point.items()}


def test_tensors_in_give_tensors_out(device, inside):
    engine = f"torch:{device}"
    f, g = (oj.value_and_grad(MODEL, of="loss", wrt=WRT, engine=e) for e in (engine, None))
    J = by_torch(device)
    for point, there in points(device):
        (value, slopes), (wanted, others) = f(there), g(point)
        assert_allclose(host(value), wanted, **TIGHT)
        for name, slope in slopes.items():
            assert slope.device == there[name].device
            assert_allclose(host(slope), others[name], **TIGHT)
        J = J.relinearize(there)
        K = oj.linearize(MODEL, point, of="logits", wrt=["x", *WRT])
        assert_allclose(host(J.primal["logits"]), K.primal["logits"], **TIGHT)
        assert_allclose(host(MODEL.run(there, engine=engine)["loss"]), wanted, **TIGHT)
        check(J, K.toarray(), device)
    assert J.at.derivative is not None
    shared, v = inside.shared(J), torch.ones(J.shape[1], device=device).double()
    program = shared.prepare(())
    assert_allclose(host(shared.product(program, J.at, v)), K @ np.ones(J.shape[1]), **TIGHT)


def test_inputs_are_kept_as_they_were(device):
    _, there = next(points(device))
    J = oj.linearize(MODEL, there, of="logits", wrt=WRT, engine=f"torch:{device}")
    before = J.relinearize(there).toarray()
    moved = J.relinearize(there)
    for x in there.values():
        x.zero_()
    assert_allclose(moved.toarray(), before, **TIGHT)
    with pytest.raises(oj.InputError, match=r"use \.to"):
        J.relinearize({**there, "fc1": there["fc1"].long()})


@pytest.mark.parametrize(("kind", "options"), [
    ("kfac", {}), ("kfac", {"joint": True, "approximation": "reduce"}),
    ("kfac", {"fisher_type": "mc"}), ("kfac", {"fisher_type": "empirical", "of": "loss"}),
    ("ekfac", {}), ("fisher", {"samples": 2}), ("empirical_fisher", {"of": "loss"}),
])  # fmt: skip
@pytest.mark.usefixtures("same_draws")
def test_factors_are_tensors(kind, options, device):
    for point, there in points(device):
        make = partial(getattr(oj, kind), MODEL, at="logits", wrt=WRT, **options)
        C, D = make(there, engine=f"torch:{device}"), make(point)
        if "kfac" in kind:
            C, D = C.inverse(0.1), D.inverse(0.1)
            assert all(isinstance(f.values, torch.Tensor) for f in C.blocks)
            assert_allclose(C.diagonal(), D.diagonal(), **LOOSE)
        check(C, D @ np.eye(D.shape[1]), device, LOOSE)


@pytest.mark.parametrize("solve", ["newton_cg", "natural_gradient"])
def test_solvers_stay_on_the_device(solve, device):
    options = {"of": "loss", "wrt": ["fc1", "fc2"][: len(WRT)], "maxiter": 4}
    options |= {"at": "logits"} if solve == "natural_gradient" else {}
    there = {name: tensor(x, device) for name, x in POINT.items()}
    found = getattr(oj, solve)(MODEL, there, engine=f"torch:{device}", **options)
    if solve == "newton_cg":
        options["preconditioner"] = identity
    wanted = getattr(oj, solve)(MODEL, POINT, **options)
    assert isinstance(found.x, torch.Tensor)
    assert (found.nit, found.status) == (wanted.nit, wanted.status)
    tolerance = {"rtol": 1e-2} if solve == "natural_gradient" else {"rtol": 1e-9}
    assert_allclose(float(found.fun), float(wanted.fun), **tolerance)


def identity(H):
    return np.eye(H.shape[0])


def test_the_notebook_copies_nothing(device, monkeypatch):
    """Its steps, after the first ones: no tensor becomes a NumPy array."""
    monkeypatch.undo()
    monkeypatch.setattr(route, "POINTS_READ", 0)  # templates at the second point
    monkeypatch.chdir(ROOT / "notebooks")
    cells = json.loads((ROOT / "notebooks" / "09_tensors.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    fewer = {"range(25)": "range(6)", "(initial(), 12)": "(initial(), 3)"}
    names = {}
    for source in sources[:-1]:
        for many, few in fewer.items():
            source = source.replace(many, few)
        exec(source, names)
    assert names["losses"][-1] < 0.9 * names["losses"][0]
    for _ in range(8):  # programs look at constants once
        names["newton"](names["kfac_step"](names["weights"])[0], 2)
    copied = []

    def counting(function):
        return lambda *x: (copied.append(function), function(*x))[1]

    for name in ("numpy", "__array__", "cpu", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, counting(getattr(torch.Tensor, name)))
    names["newton"](names["kfac_step"](names["weights"])[0], 2)
    assert not copied
    torch.ones(2).numpy()
    assert len(copied) == 1
    exec(sources[-1], names)
    assert names["copies"] == []


@pytest.mark.parametrize("of", ["y", "c"])
def test_sizes_that_numbers_decide(of, device):
    """NonZero and Compress take another number of entries at each point of the same shapes."""
    model = loaded("""g (double[2] x, bool[2] b) => (double[m] y, double[k] c) <double w = {0.1}> {
        i = NonZero(x) g = Gather(x, i) n = Size(g) a = CastLike(n, x) v = Mul(w, a) y = Mul(g, v)
        d = Compress(x, b) s = Size(d) t = CastLike(s, x) c = Mul(d, t) }""")
    J = None
    for x in ([0.7, 0.2], [0.7, 0.3], [0.0, 0.2], [0.4, 0.2], [0.0, 0.0], [0.1, 0.2]):
        point = {"x": np.array(x), "b": np.array(x) != 0}
        there = {name: torch.tensor(value, device=device) for name, value in point.items()}
        engine = f"torch:{device}"
        linearize = partial(oj.linearize, model, of=of, wrt="x", engine=engine)
        J = linearize(there) if J is None else J.relinearize(there)
        dense = oj.linearize(model, point, of=of, wrt="x").toarray()
        assert J.shape == dense.shape
        assert_allclose(host(J @ torch.eye(2, dtype=torch.float64, device=device)), dense)


OPERATORS = {
    "J": lambda **how: oj.linearize(MODEL, of="logits", wrt=WRT, **how),
    "Jᵀ": lambda **how: oj.linearize(MODEL, of="logits", wrt=WRT, **how).T,
    "block": lambda **how: oj.linearize(MODEL, of="logits", wrt=WRT, **how)["logits", "fc1"],
    "rows": lambda **how: oj.linearize(MODEL, of="logits", wrt=WRT, **how)[:5, 3:7],
    "hessian": lambda **how: oj.hessian(MODEL, of="loss", wrt=WRT, **how),
    "gauss_newton": lambda **how: oj.gauss_newton(MODEL, of="loss", at="logits", wrt=WRT, **how),
    "fisher": lambda **how: oj.fisher(MODEL, at="logits", wrt=WRT, **how),
    "kfac": lambda **how: oj.kfac(MODEL, at="logits", wrt=WRT, **how),
    "ntk": lambda **how: oj.ntk(MODEL, of="logits", wrt=WRT, **how),
}  # fmt: skip


@pytest.fixture
def copies(device):
    """The counts of transfers."""
    if device != "simulated":
        pytest.skip("only the simulated device counts copies")
    from simulated import COPIES

    return COPIES


def test_gradients_copy_no_labels(device, copies):
    """Few integers might be a shape, and stay on the host, unless a kernel reads them."""
    model = loaded("""net (float[3,4] x, float[4,5] W) => (float f) <int64[3] labels = {2, 0, 4}>
                      { y = MatMul(x, W)  f = SoftmaxCrossEntropyLoss(y, labels) }""")
    f = oj.value_and_grad(model, wrt="W", engine=f"torch:{device}")
    point = {"x": torch.rand(3, 4).to(device), "W": torch.rand(4, 5).to(device)}
    for _ in range(3):
        f(point)
    copies.clear()
    f(point)
    assert not copies.total()


@pytest.mark.parametrize("kind", OPERATORS)
def test_products_copy_nothing(kind, device, copies):
    """From the second product on; programs are tried with zeros that are uploaded."""
    there = {name: tensor(x, device) for name, x in POINT.items()}
    C = OPERATORS[kind](inputs=there, engine=f"torch:{device}")
    v = torch.ones(C.shape[1], dtype=torch.float64, device=device)
    C @ v
    copies.clear()
    y = C @ v
    assert not copies.total()
    assert_allclose(host(y), OPERATORS[kind](inputs=POINT) @ np.ones(C.shape[1]), **LOOSE)


@pytest.mark.parametrize(("products", "seeds"), [(30, 0), (100_000, 1)])
def test_plans_are_made_on_the_device(products, seeds, device, copies):
    """What a plan multiplies out is never NumPy's; unit vectors are."""
    there = {name: tensor(x, device) for name, x in POINT.items()}
    J = oj.linearize(MODEL, there, of="logits", wrt=WRT, engine=f"torch:{device}")
    G = oj.gauss_newton(MODEL, there, of="loss", at="logits", wrt=WRT, engine=f"torch:{device}")
    v = torch.ones(35, dtype=torch.float64, device=device)
    for one in (J, G):
        copies.clear()
        one.plan(products=products) @ v
        assert (copies["down"], copies["up"]) == (0, seeds)


def test_diagonals_stay_on_the_device(device, copies):
    """Of Gauss-Newton, Fisher and K-FAC matrices: only what is not zero is asked for."""
    there = {name: tensor(x, device) for name, x in POINT.items()}
    for kind in ("gauss_newton", "fisher", "kfac"):
        C = OPERATORS[kind](inputs=there, engine=f"torch:{device}")
        oj.estimators.diagonal(C)
        copies.clear()
        found = oj.estimators.diagonal(C)
        assert copies["down"] <= 2
        assert found.method == "exact by structure"
        assert_allclose(host(found.value), OPERATORS[kind](inputs=POINT).diagonal(), **LOOSE)


def test_a_seed_draws_the_same_samples_again(device):
    there = {name: tensor(x, device) for name, x in POINT.items()}
    make = partial(oj.fisher, MODEL, there, at="logits", wrt=WRT, engine=f"torch:{device}")
    first, again, other = (make(samples=3, seed=k).diagonal() for k in (1, 1, 2))
    assert_allclose(first, again, **TIGHT)
    assert abs(first - other).max() > 1e-6
    many = make(samples=4000).diagonal()
    assert_allclose(many, make().diagonal(), rtol=0.1, atol=1e-3)


def test_products_at_one_point_are_prepared_as_those_of_arrays(device):
    J = linearization()
    point = {name: tensor(x, device) for name, x in POINT.items()}
    there = oj.linearize(MODEL, point, of="logits", wrt=["x", *WRT], engine=f"torch:{device}")
    v, wanted = tensor(np.ones(J.shape[1]), device), J @ np.ones(J.shape[1])
    for _ in range(400):
        y = there @ v
        assert (y.device, y.dtype) == (v.device, torch.float64)
        assert_allclose(host(y), wanted, **TIGHT)
    assert any(word in there.structure.choice for word in ("compiled", "program of all points"))
    assert_allclose(there @ np.ones(J.shape[1]), wanted, **TIGHT)
