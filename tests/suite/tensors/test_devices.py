"""What is PyTorch's alone: what lies on a device, and what is copied there and back."""

import json
import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from house import ROOT
from interop.operators import MODEL, POINT, WRT, linearization

from ..ops.libraries import torch_of
from .examples import LOOSE, TIGHT, check, loaded, moved, points

torch = pytest.importorskip("torch")
from onnxjac.modes.linear.derivatives import route  # noqa: E402
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers

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
    there = moved(torch_of(device), POINT)
    A, B = make(there, engine=f"torch:{device}"), make(POINT)
    assert_allclose(form(A), form(B), **LOOSE)


def test_weights_are_moved_once(device):
    model = loaded("g (double[2] x) => (double[2] y) <double[2] w = {2, 3}> { y = Mul(x, w) }")
    J = oj.linearize(model, {"x": np.ones(2)}, engine=f"torch:{device}")
    K = J.relinearize({"x": np.zeros(2)})
    (a,), (b,) = J.arrays(), K.arrays()
    assert a.data_ptr() == b.data_ptr()


def test_inputs_are_kept_as_they_were(device):
    there = moved(torch_of(device), next(points()))  # which may share the memory of the arrays
    J = oj.linearize(MODEL, there, of="logits", wrt=WRT, engine=f"torch:{device}")
    before = J.relinearize(there).toarray()
    K = J.relinearize(there)
    for x in there.values():
        x.zero_()
    assert_allclose(K.toarray(), before, **TIGHT)
    with pytest.raises(oj.InputError, match=r"use \.to"):
        J.relinearize({**there, "fc1": there["fc1"].long()})


@pytest.mark.parametrize(("kind", "options"), [
    ("kfac", {}), ("kfac", {"joint": True, "approximation": "reduce"}),
    ("kfac", {"fisher_type": "mc"}), ("kfac", {"fisher_type": "empirical", "of": "loss"}),
    ("ekfac", {}), ("fisher", {"samples": 2}), ("empirical_fisher", {"of": "loss"}),
])  # fmt: skip
@pytest.mark.usefixtures("same_draws")
def test_factors_are_tensors(kind, options, device):
    library = torch_of(device)
    for point in points():
        there = moved(library, point)
        make = partial(getattr(oj, kind), MODEL, at="logits", wrt=WRT, **options)
        C, D = make(there, engine=f"torch:{device}"), make(point)
        if "kfac" in kind:
            C, D = C.inverse(0.1), D.inverse(0.1)
            assert all(isinstance(f.values, torch.Tensor) for f in C.blocks)
            assert_allclose(C.diagonal(), D.diagonal(), **LOOSE)
        check(C, D @ np.eye(D.shape[1]), library, LOOSE)


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
    from tensors.simulated import COPIES

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
    there = moved(torch_of(device), POINT)
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
    there = moved(torch_of(device), POINT)
    J = oj.linearize(MODEL, there, of="logits", wrt=WRT, engine=f"torch:{device}")
    G = oj.gauss_newton(MODEL, there, of="loss", at="logits", wrt=WRT, engine=f"torch:{device}")
    v = torch.ones(35, dtype=torch.float64, device=device)
    for one in (J, G):
        copies.clear()
        one.plan(products=products) @ v
        assert (copies["down"], copies["up"]) == (0, seeds)


def test_diagonals_stay_on_the_device(device, copies):
    """Of Gauss-Newton, Fisher and K-FAC matrices: only what is not zero is asked for."""
    there = moved(torch_of(device), POINT)
    for kind in ("gauss_newton", "fisher", "kfac"):
        C = OPERATORS[kind](inputs=there, engine=f"torch:{device}")
        oj.estimators.diagonal(C)
        copies.clear()
        found = oj.estimators.diagonal(C)
        assert copies["down"] <= 2
        assert found.method == "exact by structure"
        assert_allclose(host(found.value), OPERATORS[kind](inputs=POINT).diagonal(), **LOOSE)


def test_a_seed_draws_the_same_samples_again(device):
    there = moved(torch_of(device), POINT)
    make = partial(oj.fisher, MODEL, there, at="logits", wrt=WRT, engine=f"torch:{device}")
    first, again, other = (make(samples=3, seed=k).diagonal() for k in (1, 1, 2))
    assert_allclose(first, again, **TIGHT)
    assert abs(first - other).max() > 1e-6
    many = make(samples=4000).diagonal()
    assert_allclose(many, make().diagonal(), rtol=0.1, atol=1e-3)


def test_products_at_one_point_are_prepared_as_those_of_arrays(device):
    J = linearization()
    point = moved(torch_of(device), POINT)
    there = oj.linearize(MODEL, point, of="logits", wrt=["x", *WRT], engine=f"torch:{device}")
    v, wanted = tensor(np.ones(J.shape[1]), device), J @ np.ones(J.shape[1])
    for _ in range(400):
        y = there @ v
        assert (y.device, y.dtype) == (v.device, torch.float64)
        assert_allclose(host(y), wanted, **TIGHT)
    assert any(word in there.structure.choice for word in ("compiled", "program of all points"))
    assert_allclose(there @ np.ones(J.shape[1]), wanted, **TIGHT)
