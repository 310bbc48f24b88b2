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

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Diagonal, Identity, Jacobian, Zero, broadcast, dtype_of, reading, shape_of
from ...jacobians.arguments import validated
from ...jacobians.dag import composed
from ...jacobians.errors import InputError, OnnxJacError
from ...jacobians.threads import Latest
from ...ops import Recorder, Step
from ...ops.graphs.build import graphs_of
from ...ops.registry import traits_of
from ..gradient import combination
from ..hessian import hessian
from ..linear.derivatives.derivative import values_in
from ..linear.derivatives.record import (
    ActiveStep,
    active_steps,
    blocks_of,
    has_tangent,
    is_zero,
    straight_through,
)
from ..linear.symmetric import Symmetric, relinearizable
from ..linearize import linearize
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, as_model, check_inputs, heads_of, is_float, name_of
from ..model.primal.model import Model
from .fisher import jacobian_at, value_and_jacobian
from .reductions import Reduction, factor


@relinearizable
@validated
def gauss_newton(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str | None = None,
    at: str | None = None,
    wrt: Names = None,
    weights: Any = None,
    reduction: Reduction | None = None,
    engine: str | None = None,
    straight_through: bool = False,
) -> Symmetric:
    """G = Jᵀ H J, with J = ∂at/∂wrt and H = ∂²of/∂at²: the generalised Gauss-Newton matrix.

    The loss is whatever the model computes between `at` and `of`; where `of` has several elements,
    `weights` combine them into a scalar, as for `hessian`. H has a closed form for softmax and
    binary cross-entropies and squared errors, however they are written; otherwise it is the
    linearisation of the recorded gradient.

    Scaling: none by default; if `of` is a mean S / D, so is G. With `reduction="sum"` or `"mean"`,
    G belongs to S or to S / D, whichever of them the model computes; its last steps must show it. D
    is what they divide by: the number of entries, or Σ w of class weights, labels that are not
    ignored, or a mask. A mean over batches weighs by D as well.

    G is positive semidefinite where the loss is convex in `at`. Shapes: (size of `wrt`)²; `wrt` are
    all floating inputs by default, so name the weights. Source: Schraudolph, "Fast curvature
    matrix-vector products for second-order gradient descent", 2002.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `of`, `at`: the loss and the tensor before it, such as logits, by name; not needed where
      `with_loss` appended the loss.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"` or `"torch"` runs the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule; `InputError` also for several elements of `of` without `weights`, and
    for a `reduction` where the model's last steps show none.
    """
    model = as_model(model, of, at, wrt=wrt, straight_through=straight_through)
    middle = name_of(model, at, heads_of(model), "at")
    loss = name_of(model, of, model.outputs, "of")
    if middle == loss:
        raise InputError(f"at={middle!r} is the loss itself, and ∂²of/∂at² is 0: name with at= the "
                         f"tensor from which the loss is computed, such as the logits")  # fmt: skip
    J = linearize(model, inputs, of=middle, wrt=wrt, engine=engine)
    tail = {**J.given, middle: J.primal[middle]}  # the steps before it do not run again
    try:
        tail = check_inputs(model, tail, keep=False, engine=engine)
    except InputError:  # a model may compute another shape or dtype than it declares
        tail = {**J.given}
    H = loss_hessian(model, tail, loss, middle, weights, engine)
    if H is None:
        H = hessian(model, tail, of=loss, wrt=middle, weights=weights, engine=engine)
    if reduction is not None:
        H = H * factor(reduction, model, loss, middle, tail, engine)
    text = f"Jᵀ (∂²{loss}/∂{middle}²) J"
    return Symmetric(J.T @ (H @ J), J.domain, formula=text)


@relinearizable
@validated
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
    model: Model, point: Mapping[str, Any], of: str, at: str, weights: Any, engine: str | None
) -> Jacobian | None:
    """H = ∂²(Σ weights ∘ of)/∂at² in closed form; None if the loss is not affine in atoms."""
    steps = straight_through(model.steps) if model.estimates else model.steps
    active = active_steps(steps, [at], [of])
    names = {at, *(n for a in active for n in (*a.step.inputs, *a.step.outputs) if n)}
    values = evaluate(model, point, names, engine=engine)
    found = atoms(active, values, of, at, model.derived.linear)
    if found is None:
        return None
    seed = combination(model, point, (of,), weights, engine)
    loss = Loss(model, point, values, of, seed, engine)
    zero = Zero(shape_of(values[at]), shape_of(values[at]), dtype_of(values[at]))
    return reduce(add, (pulled_back(atom, loss, at) for atom in found), zero)


@dataclass(frozen=True)
class Loss:
    """A loss at a point: the values of tensors, and its gradients with respect to them."""

    model: Model
    point: Mapping[str, Any]
    values: Mapping[str, Any]
    of: str
    seed: np.ndarray
    engine: str | None

    def slope(self, name: str, at: str) -> Jacobian:
        """L = ∂tensor/∂at, which is affine in `at`."""
        end, start = (Identity(shape_of(x), dtype_of(x)) for x in map(self.values.get, (name, at)))
        if name == at:
            return start
        J = linearize(self.model, self.point, of=name, wrt=at, engine=self.engine).there
        return end @ (composed(J) or J) @ start

    def slopes(self, name: str) -> np.ndarray:
        """∂(Σ seed ∘ of)/∂tensor."""
        if name == self.of:
            return self.seed
        J = linearize(self.model, self.point, of=self.of, wrt=name, engine=self.engine)
        return J.T.apply({self.of: self.seed})[name]


