"""The report: its output, its errors for bad input, and its parts."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxjac
from onnxjac.__main__ import main
from onnxjac.jacobians import Dense, Diagonal
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.linear.check import Check, Outcome
from onnxjac.modes.show.report import draw_inputs, section
from onnxjac.modes.show.spectra import largest_values
from show.running import DIGITS, SAMPLES, answer, refused, written

TITLES = ("model", "inputs", "outputs", "point", "jacobian", "structure", "signs", "heaviest",
          "memory", "check", "singular", "time", "next")  # fmt: skip


def titled(out):
    """The text next to each title of a report."""
    found, title = {}, ""
    for line in out.splitlines():
        title = line[:12].strip() or title
        found.setdefault(title, []).append(line[12:])
    return found


def test_the_report_of_digits_has_every_section(capsys):
    status, out, err = answer(capsys, "report", DIGITS)
    found = titled(out)
    assert (status, err) == (0, "")
    assert tuple(found) == TITLES
    assert "10×64 float32" in found["jacobian"][0]
    assert found["structure"][0] == "9 blocks"
    assert "conv_x 2" in found["structure"][1]
    assert found["heaviest"][0].startswith("Conv")
    assert "the matrix would take 2.5 KiB" in found["memory"][0]
    assert "J.toarray()" in found["memory"][1]
    assert "diag: each entry times a number" in " ".join(found["signs"])
    (check,) = found["check"]
    assert check.startswith("all 14 tests passed; largest error ")
    assert found["next"][0].startswith(f"onnxjac view {DIGITS}")
    assert all(len(line) <= 110 for line in out.splitlines() if DIGITS not in line)
    timed = [line.split(":")[0] for line in found["time"]]
    assert timed == ["one run of the model", "J @ v", "Jᵀ @ u"]


def test_the_report_of_a_given_point_has_its_singular_values(capsys):
    _, out, _ = answer(capsys, "report", DIGITS, "--input", SAMPLES, "--wrt", "fc2.weight",
                       "fc2.bias", "--of", "logits", "--dtype", "float64", "--engine",
                       "numpy")  # fmt: skip
    found = titled(out)
    assert found["point"] == ["image float64[10×1×8×8], given"]
    assert "100×650 float64" in found["jacobian"][0]
    weights = onnxjac.load(DIGITS, dtype="float64")
    J = onnxjac.linearize(weights, dict(np.load(SAMPLES)), wrt=["fc2.weight", "fc2.bias"])
    exact = np.linalg.svd(J.toarray(), compute_uv=False)[:5]
    np.testing.assert_allclose(np.array(found["singular"][0].split(), float), exact, rtol=1e-4)


def test_the_seed_decides_the_singular_values(capsys):
    def values(seed):
        return titled(answer(capsys, "report", DIGITS, "--seed", seed)[1])["singular"]

    assert values("1") == values("1") != values("2")


def test_a_failed_check_is_status_1(capsys, monkeypatch):
    failed = Check((Outcome("dot test", 1.0, 1e-3),))
    monkeypatch.setattr(onnxjac.Linearization, "check", lambda J, **_: failed)
    status, out, _ = answer(capsys, "report", DIGITS)
    assert status == 1
    assert titled(out)["check"][0] == "wrong: 1 of 1 tests wrong"
    assert titled(out)["check"][1].startswith("FAIL dot test")
    assert "--dtype float64" in titled(out)["next"][0]


def test_a_quantised_file_is_told_how_to_pass_roundings(capsys, tmp_path):
    path = written(tmp_path, """g (float[3] x) => (float[3] z) <float s = {0.1}, int8 o = {0}>
        { q = QuantizeLinear(x, s, o) y = DequantizeLinear(q, s, o) z = Add(x, y) }""")
    status, out, err = answer(capsys, "report", path)
    assert status == 3
    assert "--straight-through passes roundings" in err
    assert titled(out)["next"][1].startswith(f"onnxjac report {path} --straight-through")
    status, out, _ = answer(capsys, "report", path, "--straight-through")
    assert (status, len(titled(out)["next"])) == (3, 1)
    for argv in (("check", path), ("check", path, "--json")):
        out = answer(capsys, *argv)[1]
        assert "--straight-through estimates these" in out
        assert "straight_through" not in out


def test_only_roundings_are_told_to_be_passed(capsys, monkeypatch):
    open_ = Check((Outcome("dot test", 0.0, 1e-3, compared=False),))
    monkeypatch.setattr(onnxjac.Linearization, "check", lambda J, **_: open_)
    status, out, _ = answer(capsys, "report", DIGITS)
    assert (status, len(titled(out)["next"])) == (3, 1)


def test_a_model_without_rounding_errors(capsys, tmp_path):
    path = written(tmp_path, "g (float[3] x) => (float[3] z) { y = Sub(x, x) z = Neg(y) }")
    assert answer(capsys, "report", path)[0] == 0


def test_a_file_in_training_mode_is_random(capsys, tmp_path):
    text = """g (float[3] x) => (float[3] y) <float r = {0.5}, bool t = {1}>
        { d = Dropout(x, r, t) y = Tanh(d) }"""
    said = "random: Dropout 1; J is of one sample"
    assert said in answer(capsys, "report", written(tmp_path, text))[1]
    text = text.replace("{1}", "{0}")
    assert "random: " not in answer(capsys, "report", written(tmp_path, text))[1]


def test_report_of_a_zero_jacobian_names_other_tensors(capsys, tmp_path):
    """And the way on is another pair of tensors."""
    path = written(tmp_path, "g (float[3] x) => (float[3] y) { s = Sign(x) y = Neg(s) }")
    status, out, _ = answer(capsys, "report", path)
    found = titled(out)
    assert status == 0
    assert found["structure"][0] == "0 blocks"
    assert found["next"][0].startswith("--wrt NAME --of NAME")
    assert not {"signs", "heaviest", "memory"} & found.keys()


def test_sizes_that_the_file_leaves_open_are_told(capsys, tmp_path):
    path = written(tmp_path, "g (float[n,3,h,8] x) => (float[n,3,h,8] y) { y = Tanh(x) }")
    told = titled(answer(capsys, "report", path)[1])["next"][-1]
    assert told == "--shape x=1,3,1,8: or another size"
    given = titled(answer(capsys, "report", path, "--shape", "x=1,3,5,8")[1])["point"]
    assert given == ["x float32[1×3×5×8], random"]
    path = written(tmp_path, "g (float[n,3] x) => (float[n,3] y) { y = Tanh(x) }")
    assert "--shape" not in answer(capsys, "report", path)[1]


def test_every_test_is_listed_where_asked_for(capsys):
    found = titled(answer(capsys, "report", DIGITS, "--verbose")[1])["check"]
    assert len(found) == 15
    assert all(line.startswith("ok") for line in found[1:])


def test_report_warns_of_a_cut_path_in_one_line(capsys, tmp_path):
    graph = "g (float[3] x, float[3] y) => (float[3] z) { s = Sign(x) z = Mul(s, y) }"
    path = written(tmp_path, graph)
    status, out, err = answer(capsys, "report", path, "--wrt", "x")
    assert status == 0
    assert titled(out)["singular"][0] == "0  0  0"
    assert err.startswith("onnxjac: warning: 'z' does not depend differentiably on 'x'")
    assert err.count("\n") == 1


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_point_that_is_no_number(capsys, tmp_path):
    path = written(tmp_path, "g (float[9] x) => (float[9] y) { y = Sqrt(x) }")
    status, out, err = answer(capsys, "report", path)
    assert status == 1
    assert "'y' is not finite" in err
    assert "not finite" in titled(out)["singular"][-1]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["none.onnx"], "none.onnx"),
        ([__file__], "test_report.py"),
        ([DIGITS, "--wrt", "fc1.weihgt"], "Did you mean 'fc1.weight'"),
        ([DIGITS, "--of", "nothing"], "'nothing'"),
        ([DIGITS, "--wrt", "val_6"], "int64"),
        ([DIGITS, "--shape", "imgae=1,1,8,8"], "Did you mean 'image'"),
        ([DIGITS, "--shape", "image=1,8,8"], "[1, 8, 8]"),
        ([DIGITS, "--input", "none.npz"], "cannot read 'none.npz'"),
        ([DIGITS, "--input", DIGITS], "is not an npz file"),
    ],
)
def test_files_and_names_that_do_not_fit_are_refused(capsys, argv, expected):
    assert expected in refused(capsys, "report", *argv)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"image": np.zeros((1, 8, 8), np.float32)}, "image"),
        ({"image": np.zeros((1, 1, 8, 8), int)}, "int64"),
        ({"img": np.zeros((1, 1, 8, 8))}, "Did you mean 'image'"),
        ({"image": np.array([None])}, "not a plain array"),
    ],
)
def test_arrays_that_do_not_fit_the_input_are_refused(capsys, tmp_path, arrays, expected):
    np.savez(tmp_path / "point.npz", **arrays)
    assert expected in refused(capsys, "report", DIGITS, "--input", str(tmp_path / "point.npz"))


def test_a_damaged_archive_is_refused(capsys, tmp_path):
    content = bytearray(Path(SAMPLES).read_bytes())
    content[60:90] = bytes(30)
    (tmp_path / "point.npz").write_bytes(content)
    refused(capsys, "report", DIGITS, "--input", str(tmp_path / "point.npz"))


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["zork"],
        ["report"],
        ["report", DIGITS, "--zork"],
        ["report", DIGITS, "--shape", "image"],
        ["report", DIGITS, "--shape", "image=1,-1"],
        ["report", DIGITS, "--seed=-1"],
        ["report", DIGITS, "--dtype", "float16"],
    ],
)
def test_a_wrong_call_is_status_2_with_one_line(capsys, argv):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("argv", "expected"), [
    (["--version"], f"onnxjac {onnxjac.__version__}\n"),
    (["--help"], "onnxjac jacobian model.onnx -o jacobian.npz"),
    (["report", "--help"], "exit status: 0"),
])  # fmt: skip
def test_help_and_version_are_printed_with_status_0(capsys, argv, expected):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 0
    assert expected in capsys.readouterr().out


def test_the_module_runs_on_an_ascii_terminal():
    """Run as a module, on a terminal that supports ASCII only."""
    command = [sys.executable, "-m", "onnxjac", "report", DIGITS, "--wrt", "nothing"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=ascii_only, check=False)
    assert done.returncode == 1
    assert "float32[1?1?8?8], random" in done.stdout
    assert done.stderr.startswith("onnxjac: error:")


# -- parts: points at random, singular values, text ------------------------------------------------


def parsed(text):
    """A model from ONNX's text format."""
    return onnxjac.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))


