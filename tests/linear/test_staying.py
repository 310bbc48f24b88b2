"""Recordings that are tried again, with control flow unrolled that cannot be kept."""

from onnx import parser

import onnxjac as oj
from onnxjac.jacobians.symint import Symbols
from onnxjac.modes.linear.derivatives.trace import staying
from onnxjac.modes.model.flow.control import NotKept
from onnxjac.ops import Step


def test_each_try_starts_with_the_guards_of_before():
    model = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[3] x) => (double[3] y) { y = Tanh(x) }"""))
    symbols, tries = Symbols(), []
    symbols.guards["before"] = symbols.pinned["before"] = "a guard"

    @staying
    def make(model, *, symbols):
        tries.append(len(tries))
        found = set(symbols.guards), set(symbols.pinned)
        symbols.guards[tries[-1]] = symbols.pinned[tries[-1]] = "a guard of this try"
        if len(tries) < 5:
            raise NotKept("no", Step("Loop", "", 21, "loop", (), (f"y{tries[-1]}",)))
        return found

    assert make(model, symbols=symbols) == ({"before"}, {"before"})
    assert set(symbols.guards) == set(symbols.pinned) == {"before", 4}
