"""Limits: the least work of a product, and the time that this machine needs for it.

seconds = max(flops / rate of matrix products, bytes / bandwidth), where the bandwidth is measured
with a sum of vectors of equal total size, so that caches have the same effect.
"""

from __future__ import annotations

import math
from typing import Any

import onnx
import onnx_ir as ir

from .contenders.machine import ORDER, PASSES
from .rounds import Worker, measure
from .workloads import Workload
from .workloads.model import model_of

SMALLEST = 96 * 2**10
"""Bytes of the shortest sum that is measured; shorter ones would measure call overhead."""


class Machine:
    """The rates of the machine for one dtype, each measured on first use."""

    def __init__(self, worker: Worker, rounds: int, budget: float) -> None:
        self.worker, self.settings = worker, {"rounds": rounds, "budget": budget}
        self.rate = 2 * ORDER**3 / self._seconds("gemm")
        self.bandwidths: dict[int, float] = {}

    def _seconds(self, product: str) -> float:
        return measure([self.worker], product, **self.settings)[0].median

    def bandwidth(self, nbytes: int) -> float:
        """Bytes per second of a sum of vectors with `nbytes` bytes in all."""
        nbytes = max(nbytes, SMALLEST)
        if nbytes not in self.bandwidths:
            self.bandwidths[nbytes] = PASSES * nbytes / self._seconds(f"stream×{nbytes}")
        return self.bandwidths[nbytes]

    def least(self, workload: Workload, product: str, rows: int) -> float | None:
        """A lower bound on the seconds of the product; None for whole solvers."""
        nbytes = traffic(workload, product, rows)
        if nbytes is None:
            return None
        return max(arithmetic(workload, product) / self.rate, nbytes / self.bandwidth(nbytes))


def traffic(workload: Workload, product: str, size: int) -> int | None:
    """Bytes of the operands, the result (of `size` entries) and the values kept."""
    kind, _, count = product.partition("×")
    item, columns = workload.dtype.itemsize, int(count or 1)
    operands = {"jvp": columns * workload.size, "vjp": 0, "ggn": workload.size,
                "hvp": workload.size, "toarray": 0, "sparse": 5 * workload.size}  # fmt: skip
    return item * (operands[kind] + size + workload.kept) if kind in operands else None


def arithmetic(workload: Workload, product: str) -> int:
    """Σ flops × number of evaluations, over matrix products and convolutions.

    A JVP or VJP needs one for each varying factor, or, where the output is narrow, for each weight,
    as the adjoints of the outputs are kept; JᵀHJ needs twice as many. A Hessian product needs three
    for each of two varying factors, and two for a single one, as in a first layer.
    """
    kind, _, count = product.partition("×")
    if workload.kept or kind in ("toarray", "sparse"):
        return 0
    total = 0
    for flops, varying, weighted in factors(workload):
        forward = weighted if workload.narrow else varying
        needed = {"ggn": 2 * forward, "hvp": 6 if varying == 2 else 2 * varying}
        total += flops * needed.get(kind, forward)
    return total * int(count or 1)


def factors(workload: Workload) -> list[tuple[int, int, int]]:
    """For each matrix product: its flops, its number of varying factors and of weights."""
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model_of(workload)))
    graph, weights = proto.graph, set(workload.wrt)
    shapes = {v.name: dims(v) for v in (*graph.value_info, *graph.input, *graph.output)}
    shapes |= {w.name: tuple(w.dims) for w in graph.initializer}
    varying, found = set(weights), []
    for node in graph.node:
        active = [name in varying for name in node.input]
        varying |= set(node.output) if any(active) else set()
        if flops := flops_of(node, shapes):
            found.append((flops, sum(active[:2]), sum(name in weights for name in node.input[:2])))
    return found


def dims(value: Any) -> tuple[int, ...]:
    """The shape in a tensor's value info."""
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


def flops_of(node: Any, shapes: dict[str, tuple[int, ...]]) -> int:
    """2 × the size of the output × the length of each sum."""
    if node.op_type == "MatMul":
        return 2 * math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
    if node.op_type == "Conv":
        return 2 * math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
    if node.op_type == "LSTM":
        (length, batch, n), width = shapes[node.input[0]], shapes[node.input[2]][-1]
        return 2 * length * batch * 4 * width * (n + width)
    return 0
