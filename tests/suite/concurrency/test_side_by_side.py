"""Side by side: work in threads of our own, while linear algebra takes one thread."""

import sys
from threading import Barrier

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from faults.models import CNN, point_of
from onnxjac.jacobians.threads import concurrent, cores, libraries
from onnxjac.modes.curvature import gradients, kronecker


@pytest.fixture
def two():
    """Linear algebra in two threads."""
    with libraries().limit(limits=2):
        yield
        assert cores() == 2


def test_items_are_worked_on_at_the_same_time_and_in_order(two):
    both = Barrier(2, timeout=10)

    def work(k):
        both.wait()  # broken if the other thread does not come
        return k, cores()

    assert list(concurrent(work, range(6), 2)) == [(k, 1) for k in range(6)]


def test_threads_have_the_settings_of_this_one(two):
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        list(concurrent(lambda k: np.ones(1) / np.zeros(1), range(3), 2))
    with np.errstate(divide="ignore"):
        assert np.all(np.isinf(list(concurrent(lambda k: np.ones(1) / k, np.zeros(3), 2))))


def test_without_threadpoolctl_there_is_one_thread(monkeypatch):
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    libraries.cache_clear()
    try:
        assert cores() == 1
    finally:
        libraries.cache_clear()


def test_one_thread_is_this_thread(two):
    assert list(concurrent(lambda k: (k, cores()), range(3), 1)) == [(k, 2) for k in range(3)]


@pytest.mark.parametrize("worker", [True, False])
def test_the_limit_ends_with_an_error(two, worker):
    def fails(k):
        if k == 2:
            raise ZeroDivisionError
        return k

    items = range(5) if worker else map(fails, range(5))
    with pytest.raises(ZeroDivisionError):
        list(concurrent(fails if worker else str, items, 2))


def test_the_limit_ends_with_the_last_of_several(two):
    one, other = (concurrent(lambda k: k, range(4), 2) for _ in range(2))
    assert next(one) == next(other) == 0
    assert (list(one), cores()) == ([1, 2, 3], 1)
    assert (list(other), cores()) == ([1, 2, 3], 2)


@pytest.mark.parametrize("make", [oj.kfac, oj.ekfac])
def test_curvature_is_the_same(two, monkeypatch, make):
    """Cotangents, and the eigenvectors of factors."""
    model, pool = oj.load(CNN), []

    def started(f, items, threads):
        pool.append(threads)
        return concurrent(f, items, threads)

    def products():
        K = make(model, point_of(model), at=next(iter(model.outputs)))
        v = np.random.default_rng(0).standard_normal(K.shape[1])
        return K @ v, K.inverse(0.1) @ v, K.diagonal()

    alone = products()
    for module in (gradients, kronecker):
        monkeypatch.setattr(module, "concurrent", started)
    monkeypatch.setattr(gradients.Gradients, "room", 2)
    monkeypatch.setattr(kronecker, "THREADED_FACTOR_ENTRIES", 1)
    for found, expected in zip(products(), alone, strict=True):
        assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert np.abs(expected).max() > 1e-3
    assert pool.count(2) >= 2
