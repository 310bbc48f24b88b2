"""The files of a model may change, shrink or disappear once it is loaded."""

import mmap
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import onnxjac as oj
from onnxjac.jacobians.arrays import owner
from onnxjac.modes.model.save import save

MODEL = Path(__file__).parents[2] / "models" / "mlp.onnx"
ENGINES = ("numpy", "onnxruntime")


@pytest.fixture
def path(tmp_path):
    """A model whose weights are in a file of their own."""
    save(onnx.load(MODEL), tmp_path / "m.onnx", limit=0)
    return tmp_path / "m.onnx"


def linearized(model):
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    point = {n: np.resize(x, [d if isinstance(d, int) else 2 for d in spec.shape])
             for n, spec in model.inputs.items()}  # fmt: skip
    return point, oj.linearize(model, point)


def outputs(model, point):
    """The first output, by every engine."""
    return [next(iter(model.run(point, engine=engine).values())) for engine in ENGINES]


def overwritten(path):
    with open(path, "r+b") as file:
        file.write(b"\xff" * os.path.getsize(path))


def cut(path):
    os.truncate(path, 0)


@pytest.mark.parametrize("harm", [overwritten, cut, os.remove])
def test_a_loaded_model_needs_its_files_no_more(path, harm):
    model = oj.load(path)
    assert not any(map(is_mapped, model.constants.values()))
    point, J = linearized(model)
    v = np.ones(J.shape[1], J.dtype)
    product, values = J @ v, outputs(model, point)
    (data,) = path.parent.glob("m.onnx.*.data")
    harm(data)
    harm(path)
    assert_allclose(J @ v, product, atol=1e-6)
    assert_allclose(linearized(model)[1] @ v, product, atol=1e-6)
    assert_array_equal(outputs(model, point), values)


def test_a_mapped_model_is_the_same_model(path):
    read, mapped = oj.load(path), oj.load(path, mmap=True)
    large = {name for name, a in read.constants.items() if a.nbytes > 1024}
    assert large
    for name, array in read.constants.items():
        assert_array_equal(array, mapped.constants[name])
    assert all(is_mapped(mapped.constants[name]) for name in large)


def is_mapped(array):
    base = owner(array).base
    return isinstance(base, mmap.mmap) or isinstance(getattr(base, "obj", None), mmap.mmap)


def test_weights_that_share_their_bytes_fill_no_memory(path):
    """A thousand tensors that share one region of a file take no extra memory."""
    proto = onnx.load(path, load_external_data=False)
    first = max(proto.graph.initializer, key=lambda t: np.prod(t.dims))
    for k in range(1000):
        proto.graph.initializer.add().CopyFrom(first)
        proto.graph.initializer[-1].name = f"copy{k}"
    onnx.save_model(proto, path)
    model = oj.load(path)
    assert is_mapped(model.constants["copy7"])
    assert_array_equal(model.constants["copy7"], model.constants[first.name])


def test_a_file_that_shrinks_while_it_is_read(path, monkeypatch):
    whole = np.fromfile
    monkeypatch.setattr(np, "fromfile", lambda *a, **k: whole(*a, **k)[:-1])
    with pytest.raises(oj.LoadError, match=r"m\.onnx\.\w+\.data' has changed"):
        oj.load(path)
