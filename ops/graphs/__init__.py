"""The graphs reading: calls of the vocabulary over `onnx_ir.Value`s become nodes of a graph."""

from .build import (
    body_of,
    build,
    copied,
    every,
    fresh,
    name_inside,
    name_nodes,
    operands_of,
    reachable,
    subgraphs,
)
from .recorder import Recorder
from .twin import Twin

__all__ = [
    "Recorder", "Twin", "body_of", "build", "copied", "every", "fresh",
    "name_inside", "name_nodes", "operands_of", "reachable", "subgraphs",
]  # fmt: skip
