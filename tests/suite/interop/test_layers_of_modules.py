"""Weights and numbers of PyTorch modules: under the names, and with the digits, of the module."""

import re
import warnings

import numpy as np
import pytest

import onnxjac as oj

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 6)
        self.out = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Tanh())
        self.gain = torch.nn.Parameter(torch.ones(3))
        self.unused = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.out(torch.tanh(self.fc(x))) * torch.exp(self.gain)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network().eval()


@pytest.mark.parametrize("dynamo", [True, False])
def test_folded_transposes_have_the_names_of_the_module(network, dynamo, tmp_path):
    x, file = torch.randn(2, 3, 4), str(tmp_path / "m.onnx")
    torch.onnx.export(network, (x,), file, dynamo=dynamo, input_names=["x"], verbose=False)
    model = oj.load(file)
    for name in ("fc.weight", "out.0.weight"):
        parameter = network.get_parameter(name)
        np.testing.assert_array_equal(model.constants[name], parameter.detach())
        J = oj.linearize(model, {"x": x.numpy()}, wrt=name)

        def f(w, name=name):
            return torch.func.functional_call(network, {name: w}, (x,))

        wanted = torch.autograd.functional.jacobian(f, parameter.detach())
        np.testing.assert_allclose(J.toarray(), wanted.reshape(J.shape), atol=1e-5)


class Shifted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x):
        y = 3 * torch.tanh(self.fc(x)) + self.shift
        return y, (y**3).mean()


@pytest.mark.parametrize("opset", [18, 21])
def test_buffers_and_numbers_are_no_weights(opset, tmp_path):
    """The exporter makes the factor and the exponent initializers, which were trained as well."""
    file, x = str(tmp_path / "m.onnx"), torch.randn(5, 4)
    torch.onnx.export(Shifted(), (x,), file, input_names=["x"], output_names=["y", "loss"],
                      opset_version=opset, verbose=False)  # fmt: skip
    model = oj.load(file)
    floating = {name for name, spec in model.initializers.items() if spec.dtype == np.float32}
    assert floating > {"fc.weight", "fc.bias", "shift"}
    for source in (file, model):
        training = oj.training_model(source, "loss", optimizer="Momentum")
        names = {"fc.weight", "fc.bias"}
        assert set(oj.initial_state(training)) == names | {f"{n}_velocity" for n in names} | {
            "update_count"}  # fmt: skip
    K = oj.kfac(model, {"x": x}, at="y", likelihood="gaussian")
    assert K.shape == (15, 15)


class Loss(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x, y):
        x = torch.nn.functional.avg_pool2d(x, 2, 1, 0, False, True, self.options.get("divisor"))
        smoothing = self.options.get("smoothing", 0.0)
        return torch.nn.functional.cross_entropy(x, y, None, None, 1, label_smoothing=smoothing)


@pytest.mark.parametrize("options", [{}, {"divisor": 3}, {"smoothing": 0.25}], ids=str)
def test_arguments_that_the_exporter_ignores_are_named(options):
    """PyTorch's loss differs from the file's, which nothing else would say."""
    module, at = Loss(**options), (torch.randn(4, 3, 3, 3), 2 * torch.ones(4, 2, 2).long())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", oj.OnnxJacWarning)
        model = oj.load(module, example_inputs=at)
    (value,) = model.run({"x": at[0], "y": at[1]}).values()
    said = [str(w.message) for w in caught if w.category is oj.OnnxJacWarning]
    assert np.allclose(value, module(*at)) == (not said) == (not options)
    for name, number in options.items():
        assert re.search(rf"leaves out \w*{name}\w*={number} of", said[0])


def test_parameters_that_are_gone_are_named(network, tmp_path):
    x, file = torch.randn(2, 3, 4), str(tmp_path / "m.onnx")
    torch.onnx.export(network, (x,), file, dynamo=True, verbose=False)
    model = oj.load(file)
    for name in ("gain", "unused"):
        with pytest.raises(oj.UnknownTensor, match=r"2 of 6 param.* not in the file: gain, unused"):
            oj.linearize(model, {"x": x}, wrt=name)
    model = oj.load(network, example_inputs=(x,))
    with pytest.raises(oj.UnknownTensor, match=r"1 of 6 parameters .* not in the file: unused"):
        oj.linearize(model, {"x": x}, wrt="unused")
    assert "gain" in model.initializers
    with warnings.catch_warnings():
        warnings.simplefilter("error", oj.OnnxJacWarning)
        tied = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        tied[1].weight = tied[0].weight
        oj.load(tied, example_inputs=(torch.randn(1, 2),))


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 5, bias=False)
        self.emb = torch.nn.Embedding(5, 3, _weight=self.lin.weight)
        self.lin.weight = self.emb.weight

    def forward(self, x):
        return self.lin(self.emb(x))


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_shared_weight_has_all_its_uses(dynamo, tmp_path):
    """One of its uses is folded into the constant of a transpose."""
    network, x, file = Tied(), torch.tensor([[1, 4]]), str(tmp_path / "m.onnx")
    torch.onnx.export(network, (x,), file, dynamo=dynamo, input_names=["x"], verbose=False)
    model = oj.load(file)
    (name,) = (name for name, spec in model.initializers.items() if spec.dtype == np.float32)
    wanted = torch.autograd.functional.jacobian(lambda w: w[x] @ w.T, network.emb.weight)
    J = oj.linearize(model, {"x": x.numpy()}, wrt=name)
    np.testing.assert_allclose(J.toarray(), wanted.reshape(J.shape), atol=1e-5)


