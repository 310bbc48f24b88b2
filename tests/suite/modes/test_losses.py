"""Appended losses: PyTorch's values, gradients and Hessians; names, targets, masks, curvature."""

import inspect

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.__main__ import main
from onnxjac.modes.curvature.gauss_newton import closed_form
from onnxjac.modes.gradient import Gradient
from onnxjac.modes.losses import LOSSES, with_loss

RNG = np.random.default_rng(7)
W = RNG.standard_normal((3, 4))
X = RNG.standard_normal((5, 3))
HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
LABELS = np.array([0, 3, 1, 2, 3])
SHARES = np.array([0.5, 1.0, 2.0, 0.25])


def loaded(text):
    return oj.load(onnx.parser.parse_model(HEAD + text))


def identities(*names, shape="N,4", kind="double"):
    """A model whose outputs z… are its inputs."""
    inputs = ", ".join(f"{kind}[{shape}] {name}_in" for name in names)
    outputs = ", ".join(f"{kind}[{shape}] {name}" for name in names)
    body = "\n".join(f"{name} = Identity({name}_in)" for name in names)
    return loaded(f"g ({inputs}) => ({outputs}) {{ {body} }}")


def linear(kind="double"):
    return loaded(f"g ({kind}[N,3] x, {kind}[3,4] W) => ({kind}[N,4] z) {{ z = MatMul(x, W) }}")


def positive(*shape):
    return RNG.uniform(0.1, 0.9, shape)


def signs(*shape):
    return RNG.choice([-1.0, 1.0], shape)


def log_p(*shape):
    z = RNG.standard_normal(shape)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


Z, T = RNG.standard_normal((5, 4)), RNG.standard_normal((5, 4))
PROBABILITIES = np.exp(log_p(5, 4))
LISTS = np.array([[3, 0, -1, 1], [2, -1, -1, -1], [-1, 1, 2, 3], [0, 1, 2, 3], [1, 1, 0, -1]])
CASES = [
    ("cross_entropy", (Z,), LABELS, {}),
    ("cross_entropy", (Z,), LABELS, {"weight": SHARES}),
    ("cross_entropy", (Z,), np.array([0, -100, 1, 2, -100]), {"weight": SHARES}),
    ("cross_entropy", (Z,), LABELS, {"ignore_index": 3, "label_smoothing": 0.2}),
    ("cross_entropy", (Z,), LABELS,
     {"ignore_index": 3, "label_smoothing": 0.2, "weight": SHARES}),
    ("cross_entropy", (RNG.standard_normal((2, 4, 3, 2)),), RNG.integers(0, 4, (2, 3, 2)), {}),
    ("cross_entropy", (RNG.standard_normal((2, 4, 3)),), RNG.integers(0, 4, (2, 3)),
     {"label_smoothing": 0.1, "weight": SHARES}),
    ("cross_entropy", (Z[0],), np.array(2), {"label_smoothing": 0.1}),
    ("cross_entropy", (Z[0],), np.array(2), {}),
    ("soft_cross_entropy", (Z,), PROBABILITIES, {"weight": SHARES, "label_smoothing": 0.1}),
    ("soft_cross_entropy", (RNG.standard_normal((2, 4, 3)),), positive(2, 4, 3), {}),
    ("nll", (log_p(5, 4),), LABELS, {"weight": SHARES, "ignore_index": 3}),
    ("nll", (log_p(2, 4, 3),), RNG.integers(0, 4, (2, 3)), {}),
    ("multi_margin", (Z,), LABELS, {}),
    ("multi_margin", (Z,), LABELS, {"p": 2, "margin": 0.5, "weight": SHARES}),
    ("multilabel_margin", (Z,), LISTS, {}), ("multilabel_margin", (Z[0],), LISTS[0], {}),
    ("mse", (Z,), T, {}), ("l1", (Z,), T, {}), ("soft_margin", (Z,), signs(5, 4), {}),
    ("smooth_l1", (Z,), T, {"beta": 0.7}), ("smooth_l1", (Z,), T, {"beta": 0.0}),
    ("huber", (Z,), T, {"delta": 0.7}),
    ("bce", (positive(5, 4),), positive(5, 4), {"weight": SHARES}),
    ("bce_with_logits", (3 * Z,), positive(5, 4), {}),
    ("bce_with_logits", (3 * Z,), positive(5, 4), {"weight": SHARES, "pos_weight": 2 * SHARES}),
    ("multilabel_soft_margin", (Z,), (T > 0) * 1.0, {"weight": SHARES}),
    ("hinge_embedding", (Z,), signs(5, 4), {"margin": 0.6}),
    ("kl_div", (log_p(5, 4),), np.maximum(T, 0), {}),
    ("kl_div", (log_p(5, 4),), log_p(5, 4), {"log_target": True}),
    ("poisson_nll", (Z,), 4 * positive(5, 4), {"full": True}),
    ("poisson_nll", (positive(5, 4),), 4 * positive(5, 4), {"log_input": False, "eps": 1e-3}),
    ("gaussian_nll", (Z, positive(5, 4)), T, {"full": True}),
    ("cosine_embedding", (Z, T), np.array([1.0, -1, 1, -1, -1]), {"margin": -0.2}),
    ("margin_ranking", (Z, T), signs(5, 4), {"margin": 0.4}),
    ("triplet_margin", (Z, T, Z + 0.3 * T), None, {"margin": 2.0, "swap": True}),
    ("triplet_margin", (Z, T, Z + 0.3 * T), None, {"margin": 2.0, "p": 3.0}),
]  # fmt: skip
REDUCTIONS = [(case, reduction) for case in CASES for reduction in ("mean", "sum", "none")]
REDUCTIONS += [(case, "batchmean") for case in CASES if case[0] == "kl_div"]


