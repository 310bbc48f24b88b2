"""Progress bars: on a terminal, after a delay, and nowhere else."""

import io
import pickle
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import onnxjac as oj
from house import ROOT
from onnxjac.jacobians import Cumulative, base, progress
from onnxjac.jacobians.progress import chunks, counted, counting
from onnxjac.modes.data.batches import batches_of

DIGITS = str(ROOT / "notebooks" / "models" / "digits.onnx")
IMAGES = np.load(ROOT / "notebooks" / "models" / "digits_samples.npz")["image"]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def watched(monkeypatch, stderr):
    """A stream that replaces stderr for progress bars only."""
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stderr, modules=sys.modules))
    return stderr


@pytest.fixture(params=["tqdm", "none"])
def terminal(request, monkeypatch):
    """stderr as a terminal, with and without tqdm, and with no delay."""
    if request.param == "tqdm":
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    return watched(monkeypatch, Terminal())


@pytest.fixture
def narrow(monkeypatch):
    """Small chunks, so that even a small matrix has several."""
    from onnxjac.modes.linear.elimination import dense

    for module in (base, dense):
        monkeypatch.setattr(module, "CHUNK_BYTES", 1000)


def jacobian():
    return oj.linearize(oj.load(DIGITS, dtype="float64"), {"image": IMAGES[:4]}, of="logits")


@pytest.fixture(scope="module")
def J():
    return jacobian()


def test_the_label_the_count_and_the_total(terminal):
    with counting("values", "products", 30) as tick:
        tick(12)
        shown = terminal.getvalue()
        tick(18)
    assert "values" in shown
    assert "12" in shown
    assert "30" in shown
    assert "products" in shown


def test_the_end_leaves_an_empty_line(terminal):
    with counting("values", "products") as tick:
        tick(12)
    *_, last = terminal.getvalue().rstrip("\r").split("\r")
    assert not last.replace("\x1b[A", "").strip()


def test_quick_work_shows_no_progress(terminal, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 2.0)
    now = [time.monotonic()]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with counting("values", "products", 9) as tick:
        now[0] += 1.9
        tick(3)
        assert not terminal.getvalue()
        now[0] += 0.2
        tick(1)
        assert "4" in terminal.getvalue()


def test_true_shows_at_once(terminal, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 1e9)
    with counting("values", "products", shown=True) as tick:
        tick(1)
    assert "values" in terminal.getvalue()


def test_a_file_never_gets_any(monkeypatch, tmp_path):
    with (tmp_path / "log").open("w+") as log:
        watched(monkeypatch, log)
        with counting("values", "products", shown=True) as tick:
            tick(1)
        assert log.tell() == 0


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_without_a_console(monkeypatch, stderr):
    gone = Terminal()
    gone.close()
    watched(monkeypatch, gone if stderr else None)
    assert list(counted("abc", "letters", "letters")) == ["a", "b", "c"]


def test_only_the_outer_work_is_shown(terminal):
    with counting("outer", "parts") as tick:
        assert list(chunks(5, 2, "inner", "parts")) == [(0, 2), (2, 4), (4, 5)]
        tick(1)
    assert "outer" in terminal.getvalue()
    assert "inner" not in terminal.getvalue()
    assert list(counted("abc", "afterwards", "letters"))
    assert "afterwards" in terminal.getvalue()


def test_silence_holds_for_work_within(terminal):
    with counting("outer", "parts", shown=False):
        list(counted("abc", "inner", "letters"))
    with oj.progress(False):
        list(counted("abc", "inner", "letters"))
    assert not terminal.getvalue()
    list(counted("abc", "afterwards", "letters"))
    assert terminal.getvalue()


def test_work_that_is_given_up_does_not_hide_other_work(terminal):
    next(counted("abc", "given up", "letters"))
    list(counted("abc", "afterwards", "letters"))
    assert "afterwards" in terminal.getvalue()


class Kernel:
    """A fake IPython in the kernel of a notebook."""

    config = ("IPKernelApp",)

    @staticmethod
    def get_ipython():
        return Kernel


def test_a_notebook_is_no_terminal_and_shows(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", Kernel)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    stream = watched(monkeypatch, io.StringIO())
    with counting("values", "products", shown=True) as tick:
        tick(1)
    assert "values" in stream.getvalue()


def test_how_many_batches_there_are():
    data = {"image": IMAGES}
    assert batches_of([data, data]).count == 2
    assert batches_of(data, 3).count == -(-len(IMAGES) // 3)
    assert batches_of(lambda: iter([data])).count is None


SUMS = Cumulative(0, (50,), float, exclusive=False, reverse=False)

LONG = {
    "toarray": (lambda J, p: SUMS.toarray(progress=p), "matrix"),
    "toarray of a model": (lambda J, p: J.toarray(progress=p), "matrix"),
    "tosparse": (lambda J, p: jacobian().tosparse(progress=p), "sparse matrix"),
    "trace": (lambda J, p: oj.estimators.trace(J.T @ J, method="xtrace", progress=p), "trace"),
    "spectral density": (
        lambda J, p: oj.estimators.spectral_density(
            J.T @ J, exact=False, steps=3, probes=2, progress=p), "spectral density"),
    "norm": (lambda J, p: oj.estimators.spectral_norm(J, exact=False, progress=p), "spectral norm"),
    "low rank": (lambda J, p: oj.estimators.low_rank(J, 2, progress=p), "low rank"),
    "kfac": (
        lambda J, p: oj.kfac(J.route.model, {"image": IMAGES[:4]}, at="logits", batch_size=2,
                             progress=p), "K-FAC"),
    "root": (
        lambda J, p: oj.newton_krylov(J.route.model, {"image": IMAGES[:1]}, of="logits",
                                      wrt="fc2.bias", maxiter=2, progress=p), "Newton-Krylov"),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_long_work_is_shown(J, terminal, narrow, name):
    work, label = LONG[name]
    work(J, False)
    assert not terminal.getvalue()
    work(J, None)
    assert label in terminal.getvalue()


def test_a_pass_over_data_is_shown(terminal):
    model = oj.load(DIGITS, dtype="float64")
    C = oj.linearize(model, [{"image": IMAGES[:2]}, {"image": IMAGES[2:4]}], of="logits",
                     wrt="fc2.bias")  # fmt: skip
    terminal.truncate(0)
    C @ np.ones(C.shape[1])
    assert "pass over the data" in terminal.getvalue()
    assert pickle.loads(pickle.dumps(C.stream)).label == "pass over the data"


def test_a_proof_is_shown(terminal):
    assert oj.prove("Relu")
    assert "proof" in terminal.getvalue()
