"""Symbolic batch: a graph recorded at two batch sizes, generalised to all of them.

Shapes are concrete where rules are read. What depends on the batch size shows by comparing two
recordings: the nodes must be the same, and the constants that differ must follow the size in a
way that a few nodes can compute (an entry k·B of a shape, a factor k/B, rows in progression).
Further recordings then say whether that is so at other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array
from ...jacobians.errors import OnnxJacError, UnsupportedOp, warn
from ...ops.graphs import copied, every
from ..model import Model
from ..naming.names import is_float
from ..primal.draws import by_seed
from ..primal.evaluate import evaluate
from .derive import Draft
from .follow import Batch, NotGeneral
from .frozen import hold
from .sizes import Sizes, typed

Make = Callable[[Mapping[str, Any]], Draft]
"""Records a derivative at a point."""

Twins = dict[int, ir.Value]
"""Values of one recording by the identity of their twins in another."""

FAR = (1009, 1_000_003)
"""Sizes at which only shapes are computed."""


def generalised(model: Model, point: Mapping[str, Any], make: Make, name: str) -> Model:
    """What `make` records, for every size of the model's symbolic first dimension.

    Where that cannot be, one `OnnxJacWarning` names the operator that fixes the size, and the
    result holds at the batch size of the point. Another one names the tensors whose numbers it
    holds for.
    """
    symbol, made = batch_symbol(model), None
    if symbol is not None:
        try:
            draft, made = Sized(model, symbol, point, make).general(name)
        except (NotGeneral, OnnxJacError) as reason:
            size, owners = len(point[batched(model, symbol)[0]]), batched(model, symbol)
            inputs = ", ".join(map(repr, owners))
            warn(f"the dimension {symbol!r} of {inputs} is fixed at {size}: {reason}")
    if made is None:
        draft = hold(make(point))
        made = draft.model(name)
    for output, why in {o: why for t in draft.traces for o, why in t.unrolled.items()}.items():
        warn(f"the control flow that computes {output!r} is unrolled for the point, its turns and "
             f"branches are fixed: {why}")  # fmt: skip
    if draft.held:
        parts = ", ".join(f"{tensor!r} ({why})" for tensor, why in draft.held.items())
        warn(f"the derivative holds only for the numbers that the point gives these: {parts}")
        made.ir.metadata_props["onnxjac.held"] = ", ".join(draft.held)
    return made


def batch_symbol(model: Model) -> str | None:
    """The symbol that inputs of the model have as their first dimension."""
    tensors = [spec for spec in model.inputs.values() if spec.dtype is not None and spec.shape]
    return next((s.shape[0] for s in tensors if s.shape and isinstance(s.shape[0], str)), None)


def batched(model: Model, symbol: str) -> list[str]:
    """The inputs whose first dimension is that symbol."""
    tensors = [spec for spec in model.inputs.values() if spec.dtype is not None and spec.shape]
    return [spec.name for spec in tensors if spec.shape and spec.shape[0] == symbol]


def at_size(
    model: Model, symbol: str, point: Mapping[str, Any], size: int, spread: float = 0.0
) -> dict[str, Any]:
    """The point with its batch repeated or cut to a size; with a spread no two samples are the
    same.
    """
    rng = np.random.default_rng(size)
    names = batched(model, symbol)
    return {n: spaced(resized(x, size), spread, rng) if n in names else x for n, x in point.items()}


def resized(batch: Any, size: int) -> np.ndarray:
    """The samples repeated or cut to a size; where there is none, zeros."""
    samples = np.asarray(batch)
    if not len(samples):
        return np.zeros((size, *samples.shape[1:]), samples.dtype)
    return samples[np.arange(size) % len(samples)]


def spaced(batch: np.ndarray, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Floating numbers with noise in proportion to them, and a little where they are zero."""
    if not spread or not is_float(batch.dtype):
        return batch
    noise, more = (rng.standard_normal(batch.shape) * spread for _ in range(2))
    return (batch * (1 + noise) + 0.1 * more).astype(batch.dtype)


