"""Draws: the sample that a random operator drew at a point is a constant of the linearisation.

`fixed` draws once for a whole model; `drawn` draws for a step inside a loop that is unrolled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, shape_of
from ....jacobians.arrays import host
from ....ops import Step, numbers
from ....ops.node import ASKED
from ....ops.registry import traits_of
from ...model.primal.evaluate import evaluate
from ...model.primal.model import Model

SEEDS = 2**24
"""The float attribute `seed` represents all integers below this number."""


def draws(step: Step, known: Mapping[str, Any]) -> bool:
    """Whether a step is random, given the tensors whose values are known before anything runs."""
    return traits_of(step).random and (step.op_type != "Dropout" or trains(step, known))


def trains(step: Step, known: Mapping[str, Any]) -> bool:
    """Whether a Dropout is in training mode, as far as constants tell."""
    mode = step.inputs[2] if len(step.inputs) > 2 else None
    return mode is not None and (mode not in known or bool(np.all(known[mode])))


def may_draw(model: Model) -> bool:
    """Whether some node, in a subgraph maybe, is random, at some points at least."""
    inside = (node for node in ir.traversal.RecursiveGraphIterator(model.ir.graph)
              if node.graph is not model.ir.graph)  # fmt: skip
    return (any(draws(step, model.constants) for step in model.steps)
            or any(traits_of(node).random for node in inside))  # fmt: skip


def fixed(model: Model, point: Mapping[str, Any], engine: str | None) -> Model:
    """The model with the samples of one run as constants; the model itself if nothing is random."""
    known = {**model.constants, **point}
    random = {step.outputs[0] for step in model.steps if draws(step, known)} - point.keys()
    if not random:
        return model
    copy = model.ir.clone()
    nodes = [node for node in copy.graph if node.outputs and node.outputs[0].name in random]
    samples = [sample_of(node) for node in nodes]
    sampled = Model(copy, model.limits)
    values = evaluate(sampled, point, [str(s.name) for s in samples], engine=engine)
    for node, sample in zip(nodes, samples, strict=True):
        held = constant(copy.graph, str(sample.name), host(values[str(sample.name)]))
        if node.op_type == "Dropout":
            mode = node.inputs[2]
            assert mode is not None  # as the step is random
            mode.meta[ASKED] = f"Dropout (node {node.name!r})"
            masked(node, held)
        ir.convenience.replace_all_uses_with(sample, held, replace_graph_outputs=True)
        copy.graph.remove(node)
    return Model(copy, model.limits)


def by_seed(
    model: Model, point: Mapping[str, Any], names: Iterable[str], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The named tensors, where the generator gives each random operator a seed of its own."""
    copy = model.ir.clone()
    every = ir.traversal.RecursiveGraphIterator(copy.graph)
    nodes = [node for node in every if traits_of(node).random]
    for node, seed in zip(nodes, rng.choice(SEEDS, len(nodes), replace=False), strict=True):
        whole = node.op_type == "Dropout"
        node.attributes["seed"] = (
            ir.AttrInt64("seed", int(seed)) if whole else ir.AttrFloat32("seed", float(seed))
        )
    if not nodes:
        return evaluate(model, point, names)
    return evaluate(Model(copy, model.limits), point, names, engine="numpy")


def sample_of(node: ir.Node) -> ir.Value:
    """The random output of a node: for Dropout the mask."""
    if node.op_type != "Dropout":
        return node.outputs[0]
    if len(node.outputs) == 1:
        node.resize_outputs(2)
    mask = node.outputs[1]
    mask.name = mask.name or f"{node.outputs[0].name}_mask"
    mask.type, mask.shape = ir.TensorType(ir.DataType.BOOL), node.outputs[0].shape
    return mask


def constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A new initializer."""
    value = ir.Value(name=name, shape=ir.Shape(array.shape))
    value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
    value.const_value = ir.tensor(array, name=name)
    graph.initializers[name] = value
    return value


def masked(node: ir.Node, mask: ir.Value) -> None:
    """Dropout becomes y = x mask / (1 - ratio)."""
    graph, y = node.graph, node.outputs[0]
    assert isinstance(graph, ir.Graph)
    x, ratio = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    ratio = ratio or constant(graph, f"{y.name}_ratio", np.array(0.5, np.float32))
    one = constant(graph, f"{y.name}_one", np.array(1.0, np.float32))

    def call(op_type: str, *inputs: Any) -> ir.Value:
        made = ir.node(op_type, inputs)
        made.outputs[0].name = f"{y.name}_{len(new)}"
        made.outputs[0].type = y.type
        new.append(made)
        return made.outputs[0]

    new: list[ir.Node] = []
    kept = call("Mul", x, call("CastLike", mask, x))
    rest = call("Sub", call("CastLike", one, x), call("CastLike", ratio, x))
    result = call("Div", kept, rest)
    result.shape = y.shape
    graph.insert_before(node, new)
    ir.convenience.replace_all_uses_with(y, result, replace_graph_outputs=True)
    y.name, result.name = None, y.name


def drawn(op: Any, step: Step, inputs: Sequence[Any], at: Any) -> list[Any]:
    """The outputs of a random step: constants, or for Dropout a product with a constant."""
    held = [op.number(x) for x in inputs]
    if step.op_type != "Dropout":
        made = numbers.run(step.op_type, held, step.attrs, domain=step.domain,
                           version=step.version, outputs=1)  # fmt: skip
        return [np.asarray(y) for y in made]
    x, ratio, mode = (*inputs, None, None)[:3]
    if mode is None or not np.all(at(mode)):
        return [x, np.ones(shape_of(x), bool)]
    ones = np.ones(shape_of(x), dtype_of(x))
    _, mask = numbers.run("Dropout", [ones, *held[1:]], step.attrs, version=step.version, outputs=2)
    rest = op.Sub(1.0, op.CastLike(np.array(0.5) if ratio is None else ratio, x))
    return [op.Div(op.Mul(x, mask.astype(ones.dtype)), rest), mask]
