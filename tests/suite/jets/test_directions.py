"""Many directions at once, through every operator, whichever of its inputs move."""

from itertools import combinations

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.modes.taylor.jet import run_recorded
from onnxjac.modes.taylor.lines import Lines
from onnxjac.modes.taylor.record import lines_graph
from onnxjac.modes.verify.check import CaseCheck

from .test_operators import EVERY, OPERATORS, SINGLE, SINGLE_ERROR, fails_by_itself

WEIGHTS = np.array([1.0, -2.0, 0.5])

CLOSE = 1e-10
"""Relative to the largest derivative."""

pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")


MOST = 3
"""Cases of an operator, which has up to 80: along one curve all are compared."""


def cases_of(op_type):
    """Some cases of an operator, the names of what moves, and of what is differentiated."""
    cases = [case for case in EVERY if case.op_type == op_type and not fails_by_itself(case)]
    for case in cases[:: -(-len(cases) // MOST)]:
        check = CaseCheck(case)
        if check.wrt and check.of:
            yield case, tuple(check.wrt), tuple(check.of)


def point_of(case):
    return {n: x.astype(float) if x.dtype.kind == "f" else x for n, x in case.point.items()}


def directions(point, wrt, seed=0):
    """Three directions by name."""
    rng = np.random.default_rng(seed)
    return {n: rng.integers(-8, 9, (len(WEIGHTS), *point[n].shape)) / 8 for n in wrt}


def along(case, point, of, lines):
    """What lines give, by name."""
    t = lines_graph(case.model, point, of, tuple(lines.vectors), "numpy",
                    choose=lambda _: {"lines": lines})  # fmt: skip
    found = [*run_recorded(t.model("lines"), point, "numpy").values()]
    return dict(zip(of, found[len(of) :], strict=True))


def near(found, expected, case, tolerance=CLOSE):
    assert np.shape(found) == np.shape(expected), case
    scale = 1 + np.abs(expected).max(initial=0)
    assert np.abs(found - expected).max(initial=0) <= tolerance * scale, case


@pytest.mark.sampled(0.1)
@pytest.mark.parametrize("op_type", OPERATORS)
def test_together_they_are_as_each_alone(op_type):
    """The second and the fourth derivatives along three lines, and their weighted sum."""
    tolerance = SINGLE_ERROR if op_type in SINGLE else CLOSE
    for case, wrt, of in cases_of(op_type):
        point = point_of(case)
        vectors = directions(point, wrt)
        alone = [oj.jet(case.model, point, {n: [v[r], *[0 * v[r]] * 3] for n, v in vectors.items()},
                        of=of, engine="numpy")[1] for r, _ in enumerate(WEIGHTS)]  # fmt: skip
        for order in (2, 4):
            each = {n: np.stack([rows[n][order - 1] for rows in alone]) for n in of}
            found = along(case, point, of, Lines(order, vectors, None))
            summed = along(case, point, of, Lines(order, vectors, WEIGHTS))
            for n, rows in each.items():
                near(found[n], rows, case, tolerance)
                total = np.tensordot(WEIGHTS, rows, 1)
                near(summed[n], total, case, tolerance * np.abs(rows).max(initial=1))


@pytest.mark.sampled(0.1)
@pytest.mark.parametrize("op_type", OPERATORS)
def test_whichever_inputs_move(op_type):
    """The second derivative along a line that moves two inputs, beside vᵀ H v.

    What an operator is in those that move, linear or not, depends on which these are.
    """
    for case, wrt, of in cases_of(op_type):
        point = point_of(case)
        if op_type in SINGLE or len(wrt) < 2:
            continue
        for moved in combinations(wrt, 2):
            v = {n: rows[0] for n, rows in directions(point, moved).items()}
            for y in of:
                found = oj.jet(case.model, point, {n: [x, 0 * x] for n, x in v.items()}, of=y,
                               engine="numpy")[1][y][1]  # fmt: skip
                w = np.random.default_rng(1).integers(-8, 9, found.shape) / 8
                _, Hv = oj.hvp(case.model, point, v, of=y, weights=w, engine="numpy")
                near((w * found).sum(), sum((v[n] * Hv[n]).sum() for n in v), case)
