"""Indices, lengths, axes and sizes that do not fit: arrays of JAX whose numbers are known are
refused where those of NumPy are; traced ones give NaN, or write nothing.
"""

import numpy as np
import onnx.defs
import pytest

from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.ops.numbers import numbers
from onnxjac.ops.registry import find

jax = pytest.importorskip("jax")
from onnxjac.ops.jax import arrays  # noqa: E402
from onnxjac.ops.jax.table import KERNELS, to_jax_array  # noqa: E402

pytestmark = pytest.mark.peers

X = np.random.default_rng(0).standard_normal((4, 3))
IMAGE = np.random.default_rng(1).standard_normal((1, 2, 4, 4))
SIGNAL = X[None, :, :1]
VALUES = np.array([0.0, 1.0])


def ints(*numbers):
    return np.array(numbers)


def cell(gates, lengths):
    """Operands of a recurrent cell over two sequences of two entries."""
    weights = np.ones((1, 2 * gates, 3)), np.ones((1, 2 * gates, 2))
    return np.ones((2, 2, 3)), *weights, None, lengths


AXES = [((X, ints(2)), {}), ((X, ints(-3)), {}), ((X, ints(0, 0)), {})]
LABELS = [((X, ints(0, 1, 2, 3)), {}), ((X, ints(0, 1, 2, -4)), {}),
          ((X, ints(0, 1, 2, 3), np.ones(3)), {}), ((X, ints(0, 1, 2)), {}),
          ((X, ints(0, 1, 2, 0), np.ones(4)), {})]  # fmt: skip
WIDE = np.zeros(IMAGE.shape, int) + 10**4
POOL = {"kernel_shape": (2, 2), "strides": (2, 2)}
LAST = {"axis": 1}

CASES = {
    "Gather": [((X, ints(4)), {}), ((X, ints(-5)), {}), ((X, ints(3, 3)), LAST),
               ((X, np.array(7)), {})],
    "GatherElements": [((X, np.full((4, 3), 4)), {}), ((X, np.full((4, 3), -4)), LAST)],
    "GatherND": [((X, ints(4)[None]), {}), ((X, ints(0, 3)[None]), {}),
                 ((X, ints(0, -4)[None]), {}),
                 ((X, np.full((4, 1), 3)), {"batch_dims": 1})],
    "ScatterElements": [((X, np.full((4, 3), 4), X), {}),
                        ((X, np.full((4, 3), -4), X), {**LAST, "reduction": "add"})],
    "ScatterND": [((X, ints(4)[None], X[:1]), {}), ((X, ints(0, 3)[None], X[0, :1]), {}),
                  ((X, ints(-5)[None], X[:1]), {"reduction": "add"})],
    "OneHot": [((ints(1), np.array(-3), VALUES), {}), ((ints(1), ints(3, 3), VALUES), {}),
               ((ints(5, -7, 1), np.array(3), VALUES), {})],
    "ReverseSequence": [((X, ints(5, 1, 1)), {}), ((X, ints(-1, 1, 1)), {}), ((X, ints(1, 1)), {}),
                        ((X, ints(1, 1, 1, 4)), {"batch_axis": 0, "time_axis": 1})],
    "TopK": [((X, ints(5)), {"axis": 0}), ((X, ints(-1)), {}), ((X, ints(1, 2)), {})],
    "Compress": [((X, np.arange(5) == 4), {"axis": 0}), ((X, np.arange(13) == 12), {})],
    "Slice": [((X, ints(9), ints(12)), {}), ((X, ints(0), ints(2), ints(2)), {}),
              ((X, ints(0), ints(2), ints(0), ints(0)), {}), ((X, ints(0, 0), ints(2)), {})],
    "Split": [((X, ints(3, 2)), {"axis": 0}), ((X, ints(5, -2)), {"axis": 0})],
    "Squeeze": [((X[None], ints(1)), {}), ((X[None], ints(3)), {}), ((X[None], ints(-4)), {})],
    "Unsqueeze": [((X, ints(3)), {}), ((X, ints(-4)), {}), ((X, ints(0, 0)), {})],
    "Reshape": [((X, ints(5, 2)), {}), ((X, ints(-2, 2)), {}), ((X, ints(-1, -1)), {})],
    "Expand": [((X, ints(2, 3)), {}), ((X, ints(-1, 3)), {})],
    "Tile": [((X, ints(-1, 1)), {}), ((X, ints(2)), {}), ((X, ints(2, 1, 1)), {})],
    "Pad": [((X, ints(-5, 0, 0, 0)), {}), ((X, ints(0, 0, 1)), {}),
            ((X, ints(1, 1), None, ints(2)), {})],
    "Trilu": [((X, np.array(9)), {})],
    "CumSum": [((X, np.array(2)), {}), ((X, np.array(-3)), {}), ((X, ints(0, 1)), {})],
    "CumProd": [((X, np.array(2)), {}), ((X, np.array(-3)), {})],
    **{f"Reduce{kind}": AXES for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min",
                                          "Prod", "Sum", "SumSquare")},
    "NegativeLogLikelihoodLoss": LABELS,
    "SoftmaxCrossEntropyLoss": LABELS,
    "MaxUnpool": [((IMAGE, WIDE), POOL), ((IMAGE, -WIDE), POOL), ((IMAGE, WIDE[:, :1]), POOL),
                  ((IMAGE, np.arange(32).reshape(IMAGE.shape), ints(1, 2, 4, 4)), POOL)],
    "STFT": [((SIGNAL, np.array(step), window, None if n is None else np.array(n)), {})
             for step, window, n in ((0, VALUES, None), (-1, VALUES, None), (1, None, 9),
                                     (1, None, -2))],
    "DFT": [((X[..., None], np.array(4), np.array(5)), {}), ((X[..., None], np.array(-5)), {})],
    "AffineGrid": [((np.ones((1, 2, 3)), ints(1, 1, -2, 2)), {}),
                   ((np.ones((1, 2, 3)), ints(1, 1, 2)), {})],
    "Resize": [((IMAGE, None, None, ints(1, 2, -3, 4)), {}),
               ((IMAGE, None, None, ints(1, 2, 4)), {})],
    "RoiAlign": [((IMAGE, np.eye(4)[:1], ints(k)), {}) for k in (1, -2)],
    "LSTM": [(cell(4, lengths), {"hidden_size": 2})
             for lengths in (ints(3, 1), ints(-1, 1), ints(1))],
    "GRU": [(cell(3, lengths), {"hidden_size": 2}) for lengths in (ints(3, 1), ints(-1, 1))],
    "RNN": [(cell(1, lengths), {"hidden_size": 2}) for lengths in (ints(3, 1), ints(-1, 1))],
}  # fmt: skip
"""Operator -> operands of which one does not fit, and attributes."""

