"""Work: what a graph takes, which decides the engine.

Small products run node by node in NumPy. Measured on one core, a session takes 15 µs per call and
0.3 to 0.7 µs per kernel, a NumPy program 3 µs and 0.4 to 1.5 µs. Convolutions of any size run in a
session, and so do large matrix products, for which a session has its own threads.
"""

from __future__ import annotations

import onnx_ir as ir

from ....jacobians import dtype_of, shape_of, size
from ....ops.graphs.build import Graph
from ....ops.numbers.table import FREE

CALLED_KERNELS = 24
"""The most kernels that are faster called one by one than in a session."""

CALL_MULTIPLICATIONS = 2**22
"""The number of multiplications that take about as long as a call."""

WINDOWS = frozenset({"Conv", "ConvTranspose"})


def kernels_of(graph: Graph) -> list[ir.Node]:
    """The nodes that compute or rearrange entries."""
    return [node for node in graph.nodes if node.op_type not in FREE]


def multiplications(node: ir.Node) -> int:
    """Multiplications: rows · columns · inner length for a matrix product, else one per entry.

    A convolution takes a kernel for each entry of y, a transposed one for each entry of x.
    """
    entries = size(shape_of(node.outputs[0]))
    first = node.inputs[0]
    if node.op_type in WINDOWS:
        x, w = (shape_of(given) for given in node.inputs[:2] if given is not None)
        return (entries if node.op_type == "Conv" else size(x)) * size(w[1:])
    if node.op_type == "Einsum":  # sums over labels of its operands only
        return max(entries, *(size(shape_of(x)) for x in node.inputs if x is not None))
    if node.op_type not in ("MatMul", "Gemm") or first is None:
        return entries
    inner = shape_of(first)[-1]
    return entries * inner


def is_cheaper_in_line(graph: Graph) -> bool:
    """Whether a NumPy program is faster than a session."""
    kernels = kernels_of(graph)
    if len(kernels) > CALLED_KERNELS or any(node.op_type in WINDOWS for node in kernels):
        return False
    return not graph.has_bodies and sum(map(multiplications, kernels)) <= CALL_MULTIPLICATIONS


def is_inexact(graph: Graph) -> bool:
    """Whether ONNX Runtime would lose digits: its DFT of doubles is right to some 1e-8, except for
    lengths that are powers of two.
    """
    return any(node.op_type in ("DFT", "STFT") and dtype_of(node.outputs[0]).itemsize == 8
               for node in graph.nodes)  # fmt: skip
