"""PyTorch as the engine of products: node after node, over tensors of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import partial
from types import MappingProxyType
from typing import Any

import onnx_ir as ir

from ....jacobians import dtype_of, shape_of
from ....jacobians.arrays import buffer_of, host
from ....jacobians.readings import is_kept
from ....ops.torch import bound, place
from ....ops.torch.table import DTYPES, KERNELS
from ...model.primal.engines.torch import as_tensors, fused_in_line, moved
from .compiled import Recording
from .numpy import Program, attributes

NOTHING: Mapping[str, Any] = MappingProxyType({})


def compile(recording: Recording, provider: str = "cpu") -> Callable[..., Any]:
    """The program of a recorded product; its constants are on the device `provider`.

    A tensor gives a tensor on its own device, an array an array.
    """
    there, dtype = place(provider), DTYPES[dtype_of(recording.v)]
    ours = as_tensors(recording.nodes)

    def take(value: ir.Value, x: Any) -> Any:
        return there.hold(x) if value in ours else moved(x, there, there.hold)

    program = Program(recording, kernel, take, partial(fused_in_line, fresh=1))
    constants = {buffer_of(x) for x in program.constants if is_kept(x)}

    def at(residuals: Mapping[str, Any]) -> Callable[..., Any]:
        moved_there = {k: r if is_kept(r) else moved(r, there) for k, r in residuals.items()}
        held = constants | {buffer_of(r) for r in moved_there.values() if is_kept(r)}
        return partial(product, residuals=moved_there, held=held)

    def product(v: Any, residuals: Mapping[str, Any], held: Set[int]) -> Any:
        if not is_kept(v):
            return host(product(there.take(v), residuals, held))
        if v.requires_grad or v.dtype != dtype or v.device != there.device:
            return product(v.detach().to(there.device, dtype), residuals, held).to(v.device)
        y = program.run(v, residuals)
        y = y if is_kept(y) else there.take(y)
        memory = buffer_of(y)
        return y.clone() if memory in held or memory == buffer_of(v) else y  # of the caller's

    made: Any = at(NOTHING)
    made.at = at
    made.on_host = {node.op_type for node in recording.nodes} - KERNELS.keys()
    return made


def kernel(node: ir.Node, recording: Recording) -> tuple[Callable[..., Any], int]:
    """The function of a node, and how many operands it takes."""
    known = [x and recording.array(x) for x in node.inputs]
    shape = shape_of(node.outputs[0])
    return bound(node.op_type, node.inputs, known, attributes(node), shape)
