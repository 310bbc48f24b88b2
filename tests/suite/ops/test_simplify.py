"""The table of graph rewrites: each row says why, and no row changes the graph that it reads."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from check_model import assert_near
from onnxjac.jacobians import Eye, Jacobian, implicit_kron
from onnxjac.modes.linear.products.compiled import record_product
from onnxjac.modes.model.loading.load import load
from onnxjac.modes.model.primal.evaluate import evaluate
from onnxjac.modes.model.programs.onnxruntime import cut_graph
from onnxjac.ops.graphs.build import matches_pattern, simplify_graph
from onnxjac.ops.graphs.simplify import (
    COPIES,
    PRODUCTS,
    RUNTIME,
    STREAMED_BYTES,
    TABLE,
    Rewrite,
    rewrites,
)

ROWS = [row for rows in TABLE.values() for row in rows]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.operator} {row.engine}".strip())
def test_each_row_says_why_and_names_what_there_is(row):
    assert row.why.endswith(".")
    assert onnx.defs.has(row.operator)
    assert row.engine in ("", COPIES, PRODUCTS, RUNTIME)
    assert row.after is None or onnx.defs.has(row.after[1])


def test_a_rule_is_entered_once_for_each_operator(monkeypatch):
    monkeypatch.setitem(TABLE, ("Sinh", "nowhere"), [])
    rule = rewrites("Sinh", engine="nowhere", after=(0, "Neg"))(lambda op, x: x)
    assert TABLE["Sinh", "nowhere"] == [Rewrite("Sinh", "nowhere", rule, (0, "Neg"))]


def turned(rows, columns):
    """y = x Wᵀ, h = tanh(x Wᵀ), where W is stored in the other order."""
    weights = RNG.standard_normal((columns, 1024)).astype(np.float32)
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[{rows},1024] x, float[{columns},1024] u) => (float[a,b] h, float[a,b] z) {{
            t = Transpose<perm = [1, 0]>(w)
            y = MatMul(x, t)
            h = Tanh(y)
            s = Transpose(u)
            z = MatMul(x, s) }}""")
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return load(proto), weights


@pytest.mark.parametrize("columns", [64, STREAMED_BYTES // 4096])
def test_a_large_transposed_matrix_is_read_in_place(columns):
    """In a model by the row that products have; what is computed, or small, stays."""
    model, weights = turned(3, columns)
    graph = cut_graph(model, frozenset({"x", "u"}), ("h", "z"))
    kinds = [node.op_type for node in simplify_graph(graph, RUNTIME).nodes]
    large = weights.nbytes >= STREAMED_BYTES
    assert kinds.count("Gemm") == large
    assert kinds.count("Transpose") == 2 - large
    K = implicit_kron(Eye(100), weights)
    made = simplify_graph(record_product(K), PRODUCTS, RUNTIME)
    assert [node.op_type for node in made.nodes].count("Gemm") == large
    point = {"x": RNG.standard_normal((3, 1024)).astype(np.float32), "u": weights}
    found = evaluate(model, point, ["h", "z"], engine="onnxruntime")
    assert_near(found["z"], point["x"] @ weights.T, 1e-5)
    assert_near(found["h"], np.tanh(point["x"] @ weights.T), 1e-4)


@pytest.mark.parametrize(("x", "stack", "product", "written"), [
    ("3,64,2", "3,64,9000", "MatMul(t, x)", False),  # xᵀ and the product are small
    ("3,1,9000", "3,64,9000", "MatMul(x, t)", False),
    ("3,64,8192", "3,64,9000", "MatMul(t, x)", True),  # it is the smallest of all
])  # fmt: skip
def test_a_large_stack_is_read_in_place(x, stack, product, written):
    """A product with Wᵀ writes no transpose that is larger than the others."""
    weights = RNG.standard_normal(tuple(map(int, stack.split(",")))).astype(np.float32)
    axes = [*range(weights.ndim - 2), weights.ndim - 1, weights.ndim - 2]
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[{x}] x) => (y) {{ t = Transpose<perm = {axes}>(w) y = {product} }}""")
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    graph = cut_graph(load(proto), frozenset({"x"}), ("y",))
    made = simplify_graph(graph, PRODUCTS, RUNTIME)
    turned = [node.inputs[0] for node in made.nodes if node.op_type == "Transpose"]
    assert any(value.const_value is not None for value in turned) == written


def test_a_matrix_with_further_axes_is_read_in_place():
    """Axes of size 1 come from groups of convolutions."""
    weights = RNG.standard_normal((1, 1, 192, 9000)).astype(np.float32)

    class Times(Jacobian):
        holds = ("w",)
        w = weights.swapaxes(-1, -2)

        def _apply(self, op, v):
            return op.MatMul(v, self.w)

        def _transpose(self):
            raise NotImplementedError

    K = Times((1, 1, 50, 192), (1, 1, 50, 9000), np.float32)
    made = simplify_graph(record_product(K), PRODUCTS, RUNTIME)
    assert "Gemm" in [node.op_type for node in made.nodes]


def test_a_graph_is_left_as_it_was():
    """Its values and nodes belong to the model, or to further programs of a derivative."""
    model, _ = turned(3, STREAMED_BYTES // 4096)
    graph = cut_graph(model, frozenset({"x", "u", "y"}), ("h", "z"))
    before = [str(node) for node in model.ir.graph]
    made = simplify_graph(graph, RUNTIME)
    assert [str(node) for node in model.ir.graph] == before
    assert not {*map(id, made.nodes)} & {*map(id, graph.nodes)}
    assert [*made.inputs] == ["u", "x", "y"]  # y is given, so that nothing computes it
    assert [node.op_type for node in made.nodes] == ["Tanh", "Transpose", "MatMul"]


@pytest.mark.parametrize(("after", "fit"), [(None, True), ((1, "Transpose"), True),
                                            ((0, "Transpose"), False), ((1, "Neg"), False)])
def test_a_row_fits_where_its_pattern_is(after, fit):
    model, _ = turned(2, 8)
    product = next(node for node in model.ir.graph if node.op_type == "MatMul")
    assert matches_pattern(Rewrite("MatMul", RUNTIME, print, after), product) == fit
