"""The contenders by name, each with its module, whose library may be missing."""

from importlib import import_module
from typing import Any

MODULES = {
    "onnxjac": "onnxjac",
    "onnxjac compiled": "onnxjac",
    "onnxjac onnxruntime": "onnxjac",
    "onnxjac numpy": "onnxjac",
    "onnxjac torch": "onnxjac",
    "onnxjac jax": "onnxjac",
    "jax": "jax",
    "jax expert": "jax",
    "jax asdex": "coloured",
    "jax sparsejac": "coloured",
    "jax colours expert": "coloured",
    "torch.func": "torch",
    "torch linearize": "torch",
    "torch compile": "torch",
    "torch autograd": "torch",
    "torch expert": "torch",
    "curvlinops": "curvlinops",
    "backpack": "backpack",
    "casadi": "casadi",
    "machine": "machine",
}


def contender(name: str) -> Any:
    """The class of a contender; raises `ImportError` where its library is not installed."""
    return import_module(f".{MODULES[name]}", __package__).CONTENDERS[name]