class Sized:
    """Recordings of the same derivative at several batch sizes, beginning with n and n + 1."""

    def __init__(self, model: Model, symbol: str, point: Mapping[str, Any], make: Make) -> None:
        self.model, self.symbol, self.point, self.make = model, symbol, point, make
        self.batched = batched(model, symbol)
        self.given = len(point[self.batched[0]])
        n = max(2, self.given)
        n = 4 if n > 4 and self.runs(4) else n
        self.sizes = n, n + 1
        self.others = sorted({1, 2 * n + 1, 3 * n + 2, max(self.given, 1)} - set(self.sizes))

    def runs(self, size: int) -> bool:
        """Whether the model has values at a size: indices may be beyond what a small batch has."""
        try:
            evaluate(self.model, self.point_at(size), self.model.outputs)
        except UnsupportedOp:  # a Gradient has no kernel: the recording will tell
            return True
        except OnnxJacError:
            return False
        return True

    def at(self, size: int) -> Draft:
        """The recording at a size."""
        spread = 0.0 if size in (*self.sizes, self.given) else 0.1
        draft = hold(self.make(at_size(self.model, self.symbol, self.point, size, spread)))
        draft.outputs = {k: computed(draft, v, k) for k, v in draft.outputs.items()}
        return draft

    def general(self, name: str) -> tuple[Draft, Model]:
        """The first recording, its constants that follow the batch size computed from it, with
        the model of that name that it makes.

        It is that model at every other size that is tried: the recordings there have the same
        nodes and constants, or else give the same numbers.
        """
        first, second = (self.at(size) for size in self.sizes)
        check_far(self, first)
        alike, unlike = [(self.sizes[1], twinned(first, second))], []
        batch = Batch(first.recorder, self._source(first), self.sizes)
        for node, other in zip(recorded(first), recorded(second), strict=True):
            generalise(batch, node, other)
        for size in filter(self.runs, self.others):
            draft = self.at(size)
            try:
                alike.append((size, twinned(first, draft, batch.at(size))))
            except NotGeneral:
                unlike.append((size, draft))
        made = [value for node in recorded(first) for value in node.outputs]
        formals = [value for node in recorded(first) for g in graphs(node) for value in g.inputs]
        for value in (*first.inputs, *made, *formals):
            twins = [(size, found[id(value)]) for size, found in alike if id(value) in found]
            relax(value, twins, self.sizes[0], self.symbol)
        first.recorder.nodes[:0] = batch.nodes()
        whole = first.model(name)
        for size, draft in unlike:
            check_numbers(whole, draft, size, self.point_at(size))
        return first, whole

    def point_at(self, size: int) -> dict[str, Any]:
        """The point at a size, with samples that are not the same."""
        return at_size(self.model, self.symbol, self.point, size, 0.1)

    def _source(self, draft: Draft) -> ir.Value:
        """The input that the batch size is read off."""
        found = next((v for v in draft.inputs if v.name in self.batched), None)
        if found is None:
            raise NotGeneral("no input of the derivative has it")
        return found


def computed(draft: Draft, array: Array, name: str) -> ir.Value:
    """An output as a value that a node makes, also where it is a constant."""
    value = draft.recorder.value(array)
    assert value is not None
    return value if value.const_value is None else copied(draft.recorder, value, name)


def twinned(first: Draft, other: Draft, known: Mapping[int, np.ndarray] | None = None) -> Twins:
    """The values of two recordings side by side; `NotGeneral` where the nodes, or what they read,
    are not the same.

    Constants may differ; not so where it is `known` what has replaced those of the first.
    """
    twins: Twins = {}
    nodes, others = recorded(first), recorded(other)
    pair(twins, first.inputs, other.inputs, "an input")
    for node, twin in zip(nodes, others, strict=False):
        if node.op_type != twin.op_type or attributes(node) != attributes(twin):
            raise NotGeneral(f"{described(node)} is recorded differently at another size")
        for graph, body in zip(graphs(node), graphs(twin), strict=True):
            pair(twins, graph.inputs, body.inputs, described(node))
        pair(twins, node.outputs, twin.outputs, described(node))
    if len(nodes) != len(others):
        raise NotGeneral("another size needs other nodes")
    for node, twin in zip(nodes, others, strict=True):
        if len(node.inputs) != len(twin.inputs):
            raise NotGeneral(f"{described(node)} reads other tensors at another size")
        for value, operand in zip(node.inputs, twin.inputs, strict=True):
            check_read(twins, node, value, operand, known)
    for value, result in zip(first.outputs.values(), other.outputs.values(), strict=True):
        if twins.get(id(value)) is not result:
            raise NotGeneral("another size has other results")
    return twins


