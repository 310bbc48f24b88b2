"""Cases: the models that ONNX tests its backends with, each with values for its inputs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("simple", "pytorch-converted", "pytorch-operator")
"""Whole models whose files come with the onnx wheel."""

EXPANDED = re.compile(r"_expanded.*$")


@dataclass(frozen=True)
class Case:
    """A model about one operator, the values of its inputs by name, and its results.

    A value is an array, a list of arrays for a sequence, or None for an empty optional. `kind` is
    "node" or one of KINDS.
    """

    name: str
    kind: str
    op_type: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    results: dict[str, Any]


@cache
def node_cases() -> tuple[Case, ...]:
    """The node cases of ONNX, each under the operator that it is about."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    subjects = {case.name: main_operator(model_of(case)) for case in found}
    return tuple(case_of(case, subject(case.name, subjects)) for case in found)


def model_of(case: Any) -> onnx.ModelProto:
    """The model of one of ONNX's test cases."""
    model: onnx.ModelProto = case.model
    return model


def subject(name: str, subjects: dict[str, str]) -> str:
    """The operator of a case; where its body is written out, that of the case with the operator."""
    return subjects.get(EXPANDED.sub("", name), subjects[name])


def main_operator(model: onnx.ModelProto) -> str:
    """The operator of the most special domain, the first of them."""
    return max(model.graph.node, key=lambda node: len(node.domain)).op_type


def case_of(case: Any, op_type: str) -> Case:
    """One of ONNX's test cases as ours."""
    inputs, outputs = case.data_sets[0]
    graph = case.model.graph
    feeds, results = named(graph.input, inputs), named(graph.output, outputs)
    return Case(case.name, "node", op_type, case.model, feeds, results)


def named(values: Sequence[onnx.ValueInfoProto], data: Sequence[Any]) -> dict[str, Any]:
    """The data by the names of the values."""
    return {value.name: as_value(x) for value, x in zip(values, data, strict=False)}


def as_value(value: Any) -> Any:
    """Numbers as arrays, also those that come as protobufs because NumPy lacks their type."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [as_value(x) for x in value]
    is_proto = isinstance(value, onnx.TensorProto)
    return numpy_helper.to_array(value) if is_proto else np.asarray(value)


@cache
def model_cases() -> tuple[Case, ...]:
    """The whole models of ONNX, each under its kind."""
    return tuple(case for kind in KINDS for case in shipped(kind))


def shipped(kind: str) -> Iterator[Case]:
    """The models of a kind."""
    from onnx.backend.test.loader import load_model_tests

    for case in load_model_tests(kind=kind):
        folder = Path(case.model_dir or "")
        model = onnx.load(folder / "model.onnx")
        held = {tensor.name for tensor in model.graph.initializer}
        free = [value for value in model.graph.input if value.name not in held]
        sides = (("input", free), ("output", model.graph.output))
        feeds, results = (
            {v.name: sane(read(folder / "test_data_set_0" / f"{side}_{k}.pb", v.type))
             for k, v in enumerate(values)}
            for side, values in sides
        )  # fmt: skip
        yield Case(case.name, kind, main_operator(model), model, feeds, results)


def read(path: Path, kind: onnx.TypeProto) -> Any:
    """What a file of test data holds."""
    readers: dict[str, tuple[Any, Any]] = {
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    proto, convert = readers[kind.WhichOneof("value")]
    return convert(proto.FromString(path.read_bytes()))


def sane(value: Any) -> Any:
    """Some files hold memory that nobody had written to: such numbers become 1."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    return np.where(np.abs(value) < 1e6, value, 1.0).astype(value.dtype)
