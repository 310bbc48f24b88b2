"""Files of a fixed batch take others by `dynamic_batch=True`, or say which node fixes it."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
RNG = np.random.default_rng(3)

FREED = {
    "reshape and back": """g (float[1,4,6] x) => (float[1,4,6] y)
        <int64[4] s = {1,4,2,3}, int64[3] b = {1,-1,6}>
        { r = Reshape(x, s) t = Transpose<perm=[0,2,1,3]>(r) u = Transpose<perm=[0,2,1,3]>(t)
          y = Reshape(u, b) }""",
    "a shared shape": """g (float[2,4,6] x) => (float[2,24] y)
        <int64[2] s = {2,24}> { a = Reshape(x, s) b = Tanh(x) c = Reshape(b, s) y = Add(a, c) }""",
    "rows of all samples": """g (float[2,3,4] x) => (float[2,3,2] y)
        <int64[2] s = {6,4}, int64[3] b = {2,3,-1}, float[4,2] w = {1,2,3,4,5,6,7,8}>
        { r = Reshape(x, s) m = MatMul(r, w) y = Reshape(m, b) }""",
    "a batch in the middle": """g (float[2,3,4] x) => (float[3,8] y)
        <int64[2] s = {3,8}> { t = Transpose<perm=[1,0,2]>(x) y = Reshape(t, s) }""",
    "a first token": """g (float[1,3,2] x) => (float[1,4,2] y) <float[1,1,2] c = {0.5, -1}>
        { y = Concat<axis=1>(c, x) }""",
    "first tokens": """g (float[2,3,2] x) => (float[2,4,2] y)
        <float[1,1,2] c = {0.5, -1}, int64[3] s = {2,1,2}>
        { e = Expand(c, s) y = Concat<axis=1>(e, x) }""",
    "a constant of zeros": """g (float[3,2] x) => (float[3,2] y) <int64[2] s = {3,2}>
        { c = ConstantOfShape<value = float[1] {0.5}>(s) y = Mul(c, x) }""",
    "an expansion": """g (float[2,1,3] x) => (float[2,4,3] y) <int64[3] s = {2,4,3}>
        { y = Expand(x, s) }""",
    "sizes": """g (float[1,1,2,2] x) => (float[1,1,4,4] y) <int64[4] s = {1,1,4,4}>
        { y = Resize<mode="linear">(x, , , s) }""",
    "shapes that follow": """g (float[1,4,6] x) => (float[1,24] y) <int64[1] m = {-1}>
        { k = Shape<end=1>(x) s = Concat<axis=0>(k, m) y = Reshape(x, s) }""",
    "a sum for the loss": """g (float[2,3] x) => (float l, float[2,3] y)
        { y = Tanh(x) l = ReduceSum<keepdims=0>(y) }""",
}  # fmt: skip


def loaded(text, **options):
    return oj.load(onnx.parser.parse_model(HEAD + text), **options)


@pytest.mark.parametrize("text", FREED.values(), ids=FREED)
@pytest.mark.parametrize("count", [1, 5])
def test_samples_are_what_they_are_alone(text, count):
    fixed, model = loaded(text), loaded(text, dynamic_batch=True)
    assert model.inputs["x"].shape == ("batch", *fixed.inputs["x"].shape[1:])
    size, *rest = fixed.inputs["x"].shape
    x = RNG.standard_normal((count, *rest)).astype(np.float32)
    found = model.run({"x": x})["y"]
    axis = 0
    parts = [fixed.run({"x": np.repeat(x[k : k + 1], size, 0)})["y"] for k in range(count)]
    if "Transpose<perm=[1,0,2]>" in text:  # samples lie along the second axis, in pairs
        wanted = np.concatenate([part[:, :4] for part in parts], 1)
    else:
        wanted = np.concatenate([part.take([0], axis) for part in parts], axis)
    assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    J = oj.linearize(model, {"x": x}, of="y")
    assert J.check()


REFUSED = {
    "mean over samples": ("g (float[2,3] x) => (float[2,3] y) <int64[1] a = {0}>"
                          "{ m = ReduceMean<keepdims=1>(x, a) y = Sub(x, m) }", "ReduceMean"),
    "samples as channels": ("g (float[2,3] x) => (float[2,3] y)"
                            "{ p = Softmax<axis=0>(x) y = Mul(p, x) }", "Softmax"),
    "constants that differ": ("g (float[2,2] x) => (float[2,2] y) <float[2,2] c = {1,2,3,4}>"
                              "{ y = Add(x, c) }", "Add .*takes 'c', whose 2 samples are diff"),
    "halves": ("g (float[2,3] x) => (float[1,3] y)"
               "{ a, b = Split<num_outputs=2>(x) y = Add(a, b) }", "Add|Split"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "node"), REFUSED.values(), ids=REFUSED)
def test_the_node_that_fixes_it_is_named(text, node):
    with pytest.raises(oj.LoadError, match=rf"batch of 2 .*({node})"):
        loaded(text, dynamic_batch=True)


def test_a_mask_of_the_first_sample_is_seen():
    """It hardly shows in the output: the sum of tiny numbers."""
    with pytest.raises(oj.LoadError, match=r"batch of 1 .*: (Gather|Cast) .* holds the"):
        loaded("""g (bool[1,3] mask, float[1,3] x) => (float[1,3] y)
            <int64[1] flat = {-1}, int64[3] s = {1,3,1}, int64[1,3] at = {0,1,2}, float e = {1e-7}>
            { f = Reshape(mask, flat) k = Gather(f, at) c = Cast<to=1>(k) z = Mul(c, e)
              r = Reshape(x, s) a = Constant<value=int64[1] {2}>() u = Squeeze(r, a)
              y = Add(z, u) }""", dynamic_batch=True)  # fmt: skip


def test_some_inputs_and_free_ones():
    text = "g (float[1,3] x, float[3,3] w) => (float[1,3] y) { y = MatMul(x, w) }"
    with pytest.raises(oj.LoadError, match=r"different sizes \('x': 1, 'w': 3\).*dynamic_batch="):
        loaded(text, dynamic_batch=True)
    for names in ("x", ["x"]):
        assert loaded(text, dynamic_batch=names).inputs["x"].shape == ("batch", 3)
    with pytest.raises(oj.LoadError, match="no input 'z'"):
        loaded(text, dynamic_batch="z")
    free = loaded(text.replace("[1,3]", "[N,3]"), dynamic_batch="x")
    assert free.inputs["x"].shape == ("N", 3)


torch = pytest.importorskip("torch")


class Attention(torch.nn.Module):
    """A first token, positions, attention of two heads, and a mean."""

    def __init__(self):
        super().__init__()
        self.first, self.place = (torch.nn.Parameter(torch.randn(1, n, 8)) for n in (1, 6))
        self.qkv, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, x):
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.place
        q, k, v = self.qkv(x).reshape(x.shape[0], 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) / 2, -1)
        return self.out((p @ v).transpose(1, 2).reshape(x.shape[0], 6, 8)).mean(1)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = torch.nn.LSTM(4, 5, batch_first=True), torch.nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.Linear(12, 2)

    def forward(self, x):
        h = torch.nn.functional.interpolate(torch.relu(self.conv(x)), size=(8, 8))
        h = torch.nn.functional.adaptive_avg_pool2d(h, 2)
        return self.fc(h.view(x.shape[0], -1))


NETWORKS = [(Attention, (5, 8)), (Recurrent, (6, 4)), (Pooled, (1, 6, 6))]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")  # of the exporters
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "exported"])
@pytest.mark.parametrize(("network", "shape"), NETWORKS)
def test_files_of_pytorch_of_a_fixed_batch_run_with_another(network, shape, dynamo, size, tmp_path):
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    module, file = network().eval(), str(tmp_path / "m.onnx")
    torch.onnx.export(module, (torch.randn(size, *shape),), file, dynamo=dynamo, verbose=False,
                      input_names=["x"])  # fmt: skip
    model = oj.load(file, dynamic_batch=True)
    x = torch.randn(5, *shape)
    (y,) = model.run({"x": x.numpy()}).values()
    assert_allclose(y, module(x).detach(), rtol=1e-4, atol=1e-5)
    slope = torch.autograd.functional.jacobian(lambda x: module(x), x).reshape(y.size, -1)
    J = oj.linearize(model, {"x": x.numpy()})
    assert_allclose(J.toarray(), slope, rtol=1e-3, atol=1e-4)


@pytest.mark.peers
def test_dynamic_shapes_of_a_module():
    pytest.importorskip("onnxscript")

    class Sum(torch.nn.Module):
        def forward(self, x, y):
            return x.sum(1) + y

    n, k = torch.export.Dim("n"), torch.export.Dim("k")
    shapes = {"x": {0: n, 1: k}, "y": {0: n}}
    examples = torch.randn(4, 3), torch.randn(4)
    model = oj.load(Sum(), example_inputs=examples, dynamic_shapes=shapes)
    assert_allclose(model.run({"x": np.ones((2, 7), "f4"), "y": np.ones(2, "f4")}).popitem()[1], 8)
    with pytest.raises(oj.LoadError, match=r"dynamic_shapes are for a torch\.nn\.Module"):
        loaded(FREED["sizes"], dynamic_shapes=shapes)
    with pytest.raises(oj.LoadError, match="cannot export Sum with these dynamic_shapes"):
        oj.load(Sum(), example_inputs=examples, dynamic_shapes={"q": {0: n}})
