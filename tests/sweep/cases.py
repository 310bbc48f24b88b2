"""ONNX's backend tests as cases: models with values for their inputs, ready to differentiate."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from onnxjac.modes.model.flow.contents import assign
from onnxjac.modes.model.primal.inputs import FLOATS, is_float
from onnxjac.ops.registry import DECLARATIONS, PLAIN

KINDS = ("simple", "pytorch-converted", "pytorch-operator")
"""Whole models whose files come with the onnx wheel."""

EXPANDED = re.compile(r"_expanded.*$")


@dataclass(frozen=True)
class BackendCase:
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
def all_cases() -> tuple[BackendCase, ...]:
    """All cases that ONNX ships: the cases of single operators, then the whole models."""
    return (*node_cases(), *model_cases())


@cache
def node_cases() -> tuple[BackendCase, ...]:
    """The node cases of ONNX; each has the operator that it is about.

    A case with the body of an operator written out has the operator of the original case.
    """
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found: list[Any] = collect_testcases(None)
    operators = {case.name: main_operator(case.model) for case in found}
    made = []
    for case in found:
        graph, (inputs, outputs) = case.model.graph, case.data_sets[0]
        op_type = operators.get(EXPANDED.sub("", case.name), operators[case.name])
        feeds, results = named(graph.input, inputs), named(graph.output, outputs)
        made.append(BackendCase(case.name, "node", op_type, case.model, feeds, results))
    return tuple(made)


def main_operator(model: onnx.ModelProto) -> str:
    """The first operator of the domain with the longest name."""
    return max(model.graph.node, key=lambda node: len(node.domain)).op_type


def named(values: Sequence[onnx.ValueInfoProto], data: Sequence[Any]) -> dict[str, Any]:
    """The data by the names of the values."""
    return {value.name: as_value(x) for value, x in zip(values, data, strict=False)}


def as_value(value: Any) -> Any:
    """Data as arrays; types that NumPy lacks come as protobufs."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [as_value(x) for x in value]
    is_proto = isinstance(value, onnx.TensorProto)
    return numpy_helper.to_array(value) if is_proto else np.asarray(value)


@cache
def model_cases() -> tuple[BackendCase, ...]:
    """The whole models of ONNX, each under its kind."""
    from onnx.backend.test.loader import load_model_tests

    made = []
    for case in (case for kind in KINDS for case in load_model_tests(kind=kind)):
        folder = Path(case.model_dir or "")
        model = onnx.load(folder / "model.onnx")
        held = {tensor.name for tensor in model.graph.initializer}
        free = [value for value in model.graph.input if value.name not in held]
        feeds, results = (
            {v.name: sane(read(folder / "test_data_set_0" / f"{side}_{k}.pb", v.type))
             for k, v in enumerate(values)}
            for side, values in (("input", free), ("output", model.graph.output))
        )  # fmt: skip
        op_type = main_operator(model)
        made.append(BackendCase(case.name, case.kind, op_type, model, feeds, results))
    return tuple(made)