def of_torch(kind, tensors, target, options, reduction):
    torch = pytest.importorskip("torch")
    name = {"bce": "binary_cross_entropy", "bce_with_logits": "binary_cross_entropy_with_logits",
            "soft_cross_entropy": "cross_entropy", "kl_div": "kl_div",
            "cross_entropy": "cross_entropy"}.get(kind, f"{kind}_loss")  # fmt: skip
    options = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    tensors = [torch.tensor(t, requires_grad=True) for t in tensors]
    labels = () if target is None else (torch.tensor(target),)
    order = (tensors[0], *labels, tensors[1]) if kind == "gaussian_nll" else (*tensors, *labels)
    loss = getattr(torch.nn.functional, name)(*order, reduction=reduction, **options)
    weights = torch.arange(1.0, loss.numel() + 1, dtype=torch.float64).reshape(loss.shape)
    (loss * weights).sum().backward()
    return loss.detach().numpy(), weights.numpy(), [t.grad.numpy() for t in tensors]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:reduction")  # of torch, on kl_div
@pytest.mark.parametrize(("case", "reduction"), REDUCTIONS,
                         ids=[f"{c[0]}-{'-'.join(c[3])}-{r}" for c, r in REDUCTIONS])  # fmt: skip
def test_values_and_gradients_are_pytorchs(case, reduction):
    kind, tensors, target, options = case
    names = "abc"[: len(tensors)]
    shape = ",".join(["N", *map(str, tensors[0].shape[1:])]) if tensors[0].ndim > 1 else "4"
    model = identities(*names, shape=shape)
    made = with_loss(model, kind, at=list(names), reduction=reduction, **options)
    point = {f"{name}_in": x for name, x in zip(names, tensors, strict=True)}
    point |= {} if target is None else {"target": target}
    wanted, weights, slopes = of_torch(kind, tensors, target, options, reduction)
    (loss,) = made.run(point).values()
    assert_allclose(loss, wanted, rtol=1e-10)
    assert made.opset == model.opset
    assert made.outputs["loss"].shape is not None
    assert len(made.outputs["loss"].shape) == loss.ndim
    J = oj.linearize(made, point, wrt=[f"{name}_in" for name in names])
    found = J.T.apply({"loss": weights})
    for name, slope in zip(names, slopes, strict=True):
        assert_allclose(found[f"{name}_in"], slope, rtol=1e-8, atol=1e-12)


