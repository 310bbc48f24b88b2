"""Former findings; files outside the folder of a model; the runner itself."""

import os

import numpy as np
import onnx
import pytest

import onnxjac as oj
from fuzz.builders import REFUSED, outside, text
from fuzz.corpus import Seed
from fuzz.mutate import mutant
from fuzz.trial import differentiate
from fuzz.workers import outcomes
from onnxjac.modes.model.loading.upgrade import INFERRED_ENTRIES, has_long_shape

SECRET = np.arange(6, dtype=np.float32).reshape(2, 3) + 100


@pytest.mark.parametrize("name", REFUSED)
def test_a_former_finding_is_refused(name):
    build, match = REFUSED[name]
    with pytest.raises(oj.OnnxJacError, match=match):
        differentiate(build().SerializeToString(), 0)


def test_an_operand_left_out_at_the_end_crashed_onnx_runtime():
    differentiate(text('y = DFT<inverse=1>(x, "", "")', "float[1,6,2] x").SerializeToString(), 0)


def test_a_size_of_any_length():
    model = text("y = Exp(x)")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert oj.load(model).inputs["x"].shape == (None, 3)


@pytest.mark.parametrize("kind", ["float", "int64"])
def test_a_long_vector_is_no_shape(kind):
    """ONNX's data propagation would visit every entry."""
    assert has_long_shape(text("y = Add(x, x)", f"{kind}[{INFERRED_ENTRIES + 1}] x"))
    assert not has_long_shape(text("y = Add(x, x)", f"{kind}[{INFERRED_ENTRIES}] x"))


def test_attributes_of_functions_are_checked_where_they_have_a_value():
    """A reference to an attribute has no value yet, so it cannot be rejected early."""
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21, "own": 1]>
    g (float[6] x) => (float[3] y) { y, z = own.parts<n=2>(x) }
    <opset_import: ["": 21], domain: "own"> parts<n>(a) => (b, c)
    { b, c = Split<axis=0, num_outputs: int = @n>(a) }""")
    J = oj.linearize(oj.load(model), {"x": np.ones(6, np.float32)})
    assert np.array_equal(J.toarray(), np.eye(3, 6))


def test_a_tensor_of_many_numbers_and_no_data():
    model = text("y = Exp(x)")
    model.graph.initializer.add(name="w", data_type=onnx.TensorProto.UINT64, dims=[3, 4, 2**31 - 1])
    with pytest.raises(oj.LoadError, match=r"'w' cannot be read: .* bytes are there"):
        oj.load(model)


def test_an_equation_that_is_none():
    with pytest.raises(oj.LoadError, match="equation"):
        oj.load(text('y = Einsum <equation = "-"> (x)'))


def test_fewer_outputs_than_are_named():
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 18]>
    g (float[2] x) => (float[1] b, float[1] c) { a, b, c = Split <num_outputs = 3> (x, x) }""")
    x = np.array([1, 1], np.float32)
    with pytest.raises(oj.OnnxJacError):
        oj.load(model).run({"x": x}, engine="numpy")


@pytest.fixture
def folder(tmp_path):
    """The folder of a model, with a file outside of it, and links to that file."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    (inside / "data.bin").write_bytes(SECRET.tobytes())
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    os.link(tmp_path / "secret.bin", inside / "hard.bin")
    (inside / "way").symlink_to(tmp_path)
    return inside


KINDS = ("initializer", "constant", "branch", "function")
PLACES = ("../secret.bin", "{}/secret.bin", "link.bin", "hard.bin", "way/secret.bin",
          "way/../secret.bin", "/etc/hostname", "missing.bin", "")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_read_outside_of_the_folder(place, kind, folder):
    path = folder / "model.onnx"
    onnx.save(outside(place.format(folder.parent), kind), path)
    with pytest.raises(oj.LoadError, match="cannot be read"):
        oj.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_data_beside_the_model_is_read(kind, folder):
    path = folder / "model.onnx"
    onnx.save(outside("data.bin", kind), path)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(oj.load(path).run({"x": x})["y"], x + SECRET)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_folder_nothing_is_read(kind, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(oj.LoadError, match="pass the model's path"):
        oj.load(outside("data.bin", kind))


CORPUS = [Seed("exp", text("y = Exp(x)").SerializeToString()),
          Seed("add", text("y = Add(x, x)").SerializeToString())]  # fmt: skip


def test_the_runner_tries_every_number_once():
    found = dict(outcomes(CORPUS, 0, range(20), jobs=2))
    assert sorted(found) == list(range(20))
    assert {verdict.kind for verdict in found.values()} >= {"result", "LoadError"}
    assert "finding" not in {verdict.kind for verdict in found.values()}


def test_a_mutant_is_the_same_again():
    assert mutant(CORPUS, 1, 2) == mutant(CORPUS, 1, 2)
    assert len({mutant(CORPUS, 1, number).data for number in range(50)}) > 25


BAD = {
    "crash: SIGKILL": lambda *_: os.kill(os.getpid(), 9),
    "ValueError": lambda *_: np.zeros(2).reshape(3),
    "MemoryError": lambda *_: np.zeros(2**50),
    "outside": lambda *_: open("/etc/hostname").close(),
    "outside: .*os.system": lambda *_: os.system("true"),
}


@pytest.mark.parametrize("name", BAD)
def test_the_runner_sees_what_is_bad(name, monkeypatch):
    monkeypatch.setattr("fuzz.trial.differentiate", BAD[name])
    ((_, verdict),) = outcomes(CORPUS, 0, [0], jobs=1)
    assert verdict.kind == "finding"
    assert verdict.text.startswith(name.split(":")[0])


def test_more_of_the_greatest_than_there_are():
    model = oj.load(text("y, i = TopK(x, k)", "float[2,3] x, int64[1] k"))
    point = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "k": np.array([2**50])}
    with pytest.raises(oj.OnnxJacError, match="k=1125899906842624 of 3 elements"):
        oj.linearize(model, point, engine="numpy")


@pytest.mark.parametrize(("step", "rows"), [("ConvTranspose", 3), ("Conv", 2**16)])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_kernel_of_many_taps_takes_no_step_for_each(step, rows, groups):
    """A million kernel taps took minutes, even with few elements of x or y."""
    channels = 2 if step == "ConvTranspose" else groups
    shapes = f"float[1,{channels},{rows},3] x, float[2,1,65536,3] w"
    model = oj.load(text(f"y = {step}<group={groups}>(x, w)", shapes))
    point = {name: np.ones(spec.shape, np.float32) for name, spec in model.inputs.items()}
    J = oj.linearize(model, point, engine="numpy")
    for K in (J, J.compile("numpy")):
        K.T @ (K @ np.ones(J.shape[1], np.float32))
