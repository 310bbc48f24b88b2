"""Matrix products: Jacobians as Kronecker products."""

from __future__ import annotations

from typing import Any

from ...jacobians import (
    Array,
    Eye,
    Identity,
    Jacobian,
    Permutation,
    Reshape,
    broadcast,
    implicit_kron,
    shape_of,
    transposed,
)
from ...jacobians.symint import broadcast_sizes, same
from ..node import Node
from ..registry import Blocks, jacobian


@jacobian("MatMul")
def matmul(op: Any, node: Node) -> Blocks:
    """Z = A B: ∂Z/∂A = I ⊗ Bᵀ, ∂Z/∂B = A ⊗ I, batch axes broadcast."""
    a, b = node.inputs
    a_matrix = op.Reshape(a, (1, *shape_of(a))) if len(shape_of(a)) == 1 else a
    b_matrix = op.Reshape(b, (*shape_of(b), 1)) if len(shape_of(b)) == 1 else b
    blocks = matmul_blocks(op, a_matrix, b_matrix, node.dtype)
    return {
        (0, i): Reshape(node.y_shape, J.out_shape, node.dtype)
        @ J
        @ Reshape(J.in_shape, shape_of(node.inputs[i]), node.dtype)
        for i, J in enumerate(blocks)
    }


def matmul_blocks(op: Any, a: Array, b: Array, dtype: Any) -> tuple[Jacobian, Jacobian]:
    """The two blocks for operands of rank 2 or more."""
    (m, k), n = shape_of(a)[-2:], shape_of(b)[-1]
    if len(shape_of(b)) == 2:
        rows = a if same(k, 0) else op.Reshape(a, (-1, k))
        flat = shape_of(rows)[0]
        in_b = Reshape((*shape_of(a)[:-1], n), (flat, n), dtype) @ implicit_kron(rows, Eye(n))
        return implicit_kron(Eye(m), transposed(b), shape_of(a)[:-2]), in_b
    batch = broadcast_sizes([shape_of(a)[:-2], shape_of(b)[:-2]])
    lift_a = broadcast(shape_of(a), (*batch, m, k), dtype)
    lift_b = broadcast(shape_of(b), (*batch, k, n), dtype)
    return (
        implicit_kron(Eye(m), transposed(b), batch) @ lift_a,
        implicit_kron(a, Eye(n), batch) @ lift_b,
    )


@jacobian("Gemm")
def gemm(op: Any, node: Node) -> Blocks:
    """Y = α A' B' + β C: ∂Y/∂A = α I ⊗ B'ᵀ, ∂Y/∂B = α A' ⊗ I, each after its transposition."""
    a, b = (
        transposed(x) if flag else x
        for x, flag in zip(node.inputs, (node.transA, node.transB), strict=False)
    )
    J_a, J_b = matmul_blocks(op, a, b, node.dtype)
    blocks = {
        (0, 0): times(node.alpha, J_a @ orientation(node.transA, node.inputs[0], node.dtype)),
        (0, 1): times(node.alpha, J_b @ orientation(node.transB, node.inputs[1], node.dtype)),
    }
    if node.input(2) is not None:
        lift = broadcast(shape_of(node.inputs[2]), node.y_shape, node.dtype)
        blocks[0, 2] = times(node.beta, lift)
    return blocks


def orientation(flag: int, x: Array, dtype: Any) -> Jacobian:
    """The transposition of a matrix if the flag is set, else the identity."""
    return Permutation((1, 0), shape_of(x), dtype) if flag else Identity(shape_of(x), dtype)


def times(factor: float, J: Jacobian) -> Jacobian:
    return J if factor == 1 else J * factor
