"""Programs on a GPU become CUDA graphs; without one, the choice when they do."""

import numpy as np
import onnx
import pytest

import onnxjac as oj

torch = pytest.importorskip("torch")
replay = pytest.importorskip("onnxjac.ops.torch.replay")

pytestmark = pytest.mark.peers

NET = """
<ir_version: 10, opset_import: ["": 21]> net (float[8,4] x, float[4,3] W) => (float f)
{ h = MatMul(x, W)  a = Tanh(h)  s = Mul(a, a)  f = ReduceSum<keepdims = 0>(s) }"""


@pytest.fixture
def gpu(device):
    """A GPU."""
    if not device.startswith("cuda"):
        pytest.skip("needs a GPU: pytest --device cuda")
    return device


def graphed(run, monkeypatch, inputs, fresh=None):
    """The program after the calls before its capture; a graph is kept however long it takes."""
    made = replay.replayed(run, fresh)
    for _ in range(replay.EAGER_CALLS + 1):
        made(*inputs)
    return made


def test_a_graph_reads_the_inputs_of_each_call(gpu, monkeypatch):
    def run(v, r):
        return torch.tanh(v) * r, (v + r).sum()

    def check(v, r):
        for found, expected in zip(made(v, r), run(v, r), strict=True):
            assert torch.allclose(found, expected)

    v, r = torch.rand(5, 3, device=gpu), torch.rand(3, device=gpu)
    made = graphed(run, monkeypatch, (v, r), fresh=1)
    assert made.graph is not None
    check(v.add_(1), r)
    check(v, torch.rand(3, device=gpu))
    (y, _), before = made(v, r), v.clone()
    y.zero_()
    assert torch.equal(v, before)
    check(v, r)


@pytest.mark.parametrize("run", [
    lambda x: (x * x.sum().item(),),
    lambda x: (x.nonzero(),),
    lambda x: (x + torch.arange(3.0).to(x.device),),
    lambda x: (x.cpu(),),
])  # fmt: skip
def test_a_program_that_needs_the_host_is_no_graph(run, gpu, monkeypatch):
    x = torch.arange(3.0, device=gpu)
    made = graphed(run, monkeypatch, (x,))
    assert made.graph is None
    assert torch.equal(made(x + 1)[0], run(x + 1)[0])


def test_a_program_that_needs_gradients_runs_as_it_is(gpu, monkeypatch):
    x = torch.rand(3, device=gpu)
    made = graphed(lambda x: (x * x,), monkeypatch, (x,))
    (y,) = made(x.requires_grad_())
    assert y.requires_grad


@pytest.mark.parametrize("name", ["nonzero", "_local_scalar_dense"])
def test_operators_that_wait_for_the_gpu_are_known(name):
    assert replay.OnGPU.WAITS & set(getattr(torch.ops.aten, name).default.tags)


def test_a_program_is_captured_once(monkeypatch):
    """The graph is asked for after some calls, and not again where there is none."""
    asked = []
    monkeypatch.setattr(replay, "fits_graph", lambda inputs: True)
    monkeypatch.setattr(replay, "capture_graph", lambda *told: asked.append(told))
    made = replay.Replayed(lambda x: (2 * x,), fresh=1)
    assert [made(k) for k in range(20)] == [(2 * k,) for k in range(20)]
    assert [(inputs, fresh) for _, inputs, fresh in asked] == [((replay.EAGER_CALLS,), 1)]


def test_gradients_and_products_at_many_points(device):
    """More calls than come before a capture, each at a new point, and small integers as labels."""
    model, rng = oj.load(onnx.parser.parse_model(NET)), np.random.default_rng(0)
    f = oj.value_and_grad(model, wrt="W", engine=f"torch:{device}")
    g = oj.value_and_grad(model, wrt="W", engine="numpy")
    H = None
    for _ in range(2 * replay.EAGER_CALLS):
        point = {"x": rng.normal(size=(8, 4)).astype("f"), "W": rng.normal(size=(4, 3)).astype("f")}
        there = {name: torch.from_numpy(x).to(device) for name, x in point.items()}
        (value, slopes), (expected, slope) = f(there), g(point)
        assert np.allclose(value.cpu().numpy(), expected, rtol=1e-5)
        assert np.allclose(slopes["W"].cpu().numpy(), slope["W"], rtol=1e-4, atol=1e-5)
        made = H.relinearize(there) if H is not None else oj.hessian(
            model, there, wrt="W", engine=f"torch:{device}").compile("torch")  # fmt: skip
        H = made
        v = rng.normal(size=12).astype("f")
        expected = oj.hessian(model, point, wrt="W") @ v
        found = (H @ torch.from_numpy(v).to(device)).cpu().numpy()
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)
