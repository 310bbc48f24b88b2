"""Files appear complete or not at all, whatever interrupts the writing."""

import errno
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal

import onnxjac as oj
from onnxjac.modes.model import save as saving
from onnxjac.modes.model.save import save, save_text

MODEL = Path(__file__).parents[2] / "models" / "mlp.onnx"
LARGE = {"limit": 0}  # weights go to a file of their own
DATA = re.compile(r"m\.onnx\.[0-9a-f]{16}\.data")


@pytest.fixture(scope="module")
def proto():
    return onnx.load(MODEL)


@pytest.fixture
def small_disk():
    """Limit files to 4 kB; a larger write fails halfway."""
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


def test_a_text_on_a_full_disk_leaves_no_file(tmp_path, small_disk):
    with pytest.raises(oj.OnnxJacError, match=r"cannot write .*page\.md'"):
        save_text("x" * 5000, tmp_path / "page.md")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_save_reports_the_error_of_the_system(proto, tmp_path, monkeypatch, number):
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
def test_saved_constants_equal_the_model(proto, tmp_path, options):
    before = proto.SerializeToString()
    save(proto, tmp_path / "m.onnx", **options)
    names = set(contents(tmp_path)) - {"m.onnx"}
    assert len(names) == len(options)
    assert all(DATA.fullmatch(name) for name in names)
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
    assert DATA.fullmatch(seen[-2])
    assert seen[-1] == "m.onnx"


def test_the_text_ends_with_one_line_feed(tmp_path):
    save_text("∂y\n\n", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_bytes() == "∂y\n".encode()
    assert np.size(os.listdir(tmp_path)) == 1


def weights(proto, value):
    """The model with all its weights set to one value."""
    made = onnx.ModelProto.FromString(proto.SerializeToString())
    for tensor in made.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        filled = onnx.numpy_helper.from_array(np.full_like(array, value), tensor.name)
        tensor.CopyFrom(filled)
    made.doc_string = str(value)
    return made


def value_of(path):
    """The value of the weights of a model, which must match the value in its graph."""
    model = onnx.load(path)
    found = {float(x) for t in model.graph.initializer for x in onnx.numpy_helper.to_array(t).flat}
    assert found == {float(model.doc_string)}
    return found.pop()


def test_an_error_between_two_files_leaves_both_as_they_were(proto, tmp_path, monkeypatch):
    save(weights(proto, 1), tmp_path / "m.onnx", **LARGE)
    before, replace = contents(tmp_path), os.replace

    def refuse(source, target):
        if Path(target).name == "m.onnx":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(oj.OnnxJacError, match=os.strerror(errno.EIO)):
        save(weights(proto, 2), tmp_path / "m.onnx", **LARGE)
    assert contents(tmp_path) == before
    assert value_of(tmp_path / "m.onnx") == 1


@pytest.mark.parametrize("options", [{}, LARGE])
def test_data_of_the_model_that_was_there_goes(proto, tmp_path, options):
    others = ["m.onnx.data", "n.onnx.0123456789abcdef.data", "m.onnx.0123.data"]
    for name in others:
        (tmp_path / name).write_bytes(b"another's")
    for value in (1, 2, 3):
        save(weights(proto, value), tmp_path / "m.onnx", **LARGE)
    save(weights(proto, 4), tmp_path / "m.onnx", **options)
    assert value_of(tmp_path / "m.onnx") == 4
    made = set(contents(tmp_path)) - {*others, "m.onnx"}
    assert len(made) == len(options)


def test_no_reader_finds_a_model_with_the_weights_of_another(proto, tmp_path):
    """While two threads write, 400 reads always find the weights that belong to the graph."""
    path, stop, failed = tmp_path / "m.onnx", threading.Event(), []
    models = {k: weights(proto, k) for k in range(8)}
    save(models[0], path, **LARGE)

    def write(first):
        k = first
        while not stop.is_set():
            try:
                save(models[k % 8], path, **LARGE)
            except BaseException as error:  # pragma: no cover
                failed.append(error)
            k += 1

    writers = [threading.Thread(target=write, args=(k,)) for k in (0, 4)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(400):
            model = oj.load(path)
            found = {float(x) for a in model.constants.values() for x in a.flat}
            assert len(found) == 1
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not failed
    assert len(contents(tmp_path)) == 2
    value_of(path)


@pytest.mark.parametrize("options", [{}, LARGE])
def test_a_file_that_is_overwritten_keeps_its_mode(proto, tmp_path, options):
    path = tmp_path / "m.onnx"
    before = os.umask(0o027)
    try:
        save(proto, path, **options)
        assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o640}
        path.chmod(0o600)
        save(proto, path, **options)
        assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}
        save_text("text", path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_save_rejects_a_device_for_two_files(proto):
    with pytest.raises(oj.OnnxJacError, match="is no file"):
        save(proto, "/dev/null", **LARGE)


def command(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "onnxjac", *map(str, arguments)], text=True,
                          check=False, timeout=100, **options)  # fmt: skip


FULL = {
    "spectrum": ["spectrum", MODEL], "tags": ["tags", "--json"], "help": ["--help"],
    "version": ["--version"], "refusal": ["spectrum", "missing.onnx", "--json"],
    "export": ["export", MODEL, "-o", "{}/made.onnx"], "completion": ["--print-completion", "bash"],
}  # fmt: skip


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize(
    ("name", "buffered"), [*((name, True) for name in FULL), ("spectrum", False), ("help", False)]
)
def test_a_command_that_cannot_write_says_so(name, buffered, tmp_path):
    arguments = [str(argument).format(tmp_path) for argument in FULL[name]]
    settings = os.environ | {"PYTHONUNBUFFERED": "" if buffered else "1"}
    with open("/dev/full", "w") as full:
        done = command(*arguments, stdout=full, stderr=subprocess.PIPE, env=settings)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "onnxjac: error: cannot write: No space left on device"
    assert "Traceback" not in done.stderr


def test_a_command_that_can_say_nothing_ends_with_its_status():
    with open("/dev/full", "w") as full:
        assert command("spectrum", "missing.onnx", stdout=full, stderr=full).returncode == 1


SLOW = """
import sys, time
from pathlib import Path
from onnxjac import __main__
from onnxjac.modes.show import commands

def save(proto, draft):
    Path(draft).write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)

commands.save.__globals__["onnx"].save_model = save
sys.exit(__main__.main(sys.argv[1:]))
"""


def test_a_signal_to_end_leaves_nothing_behind(tmp_path):
    arguments = ["export", str(MODEL), "-o", str(tmp_path / "made.onnx")]
    process = subprocess.Popen([sys.executable, "-c", SLOW, *arguments], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    assert list(tmp_path.iterdir())
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    process.stdout.close()
    assert not list(tmp_path.iterdir())
