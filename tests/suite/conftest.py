"""Options of the test run, and fixtures for all tests."""

import gc
from contextlib import contextmanager
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
        from tensors import simulated

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


class Inside:
    """The private attributes that tests read or replace: no other file of the suite does so."""

    def __init__(self, monkeypatch):
        self.replace = monkeypatch.setattr

    def shared(self, J):
        """The program of J for all points, or None where J has none."""
        return J.structure._shared

    def programs(self, J):
        """The programs of products, by the numbers of columns."""
        return J._programs

    def has_dag(self, J):
        """Whether the operators at the point of J were made."""
        return J.at._dag is not None

    def unrolled(self, J):
        """The routes of the models that were unrolled for J, by signature."""
        return J.route._flats

    def change_products(self, kind, change):
        """Products by this kind of operator, or of program, are change(product, J, v, ...)."""
        name = "_flat_product" if hasattr(kind, "_flat_product") else "_product"
        product = getattr(kind, name)
        self.replace(kind, name, lambda *given: change(product, *given))

    def forbid_programs(self, J):
        """Products of J, or of all that adapt, are by sweeps and programs at hand alone."""
        self.replace(J, "_program", None if not isinstance(J, type) else lambda J, columns: None)

    def forbid_columns(self):
        """No operator is multiplied out by its columns."""
        from onnxjac.jacobians import Jacobian

        self.replace(Jacobian, "_columns", None)

    def forbid_diagonals(self):
        """No diagonal is taken by products."""
        from onnxjac.jacobians import Jacobian

        self.replace(Jacobian, "_diagonal", None)

    def layers_found(self):
        """Two lists that grow: whether layers are searched at a point of many, and whether pools
        select within samples.
        """
        from onnxjac.modes.curvature.gradients import Gradients

        made, fixed = [], []
        layout, within = Gradients._layout, Gradients._selects_within_samples
        self.replace(Gradients, "_layout", lambda self, found: made.append(
            self.J.at.derivative is not None) or layout(self, found))  # fmt: skip
        self.replace(Gradients, "_selects_within_samples", lambda self, found: fixed.append(
            within(self, found)) or fixed[-1])  # fmt: skip
        return made, fixed

    @contextmanager
    def nodes_recorded(self):
        """A list that grows by one for each node that is recorded in the block."""
        from onnxjac.ops import Recorder

        counted, append = [], Recorder._append
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Recorder, "_append", lambda *a: counted.append(1) or append(*a))
            yield counted


@pytest.fixture
def inside(monkeypatch):
    return Inside(monkeypatch)


def is_left_out(marks, nodeid):
    """Whether a case is not in the share of its test that runs: the same cases in each run."""
    shares = [mark.args[0] for mark in marks if mark.name == "sampled"]
    return bool(shares) and crc32(nodeid.encode()) >= shares[0] * 2**32


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    """Without --whole, cases that are left out are not even made: most of them are of few tests."""
    if metafunc.config.getoption("--whole"):
        return
    outer, nodeid = [*metafunc.definition.iter_markers()], metafunc.definition.nodeid
    kept = [call for call in metafunc._calls
            if not is_left_out([*call.marks, *outer], f"{nodeid}[{call.id}]")]  # fmt: skip
    metafunc._calls = kept or metafunc._calls[:1]  # without any, the test would have no arguments


def pytest_collection_modifyitems(config, items):
    """Leave out what `pytest_generate_tests` kept as the last case of its test."""
    if config.getoption("--whole"):
        return
    left = [item for item in items if is_left_out(item.iter_markers(), item.nodeid)]
    config.hook.pytest_deselected(items=left)
    gone = {*map(id, left)}
    items[:] = [item for item in items if id(item) not in gone]


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