ANY_NUMBER = {"BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Loop"}
"""Operators that take whole numbers of any size."""

WHOLE = {f"tensor({kind}{bits})" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}

READABLE = ValueError, IndexError, TypeError, UnsupportedOp
"""The errors that say what does not fit: not those of the compiler."""


def takes_whole_numbers(schema):
    return any({*x.types} and {*x.types} <= WHOLE for x in schema.inputs)


def test_every_operator_with_such_operands_is_here():
    schemas = [s for s in onnx.defs.get_all_schemas() if not s.domain and takes_whole_numbers(s)]
    known = {s.name for s in schemas
             if s.name in KERNELS or (find(s.name) and find(s.name).definition)}  # fmt: skip
    assert known - ANY_NUMBER == CASES.keys() - {"Compress", "OneHot"}  # of other types


def results(library, name, inputs, attrs):
    """The outputs, or the error."""
    outputs = 2 if name == "Split" else 1
    try:
        made = library.run(name, inputs, attrs, outputs=outputs)
    except Exception as error:
        return error
    return [np.asarray(y) for y in made]


EACH = [pytest.param(name, *case, id=f"{name}-{k}")
        for name, cases in CASES.items() for k, case in enumerate(cases)]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attrs"), EACH)
def test_known_numbers_are_refused_where_numpy_refuses_them(name, inputs, attrs):
    """Whether they come as arrays of NumPy, or of JAX."""
    expected = results(numbers, name, inputs, attrs)
    moved = [None if x is None else to_jax_array(x) for x in inputs]
    for given in ([moved[0], *inputs[1:]], moved):
        found = results(arrays, name, given, attrs)
        if isinstance(expected, Exception):
            assert isinstance(found, READABLE), found
        else:
            for y, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(y, wanted, rtol=1e-12)


READS = {
    "Gather": ((X, ints(1, 4, -5, -1)), {}, [0, 3]),
    "GatherND": ((X, ints(1, 4, -5, -1)[:, None]), {}, [0, 3]),
    "GatherElements": ((X, np.tile(ints(1, 4, -5, -1)[:, None], 3)), {}, [0, 3]),
    "ReverseSequence": ((X, ints(2, 4, 5, -1)), {"batch_axis": 0, "time_axis": 1}, [0]),
    "NegativeLogLikelihoodLoss": ((X, ints(1, 3, -4, -1)), {"reduction": "none"}, [0, 3]),
}
"""Operator -> operands of which some reach outside, attributes, and the rows that do not."""


@pytest.mark.parametrize("name", READS)
def test_traced_indices_outside_read_nan(name):
    (x, indices), attrs, inside = READS[name]
    run = jax.jit(lambda x, indices: getattr(arrays, name)(x, indices, **attrs))
    with jax.enable_x64(True):
        y = np.asarray(run(x, indices))
    outside = np.isnan(y).reshape(4, -1).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(~outside), inside)
    assert np.isfinite(y[inside]).all()


@pytest.mark.parametrize("name", ["ScatterND", "ScatterElements", "MaxUnpool"])
def test_traced_indices_outside_write_nothing(name):
    """Nor do those that would count from the end more than once."""
    x, outside = np.zeros((1, 1, 8)), [8, -9]
    places, updates = np.array(outside), np.ones(2)
    operands, attrs = {
        "ScatterND": ((x[0, 0], places[:, None], updates), {}),
        "ScatterElements": ((x[0, 0], places, updates), {}),
        "MaxUnpool": ((updates.reshape(1, 1, 2), places.reshape(1, 1, 2)),
                      {"kernel_shape": (4,), "strides": (4,)}),
    }[name]  # fmt: skip
    with jax.enable_x64(True):
        y = jax.jit(lambda *given: getattr(arrays, name)(*given, **attrs))(*operands)
    np.testing.assert_array_equal(np.ravel(y), np.zeros(8))
