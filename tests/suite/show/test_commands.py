"""The commands: the files they write, the JSON that machines read, and completion in shells."""

import io
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from scipy.sparse import load_npz

import onnxjac as oj
from house import ROOT
from onnxjac.__main__ import main
from onnxjac.modes.linear.check import Check, Outcome
from onnxjac.modes.show import output
from onnxjac.modes.show.commands import COMMANDS, parser
from onnxjac.modes.show.output import COMMON
from show.running import DIGITS, GRADIENT, SAMPLES, answer, parsed, refused, written

NAMES = [command.name for command in COMMANDS]


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Arguments for each command."""
    out = ("-o", str(tmp_path / "out"))
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    return {
        "report": (DIGITS, "--html", str(tmp_path / "page.html")), "check": (DIGITS,),
        "jacobian": (DIGITS, *out), "spectrum": (DIGITS,), "export": (DIGITS, *out),
        "lower": (written(tmp_path, *GRADIENT), *out), "prove": ("Tanh",),
        "tags": ("--op", "Clip"), "view": (DIGITS, *out),
        "explain": (DIGITS, *out),
        "compare": (DIGITS, DIGITS, "--html", str(tmp_path / "page.html")),
        "sensitivities": (DIGITS, "--loss", "cross_entropy", "--measure", "--budget", "4", "--html",
                          str(tmp_path / "page.html"), "--hessians", str(tmp_path / "H.npz"), *out),
    }  # fmt: skip


@pytest.mark.sampled(0.2)
@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdin", "stdout", "stderr")])
@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_closed_streams_change_no_status(arguments, command, closed, monkeypatch):
    """As `>&-` and `2>&-` leave them; an error on a closed stderr goes nowhere else."""
    status = main([command.name, *arguments[command.name]])
    said = io.StringIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, said)
    for name in closed:
        monkeypatch.setattr(sys, name, None)
    assert main([command.name, *arguments[command.name]]) == status
    with pytest.raises(SystemExit):
        main([command.name, "--help"])
    said.truncate(0)
    assert main(["report", "nowhere.onnx"]) == 1
    assert bool(said.getvalue()) is ("stderr" not in closed)


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_keys_are_those_that_are_documented(capsys, arguments, command):
    found = parsed(capsys, command.name, *arguments[command.name])
    assert list(found)[:3] == ["command", "ok", "warnings"]
    assert set(found) == {*COMMON, *command.keys} - {"error"}
    assert (found["command"], found["ok"], found["warnings"]) == (command.name, True, [])


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_help_has_a_sentence_examples_keys_and_status(capsys, command):
    with pytest.raises(SystemExit):
        answer(capsys, command.name, "--help")
    out = capsys.readouterr().out
    assert command.run.__doc__ in " ".join(out.split())
    assert f"examples:\n  onnxjac {command.name} {command.examples[0]}\n" in out
    assert all(f"\n  {key} " in out for key in {**COMMON, **command.keys})
    assert "exit status: 0" in out
    assert "--quiet" in out


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_every_example_can_be_parsed(command):
    for example in command.examples:
        said = example.partition(" > ")[0].split()
        assert parser("0").parse_args([command.name, *said]).command is command


def test_the_report_says_what_the_text_says(capsys):
    found = parsed(capsys, "report", DIGITS, "--input", SAMPLES, "--wrt", "fc2.weight")
    assert found["jacobian"]["shape"] == [100, 640]
    assert found["point"] == [
        {"name": "image", "shape": [10, 1, 8, 8], "dtype": "float32", "given": True}
    ]
    assert found["model"]["ops"]["Conv"] == 2
    assert len(found["spectrum"]["values"]) == 5
    assert all(test["passed"] for test in found["check"])
    assert found["times"]["run"] > 0
    assert found["explanation"]["rows"][0]["op"]


def test_errors_are_json_objects(capsys):
    found = parsed(capsys, "check", DIGITS, "--of", "lgits", status=1)
    assert found["ok"] is False
    assert found["error"]["type"] == "UnknownTensor"
    assert "'logits'" in found["error"]["message"]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_numbers_that_are_not_finite_are_null(capsys, tmp_path):
    path = written(tmp_path, "g (float[9] x) => (float[9] y) { y = Sqrt(x) }")
    found = parsed(capsys, "check", path, status=1)
    assert found["ok"] is False
    assert None in [test["error"] for test in found["check"]]
    assert any("not finite" in text for text in found["warnings"])


def test_quiet_keeps_warnings_and_files_to_itself(capsys, tmp_path):
    graph = "g (float[3] x, float[3] y) => (float[3] z) { s = Sign(x) z = Mul(s, y) }"
    path = written(tmp_path, graph)
    cut = ("jacobian", path, "--wrt", "x", "-o", str(tmp_path / "J.npz"))
    _, out, err = answer(capsys, *cut)
    assert "entries" in out
    assert "warning" in err
    assert answer(capsys, *cut, "--quiet") == (0, "", "")
    assert parsed(capsys, *cut, "--quiet")["warnings"]


def test_a_spectrum_of_singular_values(capsys):
    found = parsed(capsys, "spectrum", DIGITS, "--k", "3", "--input", SAMPLES, "--wrt", "fc2.bias")
    J = oj.linearize(oj.load(DIGITS), dict(np.load(SAMPLES)), wrt="fc2.bias")
    exact = np.linalg.svd(J.toarray(), compute_uv=False)[:3]
    np.testing.assert_allclose(found["values"], exact, rtol=1e-5)
    assert found["of"] == "singular values"


@pytest.mark.parametrize("size", [3, 40])
def test_a_spectrum_of_a_hessian_has_signs(capsys, tmp_path, size):
    graph = f"""g (float[{size}] x) => (float y) <float[{size}] c = {{{",".join(
        str((k + 1) * (-1) ** k) for k in range(size))}}}>
        {{ z = Mul(x, x) w = Mul(c, z) y = ReduceSum<keepdims = 0>(w) }}"""
    path = written(tmp_path, graph)
    found = parsed(capsys, "spectrum", path, "--hessian", "--k", "2", "--dtype", "float64")
    sign = (-1) ** (size - 1)
    np.testing.assert_allclose(found["values"], [2 * size * sign, -2 * (size - 1) * sign])
    assert found["of"] == "eigenvalues"


def test_a_hessian_is_of_one_scalar(capsys, tmp_path):
    path = written(tmp_path, "g (float[3] x) => (float[3] y, float[3] z) { y = Exp(x) z = Sin(x) }")
    assert "--of" in refused(capsys, "spectrum", path, "--hessian")


def test_a_check_that_compares_nothing_is_status_3(capsys, tmp_path):
    text = "q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z)"
    model = written(tmp_path, f"g (float[3] x) => (float[3] y) {{ {text} }}")
    found = parsed(capsys, "check", model, status=3)
    assert (found["ok"], found["verdict"]) == (False, "not compared")
    assert [test["compared"] for test in found["check"]].count(False) == 1
    assert main(["check", model]) == 3
    assert "QuantizeLinear on the way" in capsys.readouterr().out


def test_a_failed_check_is_status_1(capsys, monkeypatch):
    failed = Check((Outcome("dot test", 1.0, 1e-3),))
    monkeypatch.setattr(oj.Linearization, "check", lambda J, **_: failed)
    assert parsed(capsys, "check", DIGITS, status=1)["check"][0]["passed"] is False


# -- files -----------------------------------------------------------------------------------------


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


def test_export_says_for_which_sizes(tmp_path, capsys):
    """One that a rule fixes, and one that the file fixes, until its batch is free."""
    def said(text, *options):
        file = written(tmp_path, text)
        status, out, err = answer(capsys, "export", file, *options, "-o", target, "--guards")
        assert status == 0
        return out.partition("\n")[2], err

    target = str(tmp_path / "out.onnx")
    fixed = "the dimension 'N' of 'x' is fixed at 2"
    out, err = said("""g (float[N,3] x) => (float[N,3] y) <int64[2] s = {2,3}>
        { t = Tanh(x) u = Reshape(t, s) y = Add(u, t) }""", "--shape", "x=2,3")
    assert out == f"right where\n{fixed}\n"
    assert f"{fixed}: Add (node 'Add_2', opset 21); for others export it again" in err
    assert "write the file with dynamic axes" in err
    stated = """g (float[2,3] x) => (float[2,3] y) <int64[2] s = {2,3}>
        { t = Tanh(x) y = Reshape(t, s) }"""
    every = "right at every point\n"
    shapes = "of the shapes that the file states; --dynamic-batch frees the batch\n"
    assert said(stated)[0] == every + shapes
    assert said(stated, "--dynamic-batch")[0] == every


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


def test_a_matrix_as_text_and_no_other_format(tmp_path, capsys, J):
    target = str(tmp_path / "J.csv")
    parsed(capsys, "jacobian", DIGITS, *ENDS, "-o", target)
    np.testing.assert_allclose(np.loadtxt(target, delimiter=","), J.toarray(), rtol=1e-6)
    for name, options in (("J.npy", ()), ("J.csv", ("--sparse",)), ("J.mtx", ("--sparse",))):
        error = refused(capsys, "jacobian", DIGITS, *ENDS, "-o", str(tmp_path / name), *options)
        assert "is written as .npz" in error
        assert not (tmp_path / name).exists() or name == "J.csv"


VECTOR = "g (float[n,3] x) => (float[n,3] y) { y = Tanh(x) }"


def test_a_hessian_of_several_entries_takes_weights(tmp_path, capsys):
    path = written(tmp_path, VECTOR)
    assert "--weights 1 takes the sum" in refused(capsys, "spectrum", path, "--hessian")
    turned = parsed(capsys, "spectrum", path, "--hessian", "--weights", "-0,0,-2")
    told = parsed(capsys, "spectrum", path, "--hessian", "--weights", "0,0,2")
    np.testing.assert_allclose(turned["values"], -np.array(told["values"]), atol=1e-9)
    x = np.random.default_rng(0).standard_normal((1, 3)).astype(np.float32)
    curved = -4 * np.tanh(x[0, 2]) * (1 - np.tanh(x[0, 2]) ** 2)
    np.testing.assert_allclose(told["values"], [curved, 0, 0], rtol=1e-4, atol=1e-6)
    assert "2 numbers" in refused(capsys, "spectrum", path, "--hessian", "--weights", "1,2")


def test_weights_without_a_hessian_are_refused(capsys):
    assert "--weights goes with --hessian" in refused(capsys, "spectrum", DIGITS, "--weights", "1")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("view", DIGITS, "-o", "graph.png"), "'graph.png' is not a name with .html or .htm"),
        (("report", DIGITS, "--html", "page.txt"), "'page.txt' is not a name with .html"),
        (("export", DIGITS, "-o", "made.txt"), "'made.txt' is not a name with .onnx"),
        (("report", DIGITS, "--shapes", "x=1"), "report: error: unrecognized arguments: --shapes "
         "x=1. Did you mean '--shape'? (try onnxjac report --help)"),
        (("export", DIGITS, "grad", "-o", "g.onnx"), "arguments: grad (try onnxjac export"),
    ],
)  # fmt: skip
def test_usage_is_refused_by_the_command(tmp_path, monkeypatch, capsys, argv, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_options_are_named_as_options(tmp_path, capsys):
    path = written(tmp_path, VECTOR)
    error = refused(capsys, "export", path, "--mode", "hvp", "-o", str(tmp_path / "h.onnx"))
    assert "--mode hvp needs one scalar output" in error
    assert error.strip().endswith("name it with --of")


DECODER = """
g (int64[b,s] ids, float[b,s,2] past) => (float[b,s,5] logits, float[b,s,2] present)
<float[7,2] E = {1,2,3,4,5,6,7,8,9,1,2,3,4,5}, float[2,5] W = {1,2,3,4,5,6,7,8,9,1}>
{ v = Gather(E, ids) present = Add(v, past) logits = MatMul(present, W) }
"""


def test_a_loss_names_its_options_as_the_command_takes_them(tmp_path, capsys):
    path, made = written(tmp_path, DECODER), str(tmp_path / "made.onnx")
    argv = ("export", path, "--mode", "grad", "-o", made, "--loss", "cross_entropy")
    error = refused(capsys, *argv)
    assert "name by at= what stands for x" in error
    assert "--at" not in error
    _, _, warned = answer(capsys, *argv, "at=logits")
    assert "if they are the 5 along the last axis, say axis=-1" in warned
    assert parsed(capsys, *argv, "at=logits", "axis=-1")["file"] == made


def test_one_class_is_told(tmp_path, capsys):
    path = written(tmp_path, "g (float[n,1] x) => (float[n,1] p) { p = Sigmoid(x) }")
    made = ("-o", str(tmp_path / "made.onnx"))
    _, _, told = answer(capsys, "export", path, "--mode", "grad", "--loss", "cross_entropy", *made)
    assert "'bce' is the loss of a probability" in told
    assert parsed(capsys, "export", path, "--mode", "grad", "--loss", "bce", *made)["ok"]


def test_a_target_has_the_sizes_of_what_the_loss_is_of(tmp_path, capsys):
    """Exporters name the sizes of an output anew."""
    path = written(tmp_path, "g (float[n,3] x) => (float[other,3] y) { y = Tanh(x) }")
    for kind in ("cross_entropy", "mse"):
        assert parsed(capsys, "check", path, "--loss", kind, "--shape", "x=4,3")["ok"]


def test_tokens_beside_floating_inputs_are_named(tmp_path, capsys):
    path, page = written(tmp_path, DECODER), str(tmp_path / "page.html")
    argv = ("explain", path, "--of", "logits", "-o", page)
    (told,) = parsed(capsys, *argv)["warnings"]
    assert told.endswith("with --wrt v by the tokens")
    found = parsed(capsys, *argv, "--wrt", "v")
    assert not found["warnings"]
    assert list(found["maps"]) == ["v"]


def test_integer_inputs_leave_the_choice_of_floating_tensors(tmp_path, capsys):
    text = "g (int64[n] i) => (float[n,2] y) <float[1,2] E = {1, 2}> { y = Gather(E, i) }"
    error = refused(capsys, "check", written(tmp_path, text))
    assert "no floating input, but i int64[n]: name at least one floating tensor by --wrt" in error
    assert "such as 'E'" in error
    error = refused(capsys, "check", written(tmp_path, "g (int64 i) => (int64 j) { j = Neg(i) }"))
    assert "no floating output, but j int64[]; no other tensor is floating" in error


CONVOLUTION = """
g (float[n,3,h,w] x) => (float[n,1,a,b] y)
{ k = Constant<value_ints=[1,3,5,5]>() z = ConstantOfShape<value=float[1]{1}>(k) y = Conv(x, z) }
"""


def test_sizes_that_run_are_found(tmp_path, capsys):
    path = written(tmp_path, CONVOLUTION)
    assert parsed(capsys, "check", path)["jacobian"]["shape"] == [16, 192]  # 8×8 pixels
    told = parsed(capsys, "check", path, "--shape", "x=1,3,6,5")
    assert told["jacobian"]["shape"] == [2, 90]
    time = ("g (float[n,3] x, float[2,n] m) => (float[a,b] y) { s = Constant<value_ints=[5]>() "
            "e = Constant<value_ints=[99]>() late = Slice(x, s, e) y = Tanh(late) }")  # fmt: skip
    assert parsed(capsys, "check", written(tmp_path, time))["jacobian"]["shape"] == [9, 40]
    never = "g (float[n,h,w] x, float[300,2] m) => (float[n,h,2] y) { y = MatMul(x, m) }"
    error = refused(capsys, "check", written(tmp_path, never))
    assert "runs at none of the sizes 1, 8, 32, 64, 128, 224" in error
    assert "--shape x=..." in error


def test_pages_are_named_after_the_file(capsys, tmp_path):
    page = tmp_path / "page.html"
    for argv in (("report", DIGITS, "--html", page), ("explain", DIGITS, "-o", page),
                 ("view", DIGITS, "-o", page), ("compare", DIGITS, DIGITS, "--html", page),
                 ("sensitivities", DIGITS, "--loss", "cross_entropy", "--html", page)):
        assert answer(capsys, *map(str, argv))[0] == 0
        assert re.search(r"<title>[^<]*digits\.onnx", page.read_text("utf-8"))


# -- completion ------------------------------------------------------------------------------------


def script(capsys, shell):
    with pytest.raises(SystemExit) as stop:
        main(["--print-completion", shell])
    assert stop.value.code in (0, None)
    return capsys.readouterr().out


def completed(program, *words):
    """The completions that bash offers after these words."""
    line = " ".join(f"'{word}'" for word in words)
    ask = f"""{program}
        COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}
        compopt() {{ :; }}
        $(complete -p onnxjac | sed 's/.*-F \\([^ ]*\\).*/\\1/') onnxjac '{words[-1]}' '{words[-2]}'
        printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_choices_and_files(capsys, tmp_path, monkeypatch):
    pytest.importorskip("shtab")
    program = script(capsys, "bash")
    assert completed(program, "onnxjac", "sp") == {"spectrum"}
    assert "--hessian" in completed(program, "onnxjac", "spectrum", "m.onnx", "--h")
    assert completed(program, "onnxjac", "check", "m.onnx", "--engine", "n") == {"numpy"}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some_model.onnx").touch()
    assert "some_model.onnx" in completed(program, "onnxjac", "check", "some_")


