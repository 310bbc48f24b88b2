"""The primal by NumPy: the model's steps, one after the other."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians.errors import OnnxJacError
from ....ops.node import Step
from ....ops.numbers import numbers
from ...contents import Contents
from ...flow.control import CONTROL
from ...flow.sequences import SEQUENCES
from ...flow.steps import array_of, needed, reads
from ...loading.messages import first_line

Values = MutableMapping[str, Any]


def compute(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The named tensors at the inputs; every other value is dropped after its last use."""
    indices, used = needed(model.steps, names, inputs)
    steps = [model.steps[index] for index in indices]
    values: Values = {name: model.constants[name] for name in used & model.constants.keys()}
    values.update(inputs)
    for step, finished in zip(steps, _last_uses(steps, names), strict=True):
        made = _run(model, step, values)
        values.update((name, value) for name, value in made.items() if name not in inputs)
        for name in finished:
            values.pop(name, None)
    return {name: values[name] for name in names}


def _last_uses(steps: Sequence[Step], names: Iterable[str]) -> list[list[str]]:
    """For each step, the values that nobody needs after it."""
    seen, finished = set(names), []
    for step in reversed(steps):
        now = {*reads(step), *filter(None, step.outputs)} - seen
        seen |= now
        finished.append(list(now))
    return finished[::-1]


def _run(model: Contents, step: Step, values: Values) -> dict[str, Any]:
    """The outputs of a step by name."""
    results = _results(model, step, values)
    return {name: y for name, y in zip(step.outputs, results, strict=False) if name}


def _results(model: Contents, step: Step, values: Values) -> Sequence[Any]:
    inputs = [None if name is None else values[name] for name in step.inputs]
    try:
        if step.op_type in SEQUENCES and not step.domain:
            return [SEQUENCES[step.op_type](numbers, step, np.asarray, *inputs)]
        if step.op_type in CONTROL and not step.domain:
            return CONTROL[step.op_type](
                numbers,
                step,
                inputs,
                lambda graph, arguments: _body(model, graph, arguments, values),
                np.asarray,
            )
        return numbers.run(
            step.op_type,
            inputs,
            step.attrs,
            domain=step.domain,
            version=step.version,
            outputs=len(step.outputs),
        )
    except OnnxJacError as error:
        raise type(error)(f"{step}: {error}") from error
    except Exception as error:
        raise OnnxJacError(
            f"{step} fails on {_describe(step, inputs)}: {first_line(error)} "
            "Check what reaches it, or try engine='onnxruntime'."
        ) from error


def _body(model: Contents, graph: ir.Graph, arguments: Sequence[Any], outer: Values) -> list[Any]:
    """The outputs of a subgraph, which sees the values of the graph around it."""
    scope: Values = ChainMap({}, outer)
    scope.update((name, array_of(value)) for name, value in graph.initializers.items())
    scope.update(zip((str(value.name) for value in graph.inputs), arguments, strict=True))
    for step in model.body(graph):
        scope.update(_run(model, step, scope))
    return [scope[str(value.name)] for value in graph.outputs]


def _describe(step: Step, inputs: Sequence[Any]) -> str:
    pairs = zip(step.inputs, inputs, strict=True)
    return ", ".join(f"{name} {_kind(value)}" for name, value in pairs if name) or "no inputs"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
