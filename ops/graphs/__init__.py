"""Graphs: each ONNX operator over values of a graph, as new nodes."""

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
from .scan import Turn, Twin, keeps, kept, scan, surrogate, without_surrogates

__all__ = [
    "Recorder", "Turn", "Twin", "body_of", "build", "copied", "every", "fresh", "keeps", "kept",
    "name_inside", "name_nodes", "operands_of", "reachable", "scan", "subgraphs", "surrogate",
    "without_surrogates",
]  # fmt: skip
