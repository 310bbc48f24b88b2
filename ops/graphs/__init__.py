"""Graphs: each ONNX operator over values of a graph, as new nodes."""

from .build import body_of, build, copied, every, name_nodes, operands_of, reachable, subgraphs
from .recorder import Recorder
from .scan import Turn, Twin, keeps, kept, scan, surrogate, without_surrogates

__all__ = [
    "Recorder", "Turn", "Twin", "body_of", "build", "copied", "every", "keeps", "kept",
    "name_nodes", "operands_of", "reachable", "scan", "subgraphs", "surrogate",
    "without_surrogates",
]  # fmt: skip
