"""Atoms: the nonlinear functions that a loss is a linear combination of.

Between `at` and `of`, the losses of statistics are affine functions of a few atoms of affine
functions of `at`: cross-entropies of log softmax, log σ and softplus, squared errors of squares.
They are found by what the steps do to tensors, whatever the nodes are called and however many
operators a loss is written in.

| atom f(d) | written as |
|---|---|
| log softmax | LogSoftmax; Softmax, Log; within SoftmaxCrossEntropyLoss |
| log σ, log(1 − σ) | Sigmoid, Log; Sigmoid, 1 − ·, Log |
| softplus | Softplus; Exp, 1 + ·, Log; of −∣d∣ in its stable form |
| a bent line | Relu, Abs, Max, Min, Clip: between its kinks a linear function |
| product d ∘ e, square | Mul, of two affine tensors; Pow |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ops import Step
from ..model import Model
from ..primal.evaluate import evaluate
from ..tape.active import ActiveStep, active_steps

AFFINE, CURVED = "affine", "curved"

ANY = frozenset({"Add", "Sub", "Sum", "Mean", "Concat"})
"""Linear in all inputs together."""
FIRST = frozenset({
    "Identity", "Neg", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Flatten",
    "Transpose", "Expand", "Tile", "Split", "Slice", "Gather", "GatherElements", "GatherND",
    "Pad", "CumSum", "ReduceSum", "ReduceMean", "NegativeLogLikelihoodLoss", "Div",
})  # fmt: skip
"""Linear in the first input."""
ONE = frozenset({"Mul", "MatMul", "Gemm", "Einsum"})
"""Linear in each input alone."""
BENDS = frozenset({"Relu", "LeakyRelu", "Abs", "Max", "Min", "Clip"})
"""Linear in all inputs together on either side of a kink."""

PHASES = {
    ("Softmax", AFFINE): "softmax",
    ("Sigmoid", AFFINE): "sigmoid",
    ("1 - ·", "sigmoid"): "sigmoid",
    ("Neg", "sigmoid"): "-sigmoid",
    ("1 + ·", "-sigmoid"): "sigmoid",
    ("Abs", AFFINE): "abs",
    ("Neg", "abs"): "-abs",
    ("Exp", "-abs"): "exp",
    ("Exp", AFFINE): "exp",
    ("1 + ·", "exp"): "1 + exp",
}
"""(operator, what comes in) -> what comes out, on the way to an atom."""

ATOMS = {
    ("LogSoftmax", AFFINE): "log softmax",
    ("Log", "softmax"): "log softmax",
    ("Log", "sigmoid"): "log sigmoid",
    ("Softplus", AFFINE): "softplus",
    ("Log", "1 + exp"): "softplus",
    ("SoftmaxCrossEntropyLoss", AFFINE): "cross-entropy",
    ("product", AFFINE): "product",
}
"""(operator, what comes in) -> the atom that comes out."""


@dataclass(frozen=True)
class Atom:
    """f(d): its kind, the affine tensors (d, d), or (d, e) of a product, the step, its output."""

    kind: str
    ends: tuple[str, str]
    output: str
    step: Step
    axis: int


@dataclass(frozen=True)
class State:
    """What a tensor is as a function of `at`: on the way to an atom, of which d and axis."""

    phase: str
    ends: tuple[str, str] = ("", "")
    axis: int = -1


def atoms(model: Model, point: Mapping[str, Any], of: str, at: str) -> tuple[Atom, ...] | None:
    """The atoms between two tensors; None where the one is no affine function of atoms."""
    reader = Reader(lambda name: evaluate(model, point, [name])[name], at)
    for active in active_steps(model.steps, [at], [of]):
        if not reader.read(active):
            return None
    settled = of == at or reader.states.get(of, State("")).phase in (AFFINE, CURVED)
    return tuple(reader.found) if settled else None


class Reader:
    """Goes through the steps in order and says what each tensor is."""

    def __init__(self, value: Callable[[str], np.ndarray], at: str) -> None:
        self.value, self.states = value, {at: State(AFFINE)}
        self.found: list[Atom] = []

    def read(self, active: ActiveStep) -> bool:
        """Whether the step is one that is known, in what comes in."""
        step = active.step
        slots = sorted({i for _, i in active.wanted if step.inputs[i] in self.states})
        slots = [i for i in slots if i == 0] if step.op_type == "CastLike" else slots
        if not slots:
            return True  # a constant
        two = step.op_type == "SoftmaxCrossEntropyLoss" and any(o for o, _ in active.wanted)
        if step.domain not in ("", "ai.onnx") or two:
            return False
        names = [step.inputs[i] or "" for i in slots]
        states = [self.states[name] for name in names]
        out = self._atomic(step, slots, names, states) or self._linear(step, slots, states)
        if out is None:
            return False
        self.states |= {name: out for name in step.outputs if name is not None}
        return True

    def _atomic(
        self, step: Step, slots: list[int], names: list[str], states: list[State]
    ) -> State | None:
        """What comes out where the step is a part of an atom, or the last one."""
        state, key = states[0], (self._meaning(step, slots), states[0].phase)
        if any(s.phase != state.phase for s in states) or (len(slots) > 1 and key[0] != "product"):
            return None
        ends = (names[0], names[-1]) if state.phase == AFFINE else state.ends
        axis = step.attrs.get("axis", -1) if "Softmax" in step.op_type else state.axis
        if key in PHASES:
            return State(PHASES[key], ends, axis)
        if key in ATOMS:
            axis = 1 if ATOMS[key] == "cross-entropy" else axis
            self.found.append(Atom(ATOMS[key], ends, step.outputs[0] or "", step, axis))
            return State(CURVED)
        return None

    def _linear(self, step: Step, slots: list[int], states: list[State]) -> State | None:
        """What comes out where the step is linear in what comes in; |d| counts as a bend."""
        op = step.op_type
        known = op in ANY | BENDS or (op in FIRST and slots == [0])
        known = known or (op in ONE and len(slots) == 1) or (op == "Where" and 0 not in slots)
        phases = {CURVED if s.phase == "abs" else s.phase for s in states}
        if not known or not phases <= {AFFINE, CURVED}:
            return None
        return State(CURVED if CURVED in phases or op in BENDS else AFFINE)

    def _meaning(self, step: Step, slots: list[int]) -> str:
        """The operator, or what it is with these operands."""
        op = step.op_type
        if op == "Mul" and slots == [0, 1]:
            return "product"
        if op == "Pow" and slots == [0] and self._is(step.inputs[1], 2):
            return "product"
        if op == "Sub" and slots == [1] and self._is(step.inputs[0], 1):
            return "1 - ·"
        if op == "Add" and len(slots) == 1 and self._is(step.inputs[1 - slots[0]], 1):
            return "1 + ·"
        return op

    def _is(self, name: str | None, number: float) -> bool:
        """Whether all entries of a tensor are this number."""
        return name is not None and bool(np.all(self.value(name) == number))
