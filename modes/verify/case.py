"""Case: one node at a small point, whose floating inputs a proof replaces by symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ...jacobians.threads import cached_property
from ...ops.registry import full_name
from ..model.loading.load import load
from ..model.primal.model import Model

WORKING = 21
"""The opset of the cases; newer operators have the opset that introduced them."""


@dataclass(frozen=True)
class Case:
    """A node: its inputs (None where left out), its attributes, and assumptions on its symbols.

    `wrt` and `of` choose inputs and outputs by position, `positive` the inputs that are positive;
    `second` is False where the second derivative is too large to be checked.
    """

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
        """ONNX's newest schema of the operator; None for an operator that is not ONNX's."""
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
        """Names of the inputs: from the schema where they have one letter, else letters."""
        given = []
        if self.schema is not None:
            formal = onnx.defs.get_schema(self.op_type, self.version, self.domain).inputs
            given = [p.name.lower() for p in formal]
        short = len(given) >= len(self.inputs) and all(len(n) == 1 and n != "y" for n in given)
        names = given if short else list("xwvstpqrabcdefghijkl")
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
        """A model of this single node."""
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
        return with_output_types(onnx.shape_inference.infer_shapes(model))

    @cached_property
    def model(self) -> Model:
        """The model, in double precision."""
        return load(self.proto, dtype="float64")

    def floating(self, chosen: tuple[int, ...] | None) -> tuple[str, ...]:
        """The names of the floating inputs among the chosen inputs; None chooses all."""
        floats = [n for n, x in self.point.items() if x.dtype.kind == "f"]
        return tuple(n for n in floats if chosen is None or self.names.index(n) in chosen)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names of the outputs that `of` chooses."""
        return tuple(self.results[k] for k in self.of or range(self.outputs))

    def assumed(self, name: str) -> dict[str, bool]:
        """SymPy's assumptions on the symbols of an input."""
        return {"positive": True} if self.names.index(name) in self.positive else {}


@dataclass(frozen=True, kw_only=True)
class ModelCase(Case):
    """A model at a point; `truth` is the model of its definition."""

    names: tuple[str, ...]
    results: tuple[str, ...]
    model: Model
    truth: Model


def declared(name: str, x: np.ndarray) -> onnx.ValueInfoProto:
    """The declaration of a graph input with the type and shape of x."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


def with_output_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model; outputs without an inferred type have the type of the first floating input."""
    kinds = [value.type.tensor_type.elem_type for value in model.graph.input]
    floating = [kind for kind in kinds if helper.tensor_dtype_to_np_dtype(kind).kind == "f"]
    for value in model.graph.output:
        if not value.type.tensor_type.elem_type:
            value.type.tensor_type.elem_type = (*floating, *kinds)[0]
    return model


def node_case(name: str, *inputs: Any, **how: Any) -> Case:
    """A case of `domain::op_type`; a tuple is the shape of a floating input.

    A keyword that is not a field of `Case` is an attribute of the node.
    """
    arrays = tuple(signed(*x, seed=k) if isinstance(x, tuple) else x for k, x in enumerate(inputs))
    known = {key: how.pop(key) for key in list(how) if key in Case.__dataclass_fields__}
    domain, _, op_type = name.rpartition("::")
    return Case(op_type, arrays, how, domain=domain, **known)


def signed(*shape: int, seed: int = 0) -> np.ndarray:
    """Distinct fractions of both signs, away from kinks.

    >>> signed(3).tolist()
    [1.125, -0.375, 0.75]
    """
    n = int(np.prod(shape))
    sizes = 0.375 + np.random.default_rng(seed + 2).permutation(n) * 0.375
    signs = np.where((np.arange(n) + seed) % 2, -1.0, 1.0)
    return (sizes * signs + seed / 64).reshape(shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Distinct positive fractions."""
    return np.abs(signed(*shape, seed=seed))


def inside(*shape: int, seed: int = 0) -> np.ndarray:
    """Distinct fractions between -1 and 1."""
    x = signed(*shape, seed=seed)
    return x / (np.abs(x).max() + 0.5)


def ints(*values: Any) -> np.ndarray:
    """An integer tensor: axes, shapes, indices."""
    return np.array(values, np.int64)


def numbers(*values: float) -> np.ndarray:
    """A vector of floats."""
    return np.array(values, np.float64)


SIDES = numbers(1.25, -0.75)
"""Numbers on both sides of 0."""

CASES: dict[tuple[str, str], list[Case]] = {}
"""(op_type, domain) -> the cases that prove it."""


SCRIPTS: dict[str, tuple[str, Case]] = {}
"""domain::op_type -> an expression of the inputs {0}, {1}, ..., or {all}, of a case, in PyTorch,
where F is torch.nn.functional.
"""

SAME = "torch.{name}({all})"


def case(op_types: str, *inputs: Any, domain: Any = "", torch: Any = "", **how: Any) -> None:
    """Enter one case into the table for each operator of a list, `{name}` in lower case."""
    for op_type in op_types.split():
        name = full_name(op_type, domain)
        one = node_case(name, *inputs, **how)
        CASES.setdefault((one.op_type, one.domain), []).append(one)
        if torch:
            SCRIPTS.setdefault(name, (torch.replace("{name}", name.lower()), one))


def script(name: str, torch: str, *inputs: Any, **how: Any) -> None:
    """Enter an expression of PyTorch at a case that is not proved."""
    SCRIPTS[name] = torch, node_case(name, *inputs, **how)
