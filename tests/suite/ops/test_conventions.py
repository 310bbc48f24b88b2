"""The table of conventions matches our results, and PyTorch's."""

import warnings

import numpy as np
import pytest

import onnxjac as oj
from house import ROOT
from models.one_node import one_node
from onnxjac.modes.model.loading.load import load
from onnxjac.ops.conventions import CONVENTIONS, conventions_table


def arrays_of(convention):
    """The inputs: floats are float64, whole numbers int64."""
    arrays = map(np.asarray, convention.inputs)
    return [x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64) for x in arrays]


def agree(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, np.asarray(b, np.float64), rtol=1e-6)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: c.what)
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_our_rules_follow_the_conventions(convention):
    arrays = arrays_of(convention)
    outputs = 2 if convention.op_type == "TopK" else 1
    node = one_node(convention.op_type, arrays, dict(convention.attrs), outputs, convention.opset)
    feeds = {f"x{i}": x for i, x in enumerate(arrays)}
    J = oj.linearize(load(node), feeds, of="y0", engine="numpy")
    slopes = J.T.apply({"y0": np.ones(J.primal["y0"].shape)})
    agree(slopes.values(), convention.ours)


@pytest.mark.parametrize("library", ["ours", "torch", "jax", "tensorflow"])
def test_only_what_lies_on_a_bound_is_at_a_kink(library):
    (clip,) = (convention for convention in CONVENTIONS if convention.op_type == "Clip")
    bounds = np.isin(clip.inputs[0], clip.inputs[1:])
    slopes = np.array(getattr(clip, library)[0])
    assert (slopes[~bounds] == 1).all()
    assert len({*slopes[bounds]}) == 1


def test_the_page_holds_the_table():
    assert conventions_table() in (ROOT / "docs/results/conventions.md").read_text()


def in_torch(convention):
    """The operator in PyTorch: what its convention says, else the function of its name."""
    torch = pytest.importorskip("torch")
    F, name = torch.nn.functional, convention.op_type.rpartition("::")[2].lower()
    if convention.call:
        return eval(convention.call, {"torch": torch, "F": F})
    return getattr(torch, name, None) or getattr(F, name)


@pytest.mark.peers
@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: c.what)
def test_pytorch_follows_or_differs_as_the_table_says(convention):
    torch = pytest.importorskip("torch")
    floats = [x for x in arrays_of(convention) if x.dtype.kind == "f"]
    tensors = [torch.tensor(x, requires_grad=True) for x in floats]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        in_torch(convention)(*tensors).sum().backward()
    agree([x.grad for x in tensors], convention.torch)
