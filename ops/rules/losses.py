"""Losses over class labels: a selection of the labelled entries, weighted and summed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Array, Diagonal, Identity, Jacobian, SumTo, Take, shape_of, take_flat
from ...jacobians.symint import agree
from ..node import Node
from ..registry import Blocks, jacobian
from .indexing import flat_positions
from .normalization import spread_total

REDUCTIONS = ("none", "sum", "mean")


@jacobian("NegativeLogLikelihoodLoss", reduction=REDUCTIONS)
def negative_log_likelihood(op: Any, node: Node) -> Blocks:
    """lₙ = -w[tₙ] x[n, tₙ]: ∂l/∂x = reduction · diag(-share) · selection."""
    return likelihood(op, node, node.x)


@jacobian("SoftmaxCrossEntropyLoss", reduction=REDUCTIONS)
def softmax_cross_entropy(op: Any, node: Node) -> Blocks:
    """The negative log likelihood of p = log softmax(x), with ∂p/∂x = I - 1 exp(p)ᵀ."""
    given = node.output(1)
    log_prob = op.LogSoftmax(node.x, axis=1) if given is None else given
    spread = spread_total(node.x_shape, (1,), node.dtype)
    J = Identity(node.x_shape, node.dtype) - spread @ Diagonal(op.Exp(log_prob))
    blocks = likelihood(op, node, log_prob)
    return {**blocks, (0, 0): blocks[0, 0] @ J, (1, 0): J}


def likelihood(op: Any, node: Node, log_prob: Array) -> dict[tuple[int, int], Jacobian]:
    """∂loss/∂x for log probabilities x, and ∂loss/∂w.

    A weighted mean also depends on w through its denominator. Ignored labels have the share 0.
    """
    labels = op.CastLike(node.inputs[1], np.zeros((), np.int64))
    shape, weights, ignored = shape_of(labels), node.input(2), node.ignore_index
    if not agree(shape, fitting := (node.x_shape[0], *node.x_shape[2:])):
        raise ValueError(f"labels of shape {shape} do not fit scores for {fitting}")
    kept = np.ones((), bool) if ignored is None else op.Not(op.Equal(labels, ignored))
    at = labels if ignored is None else op.Where(kept, labels, 0)
    counted = op.Expand(op.CastLike(kept, node.x), shape)
    share = counted if weights is None else op.Mul(counted, op.Gather(weights, at, axis=0))
    places = op.Reshape(flat_positions(op, op.Unsqueeze(at, (1,)), 1, node.x_shape), shape)
    selection = take_flat(places, node.x_shape, node.dtype, node.x_shape[:1])
    reduction: Jacobian = Identity(shape, node.dtype)
    if node.reduction != "none":
        reduction = SumTo((), shape, node.dtype)
    if node.reduction == "mean":
        reduction = Diagonal(op.Reciprocal(reduction._apply(op, share))) @ reduction
    blocks = {(0, 0): reduction @ Diagonal(op.Neg(share), chooses=True) @ selection}
    if weights is not None and node.wants(2):
        slope = op.Neg(selection._apply(op, log_prob))
        slope = op.Sub(slope, node.y) if node.reduction == "mean" else slope
        chosen = Take(at, 0, shape_of(weights), node.dtype)
        blocks[0, 2] = reduction @ Diagonal(op.Mul(slope, counted)) @ chosen
    return blocks
