"""What is cached with a model: of each kind the results that were used last."""

from itertools import pairwise

import numpy as np
import onnx.parser
import pytest

import onnxjac as oj
from onnxjac.modes.linear.derivatives.route import route_of
from onnxjac.modes.model.flow.contents import KINDS

NAMES = [f"t{k}" for k in range(KINDS["route"] + 4)]
TEXT = f"""<ir_version: 10, opset_import: ["": 21]> g (double[n] x) => (double[n] y, double l) {{
    {NAMES[0]} = Sin(x) {" ".join(f"{b} = Sin({a})" for a, b in pairwise(NAMES))}
    y = Sin({NAMES[-1]}) l = ReduceSum<keepdims = 0>(y) }}"""


@pytest.fixture
def model():
    return oj.load(onnx.parser.parse_model(TEXT))


def test_the_route_that_was_used_least_recently_goes_first(model):
    first, second = (route_of(model, (name,), ("x",)) for name in NAMES[:2])
    for name in NAMES[2:]:
        route_of(model, (name,), ("x",))
        assert route_of(model, (NAMES[0],), ("x",)) is first  # in use all the time
    assert len(model.cache["route"]) == KINDS["route"]
    assert route_of(model, (NAMES[1],), ("x",)) is not second


def test_recorded_gradients_leave_the_routes_where_they_are(model):
    route = route_of(model, (NAMES[0],), ("x",))
    f = oj.value_and_grad(model, of="l", wrt="x")
    sizes = range(1, KINDS["gradient"] + 4)
    for n in sizes:
        f({"x": np.ones(n)})
    kept = [n for *_, ((_, (n,), _),), _ in model.cache["gradient"]]
    assert kept == [*sizes][-KINDS["gradient"] :]
    assert route_of(model, (NAMES[0],), ("x",)) is route
