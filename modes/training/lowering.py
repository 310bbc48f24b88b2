"""``oj.lower_gradients``: `Gradient` and the optimisers of a model as plain nodes.

`Gradient(xs, zs, y)` takes values for the tensors that `xs` and `zs` name and computes ∂(Σ y)/∂xs
there. The graph says how y depends on these tensors.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import Array, Dag, dtype_of, shape_of
from ...jacobians.arguments import validated
from ...jacobians.errors import (
    InputError,
    OnnxJacError,
    UnknownTensor,
    UnsupportedOp,
    closest,
    warn,
)
from ...jacobians.symint import Symbols
from ...ops import Node, Step
from ...ops.graphs import copy_value, name_nodes, operands_of, reachable, without_surrogates
from ...ops.node import AT, TRAINING
from ..linear.derivatives.record import definition_of, is_declared_zero, reach_forward
from ..linear.derivatives.trace import Trace, again, turns_of
from ..model.flow.contents import WORKING_OPSET, free_sizes, lowest_opsets
from ..model.flow.control import (
    CONTROL,
    SEQUENCES,
    NotKept,
    begin,
    end,
    shape_formals,
    shape_outputs,
)
from ..model.flow.steps import Meter, array_of, closed, moving, reads, step_of
from ..model.loading.load import load
from ..model.loading.patterns import proto_of
from ..model.primal.inputs import is_float, may_float, optional_inputs
from ..model.primal.model import Model
from ..recording.derive import swept
from ..recording.guarded import guarded, trace_guarded
from .optimizers import OPERATORS
from .scope import INITIALIZER, Scope, ancestors, node_outputs, sample_inputs


@validated
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

    Inputs that may be left out stay so, with their values. The `training_info` of a file or
    ModelProto is kept as it is: `export` as a `"training_step"` lowers it.

    - `model`: the model, as `load` gives or takes it.

    Shapes: every tensor keeps its shape; a gradient has the shape of its tensor of `xs`.
    """
    loaded = model if isinstance(model, Model) else load(model)
    name = loaded.name or "lowered"
    point = sample_inputs(loaded, sizes or {})
    if isinstance(model, str | os.PathLike):
        model = onnx.load(model, load_external_data=False)
    elif isinstance(model, bytes):
        model = onnx.ModelProto.FromString(model)
    infos = getattr(model, "training_info", ())
    floats = {n for n in optional_inputs(loaded) if may_float(loaded.initializers[n])}
    for free in (optional_inputs(loaded), floats):  # integers may decide what the graph is
        with suppress(*(OnnxJacError,) * (free != floats)):
            made = proto_of(lower_model(loaded, point, name, free, free, whole=bool(infos)).ir)
            break
    if gone := optional_inputs(loaded) - free:
        warn("no input any more, as the graph depends on the numbers: " + ", ".join(sorted(gone)))
    versions = {entry.domain: entry.version for entry in made.opset_import}
    if infos and any(versions.get(e.domain, e.version) != e.version for e in model.opset_import):
        warn(f"training_info is left out: the result is of another opset, {versions['']}")
    elif infos:
        made.training_info.extend(infos)
        made.functions.extend(model.functions)
        made.opset_import.extend(e for e in model.opset_import if e.domain not in versions)
    return made


def lower_model(
    model: Model, point: Mapping[str, np.ndarray], name: str, mutable: Collection[str] = (),
    optional: Collection[str] = (), *, whole: bool = False,
) -> Model:  # fmt: skip
    """The model without training operators; `mutable` initializers become inputs, and the
    `optional` ones among them may be left out. A `whole` model keeps tensors that nothing reads.
    """

    def make(point: Mapping[str, np.ndarray], symbols: Symbols) -> Trace:
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
        lower_steps(low, model.steps)
        low.name_all(node_outputs(low.op.nodes))
        without_surrogates(low.op.nodes)
        held = [v for v in low.values.values() if isinstance(v, ir.Value)] if whole else []
        outputs = {name: check_tensor(low.values[name], name) for name in model.outputs}
        return Trace(low.op, {}, inputs, outputs=outputs, wrt=held)

    defaults = {n: model.constants[n] for n in optional}
    return guarded(*trace_guarded(model, point, make), name, defaults)


