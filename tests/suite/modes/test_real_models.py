"""Whole networks: nine from the onnx wheel, three exported from PyTorch."""

import gc
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from check_model import assert_near, check_model
from house import ROOT
from models import light
from test_models import EXPORTED, below, stored

ENGINES = ("numpy", "onnxruntime")
LARGE = {"vgg19", "bvlc_alexnet", "zfnet512"}  # 60 to 140 million weights each
LONG = LARGE | {"densenet121", "inception_v1", "inception_v2", "resnet50"}

exported = pytest.mark.parametrize("name", EXPORTED)


@pytest.fixture(autouse=True)
def _free_memory(request):
    """Free a large network before the next test; to look for circles takes seconds."""
    yield
    if request.node.callspec.params["name"] in LARGE:
        gc.collect()


def without(names):
    """The nine networks; these with --whole only."""
    return pytest.mark.parametrize("name", [
        pytest.param(name, marks=pytest.mark.sampled(0)) if name in names else name
        for name in light.NAMES
    ])  # fmt: skip


in_double, in_single = without({*LONG, "shufflenet"}), without({*LONG, "squeezenet"})
"""The checker asks much of a network: each of the shorter ones goes through it in one precision."""


@lru_cache(1)
def drawn(name):
    """A network and a point."""
    proto = light.light(name)
    return proto, light.draw(proto)


def installed():
    """The installed engines."""
    return ENGINES if find_spec("onnxruntime") else ENGINES[:1]


# -- the nine networks of the onnx wheel -----------------------------------------------------------


@in_double
def test_light_models_pass_every_check_in_float64(name):
    """By the numpy engine: ONNX Runtime has no convolution in double precision."""
    proto, point = drawn(name)
    check_model(oj.load(proto, dtype="float64"), point, engine="numpy", columns=2)


@without(LARGE)
def test_light_models_in_float32_are_close_to_float64(name, request):
    """J in float32 is J in float64, but for the kinks that rounding moves the network across.

    A ReLU whose input is within rounding of 0, or a MaxPool with two inputs that close, chooses
    the other side in float32: entries of J then jump. Few do, so the error is small as a whole.
    """
    proto, point = drawn(name)
    model, exact = oj.load(proto), None
    if name not in LONG or request.config.getoption("--whole"):
        exact = oj.linearize(oj.load(proto, dtype="float64"), point, engine="numpy")
    for engine in installed():
        J = oj.linearize(model, point, engine=engine)
        assert J.dtype == np.float32
        assert_dot(J, 1e-4)
        if exact is not None:
            v = np.random.default_rng(1).standard_normal(J.shape[1])
            assert_near(J @ v.astype(np.float32), exact @ v, 1e-2)


@in_single
def test_light_models_by_onnx_runtime(name):
    """The whole checker in single precision: ONNX Runtime has no convolutions in double."""
    pytest.importorskip("onnxruntime")
    proto, point = drawn(name)
    check_model(oj.load(proto), point, engine="onnxruntime", rtol=1e-3, columns=2)


@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder"])
def test_exported_models_by_onnx_runtime(name):
    """Likewise: Erf and Conv have no kernel in double precision there."""
    pytest.importorskip("onnxruntime")
    model = oj.load(ROOT / "tests" / "models" / f"{name}.onnx")
    x = stored(name)["x"].astype(np.float32)
    point = dict.fromkeys(model.inputs, x)
    check_model(model, point, engine="onnxruntime", rtol=1e-4, columns=2)


two = pytest.mark.parametrize(
    "name", ["squeezenet", pytest.param("shufflenet", marks=pytest.mark.sampled(0))]
)
"""The two smallest networks, one with --whole only."""


@two
def test_light_models_by_their_weights(name):
    """With respect to the input and the first and last weights together."""
    proto, point = drawn(name)
    model = oj.load(proto, dtype="float64")
    weights = [w for w, spec in model.initializers.items() if len(spec.shape) > 1]
    wrt = [*model.inputs, weights[0], weights[-1]]
    check_model(model, point, wrt=wrt, engine="numpy", columns=2)


