"""Outputs that are left out, and empty operands, of control flow and of operators on sequences: in
the main graph, in branches, in the bodies of loops and in functions. No model ends the process, and
ONNX Runtime and NumPy give the same.
"""

import os

import numpy as np
import pytest
from onnx import parser

import onnxjac as oj

from .test_process import apart

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")

CALLS = {
    "loop": (4, range(4), """{outs} = Loop(n, "", x, x) <
        body = b (int64 i, bool t, float[N] a, float[N] d) =>
        (bool u, float[N] a2, float[N] d2, float[N] r, float[N] s) {{ u = Identity(t)
        a2 = Mul(a, d) d2 = Add(d, a) r = Neg(a) s = Exp(d) }}>"""),
    "scan": (3, range(3), """{outs} = Scan<num_scan_inputs = 1, body = b (float[N] a, float z) =>
        (float[N] a2, float r, float s) {{ a2 = Add(a, z) r = Neg(z) s = Exp(z) }}>(x, x)"""),
    "if": (3, range(3), """{outs} = If(c) <
        then_branch = p () => (float[N] a, float[N] b, float[N] d) {{
        a = Neg(x) b = Exp(x) d = Abs(x) }},
        else_branch = q () => (float[N] a2, float[N] b2, float[N] d2) {{
        a2 = Sin(x) b2 = Cos(x) d2 = Identity(x) }}>"""),
    "split": (3, range(3), "{outs} = Split<num_outputs = 3>(x)"),
    "batch": (3, [1], """two = Constant<value_ints = [-1, 1]>() m = Reshape(x, two)
        one = Constant<value_floats = [1.0]>()
        {outs} = BatchNormalization<training_mode = 1>(m, one, one, one, one)"""),
}  # fmt: skip
"""Operator -> the number of its outputs, which may be left out, and nodes that give them."""

MAP = """q{k} = SequenceMap({s}) <body = b{k} (float[M] e{k}) => (float[M] f{k}) {{
    f{k} = Neg(e{k}) }}> y = ConcatFromSequence<axis = 0>(q{k})"""

SEQUENCES = {
    "constructed": "s = SequenceConstruct(x, x) " + MAP.format(k=0, s="s"),
    "split": "s = SplitToSequence(x) " + MAP.format(k=1, s="s"),
    "inserted": "e = SequenceEmpty() s = SequenceInsert(e, x) " + MAP.format(k=2, s="s"),
    "erased": "t = SequenceConstruct(x, x) s = SequenceErase(t) " + MAP.format(k=3, s="s"),
    "emptied": "t = SequenceConstruct(x) s = SequenceErase(t) size = SequenceLength(s) "
               "z = Cast<to = 1>(size) y = Add(x, z)",
}  # fmt: skip
"""How a sequence is made -> nodes that read it."""

PLACES = {
    "graph": "g (int64 n, bool c, float[L] x) => (float[K] y) {{ {nodes} }}",
    "branch": """g (int64 n, bool c, float[L] x) => (float[K] w) {{ w = If(c) <
        then_branch = t () => (float[K] y) {{ {nodes} }},
        else_branch = e () => (float[K] o) {{ o = Identity(x) }}> }}""",
    "body": """g (int64 n, bool c, float[L] x) => (float[K] w) {{ w = Loop(n, "", x) <
        body = o (int64 j, bool g, float[L] k) => (bool h, float[L] w2) {{ h = Identity(g)
        {nodes} l = ReduceSum<keepdims = 0>(y) w2 = Add(k, l) }}> }}""",
    "function": """g (int64 n, bool c, float[L] x) => (float[K] y) {{ y = own.f(n, c, x) }}
        <opset_import: ["": 21], domain: "own"> f (n, c, x) => (y) {{ {nodes} }}""",
}  # fmt: skip


def without(name, k):
    """The nodes of an operator that leaves out its output k, and a result of another one."""
    count, _, nodes = CALLS[name]
    outs = [f"q{j}" if j != k else '""' for j in range(count)]
    return f"{nodes.format(outs=', '.join(outs))} y = Abs(q{count - 1 if k != count - 1 else 0})"


POINTS = [(n, x) for n in (2, 0) for x in ([0.5, 1, 0.25], [])]


def check(nodes, place):
    """Value and J at each point by both engines; a clear error counts as a result."""
    text = PLACES[place].format(nodes=nodes)
    header = '<ir_version: 10, opset_import: ["": 21, "own": 1]>'
    model, found = oj.load(parser.parse_model(f"{header} {text}")), []
    for n, x in POINTS:
        point = {"n": np.array(n), "c": np.array(True), "x": np.array(x, np.float32)}
        (name,) = model.outputs
        for engine in ("numpy", "onnxruntime", None):
            try:
                found.append(model.run(point, engine=engine)[name])
                oj.linearize(model, point, of=name, wrt="x", engine=engine).toarray()
            except oj.OnnxJacError:
                found.append(None)
    return found


def agree(found):
    """Whether every second result is the one before, unless an engine has none."""
    pairs = [pair for k in range(0, len(found), 3) for pair in ((k, k + 1), (k, k + 2))]
    return all(found[a] is None or found[b] is None or
               np.allclose(found[a], found[b], rtol=1e-5, equal_nan=True) for a, b in pairs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", CALLS)
def test_outputs_that_are_left_out(name, place):
    def work():
        return [check(without(name, k), place) for k in CALLS[name][1]]

    for found in apart(work):
        assert any(y is not None for y in found)
        assert agree(found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
def test_sequences_of_types_that_are_inferred(place):
    for found in apart(lambda: [check(nodes, place) for nodes in SEQUENCES.values()]):
        assert any(y is not None for y in found)
        assert agree(found)


def test_a_sequence_without_a_type():
    """An operator that nobody knows gives it: the error names it."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "own": 1]>
    g (bool c, float[N] x) => (float[K] y) { y = If(c) <then_branch = t () => (float[K] a) {
        s = own.make(x)
        q = SequenceMap(s) <body = b (float[M] e) => (float[M] f) { f = Neg(e) }>
        a = ConcatFromSequence<axis = 0>(q) },
        else_branch = e () => (float[K] o) { o = Identity(x) }> }""")
    found = apart(lambda: oj.load(model))
    assert "type of 's', which is not known" in str(found)