def recorded(draft: Draft) -> list[ir.Node]:
    """The nodes of a draft and of the subgraphs in it, without those that compute constants."""
    return list(every(draft.recorder.nodes))


def pair(twins: Twins, values: Sequence[Any], others: Sequence[Any], what: str) -> None:
    """Values and their twins, which have the same ranks."""
    if len(values) != len(others):
        raise NotGeneral(f"{what} is missing at another size")
    for value, twin in zip(values, others, strict=True):
        known = value.shape is not None and twin.shape is not None
        if known and len(value.shape) != len(twin.shape):
            raise NotGeneral(f"{what} has another rank at another size")
        twins[id(value)] = twin


def check_read(
    twins: Twins, node: ir.Node, value: ir.Value | None, twin: ir.Value | None,
    known: Mapping[int, np.ndarray] | None,
) -> None:  # fmt: skip
    """Two nodes read the same: twins, or constants."""
    a, b = constant(value), constant(twin)
    if known is not None and id(value) in known:
        a = known[id(value)]
    if a is None or b is None:
        alike = a is b and (value is twin or twins.get(id(value)) is twin)
    else:
        alike = known is None or fits(a, b, open_=node.op_type == "Reshape")
    if not alike:
        raise NotGeneral(f"{described(node)} reads something else at another size")


