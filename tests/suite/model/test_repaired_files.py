"""Files that break ONNX's rules, and that ONNX Runtime runs nevertheless."""

import warnings

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose
from onnx import TensorProto, helper, numpy_helper

import onnxjac as oj
from onnxjac.modes.model.loading.bodies import block_size

X = np.random.default_rng(3).standard_normal((2, 4)).astype(np.float32)
W = np.diag([1.0, -2.0, 0.5, 3.0]).astype(np.float32)
ONES = numpy_helper.from_array(np.ones(4, np.float32), "s")
node = helper.make_node


def model(*nodes, opset=17, imports=(), initializers=()):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [*initializers])
    versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in imports)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9)


def sparse(indices, name="w"):
    values = helper.make_tensor(name, TensorProto.FLOAT, [4], np.diag(W))
    rows = np.asarray(indices)
    at = helper.make_tensor("at", TensorProto.INT64, rows.shape, rows.ravel())
    return helper.make_sparse_tensor(values, at, [4, 4])


def with_sparse_initializer():
    made = model(node("MatMul", ["x", "w"], ["y"]))
    made.graph.sparse_initializer.append(sparse([0, 5, 10, 15]))
    return made


def without_a_name():
    made = model(node("Tanh", ["x"], ["y"]))
    made.graph.name = ""
    return made


def product(x):
    return x @ W


def normalized(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2 + 1e-5)


MICROSOFT = "com.microsoft"
CONSTANT = node("Constant", [], ["w"], sparse_value=sparse([[k, k] for k in range(4)]))
FILES = {
    "nodes out of order": (
        lambda: model(node("Tanh", ["t"], ["y"]), node("Add", ["x", "x"], ["t"])),
        lambda x: np.tanh(2 * x),
    ),
    "a domain without an import": (
        lambda: model(node("QuickGelu", ["x"], ["y"], domain=MICROSOFT, alpha=1.0)),
        lambda x: x / (1 + np.exp(-x)),
    ),
    "an operator of a later opset": (
        lambda: model(node("LayerNormalization", ["x", "s"], ["y"]), opset=12, initializers=[ONES]),
        normalized,
    ),
    "a graph without a name": (without_a_name, np.tanh),
    "a sparse initializer": (with_sparse_initializer, product),
    "a sparse constant": (lambda: model(CONSTANT, node("MatMul", ["x", "w"], ["y"])), product),
}



def with_question_marks():
    made = model(node("Tanh", ["x"], ["y"]))
    for value in (*made.graph.input, *made.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = "?"
    return made


def without_types():
    made = model(node("Tanh", ["x"], ["t"]), node("Tanh", ["t"], ["y"]))
    made.graph.value_info.append(onnx.ValueInfoProto(name="t"))
    made.graph.output[0].ClearField("type")
    return made


def legacy(op_type, **attributes):
    """An operator that ONNX has no more, between others, in opset 7."""
    return lambda: model(node("Identity", ["x"], ["t"]), node(op_type, ["t"], ["y"], **attributes),
                         opset=7)  # fmt: skip


FILES |= {
    "the same unknown length everywhere": (with_question_marks, np.tanh),
    "values without a type": (without_types, lambda x: np.tanh(np.tanh(x))),
    "Affine": (legacy("Affine", alpha=2.0, beta=0.5), lambda x: 2 * x + 0.5),
    "Scale": (legacy("Scale", scale=3.0), lambda x: 3 * x),
    "ScaledTanh": (legacy("ScaledTanh", alpha=2.0, beta=0.5), lambda x: 2 * np.tanh(x / 2)),
    "ParametricSoftplus": (
        legacy("ParametricSoftplus", alpha=2.0, beta=0.5),
        lambda x: 2 * np.log1p(np.exp(x / 2)),
    ),
    "ThresholdedRelu": (legacy("ThresholdedRelu", alpha=0.4), lambda x: np.where(x > 0.4, x, 0)),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_repaired_models_compute_their_function(name):
    make, f = FILES[name]
    J = oj.linearize(oj.load(make()), {"x": X})
    assert_allclose(J.primal["y"], f(X), rtol=1e-4, atol=1e-5)
    assert J.check()


def test_onnxruntime_runs_the_files_unrepaired():
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(4)
    for make, f in FILES.values():
        session = ort.InferenceSession(make().SerializeToString())
        assert_allclose(session.run(None, {"x": X})[0], f(X), rtol=1e-4, atol=1e-5)


def test_an_image_is_scaled():
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 2, 2]) for n in "xy")
    scaler = node("ImageScaler", ["x"], ["t"], scale=2.0, bias=[1.0, 2.0, 3.0])
    graph = helper.make_graph([scaler, node("Tanh", ["t"], ["y"])], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=3)
    image = np.random.default_rng(4).standard_normal((1, 3, 2, 2)).astype(np.float32)
    ort = pytest.importorskip("onnxruntime")
    (expected,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": image})
    J = oj.linearize(oj.load(proto), {"x": image})
    assert_allclose(J.primal["y"], expected, rtol=1e-5, atol=1e-6)
    assert_allclose(J.toarray(), np.diag(2 * (1 - expected.ravel() ** 2)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [{}, {"scale": [2, 3]}])
def test_an_image_is_cropped(scale):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 5, 6]) for n in "xy")
    y.type.tensor_type.shape.Clear()
    crop = node("Crop", ["t"], ["y"], border=[1, 2, 0, 1], **scale)
    graph = helper.make_graph([node("Tanh", ["x"], ["t"]), crop], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=3)
    image = np.random.default_rng(4).standard_normal((1, 2, 5, 6)).astype(np.float32)
    ort = pytest.importorskip("onnxruntime")
    (expected,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": image})
    J = oj.linearize(oj.load(proto), {"x": image})
    assert_allclose(J.primal["y"], expected, rtol=1e-5)
    assert J.check()


def turned(*perm):
    """A model of a Transpose, in a function and behind it."""
    inner = node("Transpose", ["a"], ["b"], perm=perm)
    function = helper.make_function("f", "F", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)])
    made = model(node("F", ["x"], ["t"], domain="f"), node("Transpose", ["t"], ["u"], perm=perm),
                 node("Tanh", ["u"], ["y"]), imports=["f"])  # fmt: skip
    made.functions.append(function)
    return made


