"""Results belong to their callers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from onnxjac.jacobians import Diagonal

N = 1000


@pytest.fixture(params=["numpy", "onnxruntime"])
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
def test_results_that_are_referenced_are_not_overwritten(J, way):
    seen = WAYS[way](J @ np.ones(N))
    before = np.array(seen)
    others = [J @ np.full(N, k) for k in (2.0, 3.0)]
    assert_array_equal(np.array(seen), before)
    assert_array_equal(others, [np.arange(N) * k for k in (2.0, 3.0)])


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
