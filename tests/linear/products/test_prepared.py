"""What a program at any point computes of the residuals alone is computed once for each point."""

import numpy as np
import pytest

from check_model import assert_near
from onnxjac.jacobians import Diagonal, Eye, implicit_kron
from onnxjac.modes.linear.products.compiled import compiler, opened, prepared, recorded

RNG = np.random.default_rng(0)


def at_any_point(make, *arrays):
    """The recorded product of make(op, *residuals), and the model that runs once for a point."""
    recorder, inputs, x = opened(dict(enumerate(arrays)))
    return prepared(recorded(recorder, make(recorder, *x.values()), (), inputs))


def turned_left(_, A, d):
    return implicit_kron(A, Eye(5)).T @ Diagonal(d)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_a_turned_factor_on_the_left_is_copied_once(engine):
    if engine == "onnxruntime":
        pytest.importorskip(engine)
    A, d = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 5))
    recording, model = at_any_point(turned_left, A, d)
    assert "Transpose" not in [node.op_type for node in recording.nodes]
    assert {*recording.residuals} == {1, -1}
    (turned,) = model.run({"residual_0": A, "residual_1": d}).values()
    np.testing.assert_array_equal(turned, A.T)
    v = RNG.standard_normal((4, 5))
    assert_near(compiler(engine)(recording).at({1: d, -1: turned})(v), A.T @ (d * v), 1e-12)


def test_a_turned_factor_on_the_right_stays_since_engines_read_it_as_it_lies():
    recording, model = at_any_point(lambda _, B: implicit_kron(Eye(5), B), np.ones((7, 6)))
    assert "Transpose" in [node.op_type for node in recording.nodes]
    assert model is None


@pytest.mark.parametrize(("n", "once"), [(2, True), (30, False)])
def test_what_takes_far_more_memory_than_the_residuals_stays(n, once):
    arrays = RNG.standard_normal((n, 1)), RNG.standard_normal((1, n))
    recording, model = at_any_point(lambda op, a, b: Diagonal(op.Mul(a, b)), *arrays)
    assert (model is not None) == once
    assert len(recording.nodes) == 2 - once
