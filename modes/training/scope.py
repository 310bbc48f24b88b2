"""Scope: a graph that is recorded anew, with the name and a sample value of every tensor."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import shape_of
from ...jacobians.errors import InputError, OnnxJacError, first_line
from ...jacobians.symint import Symbols, at
from ...ops import Recorder, Step, numbers
from ...ops.graphs.build import fresh, operands_of
from ...ops.node import AT
from ..model.flow.steps import SHAPES, python_of
from ..model.primal.inputs import is_float
from ..model.primal.model import Model


class Scope:
    """Records the steps of a model at sample values, which stand for all values of their shapes.

    `values` holds every tensor by name, tensors of inner graphs first; `samples` holds sample
    values. Rules see the value of an integer only where it follows from shapes and constants.
    """

    def __init__(self, model: Model, opset_imports: Mapping[str, int], symbols: Symbols) -> None:
        self.model, self.op, self.symbols = model, Recorder(opset_imports, symbols), symbols
        self.samples = SampleValues(opset_imports)
        self.values: ChainMap[str, Any] = ChainMap()  # a sequence is a list of values
        self._taken = {
            value.name
            for graph in model.ir.graphs()
            for value in (*graph.inputs, *graph.initializers.values(), *node_outputs(graph))
            if value.name
        }
        self._nodes: set[str] = set()
        self.again = False  # in a turn that is unrolled
        self.formals: set[ir.Value] = set()  # the inputs of such turns

    @contextmanager
    def inner(self, *, unrolled: bool = False) -> Iterator[None]:
        """A context in which recorded steps belong to a subgraph; or, in a turn that is `unrolled`,
        to the graph around it, under names of their own.
        """
        outer = self.values, self.again
        self.values, self.again = self.values.new_child(), self.again or unrolled
        try:
            with nullcontext() if unrolled else self.op.body():
                yield
        finally:
            self.values, self.again = outer

    def entry(self, name: str, at: np.ndarray) -> ir.Value:
        """An input of the model or of a subgraph."""
        self.values[name] = value = self.op.like(at, name)
        self.samples[value] = at
        value.meta.pop(AT, None)
        return value

    def copy(
        self, step: Step, inputs: Sequence[Any], ats: Sequence[Any], names: tuple[str | None, ...]
    ) -> tuple[Any, ...]:
        """A copy of a step, with sample values and names for its outputs."""
        if self.again:
            names = tuple(name and self.fresh(name) for name in names)
        made = self.op.copy(step, inputs, ats, names)
        name = fresh(step.name, self._nodes) if step.name in self._nodes else step.name
        self._nodes.update({name} - {""})  # a step may be recorded more than once
        self.op.nodes[-1].name = name
        fixed = step.op_type in SHAPES or all(
            value is None or value.const_value is not None or AT in value.meta for value in inputs
        )  # the same for all data: computed from constants and shapes only
        for value, number in zip(made, ats, strict=True):
            if value is not None:
                self.samples[value] = number
            if value is not None and not fixed:
                value.meta.pop(AT, None)
        return made

    def fresh(self, stem: str) -> str:
        """A name that no value of any graph has."""
        return fresh(stem, self._taken)

    def name_all(self, values: Iterable[ir.Value]) -> None:
        """Name every unnamed value after the operator that computes it."""
        for value in values:
            if value.name is None:
                node = value.producer()
                value.name = self.fresh("constant" if node is None else node.op_type.lower())


Arrays = tuple[Any, ...]


class SampleValues:
    """value ↦ its array at the sample, held or computed on demand."""

    def __init__(self, opset_imports: Mapping[str, int]) -> None:
        self._opsets = dict(opset_imports)
        self._held: dict[ir.Value, np.ndarray] = {}

    def __setitem__(self, value: ir.Value, number: np.ndarray) -> None:
        self._held[value] = np.asarray(number)

    def __getitem__(self, value: ir.Value) -> np.ndarray:
        for node in ancestors([value], self._held):
            attrs = {name: python_of(attribute) for name, attribute in node.attributes.items()}
            if any(isinstance(value, ir.Graph) for value in attrs.values()):
                for v in (v for v in node.outputs if v not in self._held):
                    assert v.dtype is not None  # only shape and dtype are known
                    self._held[v] = np.ones(at(shape_of(v)), v.dtype.numpy())
                continue
            held = [None if v is None else self._leaf(v) for v in node.inputs]
            found = self._run(node.op_type, held, attrs, node.domain, len(node.outputs))
            self._held.update(zip(node.outputs, found, strict=False))
        return self._leaf(value)

    def _leaf(self, value: ir.Value) -> np.ndarray:
        """The array of a constant, or a held array."""
        return self._held[value] if value.const_value is None else value.const_value.numpy()

    def step(self, step: Any, inputs: Iterable[ir.Value | None]) -> tuple[Any, ...]:
        """The outputs of a step at the samples of its inputs; None for outputs left out."""
        held = [None if value is None else self[value] for value in inputs]
        count = len(step.outputs)
        try:
            found = self._run(step.op_type, held, step.attrs, step.domain, count)
        except OnnxJacError:
            raise
        except Exception as error:  # of a kernel, on numbers that were made up
            shapes = ", ".join("none" if x is None else f"{x.dtype}{list(x.shape)}" for x in held)
            raise OnnxJacError(f"{step} fails on {shapes}: {first_line(error)}") from error
        return (*found, *(None,) * (count - len(found)))

    def _run(self, op_type: str, inputs: list[Any], attrs: Any, domain: str, count: int) -> Arrays:
        """One operator on numbers, without warnings: a sample may be negative in a logarithm."""
        version = self._opsets.get(domain, 1)
        with np.errstate(all="ignore"):
            return numbers.run(
                op_type, inputs, attrs, domain=domain, version=version, outputs=count
            )


def sample_inputs(model: Model, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """An array for every input of the model: positive floats, and integers 0.

    `sizes` gives the size of open dimensions by symbol, by default 2.
    """
    rng, found = np.random.default_rng(0), {}
    for name, spec in model.inputs.items():
        if spec.dtype is None or spec.shape is None:
            raise InputError(f"input {name!r} is declared without type or shape: declare them")
        shape = tuple(d if isinstance(d, int) else sizes.get(d or "", 2) for d in spec.shape)
        array = rng.uniform(0.5, 1.5, shape) if is_float(spec.dtype) else np.zeros(shape)
        found[name] = array.astype(spec.dtype)
    return found


INITIALIZER = "onnxjac.initializer"
"""The metadata key of inputs that take the place of initializers."""


def ancestors(values: Iterable[ir.Value], stop: Container[ir.Value] = ()) -> list[ir.Node]:
    """The nodes that compute some values, in order, without those behind values in `stop`."""
    order: dict[ir.Node, None] = {}
    stack = [node for value in values if value not in stop and (node := value.producer())]
    while stack:
        read = (value.producer() for value in operands_of(stack[-1]) if value not in stop)
        waiting = [node for node in read if node is not None and node not in order]
        if waiting:
            stack.extend(waiting)
        else:
            order[stack.pop()] = None
    return list(order)


def node_outputs(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """The outputs of some nodes."""
    return [value for node in nodes for value in node.outputs]
