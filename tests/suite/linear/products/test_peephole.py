"""Recorded products in forms that are fast in ONNX Runtime: same results, other nodes."""

import numpy as np
import onnx.parser
import pytest

import onnxjac as oj
from check_model import assert_near
from onnxjac.jacobians import Eye, Take, implicit_kron
from onnxjac.jacobians.products import factors_of
from onnxjac.modes.linear.products.compiled import (
    Compiled,
    ResidualRecorder,
    product_values,
    record_product,
)
from onnxjac.modes.linear.products.cut import cut
from onnxjac.modes.model.programs.onnxruntime import compile
from onnxjac.ops.graphs.build import simplify_graph
from onnxjac.ops.graphs.simplify import PRODUCTS, RUNTIME

from ...jacobians.examples import Draw

pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)


def single(op_type, J):
    """The nodes of one kind in a product by ONNX Runtime, which is also checked."""
    graph = simplify_graph(record_product(J), PRODUCTS, RUNTIME)
    v = RNG.standard_normal(J.shape[1]).astype(J.dtype)
    assert_near(Compiled(J, "onnxruntime") @ v, J @ v, 1e-6)
    return [node for node in graph.nodes if node.op_type == op_type]


@pytest.mark.parametrize("index", [[[5, 0], [2, 3]], [1, -1, 6]])
def test_single_numbers_are_taken_and_put_by_entries(index):
    """Numbers scattered to the same position are added by rows."""
    T = Take(np.array(index), 0, (7,), np.float32)
    assert len(single("GatherElements", T)) == 1
    assert len(single("MaxUnpool", T.T)) == (1 if index[-1] == [2, 3] else 0)


@pytest.mark.parametrize("distinct", [True, False])
def test_positions_may_be_residuals(distinct):
    """Positions that repeat are added to one by one; only distinct ones can be unpooled."""
    held = np.array([5, 0, 3] if distinct else [5, 0, 5])
    T = Take(held, 0, (7,), np.float32, distinct=distinct)

    def nodes(J, v):
        op = ResidualRecorder()
        x = op.new(held.shape, held.dtype, "x")
        at_any = type(J)(x, 0, (7,), np.float32, distinct=distinct)
        made = cut(op, [x], *product_values(op, at_any, ()), ())
        assert made.residuals == {"x": x}
        assert_near(compile(made).bind({"x": held})(v), J @ v, 1e-6)
        return [node.op_type for node in simplify_graph(made, PRODUCTS, RUNTIME).nodes]

    assert "GatherElements" in nodes(T, np.arange(7, dtype=np.float32))
    put = nodes(T.T, np.arange(1, 4, dtype=np.float32))
    assert ("MaxUnpool" if distinct else "ScatterElements") in put


@pytest.mark.parametrize(("stride", "repeats"), [(2, False), (1, True)])
def test_windows_of_a_maximum_that_do_not_overlap_take_distinct_entries(stride, repeats):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        pool (float[1, 1, 6, 6] x) => (float[N, C, H, W] y) {{
            y = MaxPool<kernel_shape = [2, 2], strides = [{stride}, {stride}]>(x)
        }}""")
    J = oj.linearize(oj.load(model), {"x": RNG.standard_normal((1, 1, 6, 6)).astype(np.float32)})
    (taken,) = (f for f in factors_of(J.dag.edges[0].operator) if isinstance(f, Take))
    assert taken.distinct is not repeats
    assert_near(J.T @ np.ones(J.shape[0], np.float32), J.toarray().sum(axis=0), 1e-6)


def test_rows_are_moved_as_rows():
    T = Take(np.array([2, 0]), 0, (3, 4), np.float32)
    assert not single("GatherElements", T)
    assert not single("MaxUnpool", T.T)


@pytest.mark.parametrize(("rows", "columns"), [(16, 1200), (4, 1200), (16, 500), (300, 1200)])
def test_a_large_constant_is_read_as_it_lies(rows, columns):
    """As the left operand, or by Gemm, depending on the number of rows."""
    K = implicit_kron(Eye(rows), Draw(3, np.float32).normal(columns, 1000))
    turned = (rows, columns) == (16, 1200)
    (node,) = single("Gemm" if columns == 1200 and not turned else "MatMul", K)
    held = node.inputs[0 if turned else 1]
    assert (held.producer().inputs[0] if held.producer() else held).const_value is not None
