"""Rounding: weights on a grid of few numbers; which weights are meant, and their channels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians.errors import InputError
from ...ops import Step
from ..model.flow.steps import SHAPES
from ..model.primal.inputs import Names, may_float, names_of, weights_of
from ..model.primal.model import Model

OUTPUTS = {("MatMul", 0): -2, ("MatMul", 1): -1, ("Conv", 1): 0, ("ConvTranspose", 1): 1}
"""(operator, number of the operand) -> the axis of its output channels, if no attribute says it."""

MATRICES = {"MatMul", "Gemm", "Conv", "ConvTranspose"}
WEIGHED = MATRICES | {"Gather", "Einsum", "LSTM", "GRU", "RNN"}
"""Operators whose weights are matrices or kernels, and operators of weights that are rounded."""

MOVES = {"Transpose", "Reshape", "Identity", "Cast", "Split", "Slice", "Squeeze", "Unsqueeze"}
"""Operators that move the entries of their first input."""


def rounded_weight(W: np.ndarray, bits: int, axis: int | None = None) -> np.ndarray:
    """s · round(W / s) with s = max |W| / (2ᵇ⁻¹ − 1), to nearest and even, for W or along an axis.

    >>> rounded_weight(np.array([[0.9, -0.3], [0.02, 0.06]]), 3)
    array([[ 0.9, -0.3],
           [ 0. ,  0. ]])
    >>> rounded_weight(np.array([[0.9, -0.3], [0.02, 0.06]]), 3, axis=0)
    array([[ 0.9 , -0.3 ],
           [ 0.02,  0.06]])
    """
    wide = np.asarray(W, np.float64)
    others = None if axis is None else tuple(k for k in range(W.ndim) if k != axis % W.ndim)
    scale = abs(wide).max(axis=others, keepdims=True, initial=0) / (2 ** (bits - 1) - 1)
    rounded: np.ndarray = (scale * np.rint(wide / np.where(scale, scale, 1))).astype(W.dtype)
    return rounded


Meeting = tuple[Step, int, tuple[int, ...] | None]
"""A step that takes a weight, by which operand, and the order of the weight's axes there, None if
it is no permutation of them.
"""


def meetings_of_weights(model: Model) -> dict[str, list[Meeting]]:
    """The steps that take each initializer, behind steps that only move entries of weights."""
    found: dict[str, list[Meeting]] = {name: [] for name in model.initializers}
    ranks = {name: len(spec.shape or ()) for name, spec in model.initializers.items()}
    here: dict[str | None, dict[str, Any]] = {n: {n: tuple(range(ranks[n]))} for n in found}
    for step in model.steps:
        moved = step.op_type in MOVES or (
            step.op_type == "Concat" and all(x in here for x in step.inputs))  # fmt: skip
        for i, x in enumerate(step.inputs if step.op_type not in SHAPES else ()):
            for name, order in here.get(x, {}).items():
                if not moved or (i and step.op_type != "Concat"):
                    found[name].append((step, i, order))
                    continue
                if step.op_type == "Transpose" and order is not None:
                    order = tuple(order[k] for k in step.attrs.get("perm", range(len(order))[::-1]))
                elif step.op_type not in ("Identity", "Cast"):
                    order = None
                for y in step.outputs:
                    here.setdefault(y, {})[name] = order
    return found


def operators_met(meetings: Iterable[Meeting]) -> tuple[str, ...]:
    """The operators that take a weight, each once."""
    return tuple(dict.fromkeys(step.op_type for step, *_ in meetings))


def chosen_weights(
    model: Model, wrt: Names, met: Mapping[str, list[Meeting]]
) -> dict[str, np.ndarray]:
    """The named weights, or all floating ones of two or more axes that meet a linear operator."""
    if wrt is None:
        known = weights_of(model).items()
        wrt = [n for n, spec in known if len(spec.shape or ()) > 1 and may_float(spec)
               and not WEIGHED.isdisjoint(operators_met(met[n]))]  # fmt: skip
        if not wrt:
            whole = [str(s) for s in model.initializers.values() if s.shape and not may_float(s)]
            why = f"{', '.join(whole[:4])}: rounded already" if whole else "none is stored"
            raise InputError("the model has no floating weight of two axes or more in a MatMul, a "
                             f"convolution or the like ({why}): name others by wrt=")  # fmt: skip
    names = names_of(model, wrt, {}, "wrt")
    if strange := [name for name in names if name not in model.constants]:
        raise InputError(f"wrt={strange[0]!r} is no weight that the file stores")
    return {name: model.constants[name] for name in names}


def channel_axis(meetings: list[Meeting], rank: int) -> int | None:
    """The axis of a weight that its first operator gives out as channels; 0 for other operators.

    None for a vector: a scale for each of its entries would leave them as they are.
    """
    step, i, order = meetings[0] if meetings else (None, 0, None)
    if step is None or order is None or rank < 2:
        return 0 if rank > 1 else None
    turned = step.attrs.get("transB" if i else "transA", 0)
    axis = (i + turned) % 2 if step.op_type == "Gemm" else OUTPUTS.get((step.op_type, i), 0)
    return order[axis]


def with_weights(model: Model, weights: Mapping[str, Any]) -> Model:
    """The model with other numbers in some of its weights."""
    copy = model.ir.clone()
    for name, array in weights.items():
        if name not in copy.graph.initializers:
            raise InputError(f"the model has no weight {name!r}")
        new = np.asarray(array, model.constants[name].dtype)
        copy.graph.initializers[name].const_value = ir.Tensor(new, name=name)
    return Model(copy, model.limits)
