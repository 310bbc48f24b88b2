"""Recordings that are tried again, with control flow unrolled that cannot be kept."""

from onnx import parser

import onnxjac as oj
from onnxjac.jacobians.symint import Symbols
from onnxjac.modes.linear.derivatives.trace import staying
from onnxjac.modes.model.flow.control import NotKept
from onnxjac.ops import Step


def test_each_try_starts_with_the_conditions_of_before():
    model = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[3] x) => (double[3] y) { y = Tanh(x) }"""))
    symbols, tries = Symbols(), []
    symbols.pin("before", "a reader")

    @staying
    def make(model, *, symbols):
        tries.append(len(tries))
        found = symbols.pinned()
        symbols.pin(f"try {tries[-1]}", "a reader")
        if len(tries) < 5:
            raise NotKept("no", Step("Loop", "", 21, "loop", (), (f"y{tries[-1]}",)))
        return found

    assert make(model, symbols=symbols) == {"before": "a reader"}
    assert symbols.pinned().keys() == {"before", "try 4"}
