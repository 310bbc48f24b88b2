"""Results belong to their callers; memory of large ones is reused once unreferenced."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from onnxjac.jacobians import Diagonal
from onnxjac.modes.products import pool
from onnxjac.modes.products.pool import ResultPool

N = 1000


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Lower the threshold for large results."""
    monkeypatch.setattr(pool, "MAPPED", 8 * N)


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture(params=["numpy", "onnxruntime", "numba"])
def J(request):
    pytest.importorskip(request.param)
    return Diagonal(np.arange(float(N))).compile(request.param)


WAYS = {
    "itself": lambda y: y,
    "a part": lambda y: y[3:9],
    "another shape": lambda y: y.reshape(10, -1).T,
    "a buffer": memoryview,
    "an array of a buffer": lambda y: np.frombuffer(memoryview(y)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_somebody_sees_is_not_written_again(J, way):
    seen = WAYS[way](J @ np.ones(N))
    before = np.array(seen)
    others = [J @ np.full(N, k) for k in (2.0, 3.0)]
    assert_array_equal(np.array(seen), before)
    assert_array_equal(others, [np.arange(N) * k for k in (2.0, 3.0)])


@pytest.mark.skipif(not pool.COUNTED, reason="references are not counted")
def test_what_nobody_sees_is_used_again(J):
    first = address(J @ np.ones(N))
    blocker = np.empty(N)  # `malloc` would place it there
    assert address(J @ np.ones(N)) == first != address(blocker)


def test_a_result_may_be_written_to(J):
    y = J @ np.ones(N)
    y[:] = 7
    assert_array_equal(J @ np.ones(N), np.arange(N))
    assert_array_equal(y, np.full(N, 7.0))


def test_threads_have_results_of_their_own(J):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: J @ np.full(N, float(k)), range(64)))
    for k, y in enumerate(found):
        assert_array_equal(y, np.arange(N) * k)


@pytest.mark.parametrize("n", [N - 1, 2**25 + 1])
def test_small_and_huge_ones_are_not_kept(n):
    assert not ResultPool((n,), np.float64).again


def test_without_the_lock_references_are_not_trusted(monkeypatch):
    monkeypatch.setattr(pool, "COUNTED", False)
    assert not ResultPool((N,), np.float64).again
