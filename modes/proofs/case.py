"""Case: one node at a small point, whose floating inputs a proof replaces by symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ...jacobians.cached import cached_property
from ..load import load
from ..model import Model

WORKING = 21
"""The opset that rules are written for; newer operators have the one that brought them."""


@dataclass(frozen=True)
class Case:
    """A node: its inputs (None where left out), its attributes, and what holds of its symbols."""

    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    wrt: tuple[int, ...] | None = None
    of: tuple[int, ...] | None = None
    positive: tuple[int, ...] = ()
    second: bool = True

    def __str__(self) -> str:
        shapes = ("none" if x is None else "×".join(map(str, x.shape)) or "1" for x in self.inputs)
        said = "".join(f", {name} = {value}" for name, value in self.attrs.items())
        return f"{self.op_type}({', '.join(shapes)}{said})"

    @cached_property
    def schema(self) -> onnx.defs.OpSchema | None:
        """What ONNX says of the operator, in its newest version; None of another's operator."""
        known = onnx.defs.has(self.op_type, domain=self.domain)
        return onnx.defs.get_schema(self.op_type, domain=self.domain) if known else None

    @cached_property
    def version(self) -> int:
        """The opset of the model."""
        schema = self.schema
        newest: int = schema.since_version if schema else 1
        if schema is None or self.domain:
            return newest
        if schema.deprecated:
            return newest - 1
        return WORKING if onnx.defs.has(self.op_type, WORKING, "") else newest

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs: the schema's where they are short, else letters."""
        given = []
        if self.schema is not None:
            formal = onnx.defs.get_schema(self.op_type, self.version, self.domain).inputs
            given = [p.name.lower() for p in formal]
        short = len(given) >= len(self.inputs) and all(len(n) == 1 and n != "y" for n in given)
        names = given if short else list("xwvstpqrabcdefgh")
        return tuple(names[: len(self.inputs)])

    @cached_property
    def results(self) -> tuple[str, ...]:
        return tuple(f"y{k}" if self.outputs > 1 else "y" for k in range(self.outputs))

    @property
    def point(self) -> dict[str, np.ndarray]:
        """The inputs by name."""
        return {n: x for n, x in zip(self.names, self.inputs, strict=True) if x is not None}

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The model of the node alone."""
        given = [n if x is not None else "" for n, x in zip(self.names, self.inputs, strict=True)]
        while given and not given[-1]:
            given.pop()
        node = helper.make_node(self.op_type, given, self.results, domain=self.domain, **self.attrs)
        values = [declared(name, x) for name, x in self.point.items()]
        made = [onnx.ValueInfoProto(name=name) for name in self.results]
        graph = helper.make_graph([node], self.op_type, values, made)
        opsets = [helper.make_opsetid("", WORKING if self.domain else self.version)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, self.version))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return typed(onnx.shape_inference.infer_shapes(model))

    @cached_property
    def model(self) -> Model:
        """The model, in double precision."""
        return load(self.proto, dtype="float64")

    def floating(self, chosen: tuple[int, ...] | None) -> tuple[str, ...]:
        """The names of the floating inputs among the chosen ones."""
        floats = [n for n, x in self.point.items() if x.dtype.kind == "f"]
        return tuple(n for n in floats if chosen is None or self.names.index(n) in chosen)


def declared(name: str, x: np.ndarray) -> onnx.ValueInfoProto:
    """A graph input that takes x."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with the type of the first input for results of which inference says nothing."""
    for value in model.graph.output:
        if not value.type.tensor_type.elem_type:
            kind = model.graph.input[0].type.tensor_type.elem_type
            value.type.tensor_type.elem_type = kind
    return model
