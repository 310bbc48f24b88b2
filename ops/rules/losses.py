"""Losses over class labels: a selection of the labelled entries, weighted and summed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Identity,
    Jacobian,
    SumTo,
    Take,
    shape_of,
    take_flat,
)  # fmt: skip
from ...jacobians.cached import cached_property
from ...jacobians.symint import agree
from ..node import Node
from ..registry import Blocks, jacobian
from .indexing import flat_positions
from .normalization import spread_total

REDUCTIONS = ("none", "sum", "mean")


@jacobian("NegativeLogLikelihoodLoss", reduction=REDUCTIONS)
def negative_log_likelihood(op: Any, node: Node) -> Blocks:
    """lₙ = -w[tₙ] x[n, tₙ]: ∂l/∂x = reduction · diag(-share) · selection."""
    likelihood = Likelihood(op, node, node.x)
    return {(0, 0): likelihood.in_scores, **likelihood.in_weights}


@jacobian("SoftmaxCrossEntropyLoss", reduction=REDUCTIONS)
def softmax_cross_entropy(op: Any, node: Node) -> Blocks:
    """The negative log likelihood of p = log softmax(x), with ∂p/∂x = I - 1 exp(p)ᵀ."""
    given = node.output(1)
    log_prob = op.LogSoftmax(node.x, axis=1) if given is None else given
    spread = spread_total(node.x_shape, (1,), node.dtype)
    J = Identity(node.x_shape, node.dtype) - spread @ Diagonal(op.Exp(log_prob))
    likelihood = Likelihood(op, node, log_prob)
    return {(0, 0): likelihood.in_scores @ J, (1, 0): J, **likelihood.in_weights}


class Likelihood:
    """A loss of log probabilities: which entries count, their weights, and the reduction."""

    def __init__(self, op: Any, node: Node, log_prob: Array) -> None:
        self.op, self.node, self.log_prob = op, node, log_prob
        labels = op.CastLike(node.inputs[1], np.zeros((), np.int64))
        self.shape = shape_of(labels)
        if not agree(self.shape, fitting := (node.x_shape[0], *node.x_shape[2:])):
            raise ValueError(f"labels of shape {self.shape} do not fit scores for {fitting}")
        ignored = node.ignore_index
        kept = np.ones((), bool) if ignored is None else op.Not(op.Equal(labels, ignored))
        self.at = labels if ignored is None else op.Where(kept, labels, 0)
        self.counted = op.Expand(op.CastLike(kept, node.x), self.shape)

    @cached_property
    def share(self) -> Array:
        """The weight of every label; 0 where it is ignored."""
        weights = self.node.input(2)
        if weights is None:
            return self.counted
        return self.op.Mul(self.counted, self.op.Gather(weights, self.at, axis=0))

    @cached_property
    def selection(self) -> Jacobian:
        """The selection of the entries x[n, tₙ] along the class axis."""
        column = self.op.Unsqueeze(self.at, (1,))
        shape = self.node.x_shape
        at = flat_positions(self.op, column, 1, shape)
        return take_flat(self.op.Reshape(at, self.shape), shape, self.node.dtype, shape[:1])

    @cached_property
    def reduction(self) -> Jacobian:
        """The reduction of the losses: none, their sum, or their weighted mean."""
        if self.node.reduction == "none":
            return Identity(self.shape, self.node.dtype)
        total = SumTo((), self.shape, self.node.dtype)
        if self.node.reduction == "sum":
            return total
        return Diagonal(self.op.Reciprocal(total._apply(self.op, self.share))) @ total

    @property
    def in_scores(self) -> Jacobian:
        """∂loss/∂x."""
        return self.reduction @ Diagonal(self.op.Neg(self.share), chooses=True) @ self.selection

    @property
    def in_weights(self) -> dict[tuple[int, int], Jacobian]:
        """∂loss/∂w; a weighted mean also depends on w through its denominator."""
        op, node = self.op, self.node
        if node.input(2) is None or not node.wants(2):
            return {}
        slope = op.Neg(self.selection._apply(op, self.log_prob))
        if node.reduction == "mean":
            slope = op.Sub(slope, node.y)
        chosen = Take(self.at, 0, shape_of(node.inputs[2]), node.dtype)
        return {(0, 2): self.reduction @ Diagonal(op.Mul(slope, self.counted)) @ chosen}