def test_every_loss_is_compared_and_documented():
    assert {"ctc", *(case[0] for case in CASES)} == LOSSES.keys()
    said = inspect.getdoc(with_loss)
    for kind, loss in LOSSES.items():
        row = next(line for line in said.splitlines() if line[:1] == "|" and f'"{kind}"' in line)
        assert all(f"`{option}" in row for option in loss.options), kind


@pytest.mark.parametrize("kind", ["cross_entropy", "nll", "soft_cross_entropy", "multi_margin",
                                  "multilabel_margin"])  # fmt: skip
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("masked", [False, True])
def test_classes_along_the_last_axis(kind, reduction, masked):
    """As for logits [batch, tokens, words]: the loss of the matrix of all tokens."""
    z, m = log_p(2, 3, 4), RNG.uniform(0, 1, (2, 3))
    y = {"labels": RNG.integers(0, 4, (2, 3)), "lists": RNG.integers(-1, 4, (2, 3, 4)),
         "entries": positive(2, 3, 4)}[LOSSES[kind].target]  # fmt: skip
    mask = {"mask": "m"} if masked else {}
    deep = with_loss(identities("z", shape="B,T,4"), kind, axis=-1, reduction=reduction, **mask)
    flat = with_loss(identities("z"), kind, reduction=reduction, **mask)
    given = {"m": m} if masked else {}
    found = deep.run({"z_in": z, "target": y, **given})["loss"]
    rows = y.reshape(6, *y.shape[2:])
    given = {name: x.ravel() for name, x in given.items()}
    wanted = flat.run({"z_in": z.reshape(6, 4), "target": rows, **given})["loss"]
    assert_allclose(found.ravel(), wanted.ravel(), rtol=1e-12)
    assert found.shape == ((2, 3) if reduction == "none" else ())


@pytest.mark.parametrize(("kind", "target"), [("cross_entropy", LABELS), ("mse", T)])
def test_a_mask_weighs_the_terms(kind, target):
    mask = np.array([1, 0, 1, 1, 0.0])
    mask = mask if kind == "cross_entropy" else mask[:, None] * np.ones(4)
    model, point = identities("z"), {"z_in": Z, "target": target}
    terms = with_loss(model, kind, reduction="none").run(point)["loss"]
    for reduction, wanted in (("sum", (terms * mask).sum()), ("none", terms * mask),
                              ("mean", (terms * mask).sum() / mask.sum()),
                              ("batchmean", (terms * mask).sum() / 5)):  # fmt: skip
        made = with_loss(model, kind, mask="m", reduction=reduction)
        assert_allclose(made.run({**point, "m": mask})["loss"], wanted, rtol=1e-12)


def test_an_integer_mask_that_the_model_has():
    model = loaded("""g (double[N,T,4] x, int64[N,T] attention_mask) => (double[N,T,4] z)
        { m = Cast<to=11>(attention_mask) a = Constant<value = int64[1] {-1}>() u = Unsqueeze(m, a)
          z = Mul(x, u) }""")
    made = with_loss(model, "cross_entropy", axis=-1, mask="attention_mask")
    mask, x, y = np.array([[1, 1, 0]]), RNG.standard_normal((1, 3, 4)), np.array([[1, 2, 3]])
    p = x[0] - np.log(np.exp(x[0]).sum(-1, keepdims=True))
    found = made.run({"x": x, "attention_mask": mask, "target": y})["loss"]
    assert_allclose(found, -(p[0, 1] + p[1, 2]) / 2)


def test_the_target_may_be_a_tensor_of_the_model():
    model = loaded("g (double[N,3] x) => (double[N,3] z) { z = Tanh(x) }")
    made = with_loss(model, "mse", target="x")
    assert list(made.inputs) == ["x"]
    assert_allclose(made.run({"x": X})["loss"], ((np.tanh(X) - X) ** 2).mean())
    assert_allclose(oj.grad(made, {"x": X})["x"], 2 * (np.tanh(X) - X) * -np.tanh(X) ** 2 / X.size)