def test_inputs_are_drawn_in_the_shapes_and_types_declared():
    model = parsed("""g
        (float[n, 3] x, double[n] w, int64[m, 2] i, bool[k] b) =>
        (float[n, 3] y, double[n] v, int64[m, 2] j, bool[k] c)
        { y = Identity(x) v = Identity(w) j = Identity(i) c = Identity(b) }""")
    drawn = draw_inputs(model, {}, {"x": (4, 3)})
    assert {name: (a.shape, str(a.dtype)) for name, a in drawn.items()} == {
        "x": ((4, 3), "float32"), "w": ((4,), "float64"),
        "i": ((1, 2), "int64"), "b": ((1,), "bool"),
    }  # fmt: skip
    assert set(drawn["i"].ravel()) <= {0, 1}
    given = draw_inputs(model, {"w": np.ones(5)})
    assert given["x"].shape == (5, 3)
    assert (given["w"] == 1).all()


def test_a_mask_masks_nothing(capsys, tmp_path):
    """A row of zeros would leave no derivative, and where it is added no slope to check."""
    path = written(tmp_path, """g (int64[2,3] attention_mask, bool[2,3] key_padding_mask,
            float[2,3] x) => (float[2,3] y)
        <float one = {1}, float low = {-3.4e38}>
        { m = Cast<to=1>(attention_mask) o = Sub(one, m) q = Mul(o, low) s = Add(x, q)
          e = Where(key_padding_mask, low, s) y = Softmax(e) }""")
    for seed in "0123":
        said = answer(capsys, "report", path, "--seed", seed)[1]
    assert "attention_mask int64[2×3], all ones" in said
    assert "key_padding_mask bool[2×3], all zeros" in said
    assert "x float32[2×3], random" in said
    assert answer(capsys, "check", path)[0] == 0


