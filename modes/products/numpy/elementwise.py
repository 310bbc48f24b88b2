"""Elementwise operators: one call, over an operand that is not needed any more if there is one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .assemble import Assembler, assembles

UFUNCS: dict[str, np.ufunc] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Neg": np.negative,
}


@assembles(*UFUNCS)
def elementwise(asm: Assembler, node: ir.Node) -> None:
    """y = f(x, …), broadcast."""
    operands = asm.operands(node)
    asm.emit(UFUNCS[node.op_type], *operands, asm.target(node, reuse=True))
