"""Attributions: against captum on the same torch model, formulas by hand, and their promises."""

import json

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import numpy_helper, parser

import onnxjac as oj
from onnxjac.__main__ import main
from show.markup import Markup
from show.running import DIGITS, SAMPLES

RNG = np.random.default_rng(0)
KERNELS, MORE = RNG.standard_normal((4, 2, 3, 3)), RNG.standard_normal((3, 4, 3, 3))
HEAD, BIAS = RNG.standard_normal((3 * 16, 5)), RNG.standard_normal(5)
IMAGES = RNG.standard_normal((3, 2, 4, 4))
TABLE, MIX = RNG.standard_normal((13, 6)), RNG.standard_normal((6, 5))
IDS = np.array([[1, 7, 3, 12], [0, 4, 4, 9]])


def loaded(body, signature, **weights):
    made = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g {signature} {{ {body} }}'
    )
    held = (numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items())
    made.graph.initializer.extend(held)
    return oj.load(made)


def cnn():
    body = """c = Conv<pads=[1,1,1,1]>(x, k) r = Relu(c) d = Conv<pads=[1,1,1,1]>(r, m)
        t = Tanh(d) f = Flatten(t) g = MatMul(f, w) logits = Add(g, b)"""
    signature = "(double[n,2,4,4] x) => (double[n,5] logits)"
    return loaded(body, signature, k=KERNELS, m=MORE, w=HEAD, b=BIAS)


def reader():
    """Tokens, averaged after a tanh."""
    body = """e = Gather(table, ids) h = Tanh(e) s = ReduceMean<keepdims=0>(h, axis)
        z = MatMul(s, mix) logits = Mul(z, z)"""
    signature = "(int64[n,t] ids) => (double[n,5] logits)"
    return loaded(body, signature, table=TABLE, mix=MIX, axis=np.array([1]))


def scores(ids, mix=MIX):
    return (np.tanh(TABLE[ids]).mean(axis=1) @ mix) ** 2


