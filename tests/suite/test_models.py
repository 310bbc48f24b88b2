"""Sanity checks of the models that other tests use."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

from house import ROOT
from models import light

EXPORTED = ("mlp", "cnn", "encoder")


def stored(name):
    """The values computed by PyTorch, by key: see models/export.py."""
    with np.load(ROOT / "tests" / "models" / f"{name}.npz") as file:
        return dict(file)


def below(kind, values):
    """The values stored under `kind/...`, by tensor."""
    return {k.removeprefix(f"{kind}/"): v for k, v in values.items() if k.startswith(f"{kind}/")}


@pytest.mark.parametrize("name", EXPORTED)
def test_every_weight_of_the_file_has_stored_derivatives(name):
    graph = onnx.load(ROOT / "tests" / "models" / f"{name}.onnx").graph
    shapes = {w.name: tuple(w.dims) for w in graph.initializer if w.data_type == w.FLOAT}
    values = stored(name)
    tangents = below("tangent", values)
    assert {key: t.shape for key, t in tangents.items()} == {"x": values["x"].shape, **shapes}
    assert tangents.keys() == below("jvp", values).keys() == below("vjp", values).keys()


@pytest.mark.parametrize("name", EXPORTED)
def test_stored_derivatives_are_adjoint(name):
    values = stored(name)
    tangents, pulled = below("tangent", values), below("vjp", values)
    for tensor, pushed in below("jvp", values).items():
        forward = np.vdot(values["cotangent"], pushed)
        assert_allclose(np.vdot(pulled[tensor], tangents[tensor]), forward, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", EXPORTED)
def test_the_file_computes_the_stored_output(name):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(ROOT / "tests" / "models" / f"{name}.onnx")
    values = stored(name)
    (y,) = session.run(None, {"x": values["x"].astype(np.float32)})
    assert_allclose(y, values["y"], atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("name", EXPORTED)
def test_torch_still_gives_the_stored_values(name):
    torch = pytest.importorskip("torch")
    from models.export import build, differentiable, pure

    values, network = stored(name), build(name)
    point = {"x": torch.tensor(values["x"]), **differentiable(network)}
    tangents = {key: torch.tensor(t) for key, t in below("tangent", values).items()}
    y, dy = torch.func.jvp(pure(network), (point,), (tangents,))
    assert_allclose(y.detach(), values["y"], rtol=1e-10, atol=1e-12)
    assert_allclose(dy.detach(), sum(below("jvp", values).values()), rtol=1e-10, atol=1e-12)
    (pulled,) = torch.func.vjp(pure(network), point)[1](torch.tensor(values["cotangent"]))
    for tensor, expected in below("vjp", values).items():
        assert_allclose(pulled[tensor].detach(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.sampled(0)) if name in ("vgg19", "zfnet512") else name
    for name in light.NAMES
])  # fmt: skip
def test_light_models_are_alive(name):
    """Finite logits of reasonable size, which depend on the input."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    model = light.light(name)
    session = runtime.InferenceSession(model.SerializeToString(), options)
    first, second = (session.run(None, light.draw(model, seed))[0] for seed in (0, 1))
    assert np.isfinite(first).all()
    assert 0.01 < first.std() < 100
    assert (first - second).std() > 1e-3 * first.std()
