"""Graphs: each ONNX operator over values of a graph, as new nodes."""

from .build import (
    body_of,
    build,
    copy_value,
    every,
    name_nodes,
    nested_graphs,
    operands_of,
    reachable,
)
from .recorder import Recorder
from .scan import Turn, Twin, keeps, run_definition, scan, surrogate, without_surrogates

__all__ = [
    "Recorder",
    "Turn",
    "Twin",
    "body_of",
    "build",
    "copy_value",
    "every",
    "keeps",
    "name_nodes",
    "nested_graphs",
    "operands_of",
    "reachable",
    "run_definition",
    "scan",
    "surrogate",
    "without_surrogates",
]  # fmt: skip
