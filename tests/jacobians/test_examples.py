"""Every kind of operator keeps what `check_operator` promises."""

import inspect
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose

from check_operator import check_operator
from onnxjac.jacobians import Convolution, Jacobian, correlation
from onnxjac.jacobians.sparse import entries

from .convolutions import GEOMETRIES, PAIRS, convolution, geometry
from .examples import EXAMPLES, Draw

every_example = pytest.mark.parametrize("name", EXAMPLES)
every_geometry = pytest.mark.parametrize("name", GEOMETRIES)
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)


@every_example
def test_operator(name):
    kind, example = EXAMPLES[name]
    J, dense = example(Draw(1))
    assert type(J) is kind
    check_operator(J, dense)


@every_example
def test_transposed_operator(name):
    J, dense = EXAMPLES[name][1](Draw(2))
    check_operator(J.T, dense.T)


@every_geometry
@every_pair
def test_convolution(name, pair):
    J, dense = convolution(Draw(3), *pair, GEOMETRIES[name])
    assert type(J) is Convolution
    check_operator(J, dense)


@every_geometry
@pytest.mark.parametrize("pair", ["xw", "uw", "wx", "wu"], ids=" to ".join)
def test_correlations_of_large_kernels_are_taken_apart(name, pair, monkeypatch):
    J, dense = convolution(Draw(3), *pair, GEOMETRIES[name])
    monkeypatch.setattr(correlation, "MOST", 1)
    check_operator(J, dense)


def test_a_correlation_gathers_no_more_than_it_may(monkeypatch):
    J, _ = convolution(Draw(3), "u", "w", geometry(c=1, m=1, size=(400,), kernel=(150,)))
    monkeypatch.setattr(correlation, "MOST", 2**12)
    v = np.ones(J.shape[1])
    tracemalloc.start()
    J @ v
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**18 < 8 * 150 * 251


@every_example
def test_single_precision_stays_single(name):
    check_single(*EXAMPLES[name][1](Draw(4, np.float32)))


@every_geometry
@every_pair
def test_single_precision_convolution_stays_single(name, pair):
    check_single(*convolution(Draw(5, np.float32), *pair, GEOMETRIES[name]))


def check_single(J, dense):
    for K, matrix in ((J, dense), (J.T, dense.T), (2 * J - J / 2, 1.5 * dense)):
        V = Draw(6, np.float32).normal(K.shape[1], 2)
        assert K.dtype == (K @ V).dtype == K.toarray().dtype == K.diagonal().dtype == np.float32
        assert (V.T @ K.T).dtype == np.float32
        assert (K @ V.astype(float)).dtype == np.float64
        assert_allclose(K @ V, matrix @ V, rtol=1e-4, atol=1e-5)


def concrete(kind):
    """The subclasses of a class that are not abstract, those outside jacobians/ excepted."""
    for child in kind.__subclasses__():
        if not inspect.isabstract(child) and child.__module__.startswith("onnxjac.jacobians"):
            yield child
        yield from concrete(child)


def test_every_kind_has_an_example():
    shown = {kind for kind, _ in EXAMPLES.values()} | {Convolution}
    assert {kind.__name__ for kind in concrete(Jacobian)} == {kind.__name__ for kind in shown}


def test_every_kind_but_the_composites_says_where_its_entries_stand():
    whole = entries.dispatch(object)
    silent = {kind.__name__ for kind in concrete(Jacobian) if entries.dispatch(kind) is whole}
    assert silent == {"Block", "Dag", "Product", "Sum"}


def test_classes_are_abstract_or_final():
    kinds = list(concrete(Jacobian))
    assert not [(a, b) for a in kinds for b in kinds if a is not b and issubclass(a, b)]
