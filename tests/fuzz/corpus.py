"""Corpus of models to mutate: small networks, ONNX's node cases, and control flow in text."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from .texts import TEXTS

LARGEST = 20_000
"""Bytes of the largest model in the corpus; larger ones take too long to linearise."""

FILES = Path(__file__).resolve().parents[1]


class Seed(NamedTuple):
    """A model to mutate."""

    name: str
    data: bytes


def corpus() -> list[Seed]:
    """All models, in a fixed order."""
    found = (*texts(), *networks(), *node_cases())
    return [Seed(name, model.SerializeToString(deterministic=True)) for name, model in found]


def texts() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Features that neither networks nor node cases have: nesting, functions, growth."""
    for name, text in TEXTS.items():
        yield name, onnx.parser.parse_model(text)


def networks() -> Iterator[tuple[str, onnx.ModelProto]]:
    """The small ones among the networks of the other tests."""
    for path in sorted((*FILES.glob("models/*.onnx"), *FILES.glob("networks/files/*.onnx"))):
        if path.stat().st_size <= LARGEST:
            yield path.stem, onnx.load(path)


def node_cases() -> Iterator[tuple[str, onnx.ModelProto]]:
    """ONNX's own single-node cases; their integer inputs become initializers."""
    from onnx.backend.test import loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = loader.load_model_tests(kind="node")
    for case in sorted(cases, key=lambda case: case.name):
        if case.model is not None and case.model.ByteSize() <= LARGEST:
            yield case.name, held(case.model, case.data_sets[0][0])


def held(model: onnx.ModelProto, inputs: list[object]) -> onnx.ModelProto:
    """The model with shapes, axes and indices stored in it."""
    graph = onnx.ModelProto.FromString(model.SerializeToString()).graph
    kept = []
    for value, array in zip(graph.input, inputs, strict=False):
        if isinstance(array, np.ndarray) and array.dtype.kind in "iub" and array.size <= 64:
            graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            kept.append(value)
    del graph.input[:]
    graph.input.extend(kept)
    made = onnx.ModelProto.FromString(model.SerializeToString())
    made.graph.CopyFrom(graph)
    return made
