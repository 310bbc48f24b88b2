"""Light: products so small that the call of an engine takes longer than its kernels.

Measured on one core: a call of a session takes 10 µs and 0.3 µs for each kernel, a NumPy program
3 µs and 1.2 µs for each. Convolutions are the session's, however small; so are large products of
matrices, for which it has threads of its own.
"""

from __future__ import annotations

import onnx_ir as ir

from ...jacobians import shape_of, size
from .record import Recording

FEW = 8
"""So many kernels at most are called sooner one by one than as a session."""

SMALL = 2**22
"""Multiplications that take about as long as a call."""

FREE = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Identity"})
"""Operators that touch no number."""

WINDOWS = frozenset({"Conv", "ConvTranspose"})


def light(recording: Recording) -> bool:
    """Whether NumPy's program is sooner done than a session."""
    kernels = kernels_of(recording)
    few = len(kernels) <= FEW and not any(node.op_type in WINDOWS for node in kernels)
    return few and not recording.has_bodies and sum(map(multiplications, kernels)) <= SMALL


def kernels_of(recording: Recording) -> list[ir.Node]:
    """The nodes that touch numbers."""
    return [node for node in recording.nodes if node.op_type not in FREE]


def size_text(recording: Recording) -> str:
    """How much there is to do, in words."""
    kernels, few = kernels_of(recording), light(recording)
    why = "less than a session's call takes" if few else "repays a session's call"
    count = sum(map(multiplications, kernels))
    return f"{len(kernels)} kernels, {count:,} multiplications: {why}"


def multiplications(node: ir.Node) -> int:
    """Of a product of matrices rows · columns · what is summed over; else one for each entry.

    Of a convolution each entry of y meets a kernel, of a transposed one each entry of x.
    """
    entries = size(shape_of(node.outputs[0]))
    first = node.inputs[0]
    if node.op_type in WINDOWS:
        x, w = (shape_of(given) for given in node.inputs[:2] if given is not None)
        return (entries if node.op_type == "Conv" else size(x)) * size(w[1:])
    if node.op_type == "Einsum":  # whose sums are over what its operands have and it has not
        return max(entries, *(size(shape_of(x)) for x in node.inputs if x is not None))
    if node.op_type not in ("MatMul", "Gemm") or first is None:
        return entries
    inner = shape_of(first)[-1]
    return entries * inner