def assert_dot(J, rtol):
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩ for a J that is not zero."""
    rng = np.random.default_rng(0)
    u, v = (rng.standard_normal(n).astype(J.dtype) for n in J.shape)
    forward, reverse = J @ v, J.T @ u
    assert forward.dtype == reverse.dtype == J.dtype
    assert np.linalg.norm(forward) > 0
    assert abs(u @ forward - reverse @ v) <= rtol * np.linalg.norm(u) * np.linalg.norm(forward)


# -- the three networks exported from PyTorch ------------------------------------------------------


def linearized(name, dtype=None, engine=None):
    """The network by its input and all its weights, at the stored point, and the stored values."""
    values = stored(name)
    model = oj.load(ROOT / "tests" / "models" / f"{name}.onnx", dtype=dtype)
    wrt = tuple(below("tangent", values))
    return oj.linearize(model, {"x": values["x"]}, wrt=wrt, engine=engine), values


@exported
def test_exported_models_keep_every_promise(name):
    J, values = linearized(name, "float64", "numpy")
    wrt = [spec.name for spec in J.domain]
    check_model(J.route.model, {"x": values["x"]}, wrt=wrt, engine="numpy")


@exported
@pytest.mark.parametrize(
    ("dtype", "engine", "rtol"),
    [
        ("float64", "numpy", 1e-10),
        ("float64", None, 1e-10),  # ONNX Runtime has no Conv and no Erf in double precision
        ("float32", "numpy", 1e-4),
        ("float32", "onnxruntime", 1e-4),
    ],
)
def test_exported_models_against_the_stored_values_of_torch(name, dtype, engine, rtol):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    J, values = linearized(name, None if dtype == "float32" else dtype, engine)
    tangents, pushed, pulled = (below(kind, values) for kind in ("tangent", "jvp", "vjp"))
    assert J.dtype == dtype
    assert_near(J.primal["logits"], values["y"], rtol)
    for tensor, tangent in tangents.items():
        assert_near(J.apply({tensor: tangent})["logits"], pushed[tensor], rtol)
    assert_near(J.apply(tangents)["logits"], sum(pushed.values()), rtol)
    for tensor, cotangent in J.T.apply({"logits": values["cotangent"]}).items():
        assert_near(cotangent, pulled[tensor], rtol)


def assert_xla(J, K):
    """Products and values by XLA as by NumPy, in double precision."""
    rng = np.random.default_rng(1)
    v, u = (rng.standard_normal(n) for n in K.shape[::-1])
    for name, y in K.primal.items():
        assert_near(J.primal[name], y, 1e-12)
    assert_near(J @ v, K @ v, 1e-12)
    assert_near(J.T @ u, K.T @ u, 1e-12)


@pytest.mark.peers
@exported
def test_exported_models_by_xla(name):
    pytest.importorskip("jax")
    assert_xla(*(linearized(name, "float64", engine)[0] for engine in ("jax", "numpy")))


@pytest.mark.peers
@two
def test_light_models_by_xla(name):
    pytest.importorskip("jax")
    proto, point = drawn(name)
    model = oj.load(proto, dtype="float64")
    assert_xla(*(oj.linearize(model, point, engine=engine) for engine in ("jax", "numpy")))


@pytest.mark.peers
@exported
def test_exported_models_against_torch_itself(name):
    """jvp and vjp of the ONNX file against torch.func on the original network, elsewhere."""
    torch = pytest.importorskip("torch")
    from models.export import build, differentiable, pure

    network, values = build(name), stored(name)
    rng = np.random.default_rng(7)
    x, v, u = (rng.standard_normal(values[key].shape) for key in ("x", "x", "y"))
    model = oj.load(ROOT / "tests" / "models" / f"{name}.onnx", dtype="float64")
    weights = differentiable(network)

    def of_x(x):
        return pure(network)({"x": x, **weights})

    expected = torch.func.jvp(of_x, (torch.tensor(x),), (torch.tensor(v),))
    y, dy = oj.jvp(model, {"x": x}, {"x": v})
    assert_allclose(y["logits"], expected[0].detach(), rtol=1e-10, atol=1e-12)
    assert_near(dy["logits"], expected[1].detach().numpy(), 1e-10)

    pullback = torch.func.vjp(pure(network), {"x": torch.tensor(x), **weights})[1]
    (expected,) = pullback(torch.tensor(u))
    _, ours = oj.vjp(model, {"x": x}, wrt=["x", *weights])
    for tensor, cotangent in ours(u).items():
        assert_near(cotangent, expected[tensor].detach().numpy(), 1e-10)
