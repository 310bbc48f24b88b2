"""The graphs reading: calls of the vocabulary over `onnx_ir.Value`s become nodes of a graph."""

from .build import build
from .recorder import Recorder

__all__ = ["Recorder", "build"]
