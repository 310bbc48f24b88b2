"""The transcriptions of the symbols reading: all registered, with the schema's defaults, and with
the results of the kernels, where the proofs use ONNX's own function body instead.
"""

import inspect
import math

import numpy as np
import pytest
import sympy as sp
from numpy.testing import assert_allclose
from onnx import defs

from onnxjac.ops import find
from onnxjac.ops.node import node_of
from onnxjac.ops.numbers import numbers
from onnxjac.ops.symbols import SymbolReading
from onnxjac.ops.symbols.number import FUNCTIONS, KERNELS, Number
from onnxjac.ops.symbols.pointwise import ACTIVATIONS, FORMULAS, mirrored

from .test_defaults import default, equal


def keywords(kernel):
    """The attributes of a kernel that have a default."""
    parameters = inspect.signature(kernel).parameters.values()
    return [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty]


PLAIN = [name for name in KERNELS if defs.has(name) and keywords(KERNELS[name])]


@pytest.mark.parametrize("name", PLAIN)
def test_the_defaults_of_a_transcription_agree_with_its_schema(name):
    attributes = defs.get_schema(name).attributes
    wrong = {
        p.name: p.default
        for p in keywords(KERNELS[name])
        if p.name in attributes and p.default is not None
        if not equal(p.default, default(attributes[p.name]))
    }
    assert not wrong


SECOND = {"Pow": [1.5], "Mod": [1.5], "PRelu": [0.25]}
ATTRIBUTES = {"Mod": {"fmod": 1}, "Shrink": {"lambd": 1.0, "bias": 0.5}}


@pytest.mark.parametrize("name", [*FORMULAS, *ACTIVATIONS])
def test_a_formula_has_the_numbers_of_the_kernel(name):
    x = np.array([-3.5, -1.25, -0.25, 0.25, 1.25, 3.5])[3 * (name == "Pow") :]
    more, how = [np.full(1, value) for value in SECOND.get(name, ())], ATTRIBUTES.get(name, {})
    op = SymbolReading()
    made = getattr(op, name)(op.variables("x", x), *more, **how)
    expected = getattr(numbers, name)(x, *more, **how)
    assert_allclose(np.asarray(getattr(made, "values", made), float), expected, rtol=1e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_agrees_with_numpy_in_symbols_and_at_the_point(name):
    x = 1.25 if name == "arccosh" else 0.75
    made = getattr(Number(sp.Rational(x), x, {}), name)()
    expected = math.erf(x) if name == "erf" else getattr(np, name)(x)
    assert_allclose([float(made.expr), float(made.at)], expected, rtol=1e-12)


def test_identities_of_algebra_are_no_conditions():
    a = Number(sp.Symbol("a"), 0.5, notes := {})
    b = Number(sp.Symbol("b"), 0.5, notes)
    assert (a + b) * (a + b) <= a * a + 2 * a * b + b * b
    assert not notes
    assert a <= b
    assert len(notes) == 1


def test_a_length_that_a_scale_does_not_change_is_resized_nevertheless():
    op, x = SymbolReading(), np.array([1.0, 2.0, 4.0])
    how = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    made = op.Resize(op.variables("x", x), None, np.array([1.25]), **how)
    assert_allclose(made.values, numbers.Resize(x, None, np.array([1.25]), **how))
    assert made.values[1] == 1.8


@pytest.mark.parametrize(("sign", "last"), [(1, 5.0), (-1, -5.0)])
def test_half_a_spectrum_and_its_mirror_image(sign, last):
    assert_allclose(mirrored(np.array([3.0, 5.0]), 3, sign), [3, 5, last])


def test_a_definition_reads_its_regions():
    """From symbols as while recording, with the name of the node that reads them."""
    x, regions = np.arange(4.0).reshape(1, 1, 2, 2), np.array([[0.0, 0.0, 0.0, 1.0, 1.0]])
    op = SymbolReading()
    node = node_of("MaxRoiPool", [op.variables("x", x), regions], {"pooled_shape": (1, 1)})
    (y,) = find("MaxRoiPool").outputs(op, node)
    assert str(y) == "[[[[x_0011]]]]"
