"""``oj.train_step``: one step of a training model, carried out on its lowered graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx

from ...jacobians import Shape
from ...jacobians.errors import InputError, UnknownTensor, closest
from ...ops.registry import version
from ..load import load
from ..model import Model
from .lowering import lowered_at
from .training_model import combined

State = dict[str, np.ndarray]


def initial_state(training_model: onnx.ModelProto) -> State:
    """What training changes, by name, before the first step: initializers, overwritten by what
    `initialization` computes for them.

    Shapes: each tensor has the shape of its initializer. Raises `LoadError` where an
    `initialization` is no valid graph. Source: `TrainingInfoProto`, in the ONNX specification.
    """
    state: State = {}
    for k, info in enumerate(training_model.training_info):
        held = {t.name: t for t in (*training_model.graph.initializer, *info.algorithm.initializer)}
        keys = [pair.key for pair in info.update_binding]
        state |= {key: np.array(onnx.numpy_helper.to_array(held[key])) for key in keys}
        first = _initialization(training_model.SerializeToString(deterministic=True), k, version())
        state |= {p.key: np.array(first[p.value]) for p in info.initialization_binding}
    return state


def train_step(
    training_model: onnx.ModelProto,
    state: Mapping[str, Any] | None,
    inputs: Mapping[str, Any],
    *,
    engine: str | None = None,
) -> tuple[State, State]:
    """(new state, outputs) after one execution of every `algorithm` of the model, in order.

    `state` holds the tensors that `update_binding` changes; None stands for the initial state.
    `state` may also hold other initializers, such as the learning rate. The outputs are the outputs
    of the model and of the algorithms, before the update. The lowered graph is kept for the next
    step.

    Shapes: each tensor of the state keeps its shape; inputs are as the model declares them, and a
    free batch dimension may change from step to step. Raises `InputError` for a model without
    `training_info` and for an input that is missing, `UnknownTensor` for a name that the model does
    not have, and another `OnnxJacError` where an operator fails on its inputs.

    Source: `TrainingInfoProto`, in the ONNX specification.
    """
    if not training_model.training_info:
        raise InputError("the model has no training_info: make one with training_model")
    held = dict(initial_state(training_model) if state is None else state)
    data = training_model.SerializeToString(deterministic=True)
    shapes = frozenset((name, np.shape(value)) for name, value in inputs.items())
    outputs: State = {}
    for k, info in enumerate(training_model.training_info):
        step = _lowered(data, k, frozenset(held), shapes, version())
        found = step.run({**_fitting(step, held), **inputs}, engine=engine)
        outputs |= found
        held |= {pair.key: found[pair.value] for pair in info.update_binding}
    return held, outputs


def _fitting(step: Model, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state, each of its names checked."""
    for name in state:
        if name not in step.inputs and name not in step.initializers:
            raise UnknownTensor(f"state has no tensor {name!r}.{closest(name, step.inputs)}")
    return dict(state)


@lru_cache(maxsize=4)
def _lowered(
    data: bytes, k: int, mutable: frozenset[str], shapes: frozenset[tuple[str, Shape]],
    declared: int,
) -> Model:  # fmt: skip
    """One algorithm of a training model as a plain model; what changes is an input of it.

    `declared` is the version of the declarations, by which it is lowered.
    """
    model = onnx.ModelProto.FromString(data)
    whole = load(combined(model, model.training_info[k].algorithm))
    return lowered_at(whole, dict(shapes), mutable)


@lru_cache(maxsize=4)
def _initialization(data: bytes, k: int, declared: int) -> State:
    model = onnx.ModelProto.FromString(data)
    graph = model.training_info[k].initialization
    if not graph.output:
        return {}
    model.graph.CopyFrom(graph)
    del model.training_info[:]
    return load(model).run({})