@pytest.mark.parametrize(("perm", "same"), [((-1, 0), (1, 0)), ((-2, -1), (0, 1))])
def test_axes_of_perm_may_count_from_the_last(perm, same):
    """ONNX Runtime refuses what is meant clearly."""
    J, expected = (oj.linearize(oj.load(turned(*order)), {"x": X}) for order in (perm, same))
    assert_allclose(J.toarray(), expected.toarray())
    assert J.check()


@pytest.mark.parametrize("perm", [(-1, 1), (-3, 0), (0, 2)])
def test_a_perm_that_does_not_have_each_axis_once(perm):
    with pytest.raises(oj.LoadError, match="it must have each axis once"):
        oj.load(turned(*perm))


@pytest.mark.parametrize("axes", [["axes"], []])
def test_a_slice_by_inputs_of_an_early_file(axes):
    """DynamicSlice, an experiment of early ONNX that ONNX Runtime still runs."""
    ort = pytest.importorskip("onnxruntime")
    made = model(
        node("Tanh", ["x"], ["t"]), node("DynamicSlice", ["t", "starts", "ends", *axes], ["y"]),
        opset=7, initializers=[numpy_helper.from_array(np.array(a), n) for a, n in
                               (([1, 0], "starts"), ([3, -1], "ends"), ([1, 0], "axes"))],
    )  # fmt: skip
    made.graph.output[0].type.tensor_type.shape.Clear()
    J = oj.linearize(oj.load(made), {"x": X})
    (expected,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": X})
    assert_allclose(J.primal["y"], expected)
    assert J.check()


@pytest.mark.parametrize("opset", [1, 5])
def test_a_type_of_cast_may_be_a_name(opset):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy")
    zero = helper.make_tensor_value_info("zero", TensorProto.FLOAT, [])
    nodes = [node("Exp", ["x"], ["t"]), node("Greater", ["x", "zero"], ["b"], broadcast=1),
             node("Cast", ["b"], ["c"], to="FLOAT"), node("Mul", ["c", "t"], ["y"])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [x, zero], [y],
                              [numpy_helper.from_array(np.float32(0), "zero")])  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    J = oj.linearize(oj.load(proto), {"x": X})
    assert_allclose(J.toarray(), np.diag(np.where(X > 0, np.exp(X), 0).ravel()), rtol=1e-6)
    assert J.check()


def test_an_operator_that_onnx_runtime_has_in_the_default_domain_runs_there():
    ort = pytest.importorskip("onnxruntime")
    norm = node("SimplifiedLayerNormalization", ["t", "s"], ["y"], axis=-1, epsilon=1e-3)
    made = model(node("Tanh", ["x"], ["t"]), norm, initializers=[ONES])
    (expected,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": X})
    for engine in ("onnxruntime", "numpy"):
        assert_allclose(oj.load(made).run({"x": X}, engine=engine)["y"], expected, rtol=1e-5)


@pytest.mark.parametrize("opset", [1, 5, 6])
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Pow"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_early_broadcasting_behind_other_nodes(opset, op_type, axis):
    """Opsets below 7, which ONNX Runtime runs no more: `axis` says where the axes of b begin."""
    a = np.abs(np.random.default_rng(5).standard_normal((2, 3, 4))) + 0.5
    b = np.random.default_rng(6).standard_normal(a.shape[axis:][:1] if axis is not None else (3, 4))
    given = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    nodes = [node("Sigmoid", ["x"], ["t"]), node("Exp", ["t"], ["u"]),
             node(op_type, ["u", "b"], ["y"], **given)]  # fmt: skip
    x, y = (helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(b, "b")])
    graph.input.append(helper.make_tensor_value_info("b", TensorProto.DOUBLE, b.shape))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    J = oj.linearize(oj.load(proto), {"x": a}, engine="numpy")
    u = np.exp(1 / (1 + np.exp(-a)))
    by = b if axis is None else b.reshape(b.shape + (1,) * (2 - axis))
    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    assert_allclose(J.primal["y"], functions.get(op_type, np.power)(u, by))
    assert J.check()


@pytest.mark.parametrize("keys", [{"ints": [5, 6, 7]}, {"strings": ["a", "b", "c"]}])
def test_a_map_is_the_tensor_of_its_values(keys):
    """Classifiers of scikit-learn end in ZipMap."""
    ml, (kind, labels) = "ai.onnx.ml", *keys.items()
    classifier = node("LinearClassifier", ["x"], ["label", "p"], domain=ml, multi_class=1,
                      coefficients=[0.5, -1.0, 0.25, 2.0, 1.0, 0.0], intercepts=[0.1, 0.2, 0.3],
                      post_transform="SOFTMAX", **{f"classlabels_{kind}": labels})  # fmt: skip
    zipmap = node("ZipMap", ["p"], ["maps"], domain=ml,
                  **{f"classlabels_{kind.replace('ints', 'int64s')}": labels})  # fmt: skip
    key = TensorProto.INT64 if kind == "ints" else TensorProto.STRING
    held = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    graph = helper.make_graph(
        [classifier, zipmap], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("label", key, [None]),
         helper.make_value_info("maps", helper.make_sequence_type_proto(held))],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 13), helper.make_opsetid(ml, 2)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    with pytest.warns(oj.OnnxJacWarning, match="'maps' is a list of maps: its tensor is taken"):
        made = oj.load(proto)
    assert made.outputs["maps"].shape[1:] == (3,)
    J = oj.linearize(made, {"x": X[:, :2]})
    assert J.shape == (6, 4)
    assert J.check()
    ort = pytest.importorskip("onnxruntime")
    _, maps = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": X[:, :2]})
    rows = [[row[label] for label in labels] for row in maps]
    assert_allclose(J.primal["maps"], rows, rtol=1e-5)
    proto.graph.output[1].ClearField("type")
    with pytest.warns(oj.OnnxJacWarning, match="'maps' is a list of maps"):
        made = oj.load(proto)
    assert_allclose(made.run({"x": X[:, :2]})["maps"], rows, rtol=1e-5)


