"""What a program at any point computes of the residuals alone is computed once for each point."""

import numpy as np
import pytest

from check_model import assert_near
from onnxjac.jacobians import Diagonal, Eye, implicit_kron
from onnxjac.modes.linear.products.compiled import ResidualRecorder, product_values
from onnxjac.modes.linear.products.cut import cut
from onnxjac.modes.model.primal.model import Model
from onnxjac.modes.model.programs.program import compiler
from onnxjac.ops.graphs.build import part

RNG = np.random.default_rng(0)


def at_any_point(make, *arrays):
    """The recorded product of make(op, *arrays), and the residuals that it reads of the arrays."""
    op = ResidualRecorder()
    inputs = [op.new(x.shape, x.dtype, f"x{k}") for k, x in enumerate(arrays)]
    graph = cut(op, inputs, *product_values(op, make(op, *inputs), ()), ())
    read = graph.residuals.values()
    computed = [x for x in read if x not in inputs]
    given = {f"x{k}": x for k, x in enumerate(arrays)}
    made = Model(part(op, inputs, computed)).run(given) if computed else {}
    return graph, {str(x.name): (given | made)[str(x.name)] for x in read}


def turned_left(_, A, d):
    return implicit_kron(A, Eye(5)).T @ Diagonal(d)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_a_turned_factor_on_the_left_is_copied_once(engine):
    if engine == "onnxruntime":
        pytest.importorskip(engine)
    A, d = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 5))
    graph, read = at_any_point(turned_left, A, d)
    assert "Transpose" not in [node.op_type for node in graph.nodes]
    (turned,) = (x for name, x in read.items() if name not in ("x0", "x1"))
    np.testing.assert_array_equal(turned, A.T)
    v = RNG.standard_normal((4, 5))
    assert_near(compiler(engine)(graph).bind(read)(v), A.T @ (d * v), 1e-12)


def test_a_turned_factor_on_the_right_stays_since_engines_read_it_as_it_lies():
    graph, read = at_any_point(lambda _, B: implicit_kron(Eye(5), B), np.ones((7, 6)))
    assert "Transpose" in [node.op_type for node in graph.nodes]
    assert [*read] == ["x0"]


@pytest.mark.parametrize(("n", "once"), [(2, True), (30, False)])
def test_large_products_of_residuals_are_computed_per_product(n, once):
    arrays = RNG.standard_normal((n, 1)), RNG.standard_normal((1, n))
    graph, read = at_any_point(lambda op, a, b: Diagonal(op.Mul(a, b)), *arrays)
    assert ([*read] == ["x0", "x1"]) != once
    assert len(graph.nodes) == 2 - once
