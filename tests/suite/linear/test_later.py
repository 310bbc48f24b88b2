"""The primal of a relinearisation is lazy where J needs little of it."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import onnxjac as oj

from ..sparsity.models import model, stencil_by_slices


def twice(proto, points):
    """J at the third of three points; the second one builds the template."""
    loaded = oj.load(proto)
    J = oj.linearize(loaded, {"u": points[0]})
    for u in points[1:]:
        J = J.relinearize({"u": u})
    return loaded, J


@pytest.fixture(scope="module")
def stencil():
    return stencil_by_slices(6)


def draws(count=3):
    return list(np.random.default_rng(0).standard_normal((count, 6, 6)))


def test_primal_of_a_lazy_point_is_the_model(stencil):
    points = draws()
    loaded, J = twice(stencil, points)
    assert J.at.is_lazy
    assert list(J.primal) == ["f"]
    assert not J.at.is_lazy
    assert len(J.primal) == 1
    assert_allclose(J.primal["f"], loaded.run({"u": points[-1]})["f"])
    assert_allclose(J.T.primal["f"], J.primal["f"])
    assert "f" in repr(J.primal)
    assert_allclose(pickle.loads(pickle.dumps(J.primal))["f"], J.primal["f"])


def test_a_residual_that_is_not_finite_is_told_at_once(stencil):
    points = [*draws(2), np.full((6, 6), np.nan)]
    with pytest.warns(oj.OnnxJacWarning, match="'f' is not finite"):
        twice(stencil, points)


def test_a_primal_that_is_not_finite_is_told_when_it_is_seen():
    nodes = [("Log", ["c"], ["k"]), *(("Add", [a, "k"], [b]) for a, b in ("ua", "ab", "bd", "df"))]
    loaded = oj.load(model(nodes, {"c": np.ones(6)}, (6,)))
    ones, zeros = np.ones(6), np.zeros(6)
    J = oj.linearize(loaded, {"u": ones, "c": ones})
    for c in (ones, ones, zeros):
        J = J.relinearize({"u": ones, "c": c})
    assert J.at.is_lazy
    with pytest.warns(oj.OnnxJacWarning, match="not finite"):
        assert np.all(J.primal["f"] == -np.inf)


def test_a_network_whose_residuals_are_all_of_it_computes_both_at_once():
    nodes = [("Tanh", ["u"], ["a"]), ("Tanh", ["a"], ["b"]), ("Tanh", ["b"], ["f"])]
    _, J = twice(model(nodes, {}, (6, 6)), draws())
    assert not J.at.is_lazy


TAIL = [("Add", [a, "u"], [b]) for a, b in ("dk", "kl", "lm", "mn", "no", "op", "pf")]
"""Nodes without residuals, so that residuals are a small part of the work."""

CUBE = model([("Mul", ["u", "u"], ["s"]), ("Mul", ["s", "u"], ["d"]), *TAIL], {}, (6, 6))

@pytest.mark.parametrize("value", [np.inf, np.nan, 1e200])
def test_a_product_that_is_not_finite_is_told_at_once(value):
    points = draws()
    points[2][0, 0] = value
    with pytest.warns(oj.OnnxJacWarning, match="'f' is not finite"):
        twice(CUBE, points)


def test_a_product_that_is_given_is_not_multiplied():
    """∂(s u)/∂u = s, without a multiplication."""
    loaded, s = oj.load(CUBE), np.full((6, 6), 7.0)
    for u in draws():
        J = oj.linearize(loaded, {"u": u, "s": s}, of="d")
    assert_array_equal(J.toarray(), 7 * np.eye(36))
