"""Scope: a graph being recorded anew, with every tensor by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array
from ...jacobians.symint import Symbols
from ...ops import Recorder, Step
from ...ops.graphs import fresh
from ...ops.node import AT
from ..flow.steps import SHAPES
from ..model import Model
from .samples import Samples


class Scope(ABC):
    """Records the steps of a model at numbers that stand for all others of their shapes.

    `values` holds every tensor by name, the inner graph's before the outer's, and `samples` its
    number. The rules see the number of an integer only where it follows from shapes and constants.
    """

    def __init__(self, model: Model, opset_imports: Mapping[str, int], symbols: Symbols) -> None:
        self.model, self.op, self.symbols = model, Recorder(opset_imports, symbols), symbols
        self.samples = Samples(opset_imports)
        self.values: ChainMap[str, ir.Value] = ChainMap()
        self._taken = {n for graph in model.ir.graphs() for n in names_in(graph) if n}
        self._nodes: set[str] = set()

    @abstractmethod
    def results(self, step: Step, inputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs of one step, whatever kind it is; None for one that is left out."""

    def run(self, steps: Iterable[Step]) -> None:
        """Record steps; their outputs go to `values`."""
        for step in steps:
            self.symbols.reader = str(step)
            results = self.results(step, [name and self.values[name] for name in step.inputs])
            for name, value in zip(step.outputs, results, strict=False):
                if name:
                    self.bind(name, value)

    @contextmanager
    def inner(self) -> Iterator[None]:
        """What is recorded inside belongs to a subgraph."""
        outer = self.values
        self.values = outer.new_child()
        try:
            with self.op.body():
                yield
        finally:
            self.values = outer

    def entry(self, name: str, at: np.ndarray) -> ir.Value:
        """A tensor that is given from outside, to the model or to a subgraph."""
        self.values[name] = value = self.op.like(at, name)
        self.samples[value] = at
        value.meta.pop(AT, None)
        return value

    def copy(
        self, step: Step, inputs: Sequence[Any], ats: Sequence[Any], names: tuple[str | None, ...]
    ) -> tuple[Any, ...]:
        """A step as it is, its outputs with known numbers and under some names."""
        made = self.op.copy(step, inputs, ats, names)
        self.op.nodes[-1].name = self._node_name(step.name)
        fixed = step.op_type in SHAPES or all(map(is_fixed, inputs))
        for value, at in zip(made, ats, strict=True):
            if value is not None:
                self.samples[value] = at
            if value is not None and not fixed:
                value.meta.pop(AT, None)
        return made

    def bind(self, name: str, array: Array) -> None:
        """A tensor under its name, which the value takes over if it has none of its own."""
        value = self.op.value(array)
        assert value is not None
        if value.name is None and value.producer() is not None and len(self.values.maps) == 1:
            value.name = name
        self.values[name] = value

    def _node_name(self, name: str) -> str:
        """A name for a node of the model, or of a part of it that is evaluated again."""
        chosen = fresh(name, self._nodes) if name in self._nodes else name
        self._nodes.update({chosen} - {""})
        return chosen

    def fresh(self, stem: str) -> str:
        """A name that no value of any graph has."""
        return fresh(stem, self._taken)

    def name_all(self, values: Iterable[ir.Value]) -> None:
        """A name for every value that has none, after the operator that makes it."""
        for value in values:
            if value.name is None:
                node = value.producer()
                value.name = self.fresh("constant" if node is None else node.op_type.lower())


def is_fixed(value: ir.Value | None) -> bool:
    """Whether a value is the same for all data: a constant, or made of constants and shapes."""
    return value is None or value.const_value is not None or AT in value.meta


def names_in(graph: ir.Graph) -> Iterator[str | None]:
    """The names of all values that a graph defines."""
    yield from (value.name for value in (*graph.inputs, *graph.initializers.values()))
    yield from (value.name for node in graph for value in node.outputs)