def test_zsh_gets_a_script_of_its_own(capsys):
    pytest.importorskip("shtab")
    assert script(capsys, "zsh").startswith("#compdef onnxjac")


def test_without_shtab_one_line_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as stop:
        main(["--print-completion", "bash"])
    assert stop.value.code == 1
    found = capsys.readouterr()
    assert "onnxjac[completion]" in found.err
    assert (found.out, found.err.count("\n")) == ("", 1)


SHELL = re.compile(r"```sh\n(.*?)```|`(onnxjac [^`]+)`", re.DOTALL)


def commands_in(page):
    """The commands of onnxjac in a page, in blocks for a shell and within sentences."""
    for block, inline in SHELL.findall(page.read_text("utf-8")):
        for line in (block or inline).splitlines():
            _, name, rest = line.partition("onnxjac ")
            if name and rest.split()[0] in NAMES:
                yield shlex.split(rest, comments=True)


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
         if any(commands_in(page))]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_pages_are_understood(page):
    """Those with arguments are parsed; a command in a sentence may be its name alone."""
    for argv in commands_in(page):
        if len(argv) > 1 and argv[1:] != ["--help"]:
            assert parser("1").parse_args(argv).command.name == argv[0]


def test_commands_of_the_first_page_run(capsys, tmp_path, monkeypatch):
    """On files of these names, where the page has an example of its own."""
    for argv in commands_in(ROOT / "README.md"):
        argv = [str(ROOT / word) if (ROOT / word).is_file() else word for word in argv]
        monkeypatch.chdir(tmp_path)
        shutil.copy(DIGITS, "model.onnx")
        if len(argv) > 1:
            assert answer(capsys, *argv)[0] == 0
