"""``oj.lower_gradients``: the training operators of a model as plain nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians.errors import OnnxJacError, UnsupportedOp
from ...jacobians.symint import Symbols
from ...ops import Node, Step, find
from ...ops.graphs import copied, name_nodes, reachable, without_surrogates
from ...ops.node import TRAINING
from ..model.flow.contents import free_sizes
from ..model.flow.control import CONTROL, begin, end
from ..model.flow.opsets import WORKING_OPSET, lowest_opsets
from ..model.flow.shapes import shape_formals, shape_outputs
from ..model.flow.steps import array_of
from ..model.loading.load import load
from ..model.primal.model import Model
from ..recording.derive import Draft
from ..recording.guarded import guarded
from .gradient import gradient
from .optimizers import OPERATORS
from .scope import INITIALIZER, Scope, outputs_of, sample_inputs


def lower_gradients(model: Any, *, sizes: Mapping[str, int] | None = None) -> onnx.ModelProto:
    """The model with every node of `ai.onnx.preview.training` replaced by plain ONNX nodes.

    `Gradient(xs, zs, y)` becomes Jᵀ · 1 with J = ∂y/∂xs at the inputs of the node: for a `y` of
    several elements, the gradient of their sum. The part of the graph that computes y is evaluated
    again where these inputs are not the named tensors themselves. Gradients may be nested to any
    depth and stand in the bodies of If, Loop and Scan. Where y does not depend on an x, or only
    through a derivative of another Gradient that vanishes almost everywhere, the result is zero.
    `Adagrad`, `Adam` and `Momentum` are replaced by the formulas of their specification.

    Symbolic dimensions of the inputs stay symbolic, as in `export`. Where a dimension has to be
    fixed, `sizes` gives its size by symbol, by default 2. Raises `InputError` where a node breaks
    its specification, and `OnnxJacError` where the structure of a derivative depends on integers
    of the inputs: lengths, axes, shapes.

    - `model`: the model, as `load` gives or takes it.

    Shapes: every tensor keeps its shape; a gradient has the shape of its tensor of `xs`.
    """
    loaded = model if isinstance(model, Model) else load(model)
    point = sample_inputs(loaded, sizes or {})
    return ir.to_proto(lowered(loaded, point, loaded.name or "lowered").ir)


def lowered(
    model: Model, point: Mapping[str, np.ndarray], name: str, mutable: Collection[str] = ()
) -> Model:
    """The model without training operators; `mutable` initializers become inputs."""

    def make(point: Mapping[str, np.ndarray], symbols: Symbols) -> Draft:
        imports = {d: v for d, v in lowest_opsets(model).items() if d != TRAINING}
        low = Scope(model, {**imports, "": max(imports.get("", 1), WORKING_OPSET)}, symbols)
        inputs = [low.entry(name, at) for name, at in point.items()]
        low.op.open(inputs, free_sizes(model.inputs))
        for name, array in model.constants.items():
            if name in mutable:
                inputs.append(low.entry(name, array))
                inputs[-1].meta[INITIALIZER] = True
            else:
                low.values[name] = low.op.initializer(array, name)
        run(low, model.steps)
        low.name_all(outputs_of(low.op.nodes))
        without_surrogates(low.op.nodes)
        return Draft(low.op, inputs, {name: low.values[name] for name in model.outputs})

    return guarded(model, point, make, name)


def run(low: Scope, steps: Iterable[Step]) -> None:
    """Record steps at samples of their inputs; their outputs are bound to their names.

    Outside subgraphs, an output without a name gets the name that it has in the model.
    """
    for step in steps:
        low.symbols.reader = str(step)
        found = results(low, step, [name and low.values[name] for name in step.inputs])
        for name, array in zip(step.outputs, found, strict=False):
            if name:
                value = low.op.value(array)
                assert value is not None
                if value.name is None and value.producer() and len(low.values.maps) == 1:
                    value.name = name
                low.values[name] = value


def results(low: Scope, step: Step, inputs: Sequence[Any]) -> Sequence[Any]:
    """The outputs of one step, None where one is left out; a Gradient's are recorded products."""
    declared = find(step.op_type, step.domain)
    if step.domain == TRAINING and step.op_type == "Gradient":
        return gradient(low, step, inputs)
    if step.domain == TRAINING and step.op_type in OPERATORS:
        return OPERATORS[step.op_type].lowered(low.op, step, inputs)
    if any(isinstance(value, ir.Graph) for value in step.attrs.values()):
        return control(low, step, inputs)
    if declared and declared.definition:
        return declared.outputs(low.op, Node(step, tuple(inputs), (None,) * len(step.outputs)))
    return low.copy(step, inputs, low.samples.step(step, inputs), step.outputs)


Arrays = list[np.ndarray]


def control(low: Scope, step: Step, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """A step with subgraphs, which are lowered with the tensors around them in scope."""
    if step.op_type not in CONTROL or step.domain:
        raise UnsupportedOp(f"{step} has a subgraph and is not If, Loop or Scan")
    held = [None if value is None else low.samples[value] for value in inputs]
    for steady in (True, False):
        bodies, found = {}, {}
        for name, graph in step.attrs.items():
            if isinstance(graph, ir.Graph):
                given = begin(step, held)
                bodies[name], found[name] = body(low, step, graph, inputs, given, steady)
        lowered = replace(step, attrs={**step.attrs, **bodies})
        made = low.copy(lowered, inputs, end(step, held, found), step.outputs)
        try:
            shape_outputs(low.op, step, bodies, inputs, made)
        except OnnxJacError:  # a state that changes its shape
            for value in filter(None, made):
                low.op.shape(value, None)
        else:
            break
    return made


def body(
    low: Scope, step: Step, graph: ir.Graph, inputs: Sequence[Any], numbers: Iterable[Any],
    steady: bool,
) -> tuple[ir.Graph, Arrays]:  # fmt: skip
    """A lowered subgraph of a step, and its outputs at some numbers of its inputs.

    The shapes of the inputs are `steady` where no iteration changes them.
    """
    with low.inner():
        pairs = zip(graph.inputs, map(np.asarray, numbers), strict=True)
        formals = [low.entry(value.name or "", at) for value, at in pairs]
        if steady:
            shape_formals(low.op, step, formals, inputs)
        else:
            for value in formals:
                low.op.shape(value, None)
        for name, value in graph.initializers.items():  # they move to the model
            low.values[name] = low.op.initializer(array_of(value))
        run(low, low.model.body(graph))
        results: list[ir.Value] = []
        for value in graph.outputs:
            result = low.values[value.name or ""]
            if result.producer() not in low.op.nodes or result in results:
                # a subgraph must compute its outputs and list each once
                result = copied(low.op, result, low.fresh("identity"))
            results.append(result)
        nodes, _ = reachable(low.op, results)
        low.name_all(outputs_of(nodes))
        name_nodes(nodes)
        found = [low.samples[value] for value in results]
    return ir.Graph(formals, results, nodes=nodes, name=graph.name), found
