"""Leaves: the tensors of a model as graph values, beside which residuals are recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ops import Recorder
from ...ops.graphs.build import give_names, name_nodes, reachable
from ...ops.graphs.recorder import READING
from ...ops.node import AT, NAN
from ..flow.opsets import lowest_opsets
from ..model import Model


class Leaves(Mapping[str, Any]):
    """The tensors of a copy of the model, by name: what is constant as an array, else as a value.

    A value knows shape and dtype and no number, so that what is recorded holds at other points.
    """

    def __init__(
        self, model: Model, point: Mapping[str, Any], types: Mapping[str, Any],
        still: Mapping[str, np.ndarray],
    ) -> None:  # fmt: skip
        self.recorder, self.types = Recorder(lowest_opsets(model)), types
        fixed = {n: a for n, a in model.constants.items() if n not in point}
        self.constants = {**fixed, **still}
        self._ir, self._lean, self._limits = model.ir.clone(), model.lean, model.limits
        self._values = ir.convenience.create_value_mapping(self._ir.graph, include_subgraphs=False)
        for name in point.keys() & model.constants.keys():
            self._opened(self._values[name])
        self._leaves: dict[int, str] = {}

    def _opened(self, value: ir.Value) -> None:
        """An initializer that the point replaces becomes an input."""
        graph = self._ir.graph
        del graph.initializers[str(value.name)]
        value.const_value = None
        if value not in graph.inputs:
            graph.inputs.append(value)

    def __getitem__(self, name: str) -> Any:
        if name in self.constants:
            return self.constants[name]
        value, spec = self._values[name], self.types[name]
        if id(value) not in self._leaves:
            self._leaves[id(value)] = name
            value.shape = ir.Shape(spec.shape or ())
            value.type = ir.TensorType(ir.DataType.from_numpy(spec.dtype))
            value.meta.pop(AT, None)
            value.meta.update({READING: self.recorder, NAN: None})
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def names_behind(self, values: Iterable[ir.Value]) -> frozenset[str]:
        """The tensors of the model from which values are made."""
        found, seen, stack = set(), set(), list(values)
        while stack:
            value = stack.pop()
            if id(value) in self._leaves:
                found.add(self._leaves[id(value)])
            elif id(value) not in seen and (node := value.producer()) is not None:
                seen.add(id(value))
                stack.extend(x for x in node.inputs if x is not None)
        return frozenset(found)

    def is_leaf(self, value: ir.Value) -> bool:
        """Whether a value is a tensor of the model."""
        return id(value) in self._leaves

    def extended(self, values: Iterable[ir.Value]) -> Model:
        """The model with the nodes that make these values, which get names."""
        nodes, used = reachable(self.recorder, list(values))
        held = [v for v in used if v.const_value is not None and not self.is_leaf(v)]
        give_names([*self._values.values()], held, nodes)
        graph = self._ir.graph
        for value in held:
            graph.initializers[str(value.name)] = value
        graph.extend(nodes)
        name_nodes(list(graph))
        made = Model(self._ir, self._limits)
        made.lean = self._lean
        return made
