"""Unroll: the model at a point without control flow, sequences or operators defined by others.

If becomes its branch, Loop and Scan become their turns, sequences become their tensors, and an
operator that is defined in the vocabulary becomes that definition. The result is an ordinary
model for this point, whose tensors keep their names; those of turn i of a body get a prefix.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians.symint import Symbols
from ...ops import Node, Recorder, Step, Twin, build, copied, find
from ...ops.node import ASKED
from ..flow.contents import free_sizes
from ..flow.control import CONTROL, control
from ..flow.failure import explained
from ..flow.meter import Meter
from ..flow.sequences import SEQUENCES
from ..flow.steps import array_of, needed
from ..model import Model
from ..naming.names import is_float
from ..primal.draws import drawn, draws
from ..primal.sizes import check_step

Scope = MutableMapping[str, Any]


def is_flat(steps: Iterable[Step], known: Mapping[str, Any]) -> bool:
    """Whether a model can be differentiated as it stands."""
    return not any(
        (not step.domain and (step.op_type in CONTROL or step.op_type in SEQUENCES))
        or is_defined(step)
        or draws(step, known)
        for step in steps
    )


def is_defined(step: Step) -> bool:
    """Whether the operator is declared as what it is in the vocabulary."""
    declared = find(step.op_type, step.domain)
    return declared is not None and declared.definition is not None


def unrolled(
    model: Model, point: Mapping[str, Any], names: Iterable[str], symbols: Symbols | None = None
) -> Model:
    """The part of the model that the named tensors need, flat; the model itself if it is flat.

    With `symbols` its free sizes stay free, but for those that decide what is unrolled.
    """
    wanted = tuple(names)
    steps = [model.steps[k] for k in needed(model.steps, wanted, point)[0]]
    if is_flat(steps, {**model.constants, **point}):
        return model
    unroller = Unroller(model, symbols)
    given = [name for name in dict.fromkeys((*model.inputs, *point)) if name in point]
    tensors = [name for name in given if is_variable(model, name, point[name])]
    inputs = [unroller.op.input(point[name], name) for name in tensors]
    if symbols is not None:
        unroller.op.recorder.open(inputs, free_sizes(model.inputs))
    scope: Scope = dict(zip(tensors, inputs, strict=True))
    for name, array in {**model.constants, **point}.items():
        if name not in scope:
            scope[name] = unroller.constant(array, name)
    unroller.run(steps, scope, "")
    outputs = {name: scope[name] for name in wanted if not stands(scope[name], name)}
    held = [scope[name] for name in wanted if name not in outputs]
    made = (value for node in unroller.op.recorder.nodes for value in node.outputs)
    held += [value for value in made if ASKED in value.meta]
    flat = build(unroller.op.recorder, inputs, outputs, model.name or "unrolled", held)
    return Model(flat, model.limits)


def is_variable(model: Model, name: str, array: Any) -> bool:
    """Whether a tensor of the point is an input of the flat model, not a constant in it."""
    known = name in model.inputs or is_float(getattr(array, "dtype", np.dtype(object)))
    return hasattr(array, "dtype") and known


def stands(value: Any, name: str) -> bool:
    """Whether a value is an input or an initializer of that name: nothing computes it."""
    return isinstance(value, ir.Value) and value.producer() is None and value.name == name


class Unroller:
    """Runs the steps of a model and records the flat ones among them."""

    def __init__(self, model: Model, symbols: Symbols | None = None) -> None:
        self.model, self.meter = model, Meter(model.limits)
        self.op = Twin(Recorder(model.ir.opset_imports, symbols))
        self._turns = count()

    def constant(self, value: Any, name: str) -> Any:
        """A tensor, or a sequence of tensors, that is fixed at the point."""
        if isinstance(value, list):
            return [self.constant(x, f"{name}_{k}") for k, x in enumerate(value)]
        return value if value is None else self.op.initializer(np.asarray(value), name)

    def run(self, steps: Iterable[Step], scope: Scope, prefix: str) -> None:
        """Record the steps; `scope` gets their outputs by name."""
        for step in steps:
            if self.op.recorder.symbols is not None:
                self.op.recorder.symbols.reader = str(step)
            with explained(step, scope):
                inputs = [None if name is None else scope[name] for name in step.inputs]
                names = tuple(name and prefix + name for name in step.outputs)
                check_step(step, [self.number(x) for x in inputs], self.model.limits)
                results = self.results(step, inputs, scope, names)
                self.meter.keep(map(self.number, results), f"the model, unrolled as far as {step},")
            scope.update((n, y) for n, y in zip(step.outputs, results, strict=False) if n)

    def number(self, value: Any) -> Any:
        """What a value or a sequence of values is at the point."""
        return [*map(self.op.number, value)] if isinstance(value, list) else self.op.number(value)

    def results(
        self, step: Step, inputs: list[Any], scope: Scope, names: tuple[str | None, ...]
    ) -> Sequence[Any]:
        """The outputs of one step, whatever kind it is."""
        at = partial(self.op.at, reader=str(step))
        if step.op_type == "Identity" and (isinstance(inputs[0], list) or inputs[0] is None):
            made = inputs
        elif step.op_type in SEQUENCES and not step.domain:
            made = [SEQUENCES[step.op_type](self.op, step, at, *inputs)]
        elif step.op_type in CONTROL and not step.domain:
            run = partial(self.body, outer=scope)
            made = control(self.op, step, inputs, run, at, self.meter)
        elif draws(step, {}):
            made = drawn(self.op, step, inputs, at)
        elif (declared := find(step.op_type, step.domain)) and declared.definition:
            made = list(declared.outputs(self.op, Node(step, tuple(inputs), (None,) * len(names))))
        else:
            return self.op.run(step, inputs, names)
        return [self.named(y, name) for y, name in zip(made, names, strict=False)]

    def body(self, graph: ir.Graph, arguments: Sequence[Any], outer: Scope) -> list[Any]:
        """The outputs of one turn of a subgraph, which sees the tensors around it."""
        prefix = f"{graph.name or 'body'}_{next(self._turns)}_"
        scope: Scope = ChainMap({}, outer)
        scope.update((name, array_of(value)) for name, value in graph.initializers.items())
        scope.update(zip((str(value.name) for value in graph.inputs), arguments, strict=True))
        steps = self.model.body(graph)
        self.meter.turn(len(steps))
        self.run(steps, scope, prefix)
        return [scope[str(value.name)] for value in graph.outputs]

    def named(self, value: Any, name: str | None) -> Any:
        """A tensor of the model under its name, so that `wrt` and `of` can speak of it."""
        if name is None or isinstance(value, list) or value is None:
            return value
        number = np.asarray(self.op.number(value))
        tensor = self.op.recorder.value(value)
        assert tensor is not None
        made = copied(self.op.recorder, tensor, name)
        self.op.remember(made, number)
        return made
