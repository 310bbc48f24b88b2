"""Sixteen architectures exported from PyTorch: JVP, VJP and HVP against torch.func.

The stored values are in double precision; see tests/networks/export.py, which computed them.
"""


import numpy as np
import pytest

import onnxjac as oj
from check_model import assert_near, check_model
from networks.stored import MODELS, NAMES, below, loaded, stored

every = pytest.mark.parametrize("file", MODELS)


def test_there_are_sixteen_and_two_exporters():
    assert len(NAMES) == 16
    assert len(MODELS) == 30


@every
def test_every_parameter_kept_its_name(file):
    model, _, values = loaded(file)
    assert below("tangent", values).keys() <= {*model.inputs, *model.initializers}


@every
def test_jvp_and_vjp_agree_with_pytorch(file):
    model, point, values = loaded(file)
    tangents = below("tangent", values)
    J = oj.linearize(model, point, wrt=tuple(tangents), engine="numpy")
    assert_near(J.primal["y"], values["y"], 1e-9)
    assert_near(J.apply(tangents)["y"], values["jvp"], 1e-9)
    pulled = J.T.apply({"y": values["cotangent"]})
    assert_together(pulled, below("vjp", values))


@every
def test_an_hvp_agrees_with_pytorch(file):
    model, point, values = loaded(file)
    tangents, weights = below("tangent", values), values["cotangent"]
    _, curved = oj.hvp(model, point, tangents, of="y", weights=weights, engine="numpy")
    assert_together(curved, below("hvp", values))


@every
def test_exported_products_run_in_onnx_runtime(file):
    """In single precision, where ONNX Runtime has all kernels."""
    runtime = pytest.importorskip("onnxruntime")
    model, point, values = loaded(file, None)
    tangents = below("tangent", values)
    point = {k: x.astype(model.inputs[k].dtype) for k, x in point.items()}
    for mode, given, expected in (
        ("jvp", {f"{k}_tangent": v for k, v in tangents.items()}, {"y_tangent": values["jvp"]}),
        (
            "vjp",
            {"y_cotangent": values["cotangent"]},
            {f"{k}_cotangent": v for k, v in below("vjp", values).items()},
        ),
    ):
        proto = oj.export(model, mode, point, of="y", wrt=tuple(tangents))
        session = runtime.InferenceSession(proto.SerializeToString())
        feeds = {**point, **{identifier(k): v.astype(np.float32) for k, v in given.items()}}
        feeds = {value.name: feeds[value.name] for value in session.get_inputs()}
        names = [value.name for value in session.get_outputs()]
        found = dict(zip(names, session.run(names, feeds), strict=True))
        wanted = {identifier(name): y for name, y in expected.items()}
        assert_together({name: found[name] for name in wanted}, wanted, 1e-4)


@pytest.mark.parametrize("file", ["unet", "llama", "tagger", "ode.legacy"])
def test_a_network_keeps_every_promise(file):
    model, point, values = loaded(file)
    check_model(model, point, wrt=tuple(below("tangent", values)), engine="numpy")


@pytest.mark.peers
@every
def test_products_along_other_directions_agree_with_pytorch(file):
    """The same products along other directions, computed now."""
    torch = pytest.importorskip("torch")
    from networks.export import build, derivatives, draw, pure

    name = file.partition(".")[0]
    function, at = pure(*build(name))
    rng = np.random.default_rng(7)
    v, u = {k: draw(rng, x.shape) for k, x in at.items()}, draw(rng, stored(file)["y"].shape)
    expected = derivatives(function, at, v, u)
    y, pushed = (tensor.detach().numpy() for tensor in expected[:2])
    pulled, curved = ({k: x.detach().numpy() for k, x in part.items()} for part in expected[2:])
    model, point, _ = loaded(file)
    assert isinstance(u, torch.Tensor)
    tangents, weights = {k: x.numpy() for k, x in v.items()}, u.numpy()
    J = oj.linearize(model, point, wrt=tuple(v), engine="numpy")
    assert_near(J.primal["y"], y, 1e-9)
    assert_near(J.apply(tangents)["y"], pushed, 1e-9)
    assert_together(J.T.apply({"y": weights}), pulled)
    _, found = oj.hvp(model, point, tangents, of="y", weights=weights, engine="numpy")
    assert_together(found, curved)


def identifier(name):
    """The name that a tensor has in an exported derivative."""
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return f"_{plain}" if plain[0].isdigit() else plain


def assert_together(found, expected, rtol=1e-9):
    """Equal tensors by name, with a tolerance relative to each tensor or to all of them."""
    assert found.keys() == expected.keys()
    scale = np.sqrt(sum(np.sum(y**2) for y in expected.values())) / len(expected)
    for name, y in expected.items():
        assert found[name].shape == y.shape
        assert np.linalg.norm(found[name] - y) <= rtol * max(np.linalg.norm(y), scale), name


@pytest.mark.peers
@pytest.mark.parametrize("name", NAMES)
def test_products_over_tensors_agree_with_numpy(name, device, request):
    """J and Jᵀ by PyTorch as by NumPy: by all rules, by a template, and planned."""
    some = "attentive", "bert", "graph", "mobilenet", "unet"
    if name not in some and not request.config.option.whole:
        pytest.skip("with --whole")
    import torch

    from onnxjac.ops.torch.table import host

    model, point, values = loaded(name if name in MODELS else f"{name}.legacy")
    wrt = tuple(below("tangent", values))
    there = {name: torch.tensor(x, device=device) for name, x in point.items()}
    J = oj.linearize(model, point, wrt=wrt, engine="numpy")
    K = oj.linearize(model, there, wrt=wrt, engine=f"torch:{device}")
    rng = np.random.default_rng(0)
    v, u = (rng.standard_normal(n) for n in J.shape[::-1])
    pushed, pulled = J @ v, J.T @ u
    for L in (K, K.relinearize(there), K.plan(products=2000)):
        for A, x, y in ((L, v, pushed), (L.T, u, pulled)):
            assert_near(host(A @ torch.tensor(x, device=device)), y, 1e-12)


@pytest.mark.peers
@pytest.mark.sampled(0.15)
@every
def test_products_by_xla(file):
    """As NumPy's and as PyTorch's; nothing runs on the host."""
    pytest.importorskip("jax")
    from onnxjac.ops.jax import arrays

    model, point, values = loaded(file)
    tangents, before = below("tangent", values), {*arrays.on_host}
    J = oj.linearize(model, point, wrt=tuple(tangents), engine="jax")
    assert_near(J.primal["y"], values["y"], 1e-9)
    assert_near(J.apply(tangents)["y"], values["jvp"], 1e-9)
    assert_together(J.T.apply({"y": values["cotangent"]}), below("vjp", values))
    K = oj.linearize(model, point, wrt=tuple(tangents), engine="numpy")
    rng = np.random.default_rng(0)
    v, u = (rng.standard_normal(n) for n in J.shape[::-1])
    for found, expected in ((J @ v, K @ v), (J.T @ u, K.T @ u), (J.primal["y"], K.primal["y"])):
        assert_near(found, expected, 1e-12)
    assert arrays.on_host == before
