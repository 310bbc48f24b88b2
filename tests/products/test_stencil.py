"""Sums of shifted tensors are one instruction of NumPy where that is cheaper."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Diagonal, Embed, Slice, Sum
from onnxjac.modes.products.numpy import compile, stencil, stencils
from onnxjac.modes.products.numpy.assemble import compile as plain
from onnxjac.modes.products.numpy.stencil import Stencil
from onnxjac.modes.products.record import record
from onnxjac.ops.numbers import numbers

from ..jacobians.examples import Draw


def shifted(shape, shift, dtype):
    """v ↦ v[i + shift], zero outside."""
    cut = tuple((max(s, 0), 1, n - abs(s)) for n, s in zip(shape, shift, strict=True))
    put = tuple((max(-s, 0), 1, n - abs(s)) for n, s in zip(shape, shift, strict=True))
    return Embed(put, shape, dtype) @ Slice(cut, shape, dtype)


def five_points(shape, draw):
    """d ∘ v + 0.3 · (the neighbours along each axis)."""
    unit = np.eye(len(shape), dtype=int)
    around = [0.3 * shifted(shape, s, draw.dtype) for s in (*unit.tolist(), *(-unit).tolist())]
    return Sum((Diagonal(draw.normal(*shape)), *around))


def upwind(shape, draw):
    """Σ cₖ ∘ (v shifted), with a field cₖ for each direction, some of it far and across."""
    shifts = [(1, 0), (0, -2), (-1, 1), (3, 2)]
    fields = [Diagonal(draw.normal(*shape)) @ shifted(shape, s, draw.dtype) for s in shifts]
    return Sum((*fields, *(0.5 * f for f in fields[:2])))


def inner_fields(shape, draw):
    """Σ (cₖ ∘ v) shifted: the field is moved with v; no term stays where it is."""
    shifts = [(1, 0), (0, 1), (0, -1), (-2, 0)]
    return Sum(tuple(shifted(shape, s, draw.dtype) @ Diagonal(draw.normal(*shape)) for s in shifts))


CASES = {"five points": (five_points, (90, 70)), "space": (five_points, (12, 20, 30)),
         "upwind": (upwind, (80, 90)), "fields": (inner_fields, (70, 100))}  # fmt: skip

every_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Stencils even where a few thousand entries make them no cheaper; several blocks."""
    for module in (stencil, stencils):
        monkeypatch.setattr(module, "MARGIN", 0.0)
    monkeypatch.setattr(stencil, "ENTRY", 0.0)
    monkeypatch.setattr(stencil, "CALL", 0.0)
    monkeypatch.setattr(stencil, "BLOCK", 1 << 11)


def instructions(program):
    return [i for i in program.instructions if isinstance(i.function, Stencil)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("columns", [(), (3,)], ids=str)
@every_case
def test_products(name, columns, dtype):
    make, shape = CASES[name]
    J = make(shape, Draw(0, dtype))
    for K in (J, J.T):
        run, v = compile(record(K, columns)), Draw(1, dtype).normal(*columns, *K.in_shape)
        assert instructions(run), [i.function for i in run.instructions]
        y = run(v)
        assert y.dtype == dtype
        tolerance = 1e-13 if dtype == np.float64 else 1e-5
        assert_allclose(y, K._apply(numbers, v), rtol=tolerance, atol=tolerance)


def test_what_leaves_the_grid_is_zero_and_not_a_number_times_zero():
    """An infinity reaches its neighbours, and nobody else across the edge of the grid."""
    J, v = five_points((60, 50), Draw(0)), np.zeros((60, 50))
    v[7, 49] = np.inf
    y = compile(record(J))(v.reshape(J.in_shape)).reshape(60, 50)
    reached = np.argwhere(~np.isfinite(y)).tolist()
    assert reached == [[6, 49], [7, 48], [7, 49], [8, 49]]


def test_one_call_in_place_of_many():
    J = five_points((256, 256), Draw(0))
    (only,) = instructions(compile(record(J)))
    assert len(plain(record(J)).instructions) > 5
    assert len(only.function.others) == 4
    assert len(only.function.margin) == 2 * 256 - 2  # two columns, but for corners without a row


def test_small_grids_are_left_as_they_are(monkeypatch):
    monkeypatch.undo()
    for shape, chosen in (((8, 8), False), ((256, 256), True)):
        assert bool(instructions(compile(record(five_points(shape, Draw(0)))))) == chosen