def fits(a: np.ndarray, b: np.ndarray, *, open_: bool = False) -> bool:
    """Whether two constants are the same; one entry -1 of an open shape stands for any."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.__array_interface__["data"] == b.__array_interface__["data"]:
        return True
    if open_ and a.dtype.kind == "i" and np.sum(a == -1) == 1:
        return np.array_equal(a[a != -1], b[a != -1])
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def graphs(node: ir.Node) -> list[ir.Graph]:
    """The subgraphs of a node."""
    kind = ir.AttributeType.GRAPH
    return [a.value for a in node.attributes.values() if a.type is kind]


def generalise(batch: Batch, node: ir.Node, other: ir.Node) -> None:
    """Replace the constants of a node that differ from those of its twin."""
    for k, (value, twin) in enumerate(zip(node.inputs, other.inputs, strict=True)):
        a, b = constant(value), constant(twin)
        if value is None or a is None or b is None or fits(a, b):
            continue
        if node.op_type == "Reshape" and k == 1 and a.shape == b.shape and np.sum(a != b) == 1:
            node.replace_input_with(k, batch.constant(np.where(a == b, a, -1)))
            continue
        try:
            node.replace_input_with(k, batch.follow(value, a, b))
        except NotGeneral as reason:
            raise NotGeneral(f"{described(node)}: {reason}") from None


def check_numbers(made: Model, draft: Draft, size: int, point: Mapping[str, Any]) -> None:
    """The general model gives the numbers of a recording at a size; `NotGeneral` otherwise."""
    fresh = draft.model("fresh")
    rng = np.random.default_rng(size)
    feeds = {}
    if fresh.inputs.keys() != made.inputs.keys():
        raise NotGeneral(f"numbers of other inputs are constants at {size}")
    for (name, spec), like in zip(fresh.inputs.items(), made.inputs.values(), strict=True):
        if len(spec.shape or ()) != len(like.shape or ()):
            raise NotGeneral(f"{name!r} has another rank at {size}")
        drawn = rng.standard_normal([n if isinstance(n, int) else 0 for n in spec.shape or ()])
        feeds[name] = point[name] if name in point else drawn.astype(spec.dtype)
    found, wanted = (by_seed(m, feeds, m.outputs, np.random.default_rng(0)) for m in (made, fresh))
    for name, array in wanted.items():
        if not close(found[name], array):
            raise NotGeneral(f"{name!r} follows another formula at {size}")


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float | None = None) -> bool:
    """Whether two arrays agree, but for rounding."""
    if found.shape != wanted.shape:
        return False
    if not is_float(wanted.dtype):
        return bool(np.array_equal(found, wanted))
    exact = np.asarray(wanted, np.float64)
    scale = np.max(np.abs(exact), initial=0.0, where=np.isfinite(exact))
    relative = tolerance or (1e-9 if wanted.dtype == np.float64 else 1e-3)
    return np.allclose(np.asarray(found, np.float64), exact, 0, relative * scale, equal_nan=True)


def check_far(sized: Sized, draft: Draft) -> None:
    """Sizes grow as they do from n to n + 1, as far as shapes alone tell; else `NotGeneral`."""
    n, m = sized.sizes
    walks = {size: walk(sized, draft, size) for size in (n, m, *FAR)}
    t = draft.traces[0] if draft.traces else None
    names = t.differentiated | t.asked.keys() if t else walks[n].types.keys()
    for name, tell in product(sorted(names), (shape_at, numbers_at)):
        a, b = tell(walks[n], name), tell(walks[m], name)
        if a is None or b is None or len(a) != len(b):
            continue
        for far in FAR:
            line = [x + (y - x) * (far - n) for x, y in zip(a, b, strict=True)]
            if tell(walks[far], name) != line:
                raise NotGeneral(f"the size of {name!r} follows another formula at {far:,}")


def shape_at(sizes: Sizes, name: str) -> list[int] | None:
    """The shape of a tensor."""
    shape = sizes.shape(name)
    return None if shape is None else list(shape)


def numbers_at(sizes: Sizes, name: str) -> list[int] | None:
    """The known numbers of a tensor of integers."""
    known = sizes.known.get(name)
    return None if known is None or known.dtype.kind not in "iub" else known.ravel().tolist()


def walk(sized: Sized, draft: Draft, size: int) -> Sizes:
    """The sizes of the model's tensors at a batch size; what is frozen is known."""
    constants: dict[str, np.ndarray]
    numbers: Mapping[str, Any]
    if draft.traces:
        t = draft.traces[0]
        steps, numbers = t.behind, {str(v.name): t.numbers[str(v.name)] for v in t.inputs}
        constants = {n: a for n, v in t.values.items() if (a := constant(v)) is not None}
        constants |= {n: a for n in draft.held if isinstance(a := t.numbers.get(n), np.ndarray)}
    else:
        steps, numbers, constants = sized.model.steps, sized.point, dict(sized.model.constants)
    types = {n: kind for n, x in (*numbers.items(), *constants.items())
             if (kind := typed(x)) is not None}  # fmt: skip
    for name in sized.batched:
        if name in types:
            types[name].tensor_type.shape.dim[0].dim_value = size
    return Sizes(types, constants).run(steps)


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The array of an initializer, None for anything that is computed."""
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()


def relax(value: ir.Value, twins: Sequence[tuple[int, ir.Value]], n: int, symbol: str) -> None:
    """Make the dimensions symbolic that differ between recordings at n and at other sizes."""
    shape, others = value.shape, [(size, twin.shape) for size, twin in twins if twin.shape]
    if shape is None or len(others) < len(twins):
        return
    value.shape = ir.Shape([
        x if all(other[k] == x for _, other in others)
        else symbol if x == n and all(other[k] == size for size, other in others)
        else None
        for k, x in enumerate(shape)
    ])  # fmt: skip


def attributes(node: ir.Node) -> dict[str, str]:
    """The attributes of a node, comparable; subgraphs are compared node by node."""
    graph = ir.AttributeType.GRAPH
    return {n: str(a.value) for n, a in node.attributes.items() if a.type is not graph}


def described(node: ir.Node) -> str:
    """A node, for a message."""
    source = node.name or next((v.name for v in node.outputs if v.name), None)
    return f"{node.op_type} {source!r}" if source else f"a recorded {node.op_type}"
