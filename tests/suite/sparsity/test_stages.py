"""The stages of a program, and matrices laid out in several strips."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians.base import DENSE_LIMIT
from onnxjac.modes.sparse import program
from onnxjac.modes.sparse.choice import Accumulated
from onnxjac.modes.sparse.program import Multiplied, sum_stage

from ..jacobians.examples import EXAMPLES, Draw


@pytest.mark.parametrize("most", [3, 13])
def test_a_stage_of_sums_adds_products_and_constants(most):
    rng = np.random.default_rng(0)
    counts = rng.integers(2, most, 50)
    counts[7] = most
    variable, coefficient = rng.integers(1, 20, counts.sum()), rng.standard_normal(counts.sum())
    variable[np.cumsum(counts) - 1] = 0  # every sum has a constant term
    x = np.concatenate([[1.0], rng.standard_normal(19), np.full(50, np.nan)])
    stage = sum_stage(variable, coefficient, counts, slice(20, 70))
    stage(x)
    expected = np.add.reduceat(coefficient * x[variable], np.cumsum(counts) - counts)
    assert_allclose(x[20:], expected, rtol=1e-12)


def test_a_stage_of_products_multiplies_pairs_of_entries():
    x = np.array([1.0, 2, 3, 5, np.nan, np.nan])
    Multiplied(np.array([1, 2]), np.array([3, 1]), slice(4, 6))(x)
    assert_allclose(x[4:], [10, 6])


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_matrix_does_not_depend_on_its_strips(name, monkeypatch):
    """The matrix does not depend on the number of rows per strip."""
    monkeypatch.setattr(program, "STRIP", 5)
    monkeypatch.setattr("onnxjac.modes.sparse.choice.STRIP", 5)
    J, dense = EXAMPLES[name][1](Draw(1))
    found = Accumulated(J, (), DENSE_LIMIT, backward=False)
    matrix = found.pattern.astype(float)
    matrix.data = found.values(J)
    assert_allclose(matrix.toarray(), dense, rtol=1e-12, atol=1e-12)
