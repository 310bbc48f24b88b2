"""An independent interpreter of ONNX models, in float64 over torch, to check derivatives.

It shares no code with the library: it imports onnx, NumPy and torch only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch

from . import (
    control,
    elementwise,
    indexing,
    layout,
    normalization,
    recurrent,
    resampling,
    signals,
    windows,
)
from .graphs import KERNELS, Interpreter, NoKernel

__all__ = ["COVERED", "NoKernel", "hessian", "jacobian", "run"]

FAMILIES = (
    control, elementwise, indexing, layout, normalization, recurrent, resampling, signals, windows,
)  # fmt: skip
COVERED: frozenset[str] = frozenset(KERNELS)
"""The operators of ai.onnx that have a kernel."""


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of the main graph by name, computed while torch records.

    Sequences are lists, an empty optional is None, tensors of strings are arrays of objects.
    """
    return Interpreter(model).main(feeds)


def jacobian(
    model: onnx.ModelProto, feeds: Mapping[str, Any], of: Sequence[str], wrt: Sequence[str]
) -> np.ndarray:
    """∂of/∂wrt: tensors ravelled and concatenated in the given order.

    A tensor t of `wrt` is perturbed in place, t + δ: later nodes read t + δ, and t still depends on
    the other tensors of `wrt`. So ∂t/∂t is the identity, and the columns of an input include the
    paths through t.
    """
    values, deltas = perturbed(model, feeds, wrt)
    y = torch.cat([checked(name, values).reshape(-1) for name in of])
    return rows(y, deltas)


def hessian(
    model: onnx.ModelProto, feeds: Mapping[str, Any], of: str, wrt: Sequence[str],
    weights: Any = None,
) -> np.ndarray:
    """∂²⟨weights, of⟩/∂wrt², where `weights` are ones unless given."""
    values, deltas = perturbed(model, feeds, wrt)
    y = checked(of, values).reshape(-1)
    w = torch.ones_like(y) if weights is None else torch.as_tensor(np.asarray(weights)).to(y)
    if not y.requires_grad:
        size = sum(d.numel() for d in deltas)
        return np.zeros((size, size))
    gradient = torch.autograd.grad(
        y @ w.reshape(-1), deltas, create_graph=True, materialize_grads=True
    )
    return rows(torch.cat([g.reshape(-1) for g in gradient]), deltas)


def perturbed(
    model: onnx.ModelProto, feeds: Mapping[str, Any], wrt: Sequence[str]
) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """The values of the main graph with each t of `wrt` as t + δ; and the perturbations δ = 0."""
    deltas: dict[str, torch.Tensor] = {}

    def seen(name: str, x: Any) -> Any:
        if name not in wrt:
            return x
        deltas[name] = torch.zeros_like(x, requires_grad=True)
        return x + deltas[name]

    values = Interpreter(model, seen).main(feeds)
    return values, [deltas[name] for name in wrt]


def checked(name: str, values: Mapping[str, Any]) -> torch.Tensor:
    """The floating tensor of this name."""
    x = values[name]
    if not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point:
        raise TypeError(f"{name!r} is no floating tensor")
    return x


def rows(y: torch.Tensor, deltas: Sequence[torch.Tensor]) -> np.ndarray:
    """The derivative of a vector, row by row."""
    size = sum(d.numel() for d in deltas)
    result = np.zeros((y.numel(), size))
    if not y.requires_grad:
        return result
    for k, entry in enumerate(y.unbind()):
        row = torch.autograd.grad(entry, deltas, retain_graph=True, allow_unused=True)
        flat = [torch.zeros_like(d) if g is None else g for g, d in zip(row, deltas, strict=True)]
        result[k] = torch.cat([g.reshape(-1) for g in flat]).detach().numpy()
    return result