def test_labels_of_other_integers_and_truth_values():
    narrow = loaded("g (double[N,4] x, int8[N] y, bool[N,4] t) => (double[N,4] z) { z = Tanh(x) }")
    made = with_loss(narrow, "cross_entropy", target="y")
    wide = with_loss(narrow, "cross_entropy")
    y = {"x": Z, "t": T > 0, "y": LABELS.astype(np.int8)}
    assert_allclose(made.run(y)["loss"], wide.run({**y, "target": LABELS})["loss"])
    truth = with_loss(narrow, "bce_with_logits", target="t").run(y)["loss"]
    assert_allclose(truth, (np.logaddexp(0, np.tanh(Z)) - (T > 0) * np.tanh(Z)).mean())


@pytest.mark.parametrize(("kind", "options"), [
    ("cross_entropy", {"weight": SHARES}), ("cross_entropy", {"label_smoothing": 0.1}),
    ("soft_cross_entropy", {}), ("mse", {}), ("huber", {}), ("smooth_l1", {}),
    ("bce_with_logits", {"pos_weight": SHARES}), ("soft_margin", {}),
    ("multilabel_soft_margin", {}),
])  # fmt: skip
def test_gauss_newton_knows_them_in_closed_form(kind, options):
    """z = x W is linear in W, and so G is the Hessian; of= and at= are known."""
    made = with_loss(linear(), kind, **options)
    target = LABELS if LOSSES[kind].target == "labels" else np.sign(T) if "margin" in kind else T
    point = {"x": X, "W": W, "target": target}
    assert closed_form(Gradient(made, ("loss",), ("z",)), {**point, "z": X @ W})
    G, H = oj.gauss_newton(made, point, wrt="W"), oj.hessian(made, point, wrt="W")
    assert_allclose(G.toarray(), H.toarray(), atol=1e-12)
    whole = oj.gauss_newton(made, point, wrt="W", reduction="sum")
    total = with_loss(linear(), kind, reduction="sum", **options)
    assert_allclose(whole.toarray(), oj.hessian(total, point, wrt="W").toarray(), atol=1e-10)


def test_means_over_uneven_batches():
    for options, extra in (({"weight": SHARES}, {}), ({"label_smoothing": 0.1}, {}),
                           ({"mask": "m"}, {"m": np.array([1, 0.5, 0, 2, 1])})):  # fmt: skip
        made = with_loss(linear(), "cross_entropy", **options)
        data = {"x": X, "target": LABELS, **extra}
        whole = oj.hessian(made, {**data, "W": W}, wrt="W").toarray()
        parts = [{k: v[a:b] for k, v in data.items()} for a, b in ((0, 2), (2, 5))]
        found = oj.gauss_newton(made, parts, wrt="W", shared={"W": W}, reduction="mean")
        assert_allclose(found.toarray(), whole, atol=1e-12)


def test_fisher_and_kfac_take_the_tensor_before_the_loss():
    model = loaded("""g (double[N,3] x) => (double[N,4] z)
        <double[3,4] W = {1,2,-1,0, 0.5,-1,1,2, 0,1,0.5,-2}> { z = MatMul(x, W) }""")
    made = with_loss(model, "cross_entropy")
    point = {"x": X, "target": LABELS}
    F, H = oj.fisher(made, point, wrt="W"), oj.hessian(made, point, wrt="W")
    assert_allclose(F.toarray(), H.toarray(), atol=1e-12)
    K, L = oj.kfac(made, point), oj.kfac(model, {"x": X})
    assert_allclose(K.toarray(), L.toarray())
    assert [spec.name for spec in K.domain] == ["W"]  # class weights are no weights
    weighted = with_loss(model, "cross_entropy", weight=SHARES)
    assert list(weighted.initializers) == ["W"]


def test_saturated_probabilities_have_pytorchs_limit():
    model = loaded("g (float[N] x) => (float[N] p) { p = Sigmoid(x) }")
    made = with_loss(model, "bce")
    x = np.float32([-200, 200, 3])
    point = {"x": x, "target": np.float32([1, 0, 1])}
    assert_allclose(made.run(point)["loss"], (100 + 100 + np.log1p(np.exp(-3))) / 3, rtol=1e-6)