def test_only_the_default_domain_is_not_imported():
    made = model(node("QuickGelu", ["x"], ["t"], domain=MICROSOFT, alpha=1.0),
                 node("Tanh", ["t"], ["y"]), imports=[MICROSOFT])  # fmt: skip
    del made.opset_import[0]
    with pytest.warns(oj.OnnxJacWarning, match="'ai.onnx': version 21 is taken"):
        J = oj.linearize(oj.load(made), {"x": X})
    ort = pytest.importorskip("onnxruntime")
    (expected,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": X})
    assert_allclose(J.primal["y"], expected, rtol=1e-5)
    assert J.check()
    del made.opset_import[:]
    with pytest.raises(oj.LoadError, match="must specify opset_import"):
        oj.load(made)


def test_an_import_that_is_added_is_said():
    make, _ = FILES["a domain without an import"]
    with pytest.warns(oj.OnnxJacWarning, match="'com.microsoft': version 1 is taken"):
        oj.load(make())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oj.load(model(node("Gelu", ["x"], ["y"], domain=MICROSOFT), imports=[MICROSOFT]))


def test_quantization_of_both_domains_is_the_same():
    scale, zero = (numpy_helper.from_array(x, n) for x, n in
                   ((np.float32(0.1), "scale"), (np.uint8(128), "zero")))  # fmt: skip
    pair = [node("QuantizeLinear", ["x", "scale", "zero"], ["q"], domain=MICROSOFT),
            node("DequantizeLinear", ["q", "scale", "zero"], ["y"], domain=MICROSOFT)]  # fmt: skip
    made = oj.load(model(*pair, imports=[MICROSOFT], initializers=[scale, zero]))
    assert_allclose(made.run({"x": X})["y"], np.round(X / 0.1) * 0.1, atol=1e-5)


def optimized(proto, level, folder):
    """The model as ONNX Runtime saves it at some level of optimization."""
    ort = pytest.importorskip("onnxruntime")
    options, file = ort.SessionOptions(), str(folder / "optimized.onnx")
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath, options.log_severity_level = file, 4
    ort.InferenceSession(proto.SerializeToString(), options)
    return onnx.load(file)


def channels_first(x, t):
    return [node("Transpose", [x], [t], perm=[0, 3, 1, 2])]


NETWORKS = {
    "kernels of few and of many channels": ((1, 3, 8, 8), [
        node("Conv", ["x", "w"], ["t"], pads=[1] * 4), node("Relu", ["t"], ["u"]),
        node("MaxPool", ["u"], ["v"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["v", "square"], ["p"], pads=[1] * 4), node("Add", ["p", "v"], ["q"]),
        node("Conv", ["q", "less"], ["r"]), node("GlobalAveragePool", ["r"], ["y"])]),
    "channels that fill no block, behind all others": ((1, 6, 6, 24), [
        *channels_first("x", "t"), node("Conv", ["t", "each"], ["u"], group=24),
        node("Relu", ["u"], ["v"]), node("AveragePool", ["v"], ["p"], kernel_shape=[2, 2]),
        node("Transpose", ["p"], ["y"], perm=[0, 2, 3, 1])]),
    "pixels that are repeated": ((1, 3, 4, 4), [
        node("Conv", ["x", "w"], ["t"]),
        node("Resize", ["t", "", "twice"], ["u"], coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        node("Conv", ["u", "less"], ["v"]), node("GlobalMaxPool", ["v"], ["y"])]),
}  # fmt: skip


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_that_onnx_runtime_optimized(name, level, tmp_path):
    """FusedConv, and at the highest level tensors whose channels lie in blocks."""
    shape, nodes = NETWORKS[name]
    shapes = {"w": (32, 3, 3, 3), "square": (32, 32, 3, 3), "less": (20, 32, 2, 2),
              "each": (24, 1, 3, 3)}  # fmt: skip
    rng = np.random.default_rng(8)
    held = {k: rng.standard_normal(s).astype(np.float32) / 4 for k, s in shapes.items()}
    held["twice"] = np.array([1, 1, 2, 2], np.float32)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(x, k) for k, x in held.items()
         if any(k in n.input for n in nodes)],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    made, image = optimized(proto, level, tmp_path), rng.standard_normal(shape).astype(np.float32)
    blocks = {n.domain for n in made.graph.node} & {"com.microsoft.nchwc"}
    assert not blocks or level == "ORT_ENABLE_ALL"
    J, plain = (oj.linearize(oj.load(file), {"x": image}) for file in (made, proto))
    assert_allclose(J.toarray(), plain.toarray(), rtol=1e-4, atol=1e-6)
    assert_allclose(J.primal["y"], plain.primal["y"], rtol=1e-4, atol=1e-6)
    assert J.check()


def test_the_size_of_a_block_is_asked_of_onnx_runtime(monkeypatch):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    reorder = node("ReorderInput", ["x"], ["y"], domain="com.microsoft.nchwc")
    graph = helper.make_graph([reorder], "g", [x], [y])
    monkeypatch.setattr("onnxjac.modes.model.loading.bodies.installed", lambda: False)
    block_size.cache_clear()
    with pytest.raises(oj.LoadError, match="install ONNX Runtime"):
        oj.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))


