"""Inputs of another dtype than declared: accepted if lossless, else refused in one line."""

import ml_dtypes
import numpy as np
import pytest

import onnxjac as oj

from .models import ENGINES, model, network

X = np.full((2, 3), 0.5, np.float32)

REFUSED = {
    "integers": (X.astype(np.int64), "int64.*use .astype"),
    "booleans": (X > 0, "bool.*use .astype"),
    "float8": (X.astype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn.*use .astype"),
    "complex": (X + 0j, "complex64"),
    "long double": (X.astype(np.longdouble), "use .astype"),
    "objects": (X.astype(object), "object"),
    "records": (np.zeros((2, 3), [("a", "f4")]), "use .astype"),
    "dates": (np.zeros((2, 3), "M8[s]"), "datetime64"),
    "masked": (np.ma.masked_greater(X, 0), "masked array.*filled"),
    "too large": (X * np.float64(1e300), "float32 cannot hold"),
    "too large a list": ((X * np.float64(1e300)).tolist(), "float32 cannot hold"),
}

TAKEN = {
    "lists of integers": ([[1, 2, 3]], [[1.0, 2, 3]]),
    "lists of booleans": ([[True, False, True]], [[1.0, 0, 1]]),
    "halves": (X.astype(np.float16), X),
    "bfloat16": (X.astype(ml_dtypes.bfloat16), X),
    "doubles that underflow": (X * 1e-300, 0 * X),
    "infinite doubles": (X * np.inf, X * np.inf),
    "masked nowhere": (np.ma.array(X), X),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", REFUSED)
def test_lossy_dtypes_are_refused(case, engine):
    x, message = REFUSED[case]
    with pytest.raises(oj.InputError, match=message):
        oj.linearize(network(), {"x": x}, engine=engine)


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("case", TAKEN)
def test_lossless_dtypes_are_cast(case):
    given, meant = TAKEN[case]
    J = oj.linearize(network(), {"x": given}, of="y")
    np.testing.assert_array_equal(J.point["x"], np.asarray(meant, np.float32))


INDICES = {
    "float list": [0.0, 1.0], "floats": np.array([0.0, 1.0]), "int32": np.array([0, 1], np.int32),
    "booleans": np.array([False, True]), "unsigned": np.array([0, 1], np.uint64),
}  # fmt: skip


@pytest.mark.parametrize("case", INDICES)
def test_indices_of_another_type_are_refused(case):
    m = model("y = Gather(x, i)", "(float[2,3] x, int64[2] i) => (float[2,3] y)")
    with pytest.raises(oj.InputError, match=r"input 'i', declared as int64\[2\]"):
        oj.linearize(m, {"x": X, "i": INDICES[case]})


def test_indices_of_another_byte_order():
    m = model("y = Gather(x, i)", "(float[2,3] x, int64[2] i) => (float[2,3] y)")
    J = oj.linearize(m, {"x": X, "i": np.array([1, 0], ">i8")}, engine="numpy")
    np.testing.assert_array_equal(J.toarray(), np.eye(6)[[3, 4, 5, 0, 1, 2]])


@pytest.mark.parametrize("chosen", [[1, 0], [1.0, 0.0], np.array([1, 0])])
def test_conditions_that_are_numbers(chosen):
    m = model("y = Where(c, x, z)", "(bool[2] c, float[2] x, float[2] z) => (float[2] y)")
    with pytest.raises(oj.InputError, match=r"input 'c', declared as bool\[2\]"):
        oj.linearize(m, {"c": chosen, "x": X[0, :2], "z": X[0, :2]})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_only_stores_numbers(kind, engine):
    """float8 has no tangents; inside a model, derivatives pass straight through a Cast."""
    name = kind.replace("_", "")
    m = model("y = Cast<to = 1>(x)", f"({name}[2,3] x) => (float[2,3] y)")
    with pytest.raises(oj.InputError, match=r"floating|empty"):
        oj.linearize(m, {"x": X.astype(getattr(ml_dtypes, kind))}, engine=engine)
