"""Diagonals of JᵀJ for n = 501,264, where n² memory or n products are out of reach."""

import time
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from solvers.models import grid, reaction

N = 708


@pytest.fixture(scope="module")
def J():
    """J of F = Δu − u − u³ + b on a grid: a stencil plus an elementwise part."""
    return oj.linearize(reaction(N), grid(N), of="F", wrt="u")


@pytest.fixture(scope="module")
def squares():
    """The squared column norms of J: entries −4 − 1 − 3u², and a 1 for each neighbour."""
    inside = np.pad(np.ones((N, N)), 1)
    neighbours = inside[2:, 1:-1] + inside[:-2, 1:-1] + inside[1:-1, 2:] + inside[1:-1, :-2]
    return (5 + 3 * grid(N)["u"][0, 0] ** 2) ** 2 + neighbours


def test_jacobi_in_seconds_and_megabytes(J, squares):
    tracemalloc.start()
    began = time.process_time()
    M = oj.preconditioners.jacobi(J.T @ J)
    took, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_allclose(M.d.reshape(N, N), 1 / squares, rtol=1e-12)
    assert took < 10  # n products with J would take hours
    assert peak < 100 * M.d.nbytes


def test_columns_scaled_in_seconds(J, squares):
    began = time.process_time()
    R = oj.preconditioners.column_scaling(J)
    assert time.process_time() - began < 10
    assert_allclose(R.d.reshape(N, N), squares**-0.5, rtol=1e-12)