@pytest.mark.parametrize(("options", "text"), [
    ({"kind": "cross_entrop"}, "Did you mean 'cross_entropy'"),
    ({"kind": "mse", "weight": SHARES}, "'mse' has no option 'weight'"),
    ({"kind": "huber", "delta": "much"}, "delta='much' must be a number"),
    ({"kind": "kl_div", "log_target": 3}, "log_target=3 must be True or False"),
    ({"kind": "mse", "at": "q"}, "no tensor 'q'"),
    ({"kind": "triplet_margin"}, "a loss of 3 tensors, not of 'z'"),
    ({"kind": "mse", "at": ["z", "z_in"]}, "a loss of 1 tensor, not of"),
    ({"kind": "mse", "name": "z"}, "already: give the loss another name"),
    ({"kind": "nll", "axis": 2}, "axis=2 is no axis of z"),
    ({"kind": "ctc"}, "z .* is not .frames, samples, classes."),
    ({"kind": "nll", "target": "z_in"}, "labels are integers"),
    ({"kind": "mse", "reduction": "median"}, "reduction='median' is not one of"),
])  # fmt: skip
def test_with_loss_rejects_wrong_options(options, text):
    with pytest.raises(oj.InputError, match=text):
        with_loss(identities("z"), **options)


def test_a_new_input_has_no_name_of_a_body():
    model = loaded("""g (double[N,3] x, bool c) => (double[N,3] z)
        { z = If(c) <then_branch = t () => (double[N,3] inner) { inner = Sin(x) },
                     else_branch = e () => (double[N,3] other) { other = Cos(x) }> }""")
    with pytest.raises(oj.InputError, match="'inner' is a tensor in a body"):
        with_loss(model, "mse", target="inner")


@pytest.mark.parametrize("after", ["p = Softmax(z)", """
        s = Softmax(z) d = Cast<to=11>(s) p = Identity(d)"""])
def test_a_softmax_before_a_softmax_is_warned_of(after):
    model = loaded(f"g (double[N,4] x) => (double[N,4] p) {{ z = Tanh(x) {after} }}")
    with pytest.warns(oj.OnnxJacWarning, match="contains Softmax, of which 'p' .* unless at='z'"):
        with_loss(model, "cross_entropy")
    with_loss(model, "cross_entropy", at="z")


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_narrow_types_keep_theirs(kind):
    made = with_loss(linear(kind), "cross_entropy", label_smoothing=0.1, weight=SHARES)
    dtype = np.dtype({"float": "f4", "float16": "f2"}[kind])
    point = {"x": X.astype(dtype), "W": W.astype(dtype), "target": LABELS}
    wide = with_loss(linear(), "cross_entropy", label_smoothing=0.1, weight=SHARES)
    found = made.run(point)["loss"]
    assert found.dtype == dtype
    wanted = wide.run({"x": X, "W": W, "target": LABELS})["loss"]
    assert_allclose(found, wanted, rtol=1e-6 if kind == "float" else 5e-3)


def test_a_path_and_a_model_without_shapes(tmp_path):
    text = "g (float[N,3] x) => (float z) { k = Shape(x) y = Tanh(x) z = Reshape(y, k) }"
    proto = onnx.parser.parse_model(HEAD + text.replace("float z", "float[] z"))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "m.onnx")
    made = with_loss(tmp_path / "m.onnx", "mse")
    x = X.astype("f4")
    found = made.run({"x": x, "target": 0 * x})["loss"]
    assert_allclose(found, (np.tanh(x) ** 2).mean(), rtol=1e-6)


