"""PyTorch as the engine of products: node after node, over tensors of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import onnx_ir as ir
import torch

from ...jacobians import dtype_of, shape_of
from ...jacobians.arrays import DOUBLE, SINGLE, buffer_of, host
from ...jacobians.foreign import is_tensor
from ...ops.numbers.table import ints
from ...ops.torch import place, tensors
from ...ops.torch.table import DTYPES, HOSTED, KERNELS, SAME, STATIC
from ..primal.engines.torch import moved
from .engines import FREE
from .numpy import Program, attributes
from .record import Recording

NOTHING: Mapping[int, Any] = MappingProxyType({})


def compile(recording: Recording, provider: str = "cpu") -> Callable[..., Any]:
    """The program of a recorded product; its constants are on the device `provider`.

    A tensor gives a tensor on its own device, an array an array.
    """
    there, dtype = place(provider), DTYPES[dtype_of(recording.v)]
    program = Program(recording, bound, partial(moved, there=there))
    held = {buffer_of(x) for x in program.constants if is_tensor(x)}

    def product(v: Any, residuals: Mapping[int, Any] = NOTHING) -> Any:
        if not is_tensor(v):
            return host(product(there.take(v), residuals))
        x = v.detach().to(there.name, dtype)
        made = {k: r if is_tensor(r) else moved(r, there) for k, r in residuals.items()}
        y = there.take(program.run(x, made))
        if buffer_of(y) in held or any(buffer_of(y) == buffer_of(x) for x in (x, *made.values())):
            y = y.clone()  # of the caller's
        return y.to(v.device)

    product.on_host = {node.op_type for node in recording.nodes} - KERNELS.keys()
    return product


def bound(node: ir.Node, recording: Recording) -> Callable[..., Any]:
    """The function of a node with its attributes, and with its shapes and axes if they are known.

    Floats in single or double precision go straight to the kernel, everything else through the
    reading, which looks at each operand.
    """
    name, given, shape = node.op_type, attributes(node), shape_of(node.outputs[0])
    first, rest = (node.inputs[:1], node.inputs[1:]) if name in HOSTED else (node.inputs, ())
    dtypes = {None if x is None else dtype_of(x) for x in first}
    told = tuple(x and recording.array(x) for x in rest)
    known = all(x is None or y is not None for x, y in zip(rest, told, strict=True))
    if name not in KERNELS or not known or not dtypes <= {SINGLE, DOUBLE}:
        return partial(getattr(tensors, name), **given)
    if name in FREE:
        return lambda x, *_: x.expand(shape) if name == "Expand" else x.reshape(shape)
    if len(dtypes) == 1 and name in SAME:
        return SAME[name]
    if not rest:
        return partial(KERNELS[name], **given)
    told = tuple(ints(y) if y is not None and y.dtype.kind in "iu" else y for y in told)
    if name in STATIC and (x := first[0]):
        function = STATIC[name](shape_of(x), *told)
        return lambda x, *_: function(x)
    return lambda x, *_: KERNELS[name](x, *told, **given)