@pytest.mark.parametrize("indices", [[0, 5, 10, 16], [0, 5], [[0, 0, 0, 0]] * 4, [[9, 9]] * 4])
def test_sparse_tensors_that_do_not_fit(indices):
    made = model(node("MatMul", ["x", "w"], ["y"]))
    made.graph.sparse_initializer.append(sparse(indices))
    with pytest.raises(oj.LoadError, match=r"'w'.*do not fit"):
        oj.load(made)


def test_sparse_tensors_that_are_too_large_or_elsewhere():
    made = with_sparse_initializer()
    made.graph.sparse_initializer[0].dims[:] = [2**20, 2**20]
    with pytest.raises(oj.LimitError, match=r"'w'.*4,096\.0 GiB"):
        oj.load(made)
    made = with_sparse_initializer()
    made.graph.sparse_initializer[0].values.data_location = TensorProto.EXTERNAL
    with pytest.raises(oj.LoadError, match=r"'w'.*a file of its own"):
        oj.load(made)


def test_a_cycle_is_refused():
    made = model(node("Add", ["x", "y"], ["t"]), node("Tanh", ["t"], ["y"]))
    with pytest.raises(oj.LoadError, match="topologically sorted"):
        oj.load(made)


def test_a_sorted_model_keeps_its_order():
    made = onnx.ModelProto()
    made.CopyFrom(model(*(node("Tanh", ["x"], [f"t{k}"]) for k in range(50)),
                        node("Sum", [f"t{k}" for k in range(50)], ["y"])))  # fmt: skip
    steps = oj.load(made).steps
    assert [step.outputs[0] for step in steps] == [*(f"t{k}" for k in range(50)), "y"]
