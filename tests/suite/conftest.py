"""Options of the test run, and fixtures for all tests."""

import gc
from zlib import crc32

import numpy as np
import pytest

from house import ROOT


@pytest.fixture
def clean_registry():
    """The registry of operators, restored after the test with the other tables of declarations."""
    from onnxjac.ops.graphs.shapes import FORMULAS
    from onnxjac.ops.numbers.table import HOSTED, KERNELS, TENSORS
    from onnxjac.ops.registry import DECLARATIONS

    tables = DECLARATIONS, KERNELS, TENSORS, HOSTED, FORMULAS
    before = [table.copy() for table in tables]
    yield DECLARATIONS
    for table, held in zip(tables, before, strict=True):
        table.clear()
        table.update(held)


def pytest_addoption(parser):
    parser.addoption(
        "--whole", action="store_true",
        help="check every case of sampled tests and of ONNX's nodes, and large networks in full",
    )  # fmt: skip
    parser.addoption(
        "--device", default="cpu",
        help="where the tests of torch tensors compute: cpu, cuda, or simulated, a strict device",
    )  # fmt: skip


class Root:
    """To pytest, the root of the repository is a folder and no package, whatever is in it.

    Else the package would be imported once more, by the name of the checkout.
    """

    @staticmethod
    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(path, parent):
        return pytest.Dir.from_parent(parent, path=path) if path == ROOT else None


def pytest_configure(config):
    config.pluginmanager.register(Root)
    if config.getoption("--device") == "simulated":
        import simulated

        simulated.register()


@pytest.fixture
def device(request, monkeypatch):
    """The device of torch tensors; NumPy reads none of them unasked, as if all were on a GPU."""
    torch = pytest.importorskip("torch")

    def refuse(*args, **kwargs):
        raise TypeError("NumPy reads a tensor, which might be on a GPU")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # 10 bits in convolutions
    return request.config.getoption("--device")


@pytest.fixture
def same_draws(monkeypatch):
    """NumPy's random numbers for tensors, so that a seed draws the same in both readings."""
    from onnxjac.ops.torch import Generator
    from onnxjac.ops.torch.table import tensor

    def seeded(self, seed, device):
        self.rng, self.device = np.random.default_rng(seed), device

    def drawn(method):
        def draw(self, *args):
            return tensor(getattr(self.rng, method)(*args) * 1.0, self.device)

        return draw

    monkeypatch.setattr(Generator, "__init__", seeded)
    for method in ("standard_normal", "random", "integers"):
        monkeypatch.setattr(Generator, method, drawn(method))


def pytest_collection_modifyitems(config, items):
    """Without --whole, only a share of the cases of a sampled test stays: the same in each run."""
    if config.getoption("--whole"):
        return
    kept, left = [], []
    for item in items:
        mark = item.get_closest_marker("sampled")
        is_left = mark and crc32(item.nodeid.encode()) >= mark.args[0] * 2**32
        (left if is_left else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exclude the tests and modules, which stay until the end, from garbage collection.

    They are a million objects: scanning all of them takes longer than most tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
