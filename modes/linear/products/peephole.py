"""Peephole rewrites: recorded operators in the form for which ONNX Runtime has faster kernels.

ScatterND copies row by row: if a row is one number, MaxUnpool, or ScatterElements where numbers are
summed, takes a fraction of the time. A large constant on the right of a product is read from memory
in a packed copy; on the left it is read in place. Gemm reads a transposed constant in place, too,
where a Transpose would write it at every product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of, size
from ....ops.graphs.shortcuts import apart
from ....ops.numbers.indexing import from_start
from .record import Recording

LARGE = 1 << 22
"""Bytes of a constant that does not stay in a core's cache from product to product."""

LONGER = 8
"""How many times larger than the other factor a constant is that dominates the time."""

MANY = 32
"""The number of rows that repay packing the other factor."""


def peephole(recording: Recording) -> Recording:
    """The recording with other operators where these are faster."""
    found = Rewriting(recording)
    for node in recording.nodes:
        found.node(node)
    recording.recorder.nodes[:] = found.nodes
    return replace(recording, nodes=tuple(found.nodes), constants=found.constants)


class Rewriting:
    """The nodes and constants so far; a rewritten node becomes a Reshape."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.nodes = recording, list[ir.Node]()
        self.constants = dict(recording.constants)

    def node(self, node: ir.Node) -> None:
        """Appends a node, after the nodes that compute its result if it is rewritten."""
        if node.op_type == "ScatterND":
            self.scatter(node)
        elif node.op_type == "MatMul":
            self.matmul(node)
        self.nodes.append(node)

    def scatter(self, node: ir.Node) -> None:
        """y = zeros with the entries of x put at, or added to, some positions."""
        zeros, index, x = operands(node)
        (n, *row), (rows, *depth) = shape_of(zeros), shape_of(index)
        if row != [1] or depth != [1]:
            return
        held, how = self.constants.get(id(index)), node.attributes.get_string("reduction", "none")
        once = how == "none" or (held is not None and apart(tuple(held.ravel().tolist()), n))
        if not once or not self.is_zero(zeros):
            node.op_type = "ScatterElements"
            return
        line, whole = (1, 1, 1, rows), self.constant(np.array([1, 1, 1, n]))
        flat = self.call("Reshape", [x, self.constant(np.array(line))], line)
        if held is None:
            places = self.call("Reshape", [index, self.constant(np.array(line))], line)
        else:
            places = self.constant(from_start(held, n).reshape(line))
        made = self.call("MaxUnpool", [flat, places, whole], (1, 1, 1, n), kernel_shape=(1, 1))
        self.reshapes(node, made)

    def matmul(self, node: ir.Node) -> None:
        """A C = (Cᵀ Aᵀ)ᵀ if C is large: a constant, or the transpose of a computed matrix."""
        a, c = operands(node)
        turned = before_turning(c)
        large = turned is not None and self.is_large_matrix(turned)
        if not is_one_matrix(a) or not is_one_matrix(c):
            if large:
                self.gemm(node)
            return
        (m, k), n = shape_of(a)[-2:], shape_of(c)[-1]
        held = self.constants.get(id(c if turned is None else turned))
        long = turned is not None and k >= n >= LONGER * m and (held is None or k >= LONGER * n)
        if not long and (held is None or not decides(held, m, k, n)):
            if large:
                self.gemm(node)
            return
        if turned is not None:
            left = self.call("Reshape", [turned, self.constant(np.array([n, k]))], (n, k))
        else:
            assert held is not None
            left = self.constant(held.reshape(k, n).T)
        flat = self.call("Reshape", [a, self.constant(np.array([m, k]))], (m, k))
        right = self.call("Transpose", [flat], (k, m), perm=(1, 0))
        made = self.call("MatMul", [left, right], (n, m))
        self.reshapes(node, self.call("Transpose", [made], (m, n), perm=(1, 0)))

    def is_large_matrix(self, value: ir.Value) -> bool:
        """Whether a value is a constant matrix that is too large to be held in two orders."""
        held = self.constants.get(id(value))
        if held is None or held.ndim != 2 or held.nbytes < LARGE:
            return False
        return held.dtype in (np.float32, np.float64)

    def gemm(self, node: ir.Node) -> None:
        """A Cᵀ by Gemm, which reads C in place."""
        a, turned = operands(node)
        c = before_turning(turned)
        assert c is not None
        n, k = shape_of(c)
        rows = size(shape_of(a)) // k
        flat = self.call("Reshape", [a, self.constant(np.array([rows, k]))], (rows, k))
        self.reshapes(node, self.call("Gemm", [flat, c], (rows, n), transB=1))

    def is_zero(self, value: ir.Value) -> bool:
        """Whether a value is known to be zeros of float32, the dtype that MaxUnpool supports."""
        node = value.producer()
        source = operands(node)[0] if node is not None and node.op_type == "Expand" else value
        held = self.constants.get(id(source))
        return held is not None and held.dtype == np.float32 and not held.any()

    def constant(self, array: np.ndarray) -> ir.Value:
        value: ir.Value = self.recording.recorder.initializer(array)
        self.constants[id(value)] = array
        return value

    def call(self, op_type: str, inputs: list[ir.Value], shape: Shape, **attrs: Any) -> ir.Value:
        """The result of a new node, of the dtype of its first input."""
        y = self.recording.recorder.new(shape, dtype_of(inputs[0]))
        attributes = ir.convenience.convert_attributes(attrs)
        self.nodes.append(ir.Node("", op_type, inputs, attributes, outputs=[y]))
        return y

    def reshapes(self, node: ir.Node, x: ir.Value) -> None:
        """Turns the node into a Reshape of x to the node's own shape."""
        shape = self.constant(np.array(shape_of(node.outputs[0]), np.int64))
        node.op_type = "Reshape"
        node.attributes.clear()
        node.resize_inputs(2)
        node.replace_input_with(0, x)
        node.replace_input_with(1, shape)


def operands(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node, without omitted ones."""
    return [x for x in node.inputs if x is not None]


def is_one_matrix(x: ir.Value) -> bool:
    """Whether a value is a matrix, up to leading axes of size 1."""
    shape = shape_of(x)
    return len(shape) > 1 and size(shape) == size(shape[-2:])


def decides(held: np.ndarray, m: int, k: int, n: int) -> bool:
    """Whether C (k, n) is so large, and A (m, k) so small, that reading C dominates the time.

    Products with very few rows pack nothing; many rows repay the packing.
    """
    few = LONGER <= m <= MANY
    return few and held.nbytes >= LARGE and held.size >= LONGER * m * max(k, n)


def before_turning(x: ir.Value) -> ir.Value | None:
    """The matrix that a Transpose turns into x; None if there is none."""
    node = x.producer()
    if node is None or node.op_type != "Transpose":
        return None
    perm = node.attributes["perm"].as_ints()
    rank = len(perm)
    return node.inputs[0] if (*perm,) == (*range(rank - 2), rank - 1, rank - 2) else None
