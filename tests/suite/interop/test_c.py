"""Exports as plain C, by emx-onnx-cgen and a C compiler: equal to J, without memory of the heap."""

import ctypes
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxjac as oj

pytestmark = pytest.mark.peers

NET = """<ir_version: 10, opset_import: ["": 21]>
net (float[3] x) => (float[2] y, float loss)
<float[3, 2] W = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6}, float[2] b = {0.1, 0.3}>
{ h = MatMul(x, W)  c = Add(h, b)  a = Tanh(c)  e = Exp(a)  y = Mul(a, e)
  loss = ReduceSumSquare<keepdims = 0>(y) }
"""


@pytest.fixture
def compile_export(tmp_path):
    """What turns an export into a function of arrays by name, by way of C."""
    pytest.importorskip("emx_onnx_cgen")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")

    def make(proto):
        source, library = tmp_path / "f.c", tmp_path / "f.so"
        onnx.save(proto, tmp_path / "f.onnx")
        translate = [sys.executable, "-m", "emx_onnx_cgen", "compile", str(tmp_path / "f.onnx"),
                     str(source), "--model-name", "f", "--large-temp-threshold", "0",
                     "--large-weight-threshold", "0"]  # fmt: skip
        subprocess.run(translate, check=True, capture_output=True)
        assert "alloc" not in source.read_text()
        build = [compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-lm"]
        subprocess.run(build, check=True)
        function = ctypes.CDLL(str(library)).f

        def call(feeds):
            out = {v.name: np.zeros(shape_of(v), kind_of(v)) for v in proto.graph.output}
            given = (np.ascontiguousarray(feeds[v.name]) for v in proto.graph.input)
            arrays = [*given, *out.values()]
            function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
            return out

        return call

    return make


def shape_of(value):
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def kind_of(value):
    return onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


ONE = {"x": np.ones(3, np.float32)}
POINT = {"x": np.array([0.3, -0.5, 0.7], np.float32)}


def test_a_jacobian_in_c_agrees_with_python(compile_export):
    model = oj.load(onnx.parser.parse_model(NET))
    jacobian = compile_export(oj.export(model, "jacobian", ONE, of="y"))
    J = oj.linearize(model, POINT, of="y")
    found = jacobian(POINT)
    np.testing.assert_allclose(found["y"], J.primal["y"], rtol=1e-5)
    np.testing.assert_allclose(found["y_x_jacobian"], J.toarray(), rtol=1e-5)


def test_sparse_entries_in_c_agree_with_python(compile_export):
    model = oj.load(onnx.parser.parse_model(NET))
    entries = compile_export(oj.export(model, "sparse_jacobian", ONE, of="y"))
    found = entries(POINT)
    A = np.zeros((2, 3), np.float32)
    A[found["jacobian_rows"], found["jacobian_columns"]] = found["jacobian_values"]
    np.testing.assert_allclose(A, oj.linearize(model, POINT, of="y").toarray(), rtol=1e-5)


def test_products_with_the_hessian_in_c(compile_export):
    model = oj.load(onnx.parser.parse_model(NET))
    product = compile_export(oj.export(model, "hvp", ONE, of="loss", tangents=2))
    V = np.array([[1, 0, -1], [0.5, 2, 0]], np.float32)
    H = oj.hessian(model, POINT, of="loss")
    found = product(POINT | {"x_tangent": V})["x_hvp"]
    np.testing.assert_allclose(found, V @ H.toarray(), rtol=1e-4)
