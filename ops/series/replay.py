"""Replay: which entries of a recorded product depend on which, by its nodes on other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Jacobian, Shape, dtype_of, shape_of, size
from ...jacobians.symint import Atom, SymInt, is_symbolic, replaced
from ..graphs import Recorder, operands_of
from ..numbers import numbers

REPLAYED_NUMBERS = 2**24
"""Numbers that a replayed value may have."""


class Unknown(Exception):
    """What depends on what cannot be read off the nodes."""


class Replay:
    """The nodes between two values of a recording, linear in the first, with drawn numbers for all
    floats that they read otherwise: what is zero then is zero by structure. Of a batch there is one
    sample, where its size is among the atoms `samples`.
    """

    def __init__(self, over: Recorder, samples: frozenset[Atom]) -> None:
        self.over, self.samples = over, samples
        self.random = np.random.default_rng(0)
        self.drawn: dict[int, Any] = {}
        self.kept: list[Any] = []  # what the identities in `drawn` are of

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """The shape with one sample."""
        return tuple(self.number(n) for n in shape)

    def number(self, n: Any) -> int:
        """A size or an entry with one sample."""
        for atom in self.samples if isinstance(n, SymInt) else ():
            n = replaced(n, atom, 1)
        if is_symbolic(n):
            raise Unknown(n)
        return int(n)

    def weights(self, shape: Shape) -> np.ndarray:
        """Numbers between 1 and 2 for the entries of a tensor."""
        found = self.shape(shape)
        if size(found) > REPLAYED_NUMBERS:
            raise Unknown(found)
        return self.random.uniform(1, 2, found)

    def product(self, J: Jacobian, *values: np.ndarray) -> list[np.ndarray]:
        """J times each of the values (*K, *J.in_shape), with K the same for all."""
        columns = values[0].shape[: values[0].ndim - len(J.in_shape)]
        x = self.over.new((*columns, *J.in_shape), J.dtype)
        y = J._apply(self.over, x)
        if y is x:
            return [*values]
        if not isinstance(y, ir.Value):
            raise Unknown(y)
        nodes = between(x, y)
        return [self.computed(nodes, x, value)[id(y)] for value in values]

    def computed(self, nodes: list[ir.Node], x: Array, value: np.ndarray) -> dict[int, np.ndarray]:
        """The values of all nodes."""
        found = {id(x): value}
        for node in nodes:
            inputs = [v if v is None else found[id(v)] if id(v) in found else self.other(v)
                      for v in node.inputs]  # fmt: skip
            attrs = {name: read_attribute(a) for name, a in node.attributes.items()}
            if max((np.size(v) for v in inputs if v is not None), default=0) > REPLAYED_NUMBERS:
                raise Unknown(node)
            made = numbers.run(node.op_type, inputs, attrs, domain=node.domain,
                               version=self.over.opset_imports.get(node.domain, 1),
                               outputs=len(node.outputs))  # fmt: skip
            found |= {id(v): np.asarray(out) for v, out in zip(node.outputs, made, strict=False)}
        return found

    def other(self, v: ir.Value) -> Any:
        """A number for what does not depend on x: integers as they are, drawn floats."""
        if id(v) not in self.drawn:
            self.kept.append(v)
            self.drawn[id(v)] = self.weights(shape_of(v)) if dtype_of(v).kind == "f" else (
                self.integers(v))  # fmt: skip
        return self.drawn[id(v)]

    def integers(self, v: ir.Value) -> np.ndarray:
        """Integers or truth values that are known when a product is recorded."""
        if v.const_value is not None:
            return v.const_value.numpy()
        held = self.over.content(v)
        if held is None:
            raise Unknown(v)
        return np.array([self.number(n) for n in held.ravel()], np.int64).reshape(held.shape)


def between(x: ir.Value, y: ir.Value) -> list[ir.Node]:
    """The nodes that y depends on x by, in order."""
    order: list[ir.Node] = []
    known: dict[int, bool] = {id(x): True}

    def visit(v: ir.Value) -> bool:
        if id(v) not in known:
            node = v.producer()
            met = [] if node is None else [visit(w) for w in operands_of(node)]
            known[id(v)] = any(met)
            if node is not None and any(met) and node not in order:
                order.append(node)
        return known[id(v)]

    visit(y)
    return order


def read_attribute(attribute: ir.Attr) -> Any:
    """The value of an attribute, as the vocabulary takes it."""
    if attribute.type is ir.AttributeType.GRAPH:
        raise Unknown(attribute.name)
    value = attribute.value
    return value.numpy() if attribute.type is ir.AttributeType.TENSOR else value
