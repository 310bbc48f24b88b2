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
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import (
    Diagonal,
    Identity,
    Jacobian,
    Shape,
    Zero,
    broadcast,
    dtype_of,
    reading,
    shape_of,
)
from ...jacobians.arguments import validated
from ...jacobians.conditions import Condition
from ...jacobians.dag import composed
from ...jacobians.errors import InputError, OnnxJacError
from ...jacobians.threads import Latest, cached_property, remembered
from ...ops import Recorder, Step
from ...ops.graphs.build import graphs_of
from ...ops.registry import traits_of
from ..gradient import Gradient, combination
from ..hessian import Hessian
from ..linear.derivatives.derivative import values_in
from ..linear.derivatives.record import (
    active_steps,
    blocks_of,
    has_tangent,
    is_declared_zero,
    straight_through,
)
from ..linear.derivatives.route import Route, route_of
from ..linear.linearization import Linearization, linearized
from ..linear.symmetric import Symmetric, sandwiched
from ..linearize import engine_for, linearize
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, heads_of, is_float, name_of
from ..model.primal.model import ModelLike, as_model
from .fisher import jacobian_at, point_of_tail, value_and_jacobian
from .reductions import Reduction, Tail, reduction_factor


@validated
def gauss_newton(
    model: ModelLike,
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
    G belongs to S or to S / D, whichever one the model computes; its last steps must show it. D
    is what they divide by: the number of entries, or Σ w of class weights, labels that are not
    ignored, or a mask. A mean over batches weighs by D as well.

    G is positive semidefinite where the loss is convex in `at`. Shapes: (size of `wrt`)²; `wrt` are
    all floating inputs by default, so name the weights. Source: Schraudolph, "Fast curvature
    matrix-vector products for second-order gradient descent", 2002.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `of`, `at`: the loss and the tensor before it, such as logits, by name; not needed where
      `with_loss` appended the loss.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
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
    H = LossHessian(Gradient(model, (loss,), (middle,), weights, engine), reduction)
    text = f"Jᵀ (∂²{loss}/∂{middle}²) J"
    return sandwiched(J, H, text, name="gauss_newton", of=of, at=at, wrt=wrt,
                   reduction=reduction)  # fmt: skip


@validated
def gram(
    model: ModelLike,
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
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule.
    """
    J = linearize(model, inputs, of=of, wrt=wrt, engine=engine)
    return sandwiched(J, None, "Jᵀ J", name="gram", wrt=wrt)


class LossHessian:
    """J ↦ H = ∂²(Σ weights ∘ of)/∂at² at the point of J = ∂at/∂wrt, scaled to a `reduction`.

    H is a closed form, if the loss has one at points of these shapes, or else the linearisation of
    the `gradient`, ∂of/∂at.
    """

    def __init__(self, gradient: Gradient, reduction: Reduction | None) -> None:
        self.gradient, self.reduction = gradient, reduction
        self.known: Latest[Any, dict[Any, Any]] = Latest(8)

    def __call__(self, J: Linearization) -> Jacobian:
        point, known = point_of_tail(J, self.known)
        find = partial(closed_form, self.gradient, point)
        closed = remembered(known, "closed", find)
        if closed and not closed.holds(point):
            closed = known["closed"] = find()
        if closed:
            H: Jacobian = closed.at(point)
        else:
            H = Hessian(self.gradient.linearized(point, checked=True), self.gradient)
        return (
            H if self.reduction is None else H * reduction_factor(self.reduction, self.tail, point)
        )

    def conditions(self, J: Linearization) -> tuple[Condition, ...]:
        """Where the closed form at the point of J serves other points; none where there is none."""
        closed = point_of_tail(J, self.known)[1].get("closed")
        return closed.conditions if closed else ()

    @cached_property
    def tail(self) -> Tail:
        """The last steps of the loss."""
        f = self.gradient
        return Tail(f.model, f.of[0], f.wrt, {*f.model.inputs, *f.wrt}, f.engine)


@dataclass(frozen=True)
class ClosedForm:
    """H = Σ Lᵀ D L over the `atoms` of a loss, at all points of the same shapes.

    `seed` is the cotangent of the loss, `start` are the shape and dtype of `at`.
    """

    gradient: Gradient
    atoms: tuple[LossAtom, ...]
    seed: np.ndarray
    start: tuple[Shape, np.dtype]
    conditions: tuple[Condition, ...]
    engine: str | None
    routes: dict[Any, Route] = field(default_factory=dict)

    @cached_property
    def names(self) -> set[str]:
        """The tensors whose numbers the curvatures of the atoms need."""
        found = {atom.ends[0] for atom in self.atoms if atom.kind != "product"}
        losses = (atom.step for atom in self.atoms if atom.kind == "cross-entropy")
        read = (name for step in losses for name in (*step.inputs[1:], step.outputs[0]))
        return found.union(filter(None, read))

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Whether the numbers that make atoms are the same at a point."""
        values = self._values(point, {c.name for c in self.conditions})
        return all(c.holds(values) for c in self.conditions)

    def at(self, point: Mapping[str, Any]) -> Jacobian:
        """H at a point."""
        (shape, dtype), values = self.start, self._values(point, self.names)
        terms = (self._term(point, values, atom) for atom in self.atoms)
        return reduce(add, terms, Zero(shape, shape, dtype))

    def _values(self, point: Mapping[str, Any], names: set[str]) -> Mapping[str, Any]:
        """The named tensors, those that a point gives without a run."""
        f, missing = self.gradient, names - point.keys()
        return {**point, **evaluate(f.model, point, missing, engine=f.engine)} if missing else point

    def _term(
        self, point: Mapping[str, Any], values: Mapping[str, Any], atom: LossAtom
    ) -> Jacobian:
        """Lᵀ D L of one atom."""
        a = self._slopes(point, atom.output)
        if atom.kind != "product":
            L = self._slope(point, atom.ends[0])
            return L.T @ (curvature(atom, a, values) @ L)
        slopes = (self._slope(point, end) for end in atom.ends)
        L, M = (broadcast(slope.out_shape, a.shape, slope.dtype) @ slope for slope in slopes)
        cross = L.T @ (Diagonal(a) @ M)
        return cross * 2 if atom.ends[0] == atom.ends[1] else cross + cross.T

    def _slope(self, point: Mapping[str, Any], name: str) -> Jacobian:
        """L = ∂tensor/∂at, which is affine in `at`."""
        (at,), start = self.gradient.wrt, Identity(*self.start)
        if name == at:
            return start
        J = self._linearized(point, name, at)
        (end,) = J.codomain  # whose shape may depend on the numbers of a point
        return Identity(shape_of(end), dtype_of(end)) @ (composed(J.there) or J.there) @ start

    def _slopes(self, point: Mapping[str, Any], name: str) -> np.ndarray:
        """∂(Σ seed ∘ of)/∂tensor."""
        (of,) = self.gradient.of
        if name == of:
            return self.seed
        return self._linearized(point, of, name).T.apply({of: self.seed})[name]

    def _linearized(self, point: Mapping[str, Any], of: str, wrt: str) -> Linearization:
        """∂of/∂wrt at a checked point."""
        moves, model = (of, wrt) in self.routes, self.gradient.model
        make = partial(route_of, model, (of,), (wrt,), self.engine)
        route = remembered(self.routes, (of, wrt), make)
        return linearized(route, point, moves=moves, checked=True)


def closed_form(gradient: Gradient, point: Mapping[str, Any]) -> ClosedForm | None:
    """∂²(Σ weights ∘ of)/∂at² in closed form; None if the loss is not affine in atoms."""
    f, (of,), (at,) = gradient, gradient.of, gradient.wrt
    steps = straight_through(f.model.steps) if f.model.estimates else f.model.steps
    active = active_steps(steps, [at], [of])
    names = {at, *(n for a in active for n in a.tensors)}
    known = {n: x for n, x in {**f.model.constants, **point}.items() if n in names}
    values = {**evaluate(f.model, point, names - known.keys(), engine=f.engine), **known}
    reader = Reader(values, at, f.model.cache["linear"])
    found = reader.atoms(active, of)
    if found is None:
        return None
    start = shape_of(values[at]), dtype_of(values[at])
    seed = combination(f.model, point, f.of, f.weights, f.engine)
    decided = tuple(c for c in reader.conditions.values() if c.name not in f.model.constants)
    return ClosedForm(f, found, seed, start, decided, engine_for(point, f.engine))


def curvature(atom: LossAtom, a: np.ndarray, values: Mapping[str, Any]) -> Jacobian:
    """D = Σₖ aₖ ∂²fₖ/∂d² of one atom f(d), with a = ∂of/∂f(d)."""
    d = values[atom.ends[0]]
    if atom.kind in ("log sigmoid", "softplus"):
        return Diagonal(a if atom.kind == "softplus" else -a) @ value_and_jacobian("Sigmoid", d)[1]
    if atom.kind == "cross-entropy":
        a = in_log_probabilities(atom, values, d, a)
    _, J = value_and_jacobian("Softmax", d, axis=atom.axis)
    return Diagonal(-a.sum(axis=atom.axis, keepdims=True), shape_of(d)) @ J


def in_log_probabilities(
    atom: LossAtom, values: Mapping[str, Any], scores: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """∂of/∂log p within a cross-entropy, which is linear in log p."""
    given = [n and values[n] for n in (*atom.step.inputs[1:], atom.step.outputs[0])]
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
class LossAtom:
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


class Reader:
    """Goes through the steps in order and finds the state of each tensor.

    `linear` is what is known of the steps at any point.
    """

    def __init__(self, values: Mapping[str, Any], at: str, linear: Latest[Any, bool]) -> None:
        self.values, self.states, self.found = values, {at: State(AFFINE)}, list[LossAtom]()
        self.linear, self.conditions = linear, dict[tuple[str, float], Condition]()

    def atoms(self, active: tuple[Step, ...], of: str) -> tuple[LossAtom, ...] | None:
        """The atoms before `of`; None where `of` is not an affine function of atoms."""
        if not all(map(self.read, active)):
            return None
        settled = self.states.get(of, State("")).phase in (AFFINE, CURVED)
        return tuple(self.found) if settled else None

    def read(self, step: Step) -> bool:
        """Whether the step is supported for its inputs' states; sets the states of its outputs."""
        slots = sorted({i for _, i in step.wanted if step.inputs[i] in self.states})
        slots = [i for i in slots if i == 0] if step.op_type == "CastLike" else slots
        if not slots:
            return True  # a constant
        extra = slots != [0] or any(o for o, _ in step.wanted)  # weights, or log-probabilities
        if step.domain or (step.op_type == "SoftmaxCrossEntropyLoss" and extra):
            return False
        names = [step.inputs[i] or "" for i in slots]
        states = [self.states[name] for name in names]
        out = self._atomic(step, slots, names, states) or self._linear(step, states)
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
            self.found.append(LossAtom(ATOMS[key], ends, step.outputs[0] or "", step, axis))
            return State(CURVED)
        return None

    def _linear(self, step: Step, states: list[State]) -> State | None:
        """The state of the output if the step is linear in its inputs, or in pieces, as |d| is."""
        phases = {AFFINE if state.phase == "abs" else state.phase for state in states}
        if not phases <= {AFFINE, CURVED}:
            return None
        shapes = ((n, n in self.states, getattr(self.values.get(n or ""), "shape", None))
                  for n in (*step.inputs, *step.outputs))  # fmt: skip
        key = step.wanted, *shapes
        known = self.linear.get(key)
        if known is None:
            known = self.linear[key] = self._is_linear(step)
        return State(CURVED if CURVED in phases else AFFINE) if known else None

    def _is_linear(self, step: Step) -> bool:
        """Whether no block of the step varies with its inputs, except where it jumps.

        The rule is read over a graph in which floating inputs and outputs have no numbers.
        """
        recorder = Recorder({"": step.version})
        if traits_of(step).random:  # every linearisation draws anew
            return False
        names = (n for n in (*step.inputs, *step.outputs) if n in self.states or n in step.outputs)
        known = {name: self.values[name] for name in names if name is not None}
        leaves = {name: recorder.new(x.shape, x.dtype) for name, x in known.items()
                  if has_tangent(x)}  # fmt: skip
        try:
            blocks = blocks_of(step, {**self.values, **leaves}, recorder)
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
        if name is None:
            return False
        answer = bool(Condition("entries", name, here=(number, True)).holds(self.values))
        self.conditions[name, number] = Condition("entries", name, here=(number, answer))
        return answer


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
        if node is not None and not is_declared_zero(node):
            stack.extend(x for x in node.inputs if x is not None)
    return False
