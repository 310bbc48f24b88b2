"""Symbolic batch: a graph recorded at two batch sizes, generalised to all of them.

Shapes are concrete where rules are read. What depends on the batch size shows by comparing two
recordings: the nodes must be the same, and the constants that differ must follow the size in a
way that a few nodes can compute (an entry k·B of a shape, a factor k/B, rows in progression).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array
from ...jacobians.errors import OnnxJacError, warn
from ...ops.graphs import copied
from ..model import Model
from .derive import Draft
from .follow import Batch, NotGeneral

Make = Callable[[Mapping[str, Any]], Draft]
"""Records a derivative at a point."""


def generalised(model: Model, point: Mapping[str, Any], make: Make) -> Draft:
    """What `make` records, for every size of the model's symbolic first dimension.

    Where that cannot be, one `OnnxJacWarning` names the operator that fixes the size, and the
    draft holds at the batch size of the point.
    """
    symbol = batch_symbol(model)
    if symbol is None:
        return make(point)
    try:
        return Pair(model, symbol, point, make).draft()
    except (NotGeneral, OnnxJacError) as reason:
        draft = make(point)
        warn(f"the dimension {symbol!r} is fixed: {reason}")
        return draft


def batch_symbol(model: Model) -> str | None:
    """The symbol that inputs of the model have as their first dimension."""
    firsts = [spec.shape[0] for spec in model.inputs.values() if spec.shape]
    return next((dim for dim in firsts if isinstance(dim, str)), None)


class Pair:
    """Two recordings of the same derivative, at batch sizes n and n + 1."""

    def __init__(self, model: Model, symbol: str, point: Mapping[str, Any], make: Make) -> None:
        self.symbol = symbol
        self.batched = [n for n, s in model.inputs.items() if s.shape and s.shape[0] == symbol]
        n = max(2, len(point[self.batched[0]]))
        self.sizes = n, n + 1
        self.first, self.second = (make(self._resized(point, size)) for size in self.sizes)

    def _resized(self, point: Mapping[str, Any], size: int) -> dict[str, Any]:
        """The point with its batch repeated or cut to a size."""
        return {k: resized(v, size) if k in self.batched else v for k, v in point.items()}

    def draft(self) -> Draft:
        """The first recording, its constants that follow the batch size computed from it."""
        first, second = self.first, self.second
        for draft in (first, second):
            draft.outputs = {k: computed(draft, v, k) for k, v in draft.outputs.items()}
        batch = Batch(first.recorder, self._source(), self.sizes)
        nodes = list(paired(*(list(every(d.recorder.nodes)) for d in (first, second))))
        for node, other in nodes:
            generalise(batch, node, other)
        for node, other in nodes:
            for value, twin in zip(node.outputs, other.outputs, strict=True):
                relax(value, twin, self.sizes, self.symbol)
        for value, twin in zip(first.inputs, second.inputs, strict=True):
            relax(value, twin, self.sizes, self.symbol)
        first.recorder.nodes[:0] = batch.nodes()
        return first

    def _source(self) -> ir.Value:
        """The input that the batch size is read off."""
        return next(value for value in self.first.inputs if value.name == self.batched[0])


def resized(batch: Any, size: int) -> np.ndarray:
    """The samples repeated or cut to a size; where there is none, zeros."""
    samples = np.asarray(batch)
    if not len(samples):
        return np.zeros((size, *samples.shape[1:]), samples.dtype)
    return samples[np.arange(size) % len(samples)]


def computed(draft: Draft, array: Array, name: str) -> ir.Value:
    """An output as a value that a node makes, also where it is a constant."""
    value = draft.recorder.value(array)
    assert value is not None
    return value if value.const_value is None else copied(draft.recorder, value, name)


def every(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """The nodes, each followed by those of its subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH:
                yield from every(attribute.value)


def paired(nodes: list[ir.Node], others: list[ir.Node]) -> Iterator[tuple[ir.Node, ir.Node]]:
    """The nodes of two recordings side by side; `NotGeneral` where they are not the same."""
    for node, other in zip(list(nodes), others, strict=False):
        same = node.op_type == other.op_type and len(node.inputs) == len(other.inputs)
        if not same or attributes(node) != attributes(other):
            raise NotGeneral(f"{described(node)} is recorded differently at another size")
        yield node, other
    if len(nodes) != len(others):
        raise NotGeneral("another size needs other nodes")


def generalise(batch: Batch, node: ir.Node, other: ir.Node) -> None:
    """Replace the constants of a node that differ from those of its twin."""
    for k, (value, twin) in enumerate(zip(node.inputs, other.inputs, strict=True)):
        a, b = constant(value), constant(twin)
        if value is None or a is None or b is None or (a.shape == b.shape and np.array_equal(a, b)):
            continue
        if node.op_type == "Reshape" and k == 1 and a.shape == b.shape and np.sum(a != b) == 1:
            node.replace_input_with(k, batch.constant(np.where(a == b, a, -1)))
            continue
        try:
            node.replace_input_with(k, batch.follow(value, a, b))
        except NotGeneral as reason:
            raise NotGeneral(f"{described(node)}: {reason}") from None


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The array of an initializer, None for anything that is computed."""
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()


def relax(value: ir.Value, twin: ir.Value, sizes: tuple[int, int], symbol: str) -> None:
    """Make the dimensions symbolic that differ between the recordings."""
    if value.shape is None or twin.shape is None or value.shape == twin.shape:
        return
    pairs = zip(value.shape, twin.shape, strict=True)
    value.shape = ir.Shape([x if x == y else symbol if (x, y) == sizes else None for x, y in pairs])


def attributes(node: ir.Node) -> dict[str, str]:
    """The attributes of a node, comparable; subgraphs are compared node by node."""
    graph = ir.AttributeType.GRAPH
    return {n: str(a.value) for n, a in node.attributes.items() if a.type is not graph}


def described(node: ir.Node) -> str:
    """A node, for a message."""
    source = node.name or next((v.name for v in node.outputs if v.name), None)
    return f"{node.op_type} {source!r}" if source else f"a recorded {node.op_type}"
