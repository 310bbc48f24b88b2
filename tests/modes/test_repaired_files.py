"""Files that break ONNX's rules, and that ONNX Runtime runs nevertheless."""

import warnings

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose
from onnx import TensorProto, helper, numpy_helper

import onnxjac as oj

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


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_it_is_repaired(name):
    make, f = FILES[name]
    J = oj.linearize(oj.load(make()), {"x": X})
    assert_allclose(J.primal["y"], f(X), rtol=1e-4, atol=1e-5)
    assert J.check()


def test_it_runs_in_onnx_runtime_as_it_is():
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(4)
    for make, f in FILES.values():
        session = ort.InferenceSession(make().SerializeToString())
        assert_allclose(session.run(None, {"x": X})[0], f(X), rtol=1e-4, atol=1e-5)


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
