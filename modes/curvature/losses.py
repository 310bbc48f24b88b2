"""Losses: the Hessian of a loss in closed form, without a graph of its gradient.

A loss that is an affine function of atoms f(d), each of an affine d, has the Hessian
H = Σ Lᵀ D L with L = ∂d/∂at and D = Σₖ aₖ ∂²fₖ/∂d², where aₖ = ∂of/∂f(d)ₖ. All of these are first
derivatives in numbers, and the curvatures of the atoms are themselves Jacobians of rules:

| atom | D |
|---|---|
| log softmax | −diag(Σ a per row) ∂softmax/∂d |
| log σ, log(1 − σ) | −diag(a) ∂σ/∂d |
| softplus | diag(a) ∂σ/∂d |
| product d ∘ e | diag(a) in ∂²/∂d∂e and in ∂²/∂e∂d; a square has both, 2 diag(a) |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians import Diagonal, Identity, Jacobian, Shape, Zero, broadcast, shape_of
from ..gradient import combination
from ..linearize import linearize
from ..model import Model
from ..primal.evaluate import evaluate
from ..primal.inputs import check_inputs
from .atoms import Atom, atoms
from .local import jacobian_at, value_and_jacobian


def loss_hessian(
    model: Model, inputs: Mapping[str, Any], of: str, at: str, weights: Any, engine: str | None
) -> Jacobian | None:
    """H = ∂²(Σ weights ∘ of)/∂at², or None where the loss has none of the known forms."""
    point = check_inputs(model, inputs)
    found = atoms(model, point, of, at)
    if found is None:
        return None
    seed = combination(model, point, (of,), weights, engine)
    value = evaluate(model, point, [at], engine=engine)[at]
    total: Jacobian = Zero(value.shape, value.shape, value.dtype)
    for atom in found:
        total = total + pulled_back(atom, Loss(model, inputs, of, seed, engine), at)
    return total


class Loss:
    """A loss at a point: values of its tensors, and its slopes in them."""

    def __init__(
        self, model: Model, inputs: Mapping[str, Any], of: str, seed: np.ndarray, engine: str | None
    ) -> None:
        self.model, self.inputs, self.of, self.seed = model, inputs, of, seed
        self.engine = engine

    def values(self, *names: str | None) -> list[np.ndarray | None]:
        """The tensors of these names, None for those left out."""
        point, given = check_inputs(self.model, self.inputs), [n for n in names if n]
        held = evaluate(self.model, point, given, engine=self.engine)
        return [held[name] if name else None for name in names]

    def slope(self, name: str, at: str) -> Jacobian:
        """L = ∂tensor/∂at, which is affine in `at`."""
        J = linearize(self.model, self.inputs, of=name, wrt=at, engine=self.engine)
        ends = (shape_of(spec) for spec in (J.codomain[0], J.domain[0]))
        shapes = [Identity(shape, J.dtype) for shape in ends]
        return shapes[0] if name == at else shapes[0] @ J.dag @ shapes[1]

    def slopes(self, name: str) -> np.ndarray:
        """∂(Σ seed ∘ of)/∂tensor."""
        if name == self.of:
            return self.seed
        J = linearize(self.model, self.inputs, of=self.of, wrt=name, engine=self.engine)
        return J.T.apply({self.of: self.seed})[name]


def pulled_back(atom: Atom, loss: Loss, at: str) -> Jacobian:
    """Lᵀ D L of one atom."""
    if atom.kind != "product":
        (d,) = loss.values(atom.ends[0])
        return around(loss.slope(atom.ends[0], at), curvature(atom, loss, d))
    a = loss.slopes(atom.output)
    L, M = (lifted(loss.slope(end, at), a.shape) for end in atom.ends)
    cross = L.T @ (Diagonal(a) @ M)
    return cross * 2 if atom.ends[0] == atom.ends[1] else cross + cross.T


def around(L: Jacobian, D: Jacobian) -> Jacobian:
    """Lᵀ D L."""
    return L.T @ (D @ L)


def lifted(L: Jacobian, shape: Shape) -> Jacobian:
    """L, followed by what repeats its result to a shape."""
    return broadcast(L.out_shape, shape, L.dtype) @ L


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
    """∂of/∂log p within a cross-entropy: the negative log likelihood of log p is linear in it."""
    given = loss.values(*atom.step.inputs[1:], atom.step.outputs[0])
    log_p, _ = value_and_jacobian("LogSoftmax", scores, axis=atom.axis)
    attrs = {"reduction": "mean", **atom.step.attrs}
    J = jacobian_at("NegativeLogLikelihoodLoss", (log_p, *given[:-1]), (given[-1],), attrs)
    return (J.T @ np.ravel(slopes)).reshape(scores.shape)
