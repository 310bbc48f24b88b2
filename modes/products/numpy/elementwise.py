"""Elementwise operators: one call, over an operand that is not needed any more if there is one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .assemble import Assembler, assembles
from .places import Place, constant

UFUNCS: dict[str, np.ufunc] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}


@assembles(*UFUNCS)
def elementwise(asm: Assembler, node: ir.Node) -> None:
    """y = f(x, …), broadcast."""
    operands = asm.operands(node)
    y = asm.target(node, reuse=True)
    asm.emit(UFUNCS[node.op_type], *(beside(asm, x, y) for x in operands), y)


@assembles("Neg")
def negated(asm: Assembler, node: ir.Node) -> None:
    """y = -1 · x: `np.negative` of NumPy 2.4 is wrong for entries of x that lie 8 numbers of
    float64, or 4 of float32, apart, where those of y are not side by side.
    """
    (x,) = asm.operands(node)
    y = asm.target(node, reuse=True)
    asm.emit(np.multiply, beside(asm, x, y), constant(np.full((), -1, x.dtype)), y)


def beside(asm: Assembler, x: Place, y: Place) -> Place:
    """A residual in the order of the result: reading across what is written takes twice as long."""
    held = x.constant
    if held is None or x.shape != y.shape or order(held) == order(y.view) or 0 in held.strides:
        return x
    lying = np.argsort([-abs(stride) for stride in y.view.strides], kind="stable")
    made = np.ascontiguousarray(held.transpose(lying))
    asm.packed += made.nbytes
    return constant(made.transpose(np.argsort(lying)))


def order(view: np.ndarray) -> tuple[int, ...]:
    """The axes along which there is a step to take, the longest step first."""
    axes = (k for k, n in enumerate(view.shape) if n > 1)
    return tuple(sorted(axes, key=lambda k: -abs(view.strides[k])))
