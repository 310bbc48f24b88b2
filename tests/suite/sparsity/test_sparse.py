"""The sparse Jacobian is the dense one, entry by entry, and no larger than it must be."""

import warnings

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.jacobians import Dense, Diagonal
from onnxjac.jacobians.base import DENSE_LIMIT
from onnxjac.jacobians.errors import LimitError
from onnxjac.jacobians.sparse import count, entries
from onnxjac.modes.sparse import Coloring, method_of, pattern, sparse
from onnxjac.modes.sparse.choice import Accumulated, Full, colored, find_pattern
from onnxjac.modes.sparse.sweep import composite_parts

from ..jacobians.convolutions import GEOMETRIES, PAIRS, convolution
from ..jacobians.examples import EXAMPLES, Draw

every_example = pytest.mark.parametrize("name", EXAMPLES)
both_ends = pytest.mark.parametrize("backward", [False, True])


def draw(name, seed):
    return EXAMPLES[name][1](Draw(seed))


def check_sparse(J, dense):
    """sparse(J) has exactly the nonzero entries of the matrix."""
    A = sparse(J)
    assert A.shape == dense.shape
    assert A.dtype == J.dtype
    assert A.has_canonical_format
    assert A.nnz == np.count_nonzero(dense)
    assert_allclose(A.toarray(), dense, rtol=1e-12, atol=1e-12)
    P = pattern(J)
    assert_allclose(P.toarray() | (dense == 0), True)
    indices = (A.indices, A.indptr, P.indices, P.indptr)
    assert {index.dtype for index in indices} == {np.dtype(np.int32)}


@every_example
def test_the_sparse_operator_is_the_dense_one(name):
    J, dense = draw(name, 1)
    check_sparse(J, dense)
    check_sparse(J.T, dense.T)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
def test_a_sparse_convolution_is_the_dense_one(name, pair):
    check_sparse(*convolution(Draw(3), *pair, GEOMETRIES[name]))


@every_example
def test_no_more_entries_than_counted(name):
    J, _ = draw(name, 1)
    if not composite_parts(J):
        assert len(entries(J).rows) <= count(J)


@every_example
@both_ends
def test_numbers_of_another_point(name, backward):
    """A layout made for one operator gives the entries of another with the same structure."""
    here, there = draw(name, 1), draw(name, 2)
    found = Accumulated(here[0], (), DENSE_LIMIT, backward=backward)
    assert found.fits(there[0])
    for J, dense in (here, there):
        matrix = found.pattern.astype(float)
        matrix.data = found.values(J)
        assert_allclose(matrix.toarray(), dense, rtol=1e-12, atol=1e-12)


@every_example
@both_ends
def test_the_pattern_is_the_same_from_either_end(name, backward):
    J, dense = draw(name, 1)
    assert_allclose(find_pattern(J, (), backward=backward).toarray(), dense != 0)


@every_example
def test_colored_products_recover_every_entry(name):
    J, dense = draw(name, 1)
    coloring = colored(pattern(J), symmetric=False)
    A = coloring.pattern.astype(float)
    A.data = coloring.values(J)
    assert_allclose(A.toarray(), dense, rtol=1e-12, atol=1e-12)


def test_a_sparse_matrix_keeps_single_precision():
    A = sparse(Diagonal(np.ones(3, np.float32)) @ Dense(np.ones((3, 3), np.float32)))
    assert A.dtype == np.float32


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "dia"])
def test_the_matrix_has_the_format_asked_for(format):
    A = sparse(Diagonal(np.arange(1.0, 4)), format)
    assert A.format == format
    assert_allclose(A.toarray(), np.diag([1, 2, 3]))


def test_a_sparse_matrix_over_the_limit_is_refused():
    rows = Diagonal(np.ones(10**5)) @ Dense(np.ones((10**5, 1))) @ Dense(np.ones((1, 10**5)))
    with pytest.raises(LimitError, match=r"needs 1\d{11} bytes"):
        sparse(rows)
    with pytest.raises(LimitError):
        sparse(Dense(np.ones((10, 10))), limit=1000)
    assert sparse(Dense(np.ones((10, 10))), limit=10**4).nnz == 100


def test_zeros_of_constant_weights_are_left_out():
    J, dense = convolution(Draw(3), "x", "u", next(iter(GEOMETRIES.values())))
    J.held[...] = np.where(np.arange(J.held.size).reshape(J.held.shape) % 2, J.held, 0)
    check_sparse(J, J.toarray())
    assert np.count_nonzero(J.toarray()) < np.count_nonzero(dense)


def test_channels_are_not_entries():
    """A network of many channels: the matrix is counted exactly, and its pattern is the stencil."""
    n, channels = 20, 24
    draw = np.random.default_rng(0)
    model = oj.load(onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (double[1,1,{n},{n}] x, double[{channels},1,3,3] V, double[1,{channels},3,3] W)
            => (double[1,1,{n},{n}] y)
        {{ h = Conv<pads=[1,1,1,1]>(x, V)  a = Relu(h)  y = Conv<pads=[1,1,1,1]>(a, W) }}"""))
    point = {"x": draw.normal(size=(1, 1, n, n)), "V": draw.normal(size=(channels, 1, 3, 3)),
             "W": draw.normal(size=(1, channels, 3, 3))}  # fmt: skip
    J = oj.linearize(model, point, wrt="x")
    row = np.minimum(np.arange(n) + 2, n - 1) - np.maximum(np.arange(n) - 2, 0) + 1
    entries = int(row.sum()) ** 2
    A = J.tosparse(limit=entries * (8 + 4))
    assert A.nnz == entries
    assert_allclose(A.toarray(), J.toarray(), atol=1e-12)
    assert isinstance(method_of(J, DENSE_LIMIT), Coloring)


def test_a_large_full_matrix_is_the_dense_one():
    J = Dense(np.random.default_rng(0).normal(size=(1024, 1024)))
    A = sparse(J)
    assert isinstance(method_of(J, DENSE_LIMIT), Full)
    assert_allclose(A.toarray(), J.toarray())
    assert sparse(Dense(2 * J.toarray()), out=A) is A
    assert_allclose(A.toarray(), 2 * J.toarray())


def test_terms_are_counted_against_the_time_that_is_left():
    """Eight terms take 1.2 µs, and products by a colouring 2.8 µs."""
    J = Diagonal(np.arange(1.0, 9))
    assert isinstance(method_of(J, DENSE_LIMIT, 2e-6), Accumulated)
    with pytest.raises(LimitError, match="products by a colouring"):
        method_of(J, DENSE_LIMIT, 1e-6)


def test_no_warning_of_numpy_comes_out():
    """An entry at the edge of the domain of Log is NaN, and said by no one."""
    model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[3] x) => (double[3] y) { l = Log(x) y = Mul(l, x) }"""))
    J = oj.linearize(model, {"x": np.arange(3.0)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(J.tosparse().toarray(), np.diag([np.nan, 1, 1 + np.log(2)]))
