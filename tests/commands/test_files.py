"""The commands that write files: export, lower, jacobian."""

import numpy as np
import onnx
import pytest
from scipy.sparse import load_npz

import onnxjac as oj
from commands.running import DIGITS, GRADIENT, SAMPLES, parsed, refused, written
from onnxjac.__main__ import main


@pytest.mark.parametrize("mode", ["jvp", "vjp", "jacobian"])
def test_export_writes_a_model_that_loads(tmp_path, capsys, mode):
    target = tmp_path / "out.onnx"
    assert main(["export", DIGITS, "--mode", mode, "--wrt", "image", "-o", str(target)]) == 0
    graph, said = onnx.load(target).graph, capsys.readouterr().out
    assert said.startswith(f"{target}: (")
    assert all(end.name in said for end in (*graph.input, *graph.output))
    onnx.checker.check_model(onnx.load(target), full_check=True)
    assert "logits" in oj.load(target).outputs


def test_lower_replaces_the_gradient(tmp_path, capsys):
    target = tmp_path / "out.onnx"
    assert main(["lower", written(tmp_path, *GRADIENT), "-o", str(target)]) == 0
    a, b = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    found = oj.load(target).run({"a": a, "b": b})
    np.testing.assert_array_equal(found["da"], b)
    np.testing.assert_array_equal(found["db"], a)


def test_a_folder_that_is_not_there_is_one_line(tmp_path, capsys):
    target = tmp_path / "nowhere" / "out.onnx"
    assert main(["export", DIGITS, "-o", str(target)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("onnxjac: error: cannot write")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_export_lists_where_it_is_right(tmp_path, capsys):
    text = """<ir_version: 10, opset_import: ["": 21]>
        f (double[N,3] x) => (double[N,3] y) { s = Squeeze(x)  y = Sin(s) }"""
    source, target = tmp_path / "squeezed.onnx", tmp_path / "out.onnx"
    onnx.save(onnx.parser.parse_model(text), source)
    np.savez(tmp_path / "point.npz", x=np.ones((4, 3)))
    given = ["export", str(source), "--input", str(tmp_path / "point.npz"), "-o", str(target)]
    assert main([*given, "--guards"]) == 0
    assert "right where\nN != 1\n" in capsys.readouterr().out
    assert main(["export", DIGITS, "--wrt", "image", "-o", str(target), "--guards"]) == 0
    assert "right at every point" in capsys.readouterr().out


def test_export_of_a_gradient_needs_a_scalar(tmp_path, capsys):
    assert main(["export", DIGITS, "--mode", "grad", "-o", str(tmp_path / "out.onnx")]) == 1
    assert "one scalar output" in capsys.readouterr().err


ENDS = ("--input", SAMPLES, "--wrt", "fc2.weight", "fc2.bias", "--of", "logits")


@pytest.fixture(scope="module")
def J():
    return oj.linearize(oj.load(DIGITS), dict(np.load(SAMPLES)), of="logits",
                        wrt=["fc2.weight", "fc2.bias"])  # fmt: skip


@pytest.mark.parametrize("sparse", [False, True])
def test_the_matrix_with_the_names_of_its_rows_and_columns(tmp_path, capsys, J, sparse):
    target = str(tmp_path / "J")  # no suffix is added
    told = parsed(capsys, "jacobian", DIGITS, *ENDS, "-o", target, *["--sparse"] * sparse)
    held = np.load(target)
    matrix = load_npz(target).toarray() if sparse else held["jacobian"]
    np.testing.assert_allclose(matrix, J.toarray(), rtol=1e-6)
    assert list(held["wrt"]) == ["fc2.weight", "fc2.bias"]
    start, stop, end = held["wrt_offsets"]
    assert (start, stop, end) == (0, 640, 650)
    np.testing.assert_allclose(matrix[:, stop:end], J["logits", "fc2.bias"].toarray(), rtol=1e-6)
    assert list(held["of"]) == ["logits"]
    assert told["sparse"] == sparse
    assert told["entries"] == (J.tosparse().nnz if sparse else matrix.size)


def test_a_matrix_that_is_too_large_is_one_line(tmp_path, capsys):
    graph = "g (float[100000] x) => (float[100000] y) { y = Tanh(x) }"
    path = written(tmp_path, graph)
    error = refused(capsys, "jacobian", path, "-o", str(tmp_path / "J.npz"))
    assert "GiB" in error
    assert not (tmp_path / "J.npz").exists()
