"""Bad model files: one clear one-line error that names the problem."""

import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import defs, helper, numpy_helper, parser

import onnxjac
from onnxjac.jacobians.errors import LoadError
from onnxjac.modes.model.loading.load import load
from onnxjac.ops.registry import DECLARATIONS

from .refusals import refused

X = np.ones((2, 3), np.float32)


def proto(body="y = Relu(x)", signature="(float[2,3] x) => (float[2,3] y)", opset=21):
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> g {signature} {{{body}}}'
    )


def external(folder, **changes):
    """A model with an external weight; `changes` modify the reference to its file."""
    model = proto("y = Add(x, w)")
    w = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    model.graph.initializer.append(w)
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="data.bin", size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = changes.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())
    return path, model


def test_a_file_that_is_not_there(tmp_path):
    refused(LoadError, "there is no file", lambda: load(tmp_path / "missing.onnx"))
    refused(LoadError, "there is no file", lambda: load(str(tmp_path)))


CONTENTS = {
    "garbage": b"\xff\xfe\x00garbage" * 10,
    "empty": b"",
    "text": b"this is not a protobuf",
    "half": proto().SerializeToString()[:40],
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_without_a_model_in_it(name, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(CONTENTS[name])
    refused(LoadError, "model.onnx|onnx", lambda: load(path))
    refused(LoadError, "bytes", lambda: load(CONTENTS[name]))


@pytest.mark.parametrize("source", [None, 3, X, proto().graph])
def test_load_rejects_other_objects(source):
    refused(LoadError, f"cannot load a {type(source).__name__}", lambda: load(source))
    examples = lambda: load("model.onnx", example_inputs=(1.0,))  # noqa: E731
    refused(LoadError, "for a module or a function, not for a str", examples)


def test_protos_without_a_graph_or_with_broken_sparse_weights():
    refused(LoadError, "no graph", lambda: load(onnx.ModelProto()))
    sparse = proto("y = Add(x, w)")
    sparse.graph.sparse_initializer.add().values.name = "w"
    refused(LoadError, "'w'.*do not fit", lambda: load(sparse))


def test_missing_external_data_is_named(tmp_path):
    path, _ = external(tmp_path)
    (tmp_path / "data.bin").unlink()
    refused(LoadError, "data of 'w' cannot be read.*data.bin", lambda: load(path))


def test_external_data_that_ends_too_early(tmp_path):
    path, _ = external(tmp_path, offset="9999")
    refused(LoadError, "data of 'w' cannot be read", lambda: load(path))
    path, _ = external(tmp_path)
    (tmp_path / "data.bin").write_bytes(bytes(20))
    refused(LoadError, "data of 'w' cannot be read", lambda: load(path))


def test_external_data_at_a_place_that_cannot_be(tmp_path):
    path, _ = external(tmp_path, offset="-8")
    refused(LoadError, "model.onnx", lambda: load(path))


def test_external_data_outside_the_folder_of_the_model(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "data.bin").write_bytes(bytes(24))
    path, _ = external(tmp_path / "inside", location="../data.bin")
    refused(LoadError, "data of 'w' cannot be read.*outside", lambda: load(path))


def test_external_data_of_something_without_a_folder(tmp_path):
    _, model = external(tmp_path)
    refused(LoadError, "data of 'w'.*data.bin.*path", lambda: load(model))
    refused(LoadError, "data of 'w'.*data.bin.*path", lambda: load(model.SerializeToString()))


def test_a_weight_without_data_is_named():
    model = ir.from_proto(proto("y = Add(x, w)", "(float[2,3] x, float[2,3] w) => (float[2,3] y)"))
    model.graph.initializers.add(model.graph.inputs.pop())
    refused(LoadError, "'w' has no data", lambda: load(model))


BROKEN = {
    "unknown operator": ("y = Frobnicate(x)", "Frobnicate"),
    "missing attribute": ("y = Cast(x)", "'to' is missing"),
    "assigned twice": ("y = Neg(x) y = Relu(x)", "SSA|unique|y"),
    "unknown tensor": ("y = Add(x, nothing)", "nothing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_graph_that_breaks_the_rules(name):
    body, match = BROKEN[name]
    refused(LoadError, match, lambda: load(proto(body)))


def test_an_opset_from_the_future():
    refused(LoadError, "opset 99.*install a newer onnx", lambda: load(proto(opset=99)))


def test_an_operator_that_cannot_be_raised():
    body = "y = BatchNormalization<spatial=0>(x, x, x, x, x)"
    refused(LoadError, "from opset 8 to 21.*Export it again", lambda: load(proto(body, opset=8)))


def test_a_dtype_that_is_not_offered():
    refused(LoadError, "float16", lambda: load(proto(), dtype="float16"))
    refused(LoadError, "fancy", lambda: load(proto(), dtype="fancy"))


def test_operators_of_other_domains_load():
    """They are refused only where their values or rules are needed."""
    node = helper.make_node("Frobnicate", ["x"], ["h"], domain="my")
    model = proto()
    model.graph.node.append(node)
    model.opset_import.add(domain="my", version=1)
    np.testing.assert_array_equal(load(model).run({"x": X})["y"], X)


@pytest.mark.parametrize(
    ("op_type", "domain", "name", "known"),
    [
        (*key, name, [*known])
        for key, found in DECLARATIONS.items()
        for name, known in found.values.items()
        if not key[1].startswith("onnxjac")
    ],  # no file has these domains
)
def test_attributes_that_have_no_declared_value_are_refused(op_type, domain, name, known):
    wrong = "unheard" if isinstance(known[0], str) else 7
    inputs, outputs, attrs = ["x", "x"], ["h"], {name: wrong}
    if domain != "com.microsoft":  # ONNX has no schemas for it
        schema = defs.get_schema(op_type, domain=domain)
        needed = {k: a.type.name for k, a in schema.attributes.items() if a.required and k != name}
        attrs |= {k: {"INTS": [1], "FLOATS": [1.0]}.get(kind, 1) for k, kind in needed.items()}
        inputs = ["x"] * schema.min_input
        outputs = [f"h{k}" for k in range(schema.min_output)]
    model = proto(opset=28 if op_type == "SpaceToDepth" else 24)
    node = helper.make_node(op_type, inputs, outputs, name="n", domain=domain, **attrs)
    model.graph.node.append(node)
    if domain:
        model.opset_import.add(domain=domain, version=1)
    words = rf"{op_type} \(node 'n'\).*{name}={wrong!r}: it must be one of"
    refused(LoadError, words, lambda: load(model))


def test_a_symbol_of_independent_axes_is_ignored():
    """PaddlePaddle writes one name for all axes: ONNX Runtime does not compare them."""
    signature = "(float[N,N] x, float[3,N] w) => (float[N,N] y)"
    model = load(proto("y = MatMul(x, w)", signature))
    x, w = X, np.ones((3, 5), np.float32)
    with pytest.warns(onnxjac.OnnxJacWarning, match="but N is 2 in 'x': the name is ignored"):
        J = onnxjac.linearize(model, {"x": x, "w": w}, wrt="x")
    np.testing.assert_allclose(J.toarray(), np.kron(np.eye(2), w.T))
    assert model.inputs["x"].shape == (None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.run({"x": x[:1], "w": w})["y"].shape == (1, 5)
        assert J.relinearize({"x": -x, "w": w}).check()