def test_a_string_cannot_be_drawn():
    model = parsed("g (string[2] s, float[2] x) => (float[2] y) { y = Identity(x) }")
    with pytest.raises(InputError, match="'s'"):
        draw_inputs(model, {})


@pytest.mark.parametrize("shape", [(40, 9), (9, 40), (6, 50), (1, 1), (7, 7)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_largest_singular_values_agree_with_numpy(shape, dtype):
    matrix = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    found = largest_values(Dense(matrix, shape[:1], shape[1:]))
    exact = np.linalg.svd(matrix.astype(float), compute_uv=False)[:5]
    np.testing.assert_allclose(found.values, exact, rtol=2e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("diagonal", [np.zeros(20), np.ones(20), np.eye(20)[3], np.arange(20.0)])
def test_singular_values_of_symmetric_operators(diagonal):
    found = largest_values(Diagonal(diagonal, (20,)))
    np.testing.assert_allclose(found.values, np.sort(diagonal)[:-6:-1], atol=1e-7)


def test_a_section_indents_its_lines_below_the_title():
    assert section("title", ["one", "two"]) == "title       one\n            two"


TOKENS = """<ir_version: 10, opset_import: ["": 21]>
g (int64[N,T] ids, int64[N,T] mask) => (float[N,T,2] y)
<float[5,2] table = {1,2,3,4,5,6,7,8,9,10}, float[4,2] places = {1,2,3,4,5,6,7,8},
 float[2,2] w = {1,2,3,4}, int64 one = {1}>
{ words = Gather(table, ids) s = CumSum(mask, one) at = Sub(s, one) steps = Gather(places, at)
  h = Add(words, steps) z = MatMul(h, w) y = Tanh(z) }"""


QUANTISED = """<ir_version: 10, opset_import: ["": 21]>
g (int64[N,T] ids) => (float[N,T,2] y)
<uint8[5,2] table = {1,2,3,4,5,6,7,8,9,10}, float s = {0.5}, uint8 o = {5}>
{ rows = Gather(table, ids) words = DequantizeLinear(rows, s, o) y = Tanh(words) }"""


WHOLE = QUANTISED.replace("rows = Gather(table, ids) words = DequantizeLinear(rows, s, o)",
                          "rows = DequantizeLinear(table, s, o) words = Gather(rows, ids)")
ADDED = QUANTISED.replace("21", '21, "com.microsoft": 1').replace(
    "words = DequantizeLinear(rows, s, o)",
    """lost = DequantizeLinear(rows, s, o) n = Shape(lost)
       sum = com.microsoft.QLinearAdd(rows, s, o, rows, s, o, s, o)
       words = DequantizeLinear(sum, s, o)""")  # fmt: skip


@pytest.mark.parametrize("text", [TOKENS, QUANTISED, WHOLE, ADDED])
def test_derivatives_are_by_the_vectors_of_tokens(tmp_path, capsys, text):
    """Where nothing is named: J, its picture, a Hessian and an export. Quantised tables and vectors
    have them where they are floating again, as quantisers of each format write them.
    """
    file, out = str(tmp_path / "m.onnx"), str(tmp_path / "out")
    onnx.save(onnx.parser.parse_model(text), file)
    for argv in (["report"], ["check"], ["jacobian", "-o", out], ["view", "-o", out]):
        assert main([argv[0], file, *argv[1:]]) == 0
    assert capsys.readouterr().out.count("(words 1×1×2) → (y 1×1×2), 2×2 float32") == 4
    sum_of = ("--loss", "l1", "reduction=sum")
    assert main(["spectrum", file, "--hessian", *sum_of]) == 0
    assert main(["export", file, "--mode", "grad", *sum_of, "-o", out]) == 0
    assert "words_grad" in capsys.readouterr().out


def test_embeddings_are_proposed_for_tokens():
    """By the library, in the model's order, before its weights."""
    model = onnxjac.load(onnx.parser.parse_model(TOKENS))
    with pytest.raises(InputError, match=r"no floating input, but ids int64\[N,T\], mask") as error:
        onnxjac.linearize(model, {"ids": [[0, 1]], "mask": [[1, 1]]})
    assert "such as 'words', 'steps', 'table', 'places'" in str(error.value)


DECODER = """g (int64[batch,tokens] ids, float[batch,past,2] cache, float[batch,past,2] other,
                float[batch,total] mask) => (float[batch,1,2] y)
<float[3,2] table = {{1,2,3,4,5,6}}, int64[1] one = {{1}}>
{{ words = Gather(table, ids) seen = Concat<axis=1>(cache, words) all = Concat<axis=1>({})
  k = Unsqueeze(all, one) y = MatMul(k, seen) t = Add(cache, other) }}"""


def test_a_mask_is_as_long_as_cache_and_tokens(tmp_path, capsys):
    """Where no sizes do, one input for each size is named."""
    path = written(tmp_path, DECODER.format("mask"))
    assert "mask float32[1×2], random" in answer(capsys, "report", path)[1]
    error = refused(capsys, "check", written(tmp_path, DECODER.format("mask, mask, mask, mask")))
    assert "by --shape ids=... --shape cache=... --shape mask=...;" in error
