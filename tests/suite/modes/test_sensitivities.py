"""`sensitivities`: predicted costs against rounded weights, differences, dense matrices, NumPy."""

import json
from itertools import product

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.testing import assert_allclose
from onnx import numpy_helper, parser

import onnxjac as oj
from house import ROOT
from onnxjac.__main__ import main
from onnxjac.modes.sensitivities.choice import allocate_bits
from onnxjac.modes.sensitivities.rounding import (
    channel_axis,
    chosen_weights,
    meetings_of_weights,
    operators_met,
    rounded_weight,
)
from show.running import DIGITS, SAMPLES

FILES = ROOT / "tests" / "networks" / "files"
RNG = np.random.default_rng(0)


def parsed(body, signature, opset='"": 21', **weights):
    made = parser.parse_model(
        f"<ir_version: 10, opset_import: [{opset}]> g {signature} {{ {body} }}"
    )
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()
    )
    return oj.load(made)


MLP = parsed("h = MatMul(x, W) a = Tanh(h) y = Gemm<transB = 1>(a, V)",
             "(double[n,4] x) => (double[n,3] y)",
             W=RNG.standard_normal((4, 5)), V=RNG.standard_normal((3, 5)))  # fmt: skip
POINT = {"x": RNG.standard_normal((7, 4)), "target": np.array([0, 2, 1, -100, 1, 0, 2])}


def with_own_targets(file, point, axis=1):
    """The cross-entropy with what the model itself says: its gradient is 0, as after training."""
    model = oj.load(file, dtype="float64")
    (z,) = model.run(point).values()
    p = np.exp(z - z.max(-1, keepdims=True))
    return oj.with_loss(model, "soft_cross_entropy", axis=axis), {
        **point, "target": p / p.sum(-1, keepdims=True)}  # fmt: skip


def lenet():
    return with_own_targets(DIGITS, {"image": np.load(SAMPLES)["image"].astype(float)})


def trained():
    """A trained network, and labelled images that it did not see."""
    data = pytest.importorskip("sklearn.datasets").load_digits()
    point = {"image": data.images[-200:, None] / 16, "target": data.target[-200:]}
    return oj.with_loss(oj.load(DIGITS, dtype="float64"), "cross_entropy"), point


def resnet():
    return with_own_targets(FILES / "resnet.onnx", {"image": RNG.standard_normal((2, 3, 8, 8))})


def transformer():
    return with_own_targets(FILES / "gpt2.onnx", {"ids": RNG.integers(0, 12, (2, 6))}, axis=-1)


@pytest.mark.parametrize("curvature", ["gauss_newton", "kfac", "diagonal"])
@pytest.mark.parametrize("network", [lenet, resnet, transformer])
def test_costs_rank_as_the_changes_of_the_loss_do(network, curvature):
    found = oj.sensitivities(*network(), curvature=curvature).measured()
    assert found.rank_correlation > 0.9, found
    assert found.costs().shape == found.costs("measured").shape == (len(found.weighed.weights), 5)


@pytest.mark.parametrize("per_channel", [False, True])
def test_costs_rank_as_the_changes_do_in_a_trained_network(per_channel):
    found = oj.sensitivities(*trained(), per_channel=per_channel).measured()
    assert found.rank_correlation > 0.9, found
    assert_allclose(found.costs()[:, :2], found.costs("measured")[:, :2], rtol=0.3, atol=1e-5)


def smooth():
    return oj.with_loss(MLP, "cross_entropy"), POINT


@pytest.mark.parametrize(("kind", "make"), [("hessian", smooth), ("gauss_newton", transformer)])
def test_both_orders_against_differences_of_the_loss(kind, make):
    """At its own targets the Gauss-Newton matrix is the second derivative."""
    model, point = make()
    found, h = oj.sensitivities(model, point, curvature=kind, bits=(4,)), 1e-3
    assert len(found.rows) > 1
    for row in found.rows[:3]:
        W = model.constants[row.name]
        D = rounded_weight(W, 4) - W
        below, above = (float(model.run({**point, row.name: W + s * h * D})["loss"])
                        for s in (-1, 1))  # fmt: skip
        slope, near = (above - below) / (2 * h), 1e-4 * row.second
        assert row.first == pytest.approx(slope, rel=1e-4, abs=near)
        assert row.second == pytest.approx((above + below - 2 * found.loss) / (2 * h**2), rel=2e-3)
        assert row.error == pytest.approx(np.linalg.norm(D) / np.linalg.norm(W))