# -- captum on the same model ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def twin():
    """The network in torch."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("captum")
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.ReLU(),
        nn.Conv2d(4, 3, 3, padding=1, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(48, 5),
    ).double()  # fmt: skip
    held = zip(net.parameters(), (KERNELS, MORE, HEAD.T, BIAS), strict=True)
    for parameter, array in held:
        parameter.data = torch.tensor(array)
    return net


def close(found, expected):
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:Input Tensor:UserWarning")
@pytest.mark.parametrize("target", [0, 3])
def test_attributions_agree_with_captum(twin, target):
    import torch
    from captum import attr

    x, of, point = torch.tensor(IMAGES), f"logits[:,{target}]", {"x": IMAGES}
    close(oj.saliency(cnn(), point, of=of)["x"], attr.Saliency(twin).attribute(x, target))
    close(oj.gradient_times_input(cnn(), point, of=of)["x"],
          attr.InputXGradient(twin).attribute(x, target))  # fmt: skip
    start = torch.tensor(0.1 * IMAGES[::-1].copy())
    expected, gap = attr.IntegratedGradients(twin).attribute(
        x, start, target, n_steps=20, return_convergence_delta=True
    )
    found = oj.integrated_gradients(cnn(), point, of=of, baseline=start.numpy(), steps=20)
    close(found["x"], expected)
    close(found.gap, gap)
    for layer, name in ((0, "c"), (2, "d"), (3, "t")):
        expected = attr.LayerGradCam(twin, twin[layer]).attribute(x, target)
        close(oj.grad_cam(cnn(), point, of=of, layer=name, relu=False)[name], expected)
        close(oj.grad_cam(cnn(), point, of=of, layer=name)[name], expected.relu())


@pytest.mark.peers
def test_captum_agrees_on_smoothgrad_with_the_same_noise(twin, monkeypatch):
    import torch
    from captum import attr

    span = np.ptp(IMAGES, axis=(1, 2, 3)).reshape(-1, 1, 1, 1)
    draws = np.random.default_rng(5).standard_normal((8, *IMAGES.shape)) * 0.1 * span
    noise = torch.tensor(draws.swapaxes(0, 1).reshape(-1, *IMAGES.shape[1:]).copy())
    monkeypatch.setattr(torch, "normal", lambda mean, std: mean + noise)
    tunnel = attr.NoiseTunnel(attr.Saliency(twin))
    expected = tunnel.attribute(torch.tensor(IMAGES), nt_samples=8, stdevs=1.0, target=2, abs=False)
    found = oj.smoothgrad(cnn(), {"x": IMAGES}, of="logits[:,2]", samples=8, noise=0.1, seed=5)
    close(found["x"], expected)


@pytest.mark.peers
def test_captum_agrees_on_tokens():
    torch = pytest.importorskip("torch")
    attr = pytest.importorskip("captum").attr

    def forward(vectors):
        return (torch.tanh(vectors).mean(1) @ torch.tensor(MIX)) ** 2

    vectors = torch.tensor(TABLE[IDS])
    found = oj.integrated_gradients(reader(), {"ids": IDS}, of="logits[:,1]", steps=30)
    close(found["e"], attr.IntegratedGradients(forward).attribute(vectors, target=1, n_steps=30))


# -- formulas and promises -------------------------------------------------------------------------


def test_the_largest_entry_is_explained_by_default():
    model = cnn()
    best = model.run({"x": IMAGES})["logits"].argmax(axis=1)
    found = oj.saliency(model, {"x": IMAGES})
    for k, entry in enumerate(best):
        one = oj.saliency(model, {"x": IMAGES}, of=f"logits[{k},{entry}]")
        np.testing.assert_allclose(one["x"][k], found["x"][k])
        assert not np.delete(one["x"], k, axis=0).any()
    single = oj.saliency(model, {"x": IMAGES[:1]})
    assert single.of == f"logits[0,{best[0]}]"
    np.testing.assert_allclose(single.values, model.run({"x": IMAGES})["logits"][0, best[0]])


def decoder(outputs="(double[n,t,13] logits, double[n,t,6] present_key)"):
    body = """e = Gather(table, ids) s = CumSum(e, one) present_key = Tanh(s)
        across = Transpose(table) logits = MatMul(present_key, across)"""
    return loaded(body, f"(int64[n,t] ids) => {outputs}", table=TABLE, one=np.array(1))


def test_the_next_word_of_a_decoder_is_explained():
    """Its cache is no answer; other outputs are a choice."""
    model = decoder()
    last = model.run({"ids": IDS})["logits"][:, -1]
    found = oj.saliency(model, {"ids": IDS})
    assert found.of == "the largest entry of logits in each sample after the last token"
    np.testing.assert_allclose(found.values, last.max(axis=1))
    for k, word in enumerate(last.argmax(axis=1)):
        one = oj.saliency(model, {"ids": IDS}, of=f"logits[{k},{IDS.shape[1] - 1},{word}]")
        np.testing.assert_allclose(one["e"][k], found["e"][k])
    renamed = decoder("(double[n,t,13] logits, double[n,t,6] present_key, double[n,t,6] s)")
    assert oj.saliency(renamed, {"ids": IDS[:1]}).of.startswith(f"logits[0,{IDS.shape[1] - 1},")
    with pytest.raises(oj.InputError, match="'across', 's': name it with of="):
        oj.saliency(decoder("(double[6,13] across, double[n,t,6] s)"), {"ids": IDS})


def test_integrated_gradients_of_a_quadratic_are_exact():
    """f = x₁ x₂ from 0: each has half of it, with any number of steps."""
    model = loaded("y = ReduceProd<keepdims=0>(x)", "(double[2] x) => (double y)")
    found = oj.integrated_gradients(model, {"x": [3.0, 4.0]}, steps=2)
    np.testing.assert_allclose(found["x"], [6, 6])
    np.testing.assert_allclose(found.gap, [0], atol=1e-12)
    assert "completeness gap" in repr(found)


def test_the_gap_shrinks_with_the_steps():
    gaps = [abs(oj.integrated_gradients(cnn(), {"x": IMAGES}, steps=n).gap).max() for n in (2, 64)]
    assert gaps[1] < gaps[0] / 3
    found = oj.integrated_gradients(cnn(), {"x": IMAGES}, of="logits[:,1]", baseline=1.0)
    logits = cnn().run({"x": IMAGES})["logits"] - cnn().run({"x": np.ones_like(IMAGES)})["logits"]
    total = found["x"].sum(axis=(1, 2, 3))
    np.testing.assert_allclose(total - logits[:, 1], found.gap, atol=1e-10)


def test_tokens_and_a_baseline_of_tokens():
    found = oj.gradient_times_input(reader(), {"ids": IDS}, of="logits[:,2]")
    vectors, s = TABLE[IDS], np.tanh(TABLE[IDS]).mean(axis=1)
    slope = 2 * (s @ MIX[:, 2])[:, None] * MIX[:, 2]
    expected = vectors * slope[:, None] * (1 - np.tanh(vectors) ** 2) / 4
    np.testing.assert_allclose(found["e"], expected)
    np.testing.assert_allclose(found.picture("e", 1), expected[1].sum(-1))
    pad = np.full_like(IDS, 5)
    found = oj.integrated_gradients(reader(), {"ids": IDS}, of="logits[:,2]", baseline={"ids": pad})
    change = scores(IDS)[:, 2] - scores(pad)[:, 2]
    np.testing.assert_allclose(found["e"].sum(axis=(1, 2)), change, atol=1e-6)


def test_words_not_their_positions_are_explained():
    body = """e = Gather(table, ids) p = Gather(places, positions) h = Add(e, p)
        logits = ReduceSum<keepdims=0>(h, axis)"""
    model = loaded(body, "(int64[n,t] ids, int64[t] positions) => (double[n,6] logits)",
                   table=TABLE, places=TABLE[:4], axis=np.array([1]))  # fmt: skip
    found = oj.saliency(model, {"ids": IDS, "positions": np.arange(4)})
    assert list(found.maps) == ["e"]


def test_the_noise_of_smoothgrad_is_a_share_of_the_range_of_the_numbers():
    """Of ∑ x² the gradient is 2 x, and its mean differs from that by the noise, wherever x lies."""
    model = loaded("z = Mul(x, x) y = ReduceSum<keepdims = 0>(z)", "(double[2,3] x) => (double y)")
    x = np.array([[0.0, 1, 2], [0, 2, 4]])
    near, far = (oj.smoothgrad(model, {"x": x + c}, samples=3, noise=0.1)["x"] - 2 * c
                 for c in (0, 8))  # fmt: skip
    np.testing.assert_allclose(near, far, rtol=1e-12)
    assert (near != 2 * x).all()


def test_smoothgrad_of_a_linear_model_is_its_gradient():
    model = loaded("y = MatMul(x, w)", "(double[n,6] x) => (double[n,5] y)", w=MIX)
    found = oj.smoothgrad(model, {"x": TABLE}, of="y[:,0]", samples=3)
    np.testing.assert_allclose(found["x"], np.tile(MIX[:, 0], (13, 1)))
    same, other = (oj.smoothgrad(cnn(), {"x": IMAGES}, samples=3, seed=s)["x"] for s in (0, 1))
    np.testing.assert_array_equal(same, oj.smoothgrad(cnn(), {"x": IMAGES}, samples=3)["x"])
    assert (same != other).any()


def test_grad_cam_takes_the_last_image():
    found = oj.grad_cam(cnn(), {"x": IMAGES}, of="logits[:,0]")
    assert list(found.maps) == ["t"]
    weights = HEAD[:, 0].reshape(3, 4, 4).mean(axis=(1, 2))
    t = found.inputs["t"]
    np.testing.assert_allclose(
        found["t"][:, 0], np.maximum(np.einsum("c,nchw->nhw", weights, t), 0)
    )
    assert set(found.images) == {"x"}


def test_heads_of_attention_are_no_images():
    """(N, heads, T, T) has four axes, and so has what a product of heads makes."""
    body = """c = Conv(x, k) q = Transpose<perm=[0,1,3,2]>(c) s = MatMul(c, q) p = Softmax(s)
        h = MatMul(p, c) f = Flatten(h) y = ReduceSum<keepdims=1>(f, axis)"""
    model = loaded(body, "(double[n,2,4,4] x) => (double[n,1] y)", k=KERNELS, axis=np.array([1]))
    assert list(oj.grad_cam(model, {"x": IMAGES}).maps) == ["c"]


@pytest.mark.parametrize("method", ["saliency", "smoothgrad", "integrated_gradients", "grad_cam"])
def test_torch_runs_the_model(method):
    pytest.importorskip("torch")
    call, few = (
        getattr(oj, method),
        {"smoothgrad": {"samples": 2}, "integrated_gradients": {"steps": 2}},
    )
    found, other = (call(cnn(), {"x": IMAGES}, engine=engine, **few.get(method, {}))
                    for engine in ("torch", "numpy"))  # fmt: skip
    for name, array in other.maps.items():
        np.testing.assert_allclose(found[name], array, atol=1e-12)


def test_parts_of_inputs_and_models_with_a_loss():
    whole = oj.saliency(cnn(), {"x": IMAGES}, of="logits[0,1]")["x"]
    found = oj.saliency(cnn(), {"x": IMAGES}, of="logits[0,1]", wrt="x[:, 1]")
    np.testing.assert_allclose(found["x[:, 1]"], whole[:, 1])
    model = oj.with_loss(cnn(), "cross_entropy", at="logits", target="label")
    point = {"x": IMAGES, "label": np.array([0, 1, 2])}
    np.testing.assert_allclose(
        oj.saliency(model, point)["x"], oj.saliency(cnn(), {"x": IMAGES})["x"]
    )


def test_a_vector_without_samples():
    model = loaded("t = Tanh(x) y = MatMul(t, w)", "(double[6] x) => (double[5] y)", w=MIX)
    x = TABLE[0]
    found = oj.saliency(model, {"x": x}, of="y[-1]")
    np.testing.assert_allclose(found["x"], abs(MIX[:, -1] * (1 - np.tanh(x) ** 2)))
    assert oj.saliency(model, {"x": x}).of == f"y[{(np.tanh(x) @ MIX).argmax()}]"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: oj.saliency(cnn(), {"x": IMAGES}, of="logits[0,9]"), "no entry 9"),
        (lambda: oj.saliency(cnn(), {"x": IMAGES}, of="logits[0,.]"), "is no part of"),
        (lambda: oj.saliency(cnn(), {"x": IMAGES}, of="logits[3,0]"), "out of bounds"),
        (lambda: oj.saliency(cnn(), {"x": IMAGES}, of="lgits[0,1]"), "'lgits[0,1]'"),
        (lambda: oj.smoothgrad(cnn(), {"x": IMAGES}, samples=0), "samples=0"),
        (lambda: oj.smoothgrad(cnn(), {"x": IMAGES}, noise=-1), "noise=-1"),
        (lambda: oj.integrated_gradients(cnn(), {"x": IMAGES}, baseline=np.ones(3)), "baseline of"),
        (lambda: oj.integrated_gradients(cnn(), {"x": IMAGES}, baseline={"z": 1}), "'z'"),
        (lambda: oj.grad_cam(cnn(), {"x": IMAGES}, layer="f"), "channels and places"),
        (lambda: oj.grad_cam(reader(), {"ids": IDS}), "no layer is made of images"),
        (lambda: oj.saliency(cnn(), {"x": IMAGES})["y"], "no map of 'y'"),
        (lambda: oj.saliency(cnn(), {"x": IMAGES}).picture(sample=3), "no sample 3"),
        (lambda: oj.saliency(cnn(), {"x": IMAGES}).view([["a"]]), "words of 1 samples"),
        (lambda: oj.saliency(reader(), {"ids": IDS}).view([["a"], ["b"]]), "1 words for the 4"),
    ],
)
def test_bad_calls_are_refused(call, message):
    with pytest.raises(oj.OnnxJacError) as error:
        call()
    assert message in str(error.value)


# -- pictures and the command ----------------------------------------------------------------------


def shown(page):
    found = Markup(page.html)
    assert not found.elements & {"script", "link", "img"}
    addresses = [value for key, value in found.attributes if key in ("src", "href")]
    assert all(address.startswith("data:image/png;base64,") for address in addresses)
    return found, len(addresses)


def test_pages_of_images_tokens_and_features():
    found, images = shown(oj.integrated_gradients(cnn(), {"x": IMAGES}, steps=4).view())
    assert images == 3 * 4  # the image, the map with its bar, the map over the image
    assert "Sample 2: f =" in found.text
    assert "gap" in found.text
    words = [["the", "<b>", "is", "late"], ["a", "dog", "dog", "sits"]]
    found, images = shown(oj.saliency(reader(), {"ids": IDS}).view(words))
    assert images == 0
    assert "<b>" in found.text
    assert "late" in found.text
    model = loaded("y = MatMul(x, w)", "(double[n,6] x) => (double[n,5] y)", w=MIX)
    found, _ = shown(oj.gradient_times_input(model, {"x": TABLE[:2]}).view())
    assert "feature 5" in found.text
    assert "rect" in found.elements


def test_a_notebook_shows_pictures():
    assert "<svg" in oj.grad_cam(cnn(), {"x": IMAGES})._repr_html_()


@pytest.mark.parametrize(
    ("method", "name"),
    [("saliency", "saliency"), ("gradient-times-input", "gradient × input"),
     ("smoothgrad", "SmoothGrad"), ("integrated-gradients", "integrated gradients"),
     ("grad-cam", "Grad-CAM")],
)  # fmt: skip
def test_explain_writes_a_page(method, name, capsys, tmp_path):
    target = tmp_path / "looks.html"
    status = main(["explain", DIGITS, "--input", SAMPLES, "--method", method, "--of", "logits[:,3]",
                   "--samples", "3", "--steps", "4", "-o", str(target), "--json"])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert (status, found["method"], found["of"]) == (0, name, "logits[:,3]")
    assert (found["gap"] is not None) == (method == "integrated-gradients")
    assert name in Markup(target.read_text("utf-8")).text


def test_explain_writes_arrays_and_words(capsys, tmp_path):
    target = tmp_path / "maps.npz"
    assert main(["explain", DIGITS, "--input", SAMPLES, "-o", str(target)]) == 0
    expected = oj.saliency(oj.load(DIGITS), dict(np.load(SAMPLES)))["image"]
    np.testing.assert_allclose(np.load(target)["image"], expected)
    file, words, page = (tmp_path / name for name in ("reader.onnx", "words.txt", "page.html"))
    onnx.save(onnx_ir.to_proto(reader().ir), file)
    words.write_text("\n".join(f"word{k}" for k in range(13)), "utf-8")
    np.savez(tmp_path / "ids.npz", ids=IDS)
    assert main(["explain", str(file), "--input", str(tmp_path / "ids.npz"), "--words", str(words),
                 "-o", str(page)]) == 0  # fmt: skip
    assert "word12" in Markup(page.read_text("utf-8")).text
    capsys.readouterr()
    assert (
        main(["explain", DIGITS, "--method", "grad-cam", "--layer", "tanh", "-o", str(page)]) == 1
    )
    assert "channels and places" in capsys.readouterr().err