@pytest.mark.parametrize("command", [
    ("report",), ("check",), ("spectrum", "--k", "2", "--hessian"), ("spectrum", "--k", "1"),
    ("jacobian", "-o", "J.npz"), ("export", "-o", "g.onnx", "--mode", "grad"),
    ("export", "-o", "h.onnx", "--mode", "hvp"), ("view", "-o", "v.html"),
])  # fmt: skip
def test_loss_on_the_command_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = "g (double[N,3] x) => (double[N,4] z) <double[3,4] W = {1,2,3,4,5,6,7,8,9,10,11,12}>" \
           "{ z = MatMul(x, W) }"  # fmt: skip
    onnx.save(onnx.parser.parse_model(HEAD + text), "m.onnx")
    np.savez("p.npz", x=X, label=LABELS)
    name, *rest = command
    settings = ["target=label", "label_smoothing=0.1", "weight=[1,2,1,1]"]
    assert main([name, "m.onnx", "--input", "p.npz", *rest, "--wrt", "W", "--loss", "cross_entropy",
                 *settings]) == 0  # fmt: skip
    assert capsys.readouterr().err == ""
    if name == "jacobian":
        made = with_loss("m.onnx", "cross_entropy", target="label", label_smoothing=0.1,
                         weight=[1, 2, 1, 1])  # fmt: skip
        wanted = oj.grad(made, {"x": X, "label": LABELS}, wrt="W")["W"]
        assert_allclose(np.load("J.npz")["jacobian"], wanted.reshape(1, -1))


def test_a_loss_that_does_not_fit_on_the_command_line(tmp_path, capsys):
    onnx.save(onnx.parser.parse_model(HEAD + "g (double[4] x) => (double[4] z) { z = Tanh(x) }"),
              tmp_path / "m.onnx")  # fmt: skip
    assert main(["report", str(tmp_path / "m.onnx"), "--loss", "mse", "beta=2"]) == 1
    assert "no option 'beta'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "m.onnx"), "--loss", "mse", "beta"])
    assert "'beta' is not like axis=-1" in capsys.readouterr().err


@pytest.mark.peers
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [{}, {"blank": 2, "zero_infinity": True}])
@pytest.mark.parametrize("frames", [None, [6, 3, 5]])
def test_ctc_is_pytorchs(reduction, options, frames):
    """Behind a LogSoftmax, as PyTorch's gradient supposes; repeated labels, none, and too many."""
    torch = pytest.importorskip("torch")
    model = loaded("g (double[T,N,4] x) => (double[T,N,4] z) { z = LogSoftmax<axis = -1>(x) }")
    made = with_loss(model, "ctc", reduction=reduction, mask=None if frames is None else "m",
                     **options)  # fmt: skip
    x, y = RNG.standard_normal((6, 3, 4)), np.array([[1, 1, 3, -1], [-1, -1, -1, -1], [3, 0, 1, 3]])
    y = np.where(y == options.get("blank", 0), 2 - y, y)
    if options and frames:
        y[1] = 1, 1, 3, 1  # in three frames
    lengths = np.where((y < 0).any(1), (y < 0).argmax(1), y.shape[1])
    counts = np.array(frames or [6, 6, 6])
    z = torch.tensor(x, requires_grad=True)
    loss = torch.nn.functional.ctc_loss(
        z.log_softmax(-1), torch.tensor(y), torch.tensor(counts), torch.tensor(lengths),
        reduction=reduction, **options)  # fmt: skip
    loss.sum().backward()
    point = {"x": x, "target": y, "m": 1.0 * (np.arange(6)[:, None] < counts)}
    point = {name: point[name] for name in made.inputs}
    found = made.run(point)["loss"]
    assert_allclose(found, loss.detach().numpy(), rtol=1e-10)
    assert made.outputs["loss"].shape == (() if reduction != "none" else ("N",))
    slopes = oj.linearize(made, point, wrt="x").T @ np.ones(loss.numel())
    assert_allclose(slopes.reshape(x.shape), z.grad.numpy(), rtol=1e-8, atol=1e-12)


