"""Taylor mode of every operator equals its definition in ONNX, in 900 digits, to sixth order."""

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.modes.verify.case import node_case
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.check import CaseCheck
from scoreboard.truth import along_curve

ORDER = 6

SINGLE = {
    "DequantizeLinear": "its scale is in single precision",
    "Resize": "its scales are in single precision",
    "QuickGelu": "its attribute 1.702 is in single precision",
    "LeakyRelu": "its attribute 0.01 is in single precision",
    "HardSigmoid": "its attribute 0.2 is in single precision",
}
"""Operators that round at 24 bits, as ONNX defines them."""

SINGLE_ERROR = 1e-3
"""Rounding of x⁽¹⁾ … x⁽⁶⁾ at 24 bits, in slopes that grow with the order."""

EVERY = tuple(case for cases in CASES.values() for case in cases)

OPERATORS = sorted({case.op_type for case in EVERY})


def errors_of(case, seed, whole):
    """The largest error over all orders, relative to the largest derivative of each, where all
    inputs move, and as a `whole` where each of several moves alone too.
    """
    check = CaseCheck(case)
    alone = [(name,) for name in check.wrt] if whole and len(check.wrt) > 1 else []
    for moving in [check.wrt, *alone] if check.wrt and check.of else []:
        yield moving, error_of(case, check, moving, seed)


def error_of(case, check, moving, seed):
    """The largest error where some inputs move."""
    rng = np.random.default_rng(seed)
    point = {n: x.astype(float) if x.dtype.kind == "f" else x for n, x in case.point.items()}
    series = {n: rng.integers(-8, 9, (ORDER, *point[n].shape)) / 8 for n in check.wrt}
    series |= {n: np.zeros_like(x) for n, x in series.items() if n not in moving}
    moved = {n: series[n] for n in moving}
    _, found = oj.jet(case.model, point, moved, of=[*check.of], engine="numpy")
    rows = np.concatenate([found[n].reshape(ORDER, -1) for n in check.of], 1)
    truth = along_curve(check, point, series)
    scale = 1 + np.abs(truth).max(1, initial=0)[:, None]
    return float(np.max(np.abs(rows - truth) / scale, initial=0))


@pytest.mark.sampled(0.1)
@pytest.mark.parametrize("op_type", OPERATORS)
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_derivatives_along_a_curve_are_those_of_the_definition(op_type, request):
    whole = request.config.getoption("--whole")
    tolerance = SINGLE_ERROR if op_type in SINGLE else 1e-10
    for k, case in enumerate(EVERY):
        if case.op_type == op_type and not fails_by_itself(case):
            for moving, error in errors_of(case, k, whole):
                assert error < tolerance, f"{case} in {moving}: {error:.1e}"


def fails_by_itself(case):
    """Whether the model does not run, so that there is nothing to differentiate."""
    return case.op_type == "LinearRegressor" and "post_transform" in case.attrs


def test_an_empty_batch_has_an_empty_series():
    case = node_case("com.microsoft::MultiHeadAttention", *[(0, 2, 2)] * 3, num_heads=1)
    series = {name: np.zeros((3, *x.shape)) for name, x in case.point.items()}
    _, found = oj.jet(case.model, case.point, series, engine="numpy")
    assert found["y"].shape == (3, 0, 2, 2)
