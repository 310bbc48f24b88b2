"""Steps: what a training model does with one batch, as a plain model, and carried out."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians.errors import InputError, UnknownTensor, closest
from ...ops.registry import version
from ..load import load
from ..model import Model
from ..primal.inputs import check_inputs
from ..recording.symbolic import generalised
from .lowering import Lowering, warn_fixed
from .samples import sample_inputs
from .state import State, binding, check_bindings, check_fits, initial_state, initializers, loaded
from .training_model import combined

BOUND = "onnxjac.update_binding"
"""The metadata of a step: initializer -> the output that is its new value, as JSON."""

STEPS: deque[tuple[bytes, int, Model, dict[str, str]]] = deque(maxlen=4)
"""The last steps with their bindings, of which training models and declarations they are."""


def training_step(model: Any, inputs: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    """(batch, state) ↦ (outputs, new state): see `export`."""
    check_bindings(model)
    whole, new = iteration(model)
    net = loaded(whole, "the model with its algorithm")
    if inputs is None:
        point = sample_inputs(net, {})
        warn_fixed(net, {}, "give an example of the inputs")
    else:
        point = batch_of(net, inputs)
    chosen = {v.name for v in whole.graph.input} & net.initializers.keys()
    mutable = new.keys() | chosen
    made = generalised(
        net, point, lambda at: Lowering(net, at).draft(mutable), f"{net.name or 'model'}_step"
    )
    check_updates(model, made, new)
    for name in chosen - new.keys():
        value = next(v for v in made.ir.graph.inputs if v.name == name)
        value.const_value = ir.tensor(net.constants[name], name=name)
        made.ir.graph.register_initializer(value)
    made.ir.metadata_props[BOUND] = json.dumps(new)
    return ir.to_proto(made.ir)


def batch_of(net: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a step, checked."""
    for name in inputs:
        if name not in net.inputs:
            raise UnknownTensor(f"a step has no input {name!r}.{closest(name, net.inputs)}")
    return check_inputs(net, inputs)


def check_updates(model: onnx.ModelProto, made: Model, new: Mapping[str, str]) -> None:
    """Every new value fits the initializer that takes it, at all batch sizes."""
    held = initializers(model)
    for k, info in enumerate(model.training_info):
        for pair in info.update_binding:
            spec = made.outputs[new[pair.key]]
            assert spec.dtype is not None
            assert spec.shape is not None
            what = binding(k, "update_binding", pair)
            check_fits(what, pair.value, spec.dtype, spec.shape, held[pair.key])


def iteration(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The graph of one step, and for every initializer that it changes the output that has the new
    value.
    """
    first, *rest = model.training_info
    if rest:
        raise InputError("a step of several algorithms is not supported")
    return combined(model, first.algorithm), {p.key: p.value for p in first.update_binding}


def train_step(
    training_model: onnx.ModelProto,
    state: Mapping[str, Any] | None,
    inputs: Mapping[str, Any],
    *,
    engine: str | None = None,
) -> tuple[State, State]:
    """(new state, outputs) after one execution of every `algorithm` of the model, in order.

    `state` holds the tensors that `update_binding` changes; None stands for the initial state.
    `state` may also hold other initializers that an algorithm lists among its inputs, such as the
    learning rate. The outputs are the outputs of the model and of the algorithms, before the
    update. What runs is the model that ``export(training_model, "training_step", inputs)`` makes;
    the last ones are kept, for all batches whose shapes they are declared for.

    Shapes: each tensor of the state keeps its shape; inputs are as the model declares them, and a
    free dimension may change from step to step. Raises `InputError` for a model without
    `training_info` and for an input that is missing, `UnknownTensor` for a name that the model does
    not have, and another `OnnxJacError` where an operator fails on its inputs.

    Source: `TrainingInfoProto`, in the ONNX specification.
    """
    held = dict(initial_state(training_model) if state is None else state)
    step, new = step_for(training_model, inputs)
    known = {*new, *(v.name for i in training_model.training_info for v in i.algorithm.input)}
    for name in held:
        if name not in known or name in inputs:
            raise UnknownTensor(f"state has no tensor {name!r}.{closest(name, known)}")
    found = step.run({**held, **inputs}, engine=engine)
    return {**held, **{key: found[value] for key, value in new.items()}}, found


def step_for(
    training_model: onnx.ModelProto, inputs: Mapping[str, Any]
) -> tuple[Model, dict[str, str]]:
    """The exported step of a training model for inputs of these shapes, and its bindings."""
    data = training_model.SerializeToString(deterministic=True)
    for known, declared, step, new in tuple(STEPS):
        if declared == version() and known == data and takes(step, inputs):
            return step, new
    made = training_step(training_model, inputs)
    new = json.loads(next(entry.value for entry in made.metadata_props if entry.key == BOUND))
    step = load(made)
    STEPS.appendleft((data, version(), step, new))
    return step, new


def takes(step: Model, inputs: Mapping[str, Any]) -> bool:
    """Whether the inputs have the shapes that a step declares."""
    declared = ((step.inputs[n].shape or (), np.shape(x)) for n, x in inputs.items()
                if n in step.inputs)  # fmt: skip
    return all(
        len(dims) == len(shape)
        and all(isinstance(d, str | None) or d == n for d, n in zip(dims, shape, strict=True))
        for dims, shape in declared
    )
