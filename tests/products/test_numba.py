"""The numba program gives the operator's products; padding, steps and broadcasts are fused."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from check_operator import check_operator
from onnxjac.jacobians import (
    Broadcast,
    Dag,
    Diagonal,
    Edge,
    Embed,
    Eye,
    Permutation,
    Product,
    Reshape,
    Slice,
    implicit_kron,
)
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.products import engines
from onnxjac.modes.products.compiled import Compiled
from onnxjac.modes.products.record import record
from onnxjac.ops.numbers import numbers

from ..jacobians.examples import EXAMPLES, Draw

numba = pytest.importorskip("numba")
from onnxjac.modes.products.numba import compile, kernels, loops  # noqa: E402


def stencil(draw, n=6, m=7):
    """v ↦ d ∘ v + a · (v shifted by one along each axis, zero outside)."""
    center = Diagonal(draw.normal(n, m))
    total = center
    for axis, length in enumerate((n, m)):
        for start, other in ((0, 1), (1, 0)):
            spans = [[(0, 1, n), (0, 1, m)] for _ in range(2)]
            spans[0][axis], spans[1][axis] = (start, 1, length - 1), (other, 1, length - 1)
            cut = Slice(tuple(spans[0]), (n, m), draw.dtype)
            total = total + 0.3 * (Embed(tuple(spans[1]), (n, m), draw.dtype) @ cut)
    return total


def chain(draw):
    """Reversed steps, a transpose, a broadcast and padding between diagonals."""
    dtype = draw.dtype
    cut = Slice(((4, -2, 3), (1, 1, 3)), (5, 4), dtype) @ Diagonal(draw.normal(5, 4))
    turned = Permutation((1, 0), (3, 3), dtype) @ Diagonal(draw.normal(3, 3)) @ cut
    placed = Embed(((1, 1, 3), (2, 1, 3)), (5, 6), dtype) @ turned
    repeated = Diagonal(draw.normal(2, 5, 6)) @ Broadcast((2, 5, 6), (5, 6), dtype) @ placed
    return Diagonal(draw.normal(60)) @ Reshape((60,), (2, 5, 6), dtype) @ repeated


def backwards(draw):
    """A padded array sliced in reverse with step 2; factors are not merged."""
    cut = Slice(((8, -2, 5),), (9,), draw.dtype)
    placed = Embed(((3, 1, 3),), (9,), draw.dtype)
    return Product((Diagonal(draw.normal(5)), cut, Diagonal(draw.normal(9)), placed))


FUSED = {"stencil": stencil, "chain": chain, "backwards": backwards}
every_fused = pytest.mark.parametrize("name", FUSED)


@pytest.mark.parametrize("columns", [(), (3,)], ids=str)
@pytest.mark.parametrize("name", EXAMPLES)
def test_products(name, columns):
    """J V and Jᵀ U of every kind of operator."""
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-4)):
        J, _ = EXAMPLES[name][1](Draw(1, dtype))
        for K in (J, J.T):
            run, draw = compile(record(K, columns)), Draw(2, dtype)
            for v in (draw.normal(*columns, *K.in_shape), draw.normal(*columns, *K.in_shape)):
                y, expected = run(v), K._apply(numbers, v)
                assert y.dtype == expected.dtype == dtype
                assert_allclose(y, expected, rtol=tolerance, atol=tolerance)


def test_fused_operator():
    J = chain(Draw(3))
    dense = np.stack([J.matvec(e) for e in np.eye(J.shape[1])], axis=1)
    check_operator(Compiled(J, "numba"), dense)


@every_fused
@pytest.mark.parametrize("columns", [(), (3,)], ids=str)
def test_fused_products(name, columns):
    for K in (FUSED[name](Draw(3)), FUSED[name](Draw(3)).T):
        v = Draw(9).normal(*columns, *K.in_shape)
        expected = K._apply(numbers, v)
        assert_allclose(compile(record(K, columns))(v), expected, rtol=1e-12, atol=1e-12)


@every_fused
def test_parallel_loops(name, monkeypatch):
    monkeypatch.setattr(kernels, "LARGE", 1)
    for K in (FUSED[name](Draw(4)), FUSED[name](Draw(4)).T):
        run = compile(record(K))
        for seed in range(3):
            v = Draw(seed).normal(*K.in_shape)
            assert_allclose(run(v), K._apply(numbers, v), rtol=1e-12, atol=1e-12)


def test_a_stencil_is_one_loop():
    recording = record(stencil(Draw(5)))
    assert len(recording.nodes) > 8
    assert len(compile(recording).calls) == 1


def test_equal_structure_is_compiled_once():
    compile(record(stencil(Draw(6))))
    before = kernels.compiled.cache_info().misses
    compile(record(stencil(Draw(7))))
    assert kernels.compiled.cache_info().misses == before


def test_without_numba_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(InputError, match=r"onnxjac\[numba\]"):
        engines.compiler("numba")


def test_too_many_frames_are_kept_out_of_the_loop(monkeypatch):
    monkeypatch.setattr(loops, "PIECES", 4)
    J = stencil(Draw(8))
    run, v = compile(record(J)), Draw(9).normal(*J.in_shape)
    assert len(run.calls) > 1
    assert_allclose(run(v), J._apply(numbers, v), rtol=1e-12, atol=1e-12)


def test_an_operand_that_a_loop_reads_later_is_not_overwritten():
    """The loop of the sum reads x shifted, after NumPy has multiplied x for the other term."""
    draw, eye = Draw(10), Eye(2)
    cut = Slice(((1, 1, 5), (0, 1, 2)), (6, 2), draw.dtype)
    shifted = Product((Diagonal(draw.normal(5, 2)), cut))
    mixed = Product((implicit_kron(draw.normal(5, 6), eye), Diagonal(draw.normal(6, 2))))
    first = implicit_kron(draw.normal(6, 6), eye)
    edges = Edge(0, 1, first), Edge(1, 2, shifted), Edge(1, 2, mixed)
    J = Dag(((6, 2), (6, 2), (5, 2)), edges, (0,), (2,), draw.dtype)
    run, v = compile(record(J)), draw.normal(12)
    assert len(run.calls) > 1
    assert_allclose(run(v), J._apply(numbers, v), rtol=1e-12)
