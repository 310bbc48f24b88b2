"""Ops: what each ONNX operator declares, in a vocabulary that has several readings."""

from importlib import import_module

import numpy as np

from ..jacobians.errors import optional
from ..jacobians.readings import Library, register_library
from . import (
    lazy_sympy,  # noqa: F401  (before all that imports onnx-ir)
    rules,  # noqa: F401  (each family registers its declarations)
)
from .graphs import Recorder, Twin, build, copy_value
from .node import Node, Step
from .numbers import numbers
from .registry import DECLARATIONS, Blocks, Declaration, defines, find, jacobian, zero

for _kind in (np.ndarray, np.generic):
    register_library(_kind, lambda: numbers)


def _torch() -> Library:
    """The torch reading, which is imported when the first tensor is met."""
    optional("torch", "torch")
    return import_module(".torch", __name__).tensors


def _jax() -> Library:
    """The reading over arrays of JAX, which is imported when the first one is met."""
    optional("jax", "jax")
    return import_module(".jax", __name__).arrays


register_library("torch.Tensor", _torch, engine="torch")
register_library("jax.Array", _jax, engine="jax")


__all__ = [
    "DECLARATIONS", "Blocks", "Declaration", "Node", "Recorder", "Step", "Twin", "build",
    "copy_value", "defines", "find", "jacobian", "numbers", "zero",
]  # fmt: skip
