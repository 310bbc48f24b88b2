"""Small models of the operators that no single node shows: control flow, sequences, training."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnx.parser

from ...ops.node import TRAINING
from ...ops.registry import full_name
from ..training.lowering import lower_gradients
from .case import ModelCase, signed
from .definition import model_case

HEAD = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.preview.training": 1]>'

BODIES = {
    "If": """If (double[2] x, bool c) => (double[2] y) {
        y = If (c) <then_branch = t () => (double[2] a) { a = Mul (x, x) },
                    else_branch = e () => (double[2] b) { b = Neg (x) }> }""",
    "Loop": """Loop (double[2] x, int64 n, bool c) => (double[2] y) {
        y = Loop (n, c, x) <body = turn (int64 i, bool go, double[2] s)
            => (bool again, double[2] t) { again = Identity (go)  t = Mul (s, x) }> }""",
    "Scan": """Scan (double[2] x) => (double s, double[2] y) {
        zero = Constant <value = double {1.0}> ()
        s, y = Scan <num_scan_inputs = 1, body = turn (double a, double b)
            => (double c, double d) { c = Mul (a, b)  d = Add (a, b) }> (zero, x) }""",
    "SequenceConstruct": """SequenceConstruct (double[2] x, double[2] w) => (double[4] y) {
        s = SequenceConstruct (x, w)  y = ConcatFromSequence <axis = 0> (s) }""",
    "SequenceAt": """SequenceAt (double[2] x, double[2] w, int64 p) => (double[2] y) {
        s = SequenceConstruct (x, w)  y = SequenceAt (s, p) }""",
    "SequenceInsert": """SequenceInsert (double[2] x, double[1] w, int64 p) => (double[3] y) {
        s = SequenceConstruct (x)  t = SequenceInsert (s, w, p)
        y = ConcatFromSequence <axis = 0> (t) }""",
    "SequenceErase": """SequenceErase (double[2] x, double[2] w, int64 p) => (double[2] y) {
        s = SequenceConstruct (x, w)  t = SequenceErase (s, p)
        y = ConcatFromSequence <axis = 0> (t) }""",
    "SplitToSequence": """SplitToSequence (double[3] x, int64 p) => (double[1] y) {
        s = SplitToSequence <axis = 0> (x)  y = SequenceAt (s, p) }""",
    "ConcatFromSequence": """ConcatFromSequence (double[2] x, double[1] w) => (double[3] y) {
        s = SequenceConstruct (x, w)  y = ConcatFromSequence <axis = 0> (s) }""",
    "SequenceMap": """SequenceMap (double[2] x, double[2] w) => (double[4] y) {
        s = SequenceConstruct (x, w)
        t = SequenceMap (s) <body = each (double[2] a) => (double[2] b) { b = Mul (a, a) }>
        y = ConcatFromSequence <axis = 0> (t) }""",
    "SequenceEmpty": """SequenceEmpty (double[2] x) => (double[2] y) {
        s = SequenceEmpty <dtype = 11> ()  t = SequenceInsert (s, x)
        y = ConcatFromSequence <axis = 0> (t) }""",
    "Optional": """Optional (double[2] x) => (double[2] y) {
        o = Optional (x)  y = OptionalGetElement (o) }""",
    "OptionalGetElement": """OptionalGetElement (double[2] x) => (double[2] y) {
        o = Optional (x)  y = OptionalGetElement (o) }""",
    "DynamicQuantizeLinear": """DynamicQuantizeLinear (float[3] x) => (float y) {
        q, y, z = DynamicQuantizeLinear (x) }""",
    f"{TRAINING}::Gradient": """Gradient (double[2] x) => (double[2] y) {
        a = Mul (x, x)  b = Mul (a, x)
        y = ai.onnx.preview.training.Gradient <xs = ["x"], y = "b"> (x) }""",
    f"{TRAINING}::Momentum": """Momentum (double r, int64 t, double[1] x, double[1] g, double[1] v)
        => (double[1] y, double[1] w) {
        y, w = ai.onnx.preview.training.Momentum <alpha = 0.5, beta = 1.0,
            mode = "standard", norm_coefficient = 0.0> (r, t, x, g, v) }""",
    f"{TRAINING}::Adagrad": """Adagrad (double r, int64 t, double[1] x, double[1] g, double[1] h)
        => (double[1] y, double[1] w) {
        y, w = ai.onnx.preview.training.Adagrad <epsilon = 0.0, decay_factor = 0.0,
            norm_coefficient = 0.0> (r, t, x, g, h) }""",
    f"{TRAINING}::Adam": """Adam (double r, int64 t, double[1] x, double[1] g, double[1] v,
        double[1] h) => (double[1] y, double[1] w, double[1] z) {
        y, w, z = ai.onnx.preview.training.Adam <alpha = 0.5, beta = 0.5, epsilon = 0.0,
            norm_coefficient = 0.0> (r, t, x, g, v, h) }""",
}  # fmt: skip
"""domain::op_type -> a model that has the operator, at `POINT`."""

POINT = {"c": np.array(True), "n": np.array(2), "p": np.array(1), "t": np.array(3)}
"""Inputs that are not differentiated."""


@cache
def flow_cases(op_type: str, domain: str = "") -> tuple[ModelCase, ...] | None:
    """The small model of an operator as a case; None where it has a case of one node, or none."""
    text = BODIES.get(full_name(op_type, domain))
    if text is None:
        return None
    proto = onnx.parser.parse_model(HEAD + text)
    if domain == TRAINING:
        proto = lower_gradients(proto)
    held = {value.name for value in proto.graph.input}
    floats = {v.name: np.abs(signed(*graph_input_shape(v), seed=k))
              for k, v in enumerate(proto.graph.input) if v.name not in POINT}  # fmt: skip
    point = {name: x for name, x in {**floats, **POINT}.items() if name in held}
    return (model_case(proto, point),)


def graph_input_shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The shape of a graph input."""
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


