"""Cost: the estimated time of one product with an operator, from arithmetic and memory traffic.

seconds = Σ max(flops / rate, bytes / bandwidth) + call, over the operators that run in sequence.
Only ratios affect decisions. The figures are fixed, for one ordinary core, so that a model is
always eliminated in the same way.
"""

from __future__ import annotations

from functools import singledispatch

from ....jacobians import (
    BlockDiagonal,
    Broadcast,
    Cast,
    Contraction,
    Convolution,
    Dag,
    Dense,
    Embed,
    Identity,
    Jacobian,
    Kron,
    Product,
    Reshape,
    Slice,
    Sum,
    Zero,
    size,
)

RATE = 3e11
"""Single-precision multiplications and additions per second inside a matrix product."""

BANDWIDTH = 1.5e10
"""Bytes per second to and from memory."""

CALL = 2e-6
"""Overhead of any call, in seconds."""

ELIMINATING = 8e-5
"""Seconds of vertex elimination per edge of a DAG."""

DECIDING = 1.5e-4
"""Seconds of deciding what to multiply out, per edge."""

SAVED = 1 / 4
"""The fraction of a product's time that a plan may save where products are short."""

RECORDING = 3e-4
"""Seconds that an engine takes to compile a program, per edge."""

SWEEPING, REPEATING, MAKING = 1.5e-5, 5e-6, 1e-4
"""Seconds of Python per edge of a DAG: for a product without a program, for one whose calls are
known, and for rules that give the operators at a new point.
"""

SLOWNESS: dict[type, float] = {Dense: 1.0, Kron: 1.0, Contraction: 2.0, Convolution: 1.5}
"""Kinds with significant arithmetic -> its slowdown relative to a product of whole matrices."""


@singledispatch
def seconds(operator: Jacobian) -> float:
    """Estimated seconds of one product."""
    if (inner := operator.structure) is not operator:
        return seconds(inner)
    return max(arithmetic_seconds(operator), traffic(operator) / BANDWIDTH) + CALL


@seconds.register
def _(operator: Identity | Reshape | Zero) -> float:
    return 0.0


@seconds.register
def _(operator: Product) -> float:
    return sum(map(seconds, operator.factors))


@seconds.register
def _(operator: Sum) -> float:
    m = operator.shape[0]
    added = 3 * m * operator.dtype.itemsize * (len(operator.terms) - 1) / BANDWIDTH
    return sum(map(seconds, operator.terms)) + added


@seconds.register
def _(operator: Dag) -> float:
    merged = sum(e.operator.shape[0] for e in operator.edges) - operator.shape[0]
    added = 3 * max(merged, 0) * operator.dtype.itemsize / BANDWIDTH
    return sum(seconds(e.operator) for e in operator.edges) + added


def arithmetic_seconds(operator: Jacobian) -> float:
    """Seconds of arithmetic: only matrix products have enough of it to count."""
    slowness = SLOWNESS.get(type(operator), 0.0)
    return slowness and operator.flops / (RATE * 4 / operator.dtype.itemsize) * slowness


def traffic(operator: Jacobian) -> int:
    """Bytes that one product reads and writes."""
    m, n = operator.shape
    kind, item = type(operator), operator.dtype.itemsize
    if kind is Slice:
        return 2 * m * item
    if kind in (Dense, BlockDiagonal):  # read once, in memory order
        return operator.nbytes // 2 + (m + n) * item
    if kind in (Broadcast, Embed, Cast):
        return (m + n) * item
    return operator.nbytes + (m + n + 3 * patch_entries(operator)) * item


def patch_entries(operator: Jacobian, *, signals: bool = False) -> int:
    """Entries that a convolution of kernels gathers, writes and reads again for one product.

    With `signals`, entries that a convolution between signals gathers or adds up block by block.
    """
    if not isinstance(operator, Convolution):
        return 0
    if ("w" in (operator.source, operator.target)) == signals:
        return 0
    g = operator.geometry
    return g.u[0] * size(g.u[2:]) * size(g.w[1:])
