"""Gauss-Newton: the curvature of a loss through the linearised model.

The Hessian of the loss has a closed form where the loss is an affine function of atoms f(d), each
of an affine d: H = Σ Lᵀ D L with L = ∂d/∂at and D = Σₖ aₖ ∂²fₖ/∂d², where aₖ = ∂of/∂f(d)ₖ. L and a
are first derivatives, and D follows from Jacobians that the rules of operators already give:

| atom | D |
|---|---|
| log softmax | −diag(Σ a per row) ∂softmax/∂d |
| log σ, log(1 − σ) | −diag(a) ∂σ/∂d |
| softplus | diag(a) ∂σ/∂d |
| product d ∘ e | diag(a) in ∂²/∂d∂e and in ∂²/∂e∂d; a square has both, 2 diag(a) |

Atoms are recognised by what the steps between `at` and `of` compute, whatever the names of the
nodes and however many operators the loss consists of: see `PHASES` and `ATOMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from ...jacobians import Diagonal, Identity, Jacobian, Zero, broadcast, dtype_of, shape_of
from ...jacobians.errors import InputError
from ...ops import Step
from ..gradient import combination
from ..hessian import hessian
from ..linear.symmetric import Symmetric, relinearizable
from ..linear.tape.active import ActiveStep, active_steps
from ..linearize import linearize
from ..model.primal.evaluate import evaluate
from ..model.primal.guards import by_torch
from ..model.primal.inputs import check_inputs
from ..model.primal.model import Model
from ..model.primal.names import Names, name_of
from .fisher import jacobian_at, value_and_jacobian
from .reductions import check_reduction, factor, reduction_of


@relinearizable
def gauss_newton(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str,
    at: str,
    wrt: Names = None,
    weights: Any = None,
    reduction: str | None = None,
    engine: str | None = None,
) -> Symmetric:
    """G = Jᵀ H J, with J = ∂at/∂wrt and H = ∂²of/∂at²: the generalised Gauss-Newton matrix.

    The loss is whatever the model computes between `at` and `of`; where `of` has several elements,
    `weights` combine them into a scalar, as for `hessian`. H has a closed form for softmax and
    binary cross-entropies and squared errors, however they are written; otherwise it is the
    linearisation of the recorded gradient.

    Scaling: none by default; if `of` is a mean over samples, so is G. With `reduction="sum"` or
    `"mean"`, G belongs to the sum or mean over the N samples, the first axis of `at`; the last
    steps before `of` must show which of the two the model computes.

    G is positive semidefinite where the loss is convex in `at`. Shapes: (size of `wrt`)²; `wrt` are
    all floating inputs by default, so name the weights. Source: Schraudolph, "Fast curvature
    matrix-vector products for second-order gradient descent", 2002.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"` or `"torch"` runs the model.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule; `InputError` also for several elements of `of` without `weights`, and
    for a `reduction` where the model's last steps show none.
    """
    check_reduction(reduction, (None, "sum", "mean"))
    middle = name_of(model, at, model.outputs, "at")
    loss = name_of(model, of, model.outputs, "of")
    if middle == loss:
        raise InputError(f"at={at!r} is the loss itself, and ∂²of/∂at² is 0: name with at= the "
                         f"tensor from which the loss is computed, such as the logits")  # fmt: skip
    J = linearize(model, inputs, of=middle, wrt=wrt, engine=engine)
    tail = {**J.given, middle: J.primal[middle]}  # the steps before it do not run again
    try:
        tail = check_inputs(model, tail, engine=engine)
    except InputError:  # a model may compute another shape or dtype than it declares
        tail = {**J.given}
    H = loss_hessian(model, tail, loss, middle, weights, engine)
    if H is None:
        H = hessian(model, tail, of=loss, wrt=middle, weights=weights, engine=engine)
    if reduction is not None:
        H = H * factor(reduction, reduction_of(model, loss), loss, shape_of(J.codomain[0])[:1])
    text = f"Jᵀ (∂²{loss}/∂{middle}²) J"
    return Symmetric(J.T @ (H @ J), J.domain, formula=text)


@relinearizable
def gram(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
) -> Symmetric:
    """G = Jᵀ J with J = ∂of/∂wrt: the matrix of the normal equations.

    No scaling: it is the Gauss-Newton matrix of ½ ‖of‖². Shapes: (size of `wrt`)²;
    `wrt` are all floating inputs by default.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `of`: the tensors that are differentiated, by name; by default all floating outputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"` or `"torch"` runs the model.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule.
    """
    J = linearize(model, inputs, of=of, wrt=wrt, engine=engine)
    return Symmetric(J.T @ J, J.domain, formula="Jᵀ J")


def loss_hessian(
    model: Model, inputs: Mapping[str, Any], of: str, at: str, weights: Any, engine: str | None
) -> Jacobian | None:
    """H = ∂²(Σ weights ∘ of)/∂at² in closed form; None if the loss is not affine in atoms."""
    point = check_inputs(model, inputs, engine=engine)
    found = atoms(model, point, of, at, engine)
    if found is None:
        return None
    seed = combination(model, point, (of,), weights, engine)
    loss = Loss(model, point, of, seed, engine)
    (value,) = loss.values(at)
    zero = Zero(shape_of(value), shape_of(value), dtype_of(value))
    return reduce(add, (pulled_back(atom, loss, at) for atom in found), zero)


@dataclass(frozen=True)
class Loss:
    """A loss at a point: the values of tensors, and its gradients with respect to them."""

    model: Model
    point: Mapping[str, Any]
    of: str
    seed: np.ndarray
    engine: str | None

    def values(self, *names: str | None) -> list[np.ndarray | None]:
        """The values of the tensors with these names, None for an omitted input."""
        held = evaluate(self.model, self.point, [n for n in names if n], engine=self.engine)
        return [held[name] if name else None for name in names]

    def slope(self, name: str, at: str) -> Jacobian:
        """L = ∂tensor/∂at, which is affine in `at`."""
        J = linearize(self.model, self.point, of=name, wrt=at, engine=self.engine)
        ends = (shape_of(spec) for spec in (J.codomain[0], J.domain[0]))
        shapes = [Identity(shape, J.dtype) for shape in ends]
        return shapes[0] if name == at else shapes[0] @ J.there @ shapes[1]

    def slopes(self, name: str) -> np.ndarray:
        """∂(Σ seed ∘ of)/∂tensor."""
        if name == self.of:
            return self.seed
        J = linearize(self.model, self.point, of=self.of, wrt=name, engine=self.engine)
        return J.T.apply({self.of: self.seed})[name]


def pulled_back(atom: Atom, loss: Loss, at: str) -> Jacobian:
    """Lᵀ D L of one atom."""
    if atom.kind != "product":
        (d,) = loss.values(atom.ends[0])
        L = loss.slope(atom.ends[0], at)
        return L.T @ (curvature(atom, loss, d) @ L)
    a = loss.slopes(atom.output)
    slopes = (loss.slope(end, at) for end in atom.ends)
    L, M = (broadcast(slope.out_shape, a.shape, slope.dtype) @ slope for slope in slopes)
    cross = L.T @ (Diagonal(a) @ M)
    return cross * 2 if atom.ends[0] == atom.ends[1] else cross + cross.T


def curvature(atom: Atom, loss: Loss, d: Any) -> Jacobian:
    """D = Σₖ aₖ ∂²fₖ/∂d² of one atom."""
    a = loss.slopes(atom.output)
    if atom.kind in ("log sigmoid", "softplus"):
        return Diagonal(a if atom.kind == "softplus" else -a) @ value_and_jacobian("Sigmoid", d)[1]
    if atom.kind == "cross-entropy":
        a = in_log_probabilities(atom, loss, d, a)
    _, J = value_and_jacobian("Softmax", d, axis=atom.axis)
    return Diagonal(-a.sum(axis=atom.axis, keepdims=True), shape_of(d)) @ J


def in_log_probabilities(
    atom: Atom, loss: Loss, scores: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """∂of/∂log p within a cross-entropy, which is linear in log p."""
    given = loss.values(*atom.step.inputs[1:], atom.step.outputs[0])
    log_p, _ = value_and_jacobian("LogSoftmax", scores, axis=atom.axis)
    attrs = {"reduction": "mean", **atom.step.attrs}
    J = jacobian_at("NegativeLogLikelihoodLoss", (log_p, *given[:-1]), (given[-1],), attrs)
    return (J.T @ slopes.reshape(-1)).reshape(scores.shape)


AFFINE, CURVED = "affine", "curved"

ANY = frozenset({"Add", "Sub", "Sum", "Mean", "Concat"})
"""Operators that are jointly linear in all inputs."""
FIRST = frozenset({
    "Identity", "Neg", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Flatten",
    "Transpose", "Expand", "Tile", "Split", "Slice", "Gather", "GatherElements", "GatherND",
    "Pad", "CumSum", "ReduceSum", "ReduceMean", "NegativeLogLikelihoodLoss", "Div",
})  # fmt: skip
"""Operators that are linear in the first input."""
ONE = frozenset({"Mul", "MatMul", "Gemm", "Einsum"})
"""Operators that are linear in each input separately."""
BENDS = frozenset({"Relu", "LeakyRelu", "Abs", "Max", "Min", "Clip"})
"""Operators that are jointly piecewise linear in all inputs."""

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
"""(operator, phase of its input) -> phase of its output, on the way to an atom."""

ATOMS = {
    ("LogSoftmax", AFFINE): "log softmax",
    ("Log", "softmax"): "log softmax",
    ("Log", "sigmoid"): "log sigmoid",
    ("Softplus", AFFINE): "softplus",
    ("Log", "1 + exp"): "softplus",
    ("SoftmaxCrossEntropyLoss", AFFINE): "cross-entropy",
    ("product", AFFINE): "product",
}
"""(operator, phase of its input) -> the atom that it completes."""


@dataclass(frozen=True)
class Atom:
    """f(d): its kind, the affine tensors (d, d) or, for a product, (d, e), the output, the step."""

    kind: str
    ends: tuple[str, str]
    output: str
    step: Step
    axis: int


@dataclass(frozen=True)
class State:
    """A tensor as a function of `at`: affine, curved, or on the way to an atom of d."""

    phase: str
    ends: tuple[str, str] = ("", "")
    axis: int = -1


def atoms(
    model: Model, point: Mapping[str, Any], of: str, at: str, engine: str | None = None
) -> tuple[Atom, ...] | None:  # fmt: skip
    """The atoms between two tensors; None where `of` is not an affine function of atoms."""
    engine = engine if by_torch(engine) else None
    reader = Reader(lambda name: evaluate(model, point, [name], engine=engine)[name], at)
    for active in active_steps(model.steps, [at], [of]):
        if not reader.read(active):
            return None
    settled = of == at or reader.states.get(of, State("")).phase in (AFFINE, CURVED)
    return tuple(reader.found) if settled else None


class Reader:
    """Goes through the steps in order and finds the state of each tensor."""

    def __init__(self, value: Callable[[str], np.ndarray], at: str) -> None:
        self.value, self.states = value, {at: State(AFFINE)}
        self.found: list[Atom] = []

    def read(self, active: ActiveStep) -> bool:
        """Whether the step is supported for its inputs' states; sets the states of its outputs."""
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
        """The state of the output if the step is part of an atom, else None."""
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
        """The state of the output if the step is linear in its inputs; |d| counts as curved."""
        op = step.op_type
        known = op in ANY | BENDS or (op in FIRST and slots == [0])
        known = known or (op in ONE and len(slots) == 1) or (op == "Where" and 0 not in slots)
        phases = {CURVED if s.phase == "abs" else s.phase for s in states}
        if not known or not phases <= {AFFINE, CURVED}:
            return None
        return State(CURVED if CURVED in phases or op in BENDS else AFFINE)

    def _meaning(self, step: Step, slots: list[int]) -> str:
        """The operator type, or a name for what it computes from these operands."""
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
        return name is not None and bool((self.value(name) == number).all())