def lower_steps(low: Scope, steps: Iterable[Step]) -> None:
    """Record steps at samples of their inputs; their outputs are bound to their names.

    Outside subgraphs, an output without a name gets the name that it has in the model.
    """
    for step in steps:
        low.symbols.reader = str(step)
        found = lower_step(low, step, [name and low.values[name] for name in step.inputs])
        for name, made in zip(step.outputs, found, strict=False):
            if name:
                value = [*map(low.op.value, made)] if isinstance(made, list) else low.op.value(made)
                if (isinstance(value, ir.Value) and value.name is None and value.producer()
                        and len(low.values.maps) == 1):  # fmt: skip
                    value.name = name
                low.values[name] = value


def lower_step(low: Scope, step: Step, inputs: Sequence[Any]) -> Sequence[Any]:
    """The outputs of one step, None where one is left out; a Gradient's are recorded products."""
    declared = definition_of(step, low.model.estimates)
    if step.domain == TRAINING and step.op_type == "Gradient":
        return gradient(low, step, inputs)
    if step.domain == TRAINING and step.op_type in OPERATORS:
        return OPERATORS[step.op_type].lowered(low.op, step, inputs)

    def at(value: Any) -> Any:
        named = replace(step, inputs=(getattr(value, "name", None),))
        return Node(named, (value,), ()).number(0)

    if any(isinstance(value, ir.Graph) for value in step.attrs.values()):
        if any(isinstance(value, list) for value in inputs):
            meter = Meter(low.model.limits)
            return CONTROL[step.op_type](
                low.op, step, inputs, partial(record_iteration, low), at, meter
            )
        return lower_control(low, step, inputs)
    if step.op_type in SEQUENCES and not step.domain:
        return [SEQUENCES[step.op_type](low.op, step, at, *inputs)]
    if step.op_type == "Identity" and isinstance(inputs[0], list):
        return inputs
    if declared:
        return declared.outputs(low.op, Node(step, tuple(inputs), (None,) * len(step.outputs)))
    return low.copy(step, inputs, low.samples.step(step, inputs), step.outputs)


Arrays = list[np.ndarray]


def check_tensor(value: Any, name: str) -> ir.Value:
    """A value that is not a sequence."""
    if isinstance(value, ir.Value):
        return value
    raise UnsupportedOp(f"{name} is a sequence: lower_gradients takes sequences apart, which their "
                        "lengths must allow at all points")  # fmt: skip


def record_iteration(low: Scope, graph: ir.Graph, arguments: Sequence[Any]) -> list[Any]:
    """The outputs of one turn of a loop over sequences, recorded among the nodes around it."""
    with low.inner(unrolled=True):
        for value, given in zip(graph.inputs, arguments, strict=True):
            if isinstance(given, ir.Value) and given.const_value is None:
                given = copy_value(low.op, given, low.fresh(str(value.name)))
                low.formals.add(given)  # as in a loop that is kept, it depends on nothing else
            low.values[str(value.name)] = given if isinstance(given, list) else low.op.value(given)
        for name, value in graph.initializers.items():
            low.values[name] = low.op.initializer(array_of(value))
        lower_steps(low, low.model.body(graph))
        return [low.values[str(value.name)] for value in graph.outputs]


