"""Files appear whole or not at all, whatever stops the writing."""

import errno
import os
import resource
import signal
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal

import onnxjac as oj
from onnxjac.modes.support import save as saving
from onnxjac.modes.support.save import save, save_text

MODEL = Path(__file__).parents[1] / "models" / "mlp.onnx"
LARGE = {"limit": 0}  # weights go to a file of their own


@pytest.fixture(scope="module")
def proto():
    return onnx.load(MODEL)


@pytest.fixture
def small_disk():
    """No file may grow beyond 4 kB, and the write that would fails in its middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, before)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("options", [{}, LARGE])
def test_a_full_disk_leaves_what_was_there(proto, tmp_path, small_disk, options):
    (tmp_path / "m.onnx").write_bytes(b"old")
    (tmp_path / "m.onnx.data").write_bytes(b"old weights")
    before = contents(tmp_path)
    with pytest.raises(oj.OnnxJacError, match=r"cannot write .*m\.onnx': File too large"):
        save(proto, tmp_path / "m.onnx", **options)
    assert contents(tmp_path) == before


def test_a_text_on_a_full_disk(tmp_path, small_disk):
    with pytest.raises(oj.OnnxJacError, match=r"cannot write .*page\.md'"):
        save_text("x" * 5000, tmp_path / "page.md")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_what_the_system_says_is_said(proto, tmp_path, monkeypatch, number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(oj.OnnxJacError, match=os.strerror(number)):
        save(proto, tmp_path / "m.onnx")
    assert contents(tmp_path) == {}


def test_an_interrupt_leaves_what_was_there(proto, tmp_path, monkeypatch):
    def interrupted(_, draft):
        Path(draft).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(saving.onnx, "save_model", interrupted)
    (tmp_path / "m.onnx").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        save(proto, tmp_path / "m.onnx")
    assert contents(tmp_path) == {"m.onnx": b"old"}


@pytest.mark.parametrize("options", [{}, LARGE])
def test_what_is_saved_is_the_model(proto, tmp_path, options):
    before = proto.SerializeToString()
    save(proto, tmp_path / "m.onnx", **options)
    assert set(contents(tmp_path)) == {"m.onnx"} | ({"m.onnx.data"} if options else set())
    made = oj.load(tmp_path / "m.onnx").constants
    for name, array in oj.load(MODEL).constants.items():
        assert_array_equal(made[name], array)
    assert proto.SerializeToString() == before


def test_a_link_leads_to_the_new_file(proto, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "m.onnx").symlink_to(tmp_path / "inner" / "real.onnx")
    save(proto, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").is_symlink()
    assert onnx.load(tmp_path / "inner" / "real.onnx") == proto


def test_a_device_stays_a_device(proto):
    save(proto, "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(oj.OnnxJacError, match="No space left on device"):
        save(proto, "/dev/full")


def test_a_folder_is_no_file(proto, tmp_path):
    with pytest.raises(oj.OnnxJacError, match="Is a directory"):
        save(proto, tmp_path)
    with pytest.raises(oj.OnnxJacError, match="No such file or directory"):
        save(proto, tmp_path / "missing" / "m.onnx")


def test_weights_are_there_before_the_model_that_names_them(proto, tmp_path, monkeypatch):
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append(Path(b).name), replace(a, b)))
    save(proto, tmp_path / "m.onnx", **LARGE)
    assert seen[-2:] == ["m.onnx.data", "m.onnx"]


def test_the_text_ends_with_one_line_feed(tmp_path):
    save_text("∂y\n\n", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_bytes() == "∂y\n".encode()
    assert np.size(os.listdir(tmp_path)) == 1