@pytest.mark.parametrize("kind", ["gauss_newton", "fisher", "kfac", "diagonal", "an operator"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_forms_over_batches_agree_with_dense_matrices(kind, reduction):
    model = oj.with_loss(MLP, "cross_entropy", reduction=reduction)
    names, point = ["W", "V"], {**POINT, "target": np.array([0, 2, 1, 0, 1, 0, 2])}
    makers = {"fisher": oj.fisher, "kfac": oj.kfac, "an operator": oj.kfac}
    C = makers.get(kind, oj.gauss_newton)(model, [point], wrt=names, reduction=reduction)
    found = oj.sensitivities(model, point, batch_size=3, reduction=reduction,
                             curvature=C if kind == "an operator" else kind)  # fmt: skip
    whole = oj.sensitivities(model, point, reduction=reduction)
    assert_allclose(found.costs("first"), whole.costs("first"), rtol=1e-8, atol=1e-12)
    for row in found.rows:
        W = MLP.constants[row.name]
        D = (rounded_weight(W, row.bits) - W).ravel()
        matrix = C[row.name, row.name].toarray()
        matrix = np.diag(np.diag(matrix)) if kind == "diagonal" else matrix
        assert row.second == pytest.approx(D @ matrix @ D / 2, rel=1e-6)


def test_a_mean_over_batches_weighs_by_its_labels():
    """One label is ignored: the batches have 3, 2 and 1 terms."""
    model = oj.with_loss(MLP, "cross_entropy")
    whole, parts = (oj.sensitivities(model, POINT, batch_size=n) for n in (7, 3))
    assert parts.loss == pytest.approx(whole.loss)
    for by in ("first", "second"):
        assert_allclose(parts.costs(by), whole.costs(by), rtol=1e-8)
    assert_allclose(parts.measured().costs("measured"), whole.measured().costs("measured"))


@pytest.mark.parametrize(("bits", "axis", "kind"), [(8, None, onnx.TensorProto.INT8),
                         (8, 1, onnx.TensorProto.INT8), (4, 0, onnx.TensorProto.INT4)])  # fmt: skip
def test_rounding_against_the_operators_of_onnx(bits, axis, kind):
    W = RNG.standard_normal((3, 4)).astype(np.float32)
    scale = abs(W).max(axis=None if axis is None else 1 - axis) / (2 ** (bits - 1) - 1)
    said = f"<axis = {axis}>" if axis is not None else ""
    body = f"""q = QuantizeLinear<axis = {axis or 0}, output_dtype = {kind}>(W, s)
               y = DequantizeLinear{said}(q, s)"""
    model = parsed(body, "(float[3,4] W, float[k] s) => (float[3,4] y)" if said else
                   "(float[3,4] W, float s) => (float[3,4] y)")  # fmt: skip
    y = model.run({"W": W, "s": scale}, engine="numpy")["y"]
    assert_allclose(rounded_weight(W, bits, axis), y, rtol=1e-6)


def test_the_model_with_rounded_weights():
    model = oj.with_loss(MLP, "cross_entropy")
    found = oj.sensitivities(model, POINT, per_channel=True).measured()
    V = rounded_weight(MLP.constants["V"], 3, axis=0)
    loss = found.rounded({"V": 3}).run(POINT)["loss"]
    row = next(r for r in found.rows if (r.name, r.bits) == ("V", 3))
    assert loss - found.loss == pytest.approx(row.measured)
    assert_allclose(found.rounded({"V": 3}, MLP).run({"x": POINT["x"]})["y"],
                    MLP.run({"x": POINT["x"], "V": V})["y"])  # fmt: skip
    assert_allclose(found.rounded(3).constants["V"], V)
    assert_allclose(found.rounded(3).constants["W"], rounded_weight(MLP.constants["W"], 3, axis=1))


def test_channels_lie_along_the_outputs_of_the_operator():
    body = """T = Transpose(A) a = MatMul(x, T) b = MatMul(a, B) c = Gemm(b, C)
              d = Gemm<transB = 1>(c, D) e = Gather(E, i) f = MatMul(F, d) g = Mul(f, e)
              r = Reshape(g, s) u = Conv(r, K) v = ConvTranspose(u, L) y = Add(v, b0)"""
    shapes = {"A": (2, 2), "B": (2, 2), "C": (2, 2), "D": (2, 2), "E": (2, 2), "F": (2, 2),
              "K": (1, 1, 1, 1), "L": (1, 1, 1, 1), "b0": (2,)}  # fmt: skip
    model = parsed(body, "(double[2,2] x, int64[2] i) => (double[1,1,2,2] y)",
                   s=np.array([1, 1, 2, 2]), **{n: np.ones(shapes[n]) for n in shapes})  # fmt: skip
    met = meetings_of_weights(model)
    axes = {name: channel_axis(met[name], len(shape)) for name, shape in shapes.items()}
    axes = {n: a if a is None else a % len(shapes[n]) for n, a in axes.items()}
    assert axes == {"A": 0, "B": 1, "C": 1, "D": 0, "E": 0, "F": 0, "K": 0, "L": 1, "b0": None}


def test_weights_are_found_behind_slices_and_concatenations():
    """Gates of an LSTM are reordered in the file; biases and constants are no weights."""
    met = meetings_of_weights(model := oj.load(FILES / "tagger.onnx"))
    assert {name: operators_met(met[name])[0] for name in chosen_weights(model, None, met)} == {
        "words.weight": "Gather", "head.weight": "MatMul",
        **{f"lstm.weight_{k}_l0{back}": "LSTM" for k in ("ih", "hh") for back in ("", "_reverse")},
    }  # fmt: skip


def test_the_share_to_prune_is_taken_by_name():
    found = oj.sensitivities(oj.with_loss(MLP, "cross_entropy"), POINT)
    by_name, by_place = found.prune(sparsity=0.4), found.prune(0.4)
    np.testing.assert_array_equal(by_name.masks["W"], by_place.masks["W"])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_sensitivities_of_half_weights_agree_with_wide_ones(kind):
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    weights = {n: MLP.constants[n].astype(dtype) for n in "WV"}
    model = parsed("h = MatMul(x, W) a = Tanh(h) y = Gemm<transB = 1>(a, V)",
                   f"({kind}[n,4] x) => ({kind}[n,3] y)", **weights)  # fmt: skip
    point = {**POINT, "x": POINT["x"].astype(dtype)}
    found = oj.sensitivities(oj.with_loss(model, "cross_entropy"), point)
    wide = oj.sensitivities(oj.with_loss(MLP, "cross_entropy"), POINT)
    assert_allclose(found.costs()[:, 2:], wide.costs()[:, 2:], rtol=0.05, atol=1e-3)
    assert_allclose(found.hessians()["W"], wide.hessians()["W"], rtol=0.02, atol=0.02)
    assert found.rounded(4).constants["W"].dtype == dtype
    assert (found.prune(0.4).pruned().constants["W"] == 0).sum() == 20 - found.prune(0.4).masks[
        "W"].sum()  # fmt: skip


def test_hessians_of_layers_against_numpy(tmp_path):
    model, point = lenet()
    found = oj.sensitivities(model, point, batch_size=4)
    found.save_hessians(tmp_path / "gptq.npz")
    with np.load(tmp_path / "gptq.npz") as stored:
        assert stored.keys() == {"conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"}
        for name in ("conv2.weight", "fc2.weight"):
            step = next(s for s in model.steps if name in s.inputs)
            J = oj.linearize(model, point, of=step.inputs[0], wrt="image")
            (x,) = J.primal.values()
            if x.ndim == 4:
                padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
                x = sliding_window_view(padded, (3, 3), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
                x = x.reshape(-1, 16 * 9)
            assert_allclose(stored[name], 2 * x.T @ x / len(x), rtol=1e-9, atol=1e-12)


def test_hessians_of_a_kernel_in_groups():
    model = parsed("y = Conv<group = 2>(x, K) z = Flatten(y)",
                   "(double[n,4,5] x) => (double[n,8] z)", K=RNG.standard_normal((4, 2, 2)))
    x, labels = RNG.standard_normal((3, 4, 5)), np.array([1, 0, 3])
    model = oj.with_loss(model, "cross_entropy", at="z")
    found = oj.sensitivities(model, {"x": x, "target": labels}, wrt="K").hessians()["K"]
    patches = sliding_window_view(x, 2, axis=2).transpose(0, 2, 1, 3).reshape(12, 2, 4)
    assert_allclose(found, np.einsum("rgi,rgj->gij", patches, patches) / 6)


def test_widths_under_a_budget_against_all_choices():
    """Costs are tiny beside two numbers: all costs of one weight, and one width of another."""
    sizes, widths = np.array([100, 7, 60, 31, 4000, 512]), np.array([8, 4, 3, 2])
    every = np.array(list(product(range(4), repeat=6)))
    used = widths[every] @ sizes
    for share in (2, 2.5, 3.3, 4, 5.7, 9):
        excess = np.sort(10.0 ** RNG.uniform(-10, -6, (6, 4)), axis=1)
        excess[1, 3] = 1
        costs = excess + np.eye(6)[:, [2]]
        chosen = allocate_bits(costs, sizes, widths, share * sizes.sum())
        assert sizes @ widths[chosen] <= share * sizes.sum()
        totals = sum(excess[k, every[:, k]] for k in range(6))
        best = totals[used <= share * sizes.sum()].min()
        assert excess[range(6), chosen].sum() == pytest.approx(best, rel=1e-5)


def test_an_allocation_says_what_it_takes():
    found = oj.sensitivities(oj.with_loss(MLP, "cross_entropy"), POINT)
    chosen = found.allocate(bits=4.5)
    total = 20 * chosen.bits["W"] + 15 * chosen.bits["V"]
    assert (chosen.mean, chosen.bytes) == (pytest.approx(total / 35), total / 8)
    assert chosen == found.allocate(bytes=4.5 * 35 / 8)
    assert chosen.cost == pytest.approx(sum(
        row.second for row in found.rows if chosen.bits[row.name] == row.bits))  # fmt: skip
    assert f"{chosen.mean:.2f} bits per number" in str(chosen)


@pytest.mark.parametrize("by", ["magnitude", "taylor", "obd"])
def test_pruning_removes_the_least_scores(by):
    model = oj.with_loss(MLP, "cross_entropy")
    found = oj.sensitivities(model, POINT, batch_size=7)
    chosen = found.prune(0.4, by=by)
    W, V = (MLP.constants[n] for n in "WV")
    whole = np.concatenate([W.ravel(), V.ravel()])
    if by == "magnitude":
        scores = abs(whole)
    elif by == "taylor":
        g = oj.grad(model, POINT, of="loss", wrt=["W", "V"])
        scores = abs(np.concatenate([g["W"].ravel(), g["V"].ravel()]) * whole)
    else:
        h = oj.gauss_newton(model, POINT, wrt=["W", "V"]).toarray().diagonal()
        scores = h * whole**2 / 2
    kept = np.concatenate([chosen.masks[n].ravel() for n in "WV"])
    assert_allclose(np.concatenate([chosen.scores[n].ravel() for n in "WV"]), scores, rtol=1e-8)
    assert (~kept).sum() == 14
    assert scores[~kept].max() <= scores[kept].min()
    assert_allclose(chosen.pruned().constants["W"], W * chosen.masks["W"])
    assert f"{chosen.masks['W'].mean():.1%}" in str(chosen)


@pytest.mark.parametrize(("change", "message"), [
    ({"model": MLP}, "is no scalar, and so no loss"),
    ({"wrt": "x"}, "is no weight that the file stores"),
    ({"wrt": "k"}, "int64"),
    ({"bits": (1,)}, "from 2 to 16"),
    ({"bits": ()}, "bits is empty"),
    ({"curvature": "ggn"}, "gauss_newton"),
    ({"wrt": "W", "curvature": "V"}, "not over 'W'"),
])  # fmt: skip
def test_sensitivities_reject_wrong_arguments(change, message):
    model = parsed("h = MatMul(x, W) y = MatMul(h, V) s = Gather(k, i)",
                   "(double[n,4] x, int64 i) => (double[n,3] y, int64 s)", W=np.ones((4, 5)),
                   V=np.ones((5, 3)), k=np.ones((2, 2), int))  # fmt: skip
    model, point = oj.with_loss(model, "cross_entropy", at="y"), {**POINT, "i": 0}
    if change.get("curvature") == "V":
        change["curvature"] = oj.kfac(model, point, wrt="V")
    options = {"model": model, "data": point, **change}
    with pytest.raises(oj.InputError, match=message):
        oj.sensitivities(options.pop("model"), options.pop("data"), **options)


def test_integer_weights_and_budgets_that_do_not_fit_are_refused():
    body = "w = DequantizeLinear(Q, s) y = MatMul(x, w) loss = ReduceMean<keepdims = 0>(y)"
    model = parsed(body, "(float[n,4] x) => (float loss)", Q=np.ones((4, 2), np.int8),
                   s=np.float32(0.1))  # fmt: skip
    with pytest.raises(oj.InputError, match=r"no floating weight.*Q int8.*rounded already"):
        oj.sensitivities(model, {"x": np.ones((2, 4), np.float32)}, at="y")
    found = oj.sensitivities(oj.with_loss(MLP, "cross_entropy"), POINT, bits=(4, 3))
    with pytest.raises(oj.InputError, match=r"budget of 2\.5 bits .*below the narrowest width, 3"):
        found.allocate(bits=2.5)
    for options in ({}, {"bits": 3, "bytes": 9}):
        with pytest.raises(oj.InputError, match="give a budget"):
            found.allocate(**options)
    with pytest.raises(oj.InputError, match="not finite, or was not measured"):
        found.allocate(bits=3, by="measured")
    with pytest.raises(oj.InputError, match="'U' is none of the weights W, V"):
        found.rounded({"U": 3})
    with pytest.raises(oj.InputError, match="from 0 to 1"):
        found.prune(1.5)
    with pytest.raises(oj.InputError, match="by='price'"):
        found.costs("price")


def test_table_page_and_picture_show_every_weight():
    found = oj.sensitivities(oj.with_loss(MLP, "cross_entropy"), POINT, bits=(4, 8)).measured()
    head = found.table.head
    assert head == ("weight", "operator", "shape", "8 bits", "4 bits")
    assert [row[:3] for row in found.table.rows] == [("W", "MatMul", "4×5"), ("V", "Gemm", "3×5")]
    assert f"{found.rows[1].cost:.1e} / {found.rows[1].measured:.1e}" == found.table.rows[0][4]
    page, note = found.view().html, found._repr_html_()
    assert "8 bits" in page
    assert page.count("<polyline") == note.count("<polyline") == 2
    pytest.importorskip("matplotlib").use("Agg")
    ax = found.plot()
    assert_allclose(ax.lines[0].get_ydata(), abs(found.costs()[:, 0]))
    assert_allclose(ax.lines[1].get_ydata(), abs(found.costs("measured")[:, 0]))
    assert [t.get_text() for t in ax.get_xticklabels()] == ["W", "V"]


def test_the_command_predicts_and_allots(tmp_path, capsys):
    images = np.load(SAMPLES)["image"]
    np.savez(tmp_path / "data.npz", image=images, target=np.arange(10))
    files = {n: str(tmp_path / n) for n in ("data.npz", "h.npz", "page.html", "rounded.onnx")}
    status = main(["sensitivities", DIGITS, "--loss", "cross_entropy", "--input", files["data.npz"],
                   "--bits", "8", "4", "2", "--budget", "4", "--measure", "--hessians",
                   files["h.npz"], "--html", files["page.html"], "-o", files["rounded.onnx"],
                   "--json"])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert (status, len(found["weights"])) == (0, 12)
    widths = found["allocation"]["bits"]
    plain, rounded = oj.load(DIGITS), oj.load(files["rounded.onnx"])
    assert rounded.outputs.keys() == {"logits"}
    for name, bits in widths.items():
        assert_allclose(rounded.constants[name], rounded_weight(plain.constants[name], bits))
    assert np.load(files["h.npz"])["fc2.weight"].shape == (64, 64)
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    model = oj.with_loss(plain, "cross_entropy")
    expected = oj.sensitivities(model, dict(np.load(files["data.npz"])), bits=(8, 4, 2)).measured()
    assert_allclose([w["measured"] for w in found["weights"]], expected.costs("measured").ravel())
    assert main(["sensitivities", DIGITS, "--loss", "cross_entropy", "-o", "x.onnx"]) == 1
    assert "--budget" in capsys.readouterr().err