def lower_control(low: Scope, step: Step, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """A step with subgraphs, which are lowered with the tensors around them in scope."""
    if step.op_type not in CONTROL or step.domain:
        raise UnsupportedOp(f"{step} has a subgraph and is not If, Loop or Scan")
    held = [None if value is None else low.samples[value] for value in inputs]
    for steady in (True, False):
        bodies, found = {}, {}
        for name, graph in step.attrs.items():
            if isinstance(graph, ir.Graph):
                given = begin(step, held)
                bodies[name], found[name] = lower_body(low, step, graph, inputs, given, steady)
        lowered = replace(step, attrs={**step.attrs, **bodies})
        made = low.copy(lowered, inputs, end(step, held, found), step.outputs)
        whole = closed(lowered, low.op.opset_imports, low.values)
        try:
            shape_outputs(low.op, step, bodies, inputs, made, turns_of(whole, low.values))
        except OnnxJacError:  # a state that changes its shape
            for value in filter(None, made):
                low.op.shape(value, None)
        else:
            break
    return made


def lower_body(
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
        lower_steps(low, low.model.body(graph))
        results: list[ir.Value] = []
        for value in graph.outputs:
            result = check_tensor(low.values[value.name or ""], f"{value.name} of {step}")
            if result.producer() not in low.op.nodes or result in results:
                # a subgraph must compute its outputs and list each once
                result = copy_value(low.op, result, low.fresh("identity"))
            results.append(result)
        nodes, _ = reachable(low.op, results)
        low.name_all(node_outputs(nodes))
        name_nodes(nodes)
        found = [low.samples[value] for value in results]
    return ir.Graph(formals, results, nodes=nodes, name=graph.name), found


def gradient(low: Scope, step: Step, inputs: Sequence[Any]) -> list[Array]:
    """∂(Σ y)/∂x for every x of `xs` whose output is asked for; None for the others."""
    xs, zs, y = read_attributes(step, inputs)
    named = [named_tensor(low.values, step, name) for name in (*xs, *zs)]
    target = named_tensor(low.values, step, y)
    for name, value in ((y, target), *zip(xs, named, strict=False)):
        if not is_float(kind := dtype_of(value)):
            raise InputError(f"{step} cannot differentiate: {name!r} is a tensor of {kind}")
    check_listed(low, step, (*xs, *zs), named, inputs)
    nodes = ancestors([target], set(named))
    check_complete(step, nodes, named, target)
    low.name_all((*named, target, *node_values(nodes)))
    given = substituted(low, step, nodes, dict(zip(named, inputs, strict=True)))
    wanted = [x for x, name in zip(named, step.outputs, strict=False) if name]
    found = dict(zip(wanted, lower_gradient(low, step, nodes, given, wanted, target), strict=True))
    return [found.get(x) for x, _ in zip(named, step.outputs, strict=False)]


def node_values(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """The values that some nodes read and compute."""
    return [value for node in nodes for value in (*operands_of(node), *node.outputs)]


def lower_gradient(
    low: Scope,
    step: Step,
    nodes: list[ir.Node],
    given: Mapping[ir.Value, ir.Value],
    wanted: list[ir.Value],
    target: ir.Value,
) -> list[Array]:
    """Jᵀ · 1 for the wanted tensors, at the given values."""
    met = (target, *wanted, *node_values(nodes))
    values = {value.name or "": given.get(value, value) for value in met}
    steps = closed_steps(low, nodes)
    wrt, of = tuple(value.name or "" for value in wanted), (target.name or "",)
    low.symbols.reader = str(step)
    try:
        dag = Trace(low.op, values, [], steps, estimates=low.model.estimates).dag(wrt, of)
        check_differentiable(step, steps, dag, wrt, of[0])
        y = values[of[0]]
        assert y.dtype is not None
        ones = low.op.Expand(np.ones((), y.dtype.numpy()), shape_of(y))
        return swept(low.op, dag.T, [ones])
    except NotKept as error:
        through = next((s for s in steps if error.output in s.outputs), step)
        message = f"{step} would differentiate through {through}: {error}"
        raise UnsupportedOp(message) from error


def closed_steps(low: Scope, nodes: list[ir.Node]) -> tuple[Step, ...]:
    """The steps of some nodes, with captured tensors of their bodies among the inputs."""
    steps = tuple(step_of(node, low.op.opset_imports) for node in nodes)
    constants = {value.name for value in node_values(nodes) if value.const_value is not None}
    known = {*constants, *(name for step in steps for name in step.outputs)}
    outside = {name for step in steps for name in reads(step)} - known
    moved = moving(steps, outside)  # what may vary
    return tuple(closed(step, low.op.opset_imports, moved) for step in steps)


def substituted(
    low: Scope, gradient: Step, nodes: list[ir.Node], given: Mapping[ir.Value, ir.Value]
) -> dict[ir.Value, ir.Value]:
    """value ↦ its new value where the given tensors replace others; unchanged values are absent.

    Only nodes that depend on a replaced tensor are recorded again.
    """
    new = {old: value for old, value in given.items() if value is not old}
    for node in nodes:
        if any(value in new for value in operands_of(node)):
            new.update(zip(node.outputs, anew(low, gradient, node, new), strict=True))
    return new


def anew(
    low: Scope, gradient: Step, node: ir.Node, new: Mapping[ir.Value, ir.Value]
) -> tuple[ir.Value, ...]:
    """The outputs of a node on new inputs."""
    step = step_of(node, low.op.opset_imports)
    if step.surrogate is not None and (value := node.inputs[0]) is not None:
        return (new.get(value, value),)
    if any(isinstance(value, ir.Graph) for value in step.attrs.values()):
        return rebuild_node(low, step, node, new)
    inputs = [None if value is None else new.get(value, value) for value in node.inputs]
    known = low.op.recall(step, inputs)
    if known is not None:
        return known
    names = tuple(name and low.fresh(f"{gradient.name}_{name}") for name in step.outputs)
    return low.copy(step, inputs, low.samples.step(step, inputs), names)


def rebuild_node(
    low: Scope, step: Step, node: ir.Node, new: Mapping[ir.Value, ir.Value]
) -> tuple[ir.Value, ...]:
    """The outputs of a node with bodies, on new inputs and captured tensors."""
    low.name_all(operands_of(node))
    values = {value.name or "": new.get(value, value) for value in operands_of(node)}
    held = [low.samples[value] for value in node.outputs]
    step = closed(step, low.op.opset_imports, values)
    made = again(low.op, step, values, held)
    for value, at in zip(made, held, strict=True):
        value.name = None
        value.meta.pop(AT, None)
        low.samples[value] = at
    return made


Names = tuple[str, ...]


def read_attributes(step: Step, inputs: Sequence[Any]) -> tuple[Names, Names, str]:
    """`xs`, `zs` and `y`: each tensor once, with one input each, at most one output per x."""
    xs, zs = tuple(step.attrs.get("xs", ())), tuple(step.attrs.get("zs", ()))
    listed = (*xs, *zs)
    twice = [name for k, name in enumerate(listed) if name in listed[:k]]
    if twice:
        raise InputError(f"{step} lists {twice[0]!r} twice in xs and zs")
    if len(inputs) != len(listed) or None in inputs:
        given, names = len(inputs) - list(inputs).count(None), ", ".join(listed)
        raise InputError(f"{step} has {given} inputs, but lists {len(listed)} tensors: {names}")
    if len(step.outputs) > len(xs):
        raise InputError(f"{step} has {len(step.outputs)} outputs for {len(xs)} tensors in xs")
    return xs, zs, step.attrs["y"]


def named_tensor(values: Mapping[str, ir.Value], step: Step, name: str) -> ir.Value:
    """The tensor with this name, which must be computed before the node."""
    if name not in values:
        raise UnknownTensor(
            f"{step} names {name!r}, which is no input, no initializer and nothing that an earlier "
            f"node computes.{closest(name, values)}"
        )
    return values[name]


def check_listed(
    low: Scope, step: Step, names: Names, values: Sequence[ir.Value], inputs: Sequence[ir.Value]
) -> None:
    """Raises where a listed tensor is given another type, or is computed from another one."""
    known: dict[ir.Value, str] = {}
    for name, value, given in zip(names, values, inputs, strict=True):
        old, new = dtype_of(value), dtype_of(given)
        if old != new:
            raise InputError(f"{step} is given {new} for {name!r}, which is {old}")
        if value in known:
            first = known[value]
            raise InputError(f"{step} lists {first!r} and {name!r}, which are the same tensor")
        known[value] = name
    for value, name in known.items():
        for node in ancestors([value], low.formals):
            for other in operands_of(node):
                if other in known:
                    raise InputError(
                        f"{step} lists {name!r}, which is determined by {known[other]!r}, listed "
                        "too: the tensors in xs and zs must be independent"
                    )


def check_complete(
    step: Step, nodes: list[ir.Node], listed: Sequence[ir.Value], y: ir.Value
) -> None:
    """Raises unless the listed tensors and initializers determine y."""
    known = {*listed, *node_outputs(nodes)}
    read = dict.fromkeys((*(value for node in nodes for value in operands_of(node)), y))
    missing = [value.name or "" for value in read if value not in known
               and value.const_value is None and INITIALIZER not in value.meta]  # fmt: skip
    if missing:
        named = ", ".join(map(repr, missing))
        raise InputError(
            f"{step}: {step.attrs['y']!r} also depends on {named}, in neither xs nor zs: list "
            "what it depends on and is not differentiated in zs"
        )


def check_differentiable(step: Step, steps: Sequence[Step], dag: Dag, wrt: Names, y: str) -> None:
    """Raises where y depends on an x, but no path has a derivative.

    Steps without a name come from other Gradients. Where such a step cuts a path, its derivative
    vanishes almost everywhere, as for the step function in the derivative of Relu: zero is right.
    """
    for name, source in zip(wrt, dag.sources, strict=True):
        if source in dag.behind(dag.sinks[0]) or name == y:
            continue
        reached = reach_forward(steps, [name])
        cut = [
            s for s in steps if s.name and is_declared_zero(s) and not reached.isdisjoint(reads(s))
        ]
        if cut:
            raise InputError(
                f"{step}: {y!r} is not differentiable in {name!r}, as {cut[0]} lies between"
            )
