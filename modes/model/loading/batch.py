"""Batch: a file of a fixed batch B takes any number of samples.

The first axes of the inputs become free. In the order of the nodes, the shapes of all tensors are
found at B and at 2 B samples. Where a constant holds B, the node is rewritten: an entry of the
shape of a Reshape is left open, a constant whose samples are equal is expanded. Whether that is
right is tried: 2 B samples must give what B and B samples gave, sample by sample; else an error
names the first node where they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians.errors import LoadError, OnnxJacError
from ....ops import Step, numbers
from ....ops.graphs.infer import Kind
from ..flow.nodes import Nodes
from ..flow.steps import DECIDING_ELEMENTS, SHAPES, array_kind, output_kinds, step_of
from ..primal.evaluate import evaluate
from ..primal.inputs import is_float
from ..primal.model import Model

Values = Mapping[str, Any]

ALIGNED = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "MatMul",
    "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
})  # fmt: skip
"""Operators that broadcast their operands, the last axes of which correspond."""

TOGETHER = {
    "Concat": None, "GatherElements": (0, 1), "GatherND": (0, 1), "ScatterElements": (0, 1, 2),
    "ScatterND": (0, 1, 2),
}  # fmt: skip
"""Operators whose operands, all or those at these places, have the same axes."""

STATES = {4: 0, 5: 1, 6: 1}
"""The operands of a recurrent layer that hold the batch, and its axis; X has it at axis 1."""

RECURRENT = frozenset({"RNN", "GRU", "LSTM"})


def free_batch(model: Model, names: bool | str | Iterable[str]) -> Model:
    """The model with a free first axis of all inputs, or of those that are named.

    Raises `LoadError`, and names the node, where that cannot be done.
    """
    chosen, size = fixed_axes(model, [names] if isinstance(names, str) else names)
    if not chosen:
        return model
    first, second = (draw_batch(model, seed) for seed in (0, 1))
    halves = first, {**first, **{name: second[name] for name in chosen}}
    every = {**model.intermediates, **model.outputs}
    try:
        before = [evaluate(model, point, every) for point in halves]
    except OnnxJacError as error:
        raise LoadError(f"the model does not run at random inputs of its batch of {size}, which "
                        f"dynamic_batch=True needs: {error}") from error  # fmt: skip
    freed = Freed(model, chosen, size, halves[0] | before[0])
    made = freed.model()
    whole = {name: join_samples(x, halves[1][name], 0 if name in chosen else None)
             for name, x in halves[0].items()}  # fmt: skip
    check(model, made, whole, before, size)
    return made


def fixed_axes(model: Model, names: bool | Iterable[str]) -> tuple[list[str], int]:
    """The inputs whose first axis is to be free and is not, and its size."""
    named: list[str] = [*model.inputs] if isinstance(names, bool) else [*names]
    sizes = {}
    for name in named:
        if name not in model.inputs:
            raise LoadError(f"dynamic_batch names no input {name!r}: there are {[*model.inputs]}")
        shape = model.inputs[name].shape
        if shape and isinstance(shape[0], int):
            sizes[name] = shape[0]
    if len({*sizes.values()}) > 1:
        shown = ", ".join(f"{name!r}: {n}" for name, n in sizes.items())
        raise LoadError(f"the first axes of the inputs have different sizes ({shown}): name those "
                        "that are the batch, dynamic_batch=[...]")  # fmt: skip
    return [*sizes], next(iter(sizes.values()), 0)


def draw_batch(model: Model, seed: int) -> dict[str, np.ndarray]:
    """Random inputs; a size that is free is 3."""
    rng, made = np.random.default_rng(seed), {}
    for name, spec in model.inputs.items():
        if spec.dtype is None or spec.shape is None:
            raise LoadError(f"dynamic_batch=True needs the shape of every input: {spec} has none")
        shape = [n if isinstance(n, int) else 3 for n in spec.shape]
        x = rng.standard_normal(shape) if is_float(spec.dtype) else rng.integers(0, 2, shape)
        made[name] = x.astype(spec.dtype)
    return made


def join_samples(a: Any, b: Any, axis: int | None) -> Any:
    """The samples of both, or what they have in common."""
    return a if axis is None else np.concatenate([a, b], axis)


class Freed:
    """The rewriting of a model whose inputs `chosen` get a free first axis of now B = `size`."""

    def __init__(self, model: Model, chosen: list[str], size: int, at: Values) -> None:
        self.source, self.chosen, self.size = model, chosen, size
        self.ir = model.ir.clone()
        self.nodes = Nodes(self.ir, np.dtype(np.float32), "batch")
        self.at: dict[str, Any] = {**model.constants, **at}
        self.shapes = {name: np.shape(x) for name, x in self.at.items()}
        self.types = {name: array_kind(x) for name, x in self.at.items()
                      if name in model.constants or name in model.inputs}  # fmt: skip
        for name in chosen:
            self.types[name] = self.types[name]._replace(sizes=(2 * size, *self.shapes[name][1:]))
        self.known = {name: x for name, x in model.constants.items() if x.size <= DECIDING_ELEMENTS}
        self.here: dict[str, np.ndarray] = {}  # new constants of a node, by name
        self.there: dict[str, Kind] = {}  # new types of its operands

    def model(self) -> Model:
        """The rewritten model."""
        for node, step in zip(list(self.ir.graph), self.source.steps, strict=True):
            self.here, self.there = {}, {}
            if not step.domain:
                self._mend(node, step)
            self._infer(step_of(node, self.ir.opset_imports) if self.here or self.there else step,
                        step)  # fmt: skip
        graph = self.ir.graph
        values = (*graph.inputs, *(y for node in graph for y in node.outputs))
        for value in values:
            self._declare(value)
        graph.sort()
        return Model(self.ir, self.source.limits)

    def axis(self, name: str | None) -> int | None:
        """The axis of a tensor along which the samples lie; None where it has none."""
        kind = self.types.get(name or "")
        if name is None or kind is None or kind.sizes is None:
            return None
        pairs = zip(self.shapes[name], kind.sizes, strict=True)
        return next((axis for axis, (n, m) in enumerate(pairs) if n != m), None)

    def _infer(self, new: Step, step: Step) -> None:
        """Types and small integers at 2 B samples, by a step as it is now."""
        known, types = {**self.known, **self.here}, {**self.types, **self.there}
        found = output_kinds(new, types, known)
        self.types.update((name, kind) for name, kind in found.items() if kind)
        given = [self.known.get(name or "") for name in step.inputs]
        if step.op_type in SHAPES and step.inputs[0] in self.types:
            sizes = self.types[step.inputs[0] or ""].sizes
            given = [None if sizes is None else np.zeros([int(n or 0) for n in sizes], bool)]
        if any(x is None and n for x, n in zip(given, step.inputs, strict=True)):
            return
        if all(np.size(self.at.get(name or "", 0)) <= DECIDING_ELEMENTS for name in step.outputs):
            with suppress(Exception):  # the run will say why
                made = numbers.run(step.op_type, given, step.attrs, domain=step.domain,
                                    version=step.version, outputs=len(step.outputs))  # fmt: skip
                self.known.update((n, y) for n, y in zip(step.outputs, made, strict=True) if n)

    def _mend(self, node: ir.Node, step: Step) -> None:
        """Rewrite a node that holds the batch."""
        op, axis = step.op_type, self.axis(step.inputs[0] if step.inputs else None)
        if op == "Reshape" and axis is not None:
            self._reshape(node, step, axis)
        elif op == "Expand":
            self._expand(node, step, axis)
        elif op == "Resize" and axis == 0 and len(step.inputs) > 3 and "axes" not in step.attrs:
            self._resize(node, step)
        elif op in RECURRENT and axis == 1:
            for k, place in STATES.items():
                if k < len(step.inputs) and step.inputs[k] and self.axis(step.inputs[k]) is None:
                    self._spread(node, step, k, place)
        elif op in ALIGNED or op in TOGETHER:
            self._align(node, step)

    def _shape_in(self, step: Step, k: int) -> np.ndarray | None:
        """A shape that is the same for any batch."""
        name = step.inputs[k] or ""
        shape = self.known.get(name)
        return None if shape is None or not np.array_equal(shape, self.at[name]) else shape.copy()

    def _replace(self, node: ir.Node, k: int, array: np.ndarray) -> None:
        """Another constant as an operand."""
        held = self.nodes.value(array)
        node.replace_input_with(k, held)
        self.here[str(held.name)], self.there[str(held.name)] = array, array_kind(array)

    def _reshape(self, node: ir.Node, step: Step, p: int) -> None:
        """Leave the entry of the batch open in a constant shape."""
        shape, before = self._shape_in(step, 1), self.shapes[step.inputs[0] or ""]
        made = self.shapes[step.outputs[0] or ""]
        if shape is None:
            return
        k = next((k for k in range(len(made)) if prod(made[:k]) == prod(before[:p])
                  and made[k] and made[k] % self.size == 0), None)  # fmt: skip
        copies = k == p and not step.attrs.get("allowzero")
        if k is None or shape[k] == -1 or (shape[k] == 0 and copies):
            return
        other = np.flatnonzero(shape == -1)
        if copies and made[k] == before[p]:
            shape[k] = 0
        else:
            shape[other] = np.take(made, other)
            shape[k] = -1
        self._replace(node, 1, shape)

    def _expand(self, node: ir.Node, step: Step, p: int | None) -> None:
        """1 in a constant shape where the tensor has the batch, or the reverse."""
        shape, before = self._shape_in(step, 1), self.shapes[step.inputs[0] or ""]
        if p is not None and shape is not None:
            k = p + len(shape) - len(before)
            if k >= 0 and shape[k] != 1:
                shape[k] = 1
                self._replace(node, 1, shape)
        elif p is None and (wide := self.known.get(step.inputs[1] or "")) is not None:
            moved = np.flatnonzero(wide != self.at[step.inputs[1] or ""]) - len(wide) + len(before)
            for axis in moved[moved >= 0]:
                if before[axis] == self.size > 1:
                    first = self._first(step, 0, int(axis))
                    node.replace_input_with(0, first)
                    sizes = (*before[:axis], 1, *before[axis + 1 :])
                    kind = array_kind(self.at[step.inputs[0] or ""])
                    self.there[str(first.name)] = kind._replace(sizes=sizes)

    def _resize(self, node: ir.Node, step: Step) -> None:
        """Leave the axis of the batch out of constant sizes."""
        sizes = self._shape_in(step, 3)
        if sizes is not None:
            self._replace(node, 3, sizes[1:])
            node.attributes["axes"] = ir.AttrInt64s("axes", [*range(1, len(sizes))])

    def _align(self, node: ir.Node, step: Step) -> None:
        """Spread constants that have the batch of other operands."""
        places = TOGETHER.get(step.op_type) or range(len(step.inputs))
        ends = [k for k in places if k < len(step.inputs) and step.inputs[k] in self.shapes]
        ranks = {k: len(self.shapes[step.inputs[k] or ""]) for k in ends}
        last = step.op_type in ALIGNED  # axes correspond from the last one on
        found = ((axis - ranks[k] if last else axis) for k in ends
                 if (axis := self.axis(step.inputs[k])) is not None)  # fmt: skip
        place = next(found, None)
        if place is None or (step.op_type == "Concat" and place == step.attrs["axis"]):
            return
        for k in ends:
            own = place + ranks[k] if last else place
            shape = self.shapes[step.inputs[k] or ""]
            fixed = 0 <= own < ranks[k] and shape[own] == self.size
            fixed = fixed and self.axis(step.inputs[k]) is None
            if fixed and (self.size > 1 or not last):
                self._spread(node, step, k, own)

    def _spread(self, node: ir.Node, step: Step, k: int, axis: int) -> None:
        """One sample of a constant for all samples, where its samples are equal."""
        value: np.ndarray = self.at[step.inputs[k] or ""]
        first = self._first(step, k, axis)
        count = self.nodes.add("Shape", self.nodes.values[self.chosen[0]], start=0, end=1)
        ends = [np.ones(n, np.int64) for n in (axis, value.ndim - axis - 1)]
        shape = self.nodes.add("Concat", ends[0], count, ends[1], axis=0)
        spread = self.nodes.add("Expand", first, shape)
        node.replace_input_with(k, spread)
        sizes = (*value.shape[:axis], 2 * self.size, *value.shape[axis + 1 :])
        self.there[str(spread.name)] = array_kind(value)._replace(sizes=sizes)

    def _first(self, step: Step, k: int, axis: int) -> ir.Value:
        """One sample of a constant, to which its samples are equal."""
        name = step.inputs[k] or ""
        value: np.ndarray = self.at[name]
        first = np.take(value, [0], axis)
        if not np.array_equal(np.broadcast_to(first, np.shape(value)), value):
            raise LoadError(
                f"the batch of {self.size} is fixed by {step}: it takes {name!r}, whose "
                f"{self.size} samples are different constants. Export the model with a free batch."
            )
        x = self.nodes.values[name]
        ends = map(np.array, ([0], [1], [axis]))
        return self.nodes.add("Slice", x, *ends) if self.size > 1 else x

    def _declare(self, value: ir.Value) -> None:
        """The shape of a tensor, its batch free."""
        name = str(value.name)
        if value.shape is None or name not in self.shapes:
            return
        axis, kind = self.axis(name), self.types.get(name)
        if kind is None or kind.sizes is None:
            value.shape = ir.Shape([None] * len(value.shape))
        elif axis is not None:
            sizes: list[Any] = [*value.shape]
            sizes[axis] = "batch" if self.shapes[name][axis] == self.size else None
            value.shape = ir.Shape(sizes)


def check(model: Model, made: Model, whole: Values, before: Sequence[Values], size: int) -> None:
    """Raises `LoadError`, and names the node, where samples are others together than alone."""
    try:
        found = evaluate(made, whole, [*made.intermediates, *made.outputs])
    except OnnxJacError as error:
        raise LoadError(f"the batch of {size} cannot be freed: {error} Export the model with a "
                        "free batch.") from error  # fmt: skip
    both = found.keys() & before[0].keys()
    kinds = {n: "fiub" if n in made.outputs else "fb" for n in both}
    other = {n for n in both if not samples_agree(n, found, before, kinds[n])}
    if not other:
        return
    steps = (step for step in model.steps if not other.isdisjoint(step.outputs))
    raise LoadError(
        f"the batch of {size} cannot be freed: {next(steps, 'a node')} gives other numbers for "
        f"{2 * size} samples together than for {size} at a time. It mixes samples, or holds the "
        "batch. Export the model with a free batch."
    )


def samples_agree(name: str, found: Values, before: Sequence[Values], kinds: str) -> bool:
    """Whether a tensor of all samples joins the tensors of both halves, where it has samples and is
    of these `kinds`: a mask that hardly shows in the outputs counts, integers may number samples.

    Without an axis of samples it has to be the same in both halves, unless it is a vector or a
    scalar, such as a mean loss.
    """
    y, (a, b) = found[name], (half[name] for half in before)
    if not isinstance(y, np.ndarray) or y.dtype.kind not in kinds:
        return True
    for axis in differing(y, a):
        return close(y, np.concatenate([a, b], axis))
    return y.shape == a.shape and (y.ndim < 2 or (close(y, a) and close(y, b)))


def close(y: np.ndarray, other: np.ndarray) -> bool:
    """Whether a tensor has the numbers of another one, to three digits of its largest."""
    sizes = np.abs(other[np.isfinite(other)].astype(float))
    few = 1e-3 * sizes.max(initial=1e-6)
    return y.shape == other.shape and np.allclose(y, other, 1e-3, few, equal_nan=True)


def differing(y: np.ndarray, a: np.ndarray) -> Iterator[int]:
    """The axes of other sizes."""
    return (k for k, (n, m) in enumerate(zip(y.shape, a.shape, strict=False)) if n != m)
