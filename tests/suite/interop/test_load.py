"""Modules of PyTorch are loaded like files: names, types, evaluation, any number of samples."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.peers
nn = torch.nn

TIGHT = {"rtol": 1e-9, "atol": 1e-9}  # ONNX keeps the ε of a normalisation in single precision
X = np.random.default_rng(0).standard_normal((5, 3))


class Net(nn.Module):
    """Two layers, the first one used twice, a normalisation with statistics, and dropout."""

    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)
        self.tied, self.drop = self.fc1, nn.Dropout(0.5)

    def forward(self, features, scale):
        hidden = torch.tanh(self.norm(self.tied(self.fc1(features))))
        return self.fc2(self.drop(hidden)) * scale


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else self.fc(-x)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    net = Net().double()
    net(torch.tensor(X), 1.0)  # updates the running statistics
    return net


@pytest.fixture(scope="module")
def model(net):
    examples = {"features": X[:1].astype(np.float32), "scale": torch.ones(2).double()}
    return oj.load(net, example_inputs=examples, dynamic_batch="features")


def reference(net, name):
    """∂out/∂name by PyTorch, in eval mode."""
    net.eval()
    point = {"features": torch.tensor(X), **dict(net.named_parameters())}

    def f(t):
        tensors = {**point, name: t}
        return torch.func.functional_call(net, tensors, (tensors.pop("features"), torch.ones(2)))

    J = torch.func.jacrev(f)(point[name].detach())
    return J.detach().reshape(10, -1)


def test_inputs_are_named_and_typed_as_in_the_module(net, model):
    assert {k: (s.shape, s.dtype.name) for k, s in model.inputs.items()} == {
        "features": (("batch", 3), "float64"),
        "scale": ((2,), "float64"),
    }
    assert net.training
    assert all(part.training for part in net.modules())


@pytest.mark.parametrize("name", ["features", "fc1.weight", "norm.bias", "fc2.weight"])
def test_derivatives_by_the_names_of_parameters(net, model, name):
    J = oj.linearize(model, {"features": X, "scale": np.ones(2)}, wrt=name)
    assert_allclose(J.toarray(), reference(net, name), **TIGHT)
    net.train()


def test_parameters_given_as_inputs_replace_the_exported_ones(net, model):
    """Weights that change after the export need no second one."""
    changed = {name: 1.5 * p for name, p in net.named_parameters()}
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    J = oj.linearize(model, {"features": X, "scale": np.ones(2), **changed}, wrt="fc1.weight")
    net.load_state_dict(changed, strict=False)
    assert_allclose(J.toarray(), reference(net, "fc1.weight"), **TIGHT)
    assert_allclose(next(iter(J.primal.values())), net(torch.tensor(X), 1.0).detach(), **TIGHT)
    net.load_state_dict(before, strict=False)
    net.train()


def test_the_model_does_not_follow_the_module(net, model):
    with torch.no_grad():
        net.fc2.weight.mul_(2)
        assert_allclose(2 * model.constants["fc2.weight"], net.fc2.weight.numpy())
        net.fc2.weight.div_(2)


def test_branching_modules_are_traced_with_a_warning():
    module = Branching()
    with pytest.warns(oj.OnnxJacWarning, match="traced instead, with its branches") as caught:
        model = oj.load(module, example_inputs=torch.ones(4, 3), dynamic_batch=True)
    assert caught[0].filename == __file__
    assert [(name, spec.shape) for name, spec in model.inputs.items()] == [("x", ("batch", 3))]
    J = oj.linearize(model, {"x": X}, wrt=["x", "fc.weight"])
    W = module.fc.weight.detach().numpy()
    assert_allclose(J[J.codomain[0].name, "x"].toarray(), np.kron(np.eye(5), W), rtol=1e-6)


def test_a_program_that_is_exported_already():
    with warnings.catch_warnings(action="ignore"):
        program = torch.onnx.export(nn.Linear(3, 2).eval(), (torch.ones(1, 3),), verbose=False)
    assert {"weight", "bias"} <= oj.load(program).initializers.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs example_inputs="),
        ({"example_inputs": X}, r"do not fit \(features, scale\): missing .*'scale'"),
        ({"example_inputs": (X, 1.0), "dynamic_batch": "feature"}, "Did you mean 'features'"),
        ({"example_inputs": (np.ones((5, 7)), 1.0)}, "cannot export Net: .*; traced, "),
    ],
)
def test_load_rejects_wrong_options(net, options, message):
    with pytest.raises(oj.LoadError, match=message):
        oj.load(net, **options)
    assert net.training


@pytest.mark.parametrize("form", ["exported", "compiled", "single precision"])
def test_other_forms_of_a_module_load_in_double(form):
    """A program of torch.export, what torch.compile gives, and float32 examples of a double net."""
    net, point = Net().double().eval(), (torch.tensor(X), torch.ones(2).double())
    if form == "exported":
        model = oj.load(torch.export.export(net, point))
    elif form == "compiled":
        model = oj.load(torch.compile(net), example_inputs=point, dtype=torch.float64)
    else:
        model = oj.load(net, example_inputs=tuple(each.float() for each in point))
    assert all(spec.dtype == np.float64 for spec in model.inputs.values())
    assert {"fc1.weight", "fc2.bias"} <= model.initializers.keys()
    (y,) = model.run({"features": X, "scale": np.ones(2)}).values()
    assert_allclose(y, net(*point).detach(), **TIGHT)


@pytest.mark.parametrize(("source", "text"), [
    (torch.sin, "does not say which arguments"),
    (torch.jit.trace(nn.Linear(1, 1), torch.ones(1, 1)), "does not say which arguments"),
    (lambda x: torch.sin(x), "only functions of JAX"),
])  # fmt: skip
def test_other_sources_are_refused(source, text):
    with pytest.raises(oj.LoadError, match=text):
        oj.load(source, example_inputs=(torch.ones(1, 1),))