class Autoencoder(torch.nn.Module):
    """The transpose is a call of its own, and a constant of the file."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(3, 5))

    def forward(self, x):
        return torch.tanh(x @ self.w.T) @ self.w


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_weight_and_its_transpose_are_one(dynamo, tmp_path):
    network, x, file = Autoencoder(), torch.randn(2, 5), str(tmp_path / "m.onnx")
    torch.onnx.export(network, (x,), file, dynamo=dynamo, input_names=["x"], verbose=False)

    def f(w):
        return torch.func.functional_call(network, {"w": w}, (x,))

    wanted = torch.autograd.functional.jacobian(f, network.w.detach())
    J = oj.linearize(oj.load(file), {"x": x.numpy()}, wrt="w")
    np.testing.assert_allclose(J.toarray(), wanted.reshape(J.shape), atol=1e-5)


def nothing(module):
    return module


def normed(module):
    return torch.nn.Sequential(module, torch.nn.Conv2d(3, 2, 1), torch.nn.BatchNorm2d(2))


def recurrent(module):
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.RNN(4, 4)

        def forward(self, x):
            return self.rnn(module(x)[0, 0])[0]

    return Last()


def penalised(module):
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)

        def forward(self, x):
            z = self.fc(module(x) * torch.tensor(0.5) * torch.arange(4.0))
            return z.sum() + self.fc.weight.square().sum()

    return Loss()


def rescaled(module):
    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4))

        def forward(self, x):
            return self.w * module(x) + torch.exp(self.w)

    return Sum()


def symmetrised(module):
    class Symmetric(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.scale = torch.nn.Parameter(torch.randn(4, 4)), torch.tensor(3.0)

        def forward(self, x):
            x = module(x) / torch.sqrt(self.scale * 2)  # folded too, and made of no parameter
            return x @ (torch.tanh(self.w) + self.w.T) @ self.w.T

    return Symmetric()


@pytest.mark.parametrize(("change", "said"), [
    (symmetrised, "derivatives by parameters may miss .* folded into constants: add\\. "),
    (penalised, "derivatives by parameters may miss .* folded into constants: sum_2"),
    (rescaled, "derivatives by parameters may miss .* folded into constants: exp"),
    (nothing, None),
    (normed, r"2 of 4 .*: 2.weight, 2.bias.*by FuseBatch.* derivatives by 1.bias, 1.weight"),
    (recurrent, "derivatives by parameters may miss .* folded into constants: linear_1"),
])  # fmt: skip
def test_merged_and_folded_parameters_are_named(change, said, tmp_path):
    network = change(torch.nn.Softplus()).eval()
    x, file = torch.randn(1, 3, 4, 4), str(tmp_path / "m.onnx")
    parameters = dict(network.named_parameters())
    for optimize in (True, False):
        torch.onnx.export(network, (x,), file, dynamo=True, optimize=optimize, verbose=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error", oj.OnnxJacWarning)
            model = oj.load(file)
            oj.linearize(model, {name: x.numpy() for name in model.inputs})
        weights = [name for name in parameters if name in model.initializers]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", oj.OnnxJacWarning)
            if weights:
                oj.linearize(model, {name: x.numpy() for name in model.inputs}, wrt=weights)
        found = [str(w.message) for w in caught if w.category is oj.OnnxJacWarning]
        if said and optimize:
            assert len(found) == 1, found
            assert re.search(said, found[0])
        else:
            assert not found


def test_equal_parameters_that_tracing_merged_are_named(tmp_path):
    norms = [torch.nn.LayerNorm(4), torch.nn.LayerNorm(4), torch.nn.LayerNorm(4)]
    torch.nn.init.normal_(norms[2].bias)
    file, x = str(tmp_path / "m.onnx"), torch.randn(1, 4)
    torch.onnx.export(torch.nn.Sequential(*norms), (x,), file, dynamo=False)
    model = oj.load(file)
    with pytest.warns(oj.OnnxJacWarning, match=r"by 0\.weight, 0\.bias is the sum"):
        oj.linearize(model, {name: x.numpy() for name in model.inputs}, wrt="0.bias")
    oj.linearize(model, {name: x.numpy() for name in model.inputs}, wrt="2.bias")
    for norm in norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    torch.onnx.export(torch.nn.Sequential(*norms), (x,), file, dynamo=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", oj.OnnxJacWarning)
        oj.load(file)


def test_a_weight_renamed_by_tracing_is_explained(tmp_path):
    network = torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False))
    file = str(tmp_path / "m.onnx")
    torch.onnx.export(network, (torch.randn(1, 2),), file, dynamo=False)
    with pytest.raises(oj.UnknownTensor, match=r"such as 'onnx::MatMul_.*constant_folding"):
        oj.linearize(oj.load(file), {"onnx::MatMul_0": np.ones((1, 2))}, wrt="0.weight")


def scaled(x):
    return x * 0.1 + 1 / 3


def masked(x):
    return torch.where(x > 0.123456789123, 0.3 - x, 1e-9)


def clamped(x):
    return torch.nn.functional.hardtanh(x, -0.1, 0.3) + torch.add(x, x, alpha=0.7)


@pytest.mark.parametrize("function", [scaled, masked, clamped])
def test_numbers_of_a_double_module_are_double(function):
    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
    model = oj.load(Module(), example_inputs=(x,))
    (y,) = model.run({"x": x.numpy()}).values()
    np.testing.assert_allclose(y, function(x), rtol=1e-15, atol=1e-16)
