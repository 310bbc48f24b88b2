"""The parts of the report: points at random, singular values, progress, text."""

import numpy as np
import onnx
import pytest

import onnxjac
from onnxjac.jacobians import Dense, Diagonal
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.reporting.draw import draw_inputs
from onnxjac.modes.reporting.report import section
from onnxjac.modes.reporting.spectrum import largest


def parsed(text):
    """A model from ONNX's text format."""
    return onnxjac.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))


def test_drawn_inputs():
    model = parsed("""g
        (float[n, 3] x, double[n] w, int64[m, 2] i, bool[k] b) =>
        (float[n, 3] y, double[n] v, int64[m, 2] j, bool[k] c)
        { y = Identity(x) v = Identity(w) j = Identity(i) c = Identity(b) }""")
    drawn = draw_inputs(model, {}, {"x": (4, 3)})
    assert {name: (a.shape, str(a.dtype)) for name, a in drawn.items()} == {
        "x": ((4, 3), "float32"), "w": ((4,), "float64"),
        "i": ((1, 2), "int64"), "b": ((1,), "bool"),
    }  # fmt: skip
    assert set(drawn["i"].ravel()) <= {0, 1}
    given = draw_inputs(model, {"w": np.ones(5)})
    assert given["x"].shape == (5, 3)
    assert (given["w"] == 1).all()


def test_a_string_cannot_be_drawn():
    model = parsed("g (string[2] s, float[2] x) => (float[2] y) { y = Identity(x) }")
    with pytest.raises(InputError, match="'s'"):
        draw_inputs(model, {})


@pytest.mark.parametrize("shape", [(40, 9), (9, 40), (6, 50), (1, 1), (7, 7)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_largest_singular_values(shape, dtype):
    matrix = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    found = largest(Dense(matrix, shape[:1], shape[1:]))
    exact = np.linalg.svd(matrix.astype(float), compute_uv=False)[:5]
    np.testing.assert_allclose(found.values, exact, rtol=2e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("diagonal", [np.zeros(20), np.ones(20), np.eye(20)[3], np.arange(20.0)])
def test_singular_values_of_symmetric_operators(diagonal):
    found = largest(Diagonal(diagonal, (20,)))
    np.testing.assert_allclose(found.values, np.sort(diagonal)[:-6:-1], atol=1e-7)


def test_section():
    assert section("title", ["one", "two"]) == "title       one\n            two"