# -- the same in PyTorch ---------------------------------------------------------------------------

SCRIPTED = "opset_version=18, dynamo=False"
"""The exporter that keeps branches, loops and lists as they are written."""

ANY_LENGTH = SCRIPTED + ', dynamic_axes={"x": [0]}'

IN_TORCH = {
    "If": ("y = -x", "if bool(x.sum() > 0):", "    y = x * x", "return y", SCRIPTED),
    "Loop": ("y = x", "for i in range(x.size(0)):", "    y = y * x", "return y", ANY_LENGTH),
    "Scan": ("step = lambda a, b: (a * b, a + b)",
             "return torch._higher_order_ops.scan(step, torch.ones_like(x[0]), x)[1]",
             "dynamo=True, verbose=False"),
    "SequenceConstruct": ("s = [x, w]", "return s[int(x.sum() > 0)]", SCRIPTED),
    "SequenceAt": ("s = [x, w]", "return s[int(x.sum() > 0)]", SCRIPTED),
    "SequenceInsert": ("s = [x, w]", "if bool(x.sum() > 0):", "    s.append(x)",
                       "return torch.cat(s, 0)", SCRIPTED),
    "SequenceErase": ("s = [x, w]", "del s[1]", "return torch.cat(s, 0)", SCRIPTED),
    "SplitToSequence": ("s = torch.split(x, 1)", "return s[int(x.sum() > 0)]", SCRIPTED),
    "ConcatFromSequence": ("s = [x, w]", "del s[1]", "return torch.cat(s, 0)", SCRIPTED),
    "SequenceEmpty": ("s: List[torch.Tensor] = []", "for i in range(x.size(0)):",
                      "    s.append(x * x[i])", "return torch.cat(s, 0)", ANY_LENGTH),
}  # fmt: skip
"""op_type -> the lines of `forward`, and how they are exported."""


def torch_module(op_type: str) -> tuple[str, ModelCase, str] | None:
    """A module of PyTorch whose export has the operator, a case with its inputs, and how."""
    found, cases = IN_TORCH.get(op_type), flow_cases(op_type) if op_type in IN_TORCH else None
    if found is None or cases is None:
        return None
    *lines, how = found
    names = ", ".join(cases[0].floating(None))
    body = "\n".join(f"        {line}" for line in lines)
    head = "from typing import List\n\n" if "List" in body else ""
    text = f"{head}class Model(torch.nn.Module):\n    def forward(self, {names}):\n{body}"
    return text, cases[0], how