def read(path: Path, kind: onnx.TypeProto) -> Any:
    """The value in a file of test data."""
    readers: dict[str, tuple[Any, Any]] = {
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    proto, convert = readers[kind.WhichOneof("value")]
    return convert(proto.FromString(path.read_bytes()))


def sane(value: Any) -> Any:
    """The value, with 1 for huge numbers: some files hold uninitialised memory."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    return np.where(np.abs(value) < 1e6, value, 1.0).astype(value.dtype)


# -- shapes as constants -------------------------------------------------------------------------

SHAPING = {"Resize": "scales", "Upsample": "scales"}
"""Operator -> a floating input that decides the shape of the result, which is a constant here."""


def with_constants(case: BackendCase) -> BackendCase:
    """The case with the input of SHAPING as an initializer of the model."""
    name = SHAPING.get(case.op_type)
    if name not in case.feeds:
        return case
    model = deepcopy(case.model)
    model.graph.initializer.append(numpy_helper.from_array(case.feeds[name], name))
    assign(model.graph.input, [value for value in model.graph.input if value.name != name])
    feeds = {key: x for key, x in case.feeds.items() if key != name}
    return replace(case, model=model, feeds=feeds)


# -- sequences and optionals as tensors ----------------------------------------------------------


def between_tensors(case: BackendCase) -> BackendCase:
    """The case between tensors: its sequences and optionals are packed and unpacked inside.

    A sequence is constructed from input tensors, or read at every position. So every floating
    tensor has a name and a derivative.
    """
    graph = case.model.graph
    if all(is_tensor(value.type) for value in (*graph.input, *graph.output)):
        return case
    model = deepcopy(case.model)
    packed, unpacked = Box(), Box()
    for value in graph.input:
        packed.pack(value.name, value.type, case.feeds[value.name])
    for value in graph.output:
        unpacked.unpack(value.name, value.type, case.results[value.name])
    assign(model.graph.node, [*packed.nodes, *graph.node, *unpacked.nodes])
    assign(model.graph.input, packed.values)
    assign(model.graph.output, unpacked.values)
    return replace(case, model=model, feeds=packed.data, results=unpacked.data)


def is_tensor(kind: onnx.TypeProto) -> bool:
    return kind.HasField("tensor_type")


@dataclass
class Box:
    """The tensors of some containers, and the nodes that pack or unpack them."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[onnx.ValueInfoProto] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def pack(self, name: str, kind: onnx.TypeProto, value: Any) -> None:
        """Add nodes that build the container called `name` from tensors."""
        if is_tensor(kind):
            self._add(name, kind, value)
        elif kind.HasField("sequence_type"):
            held = kind.sequence_type.elem_type
            parts = self._parts(name, held, value)
            empty = {} if parts else {"dtype": held.tensor_type.elem_type}
            self._node("SequenceConstruct" if parts else "SequenceEmpty", parts, name, **empty)
        elif value is None:
            self._node("Optional", [], name, type=kind.optional_type.elem_type)
        else:
            self.pack(f"{name}_held", kind.optional_type.elem_type, value)
            self._node("Optional", [f"{name}_held"], name)

    def unpack(self, name: str, kind: onnx.TypeProto, value: Any) -> None:
        """Add nodes that read every tensor of the container called `name`."""
        if is_tensor(kind):
            self._add(name, kind, value)
        elif kind.HasField("sequence_type"):
            for k, part in enumerate(self._parts(name, kind.sequence_type.elem_type, value)):
                position = numpy_helper.from_array(np.array(k))
                self._node("Constant", [], f"{part}_position", value=position)
                self._node("SequenceAt", [name, f"{part}_position"], part)
        elif value is not None:
            self._node("OptionalGetElement", [name], f"{name}_held")
            self.unpack(f"{name}_held", kind.optional_type.elem_type, value)

    def _node(self, op_type: str, inputs: list[str], output: str, **attrs: Any) -> None:
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attrs))

    def _parts(self, name: str, kind: onnx.TypeProto, values: list[Any]) -> list[str]:
        for k, value in enumerate(values):
            self._add(f"{name}_{k}", kind, value)
        return [f"{name}_{k}" for k in range(len(values))]

    def _add(self, name: str, kind: onnx.TypeProto, value: Any) -> None:
        shape = None if value is None else value.shape
        held = kind.tensor_type.elem_type
        self.values.append(helper.make_tensor_value_info(name, held, shape))
        self.data[name] = value


# -- points off kinks, inside the domain of the operator -----------------------------------------


def moved(op_type: str, feeds: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """The inputs; floating ones are moved by 0.1 times normal numbers and into the domain.

    NaN becomes 1. So does an infinity, but for operators that take all numbers, as masks do.
    """
    rng = np.random.default_rng(seed)

    def near(i: int, x: Any) -> Any:
        if not is_float(x.dtype):
            return x
        close = x.astype(np.float64) + 0.1 * rng.standard_normal(x.shape)
        if takes := DECLARATIONS.get((op_type, ""), PLAIN).near:
            close = takes(i, np.where(np.isfinite(close), close, 1.0))
        return np.where(np.isnan(close), 1.0, close).astype(x.dtype)

    return {name: near(i, x) for i, (name, x) in enumerate(feeds.items())}


# -- ONNX's tags of differentiability along the paths of a model ---------------------------------

DIFFERENTIABLE, UNKNOWN, NONE = "differentiable", "unknown", "none"
"""A path through differentiable ports; a path that needs ports of unknown kind; no such path."""

_TAG = defs.OpSchema.DifferentiationCategory
_ALLOWED = {DIFFERENTIABLE: {_TAG.Differentiable}, UNKNOWN: {_TAG.Differentiable, _TAG.Unknown}}


def tag(model: onnx.ModelProto) -> str:
    """The kind of ports along which a floating input tensor reaches a floating output tensor."""
    ends = floating(model.graph.output)
    for kind, allowed in _ALLOWED.items():
        if ends & reached(model, allowed):
            return kind
    return NONE


def reached(model: onnx.ModelProto, allowed: set[Any]) -> set[str]:
    """The tensors that depend on floating inputs along ports of the allowed tags."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    found = floating(model.graph.input)
    for node in model.graph.node:
        schema = defs.get_schema(node.op_type, opsets[node.domain], node.domain)
        if not found.isdisjoint(open_ports(node.input, schema.inputs, allowed)):
            found.update(open_ports(node.output, schema.outputs, allowed))
    return found


def open_ports(names: Sequence[str], formal: Sequence[Any], allowed: set[Any]) -> Iterator[str]:
    """The names at ports of the allowed tags; the last port takes all further names."""
    for k, name in enumerate(names):
        if name and formal[min(k, len(formal) - 1)].differentiation_category in allowed:
            yield name


def floating(values: Iterable[onnx.ValueInfoProto]) -> set[str]:
    """The names of floating tensors."""
    return {value.name for value in values if value.type.tensor_type.elem_type in FLOATS}