def pulled_back(atom: Atom, loss: Loss, at: str) -> Jacobian:
    """Lᵀ D L of one atom."""
    if atom.kind != "product":
        L = loss.slope(atom.ends[0], at)
        return L.T @ (curvature(atom, loss, loss.values[atom.ends[0]]) @ L)
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
    given = [n and loss.values[n] for n in (*atom.step.inputs[1:], atom.step.outputs[0])]
    log_p = reading(scores).LogSoftmax(scores, axis=atom.axis)
    attrs = {"reduction": "mean", **atom.step.attrs}
    J = jacobian_at("NegativeLogLikelihoodLoss", (log_p, *given[:-1]), (given[-1],), attrs)
    return (J.T @ slopes.reshape(-1)).reshape(scores.shape)


AFFINE, CURVED = "affine", "curved"

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
    ("Softplus", "-abs"): "softplus",
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
    active: tuple[ActiveStep, ...], values: Mapping[str, Any], of: str, at: str,
    linear: Latest[Any, bool],
) -> tuple[Atom, ...] | None:  # fmt: skip
    """The atoms between two tensors; None where `of` is not an affine function of atoms."""
    reader = Reader(values, at, linear)
    if not all(map(reader.read, active)):
        return None
    settled = of == at or reader.states.get(of, State("")).phase in (AFFINE, CURVED)
    return tuple(reader.found) if settled else None


class Reader:
    """Goes through the steps in order and finds the state of each tensor.

    `linear` is what is known of the steps at any point.
    """

    def __init__(self, values: Mapping[str, Any], at: str, linear: Latest[Any, bool]) -> None:
        self.values, self.states, self.found = values, {at: State(AFFINE)}, list[Atom]()
        self.linear = linear

    def read(self, active: ActiveStep) -> bool:
        """Whether the step is supported for its inputs' states; sets the states of its outputs."""
        step = active.step
        slots = sorted({i for _, i in active.wanted if step.inputs[i] in self.states})
        slots = [i for i in slots if i == 0] if step.op_type == "CastLike" else slots
        if not slots:
            return True  # a constant
        extra = slots != [0] or any(o for o, _ in active.wanted)  # weights, or log-probabilities
        if step.domain or (step.op_type == "SoftmaxCrossEntropyLoss" and extra):
            return False
        names = [step.inputs[i] or "" for i in slots]
        states = [self.states[name] for name in names]
        out = self._atomic(step, slots, names, states) or self._linear(active, states)
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

    def _linear(self, active: ActiveStep, states: list[State]) -> State | None:
        """The state of the output if the step is linear in its inputs, or in pieces, as |d| is."""
        phases = {AFFINE if state.phase == "abs" else state.phase for state in states}
        if not phases <= {AFFINE, CURVED}:
            return None
        shapes = ((n, n in self.states, getattr(self.values.get(n or ""), "shape", None))
                  for n in (*active.step.inputs, *active.step.outputs))  # fmt: skip
        key = active.wanted, *shapes
        known = self.linear.get(key)
        if known is None:
            known = self.linear[key] = self._is_linear(active)
        return State(CURVED if CURVED in phases else AFFINE) if known else None

    def _is_linear(self, active: ActiveStep) -> bool:
        """Whether no block of the step varies with its inputs, except where it jumps.

        The rule is read over a graph in which floating inputs and outputs have no numbers.
        """
        step = active.step
        recorder = Recorder({"": step.version})
        if traits_of(step).random:  # every linearisation draws anew
            return False
        names = (n for n in (*step.inputs, *step.outputs) if n in self.states or n in step.outputs)
        known = {name: self.values[name] for name in names if name is not None}
        leaves = {name: recorder.new(x.shape, x.dtype) for name, x in known.items()
                  if has_tangent(x)}  # fmt: skip
        try:
            blocks = blocks_of(active, {**self.values, **leaves}, recorder)
        except OnnxJacError:
            return False
        held = [*values_in(blocks.values())]
        return not varies(held, {id(value) for value in leaves.values()})

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
        return name is not None and bool((self.values[name] == number).all())


def varies(values: Iterable[ir.Value], leaves: Collection[int]) -> bool:
    """Whether floating values depend differentiably on some leaves, which are known by identity."""
    seen, stack = set[int](), list(values)
    while stack:
        value = stack.pop()
        node = value.producer()
        if id(value) in seen or not is_float(dtype_of(value)):
            continue
        if id(value) in leaves or (node is not None and any(graphs_of(node))):
            return True
        seen.add(id(value))
        if node is not None and not is_zero(node):
            stack.extend(x for x in node.inputs if x is not None)
    return False
