"""PyTorch as the engine of products: node after node, over tensors of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from ...jacobians import dtype_of
from ...jacobians.arrays import host
from ...jacobians.foreign import is_tensor
from ...ops.torch import place, tensors
from ...ops.torch.table import KERNELS
from ..primal.engines.torch import moved
from .numpy import Program
from .record import Recording

NOTHING: Mapping[int, Any] = MappingProxyType({})


def compile(recording: Recording, provider: str = "cpu") -> Callable[..., Any]:
    """The program of a recorded product; its constants are on the device `provider`.

    A tensor gives a tensor on its own device, an array an array.
    """
    there, zero = place(provider), np.zeros((), dtype_of(recording.v))
    program = Program(recording, op=tensors, take=partial(moved, there=there))

    @torch.no_grad()
    def product(v: Any, residuals: Mapping[int, Any] = NOTHING) -> Any:
        x = tensors.CastLike(there.take(v), zero)
        made = {key: moved(array, there) for key, array in residuals.items()}
        y = there.take(program.run(x, made))
        y = y.clone(memory_format=torch.contiguous_format)  # of the caller's, no view
        return y.to(v.device) if is_tensor(v) else host(y)

    product.on_host = {node.op_type for node in recording.nodes} - KERNELS.keys()
    return product
