"""The graphs reading: calls of the vocabulary over `onnx_ir.Value`s become nodes of a graph."""

from .build import build, copied, fresh, name_nodes, operands_of, reachable
from .recorder import Recorder
from .twin import Twin

__all__ = [
    "Recorder", "Twin", "build", "copied", "fresh", "name_nodes", "operands_of", "reachable",
]  # fmt: skip