def test_ctc_of_long_and_of_narrow_sequences():
    """Against the sum over all ways, for two frames; a sequence that fits in no way."""
    model = identities("z", shape="T,N,3", kind="float")
    made, z = with_loss(model, "ctc", reduction="none"), log_p(2, 3, 3).astype("f4")
    z -= np.log(np.exp(z).sum(-1, keepdims=True))
    p = np.exp(z)
    y = np.array([[1, -1], [1, 2], [1, 1]])
    with pytest.warns(oj.OnnxJacWarning, match="'loss' is not finite"):
        found = made.run({"z_in": z, "target": y})["loss"]
    one = p[0, 0, 1] * p[1, 0, 1] + p[0, 0, 0] * p[1, 0, 1] + p[0, 0, 1] * p[1, 0, 0]
    assert_allclose(found, [-np.log(one), -np.log(p[0, 1, 1] * p[1, 1, 2]), np.inf], rtol=1e-6)
    long = np.full((80, 1, 3), -np.log(3), "f4")
    J = oj.linearize(with_loss(model, "ctc"), {"z_in": long, "target": np.array([[1, 2]])})
    assert_allclose((J.T @ np.ones(1, "f4")).sum(), -80 / 2, rtol=1e-4)


def test_a_target_is_no_parameter():
    """Derivatives are by it where it is named, or where it is an input of the model."""
    made, point = with_loss(linear(), "mse"), {"x": X, "W": W, "target": T}
    assert [s.name for s in oj.linearize(made, point).domain] == ["x", "W"]
    assert list(oj.value_and_grad(made)(point)[1]) == ["x", "W"]
    assert oj.linearize(made, point, wrt="target").domain[0].name == "target"
    outputs = [y.name for y in oj.export(made, "grad", point).graph.output]
    assert outputs == ["loss", "x_grad", "W_grad"]
    pair = with_loss(identities("a", "b"), "mse", at="a", target="b")
    assert [s.name for s in oj.linearize(pair, {"a_in": Z, "b_in": T}).domain] == ["a_in", "b_in"]
    alone = with_loss(loaded("g (int64[N] i) => (double[N] z) { z = Cast<to=11>(i) }"), "mse")
    with pytest.raises(oj.InputError, match="no floating input before its loss"):
        oj.linearize(alone, {"i": LABELS, "target": T[:, 0]})


def test_a_batch_of_two_names_is_one(recwarn):
    """Exporters name the sizes of outputs anew; the loss itself makes those of its target equal."""
    text = "g (double[N,3] x, double[3,4] W) => (double[unk__0,4] z) { z = MatMul(x, W) }"
    made = with_loss(loaded(text), "cross_entropy")
    slope = oj.load(oj.export(made, "grad", {"x": X, "W": W, "target": LABELS}, wrt="x"))
    assert not recwarn.list
    for n in (2, 5):
        point = {"x": X[:n], "W": W, "target": LABELS[:n]}
        expected = oj.grad(made, point, wrt="x")["x"]
        assert_allclose(slope.run(point)["x_grad"], expected, atol=1e-12)
    with pytest.raises(oj.OnnxJacError):
        slope.run({"x": X, "W": W, "target": LABELS[:2]})


def test_a_classifier_of_scikit_learn_asks_no_condition(recwarn):
    """ONNX infers no shape of its operators."""
    made = with_loss(oj.load(onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 1]>
        g (float[N,2] x) => (int64[N] label, float[N,3] z)
        { s = ai.onnx.ml.Scaler<offset = [1.0, 2.0], scale = [0.5, 0.25]>(x)
          label, scores = ai.onnx.ml.LinearClassifier<classlabels_ints = [0, 1, 2],
              coefficients = [1.0, 2.0, -1.0, 0.5, 0.3, -2.0], intercepts = [0.1, 0.2, 0.3]>(s)
          z = ai.onnx.ml.Normalizer<norm = "L1">(scores) }""")), "mse")  # fmt: skip
    x, t = (RNG.standard_normal((5, n)).astype("f") for n in (2, 3))
    slope = oj.load(oj.export(made, "grad", {"x": x, "target": t}))
    assert not recwarn.list
    for n in (1, 3):
        point = {"x": x[:n], "target": t[:n]}
        assert_allclose(slope.run(point)["x_grad"], oj.grad(made, point)["x"], rtol=1e-5)
