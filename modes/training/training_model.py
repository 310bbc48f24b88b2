"""``oj.training_model``: a model that knows how it is trained, by ONNX's `TrainingInfoProto`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from ...jacobians.errors import InputError, UnknownTensor, closest
from ..load import load
from ..model import Model
from ..names import is_float
from ..steps import needed
from .optimizers import DOMAIN, OPTIMIZERS, Optimizer

Arrays = Mapping[str, np.ndarray]
COUNT, RATE = "update_count", "learning_rate"


def training_model(
    model: Any,
    loss: str | onnx.GraphProto,
    trainable: Iterable[str] | None = None,
    optimizer: str | Optimizer = "Adam",
    *,
    learning_rate: float = 1e-3,
) -> onnx.ModelProto:
    """The model with one training step beside it, as ONNX's `TrainingInfoProto` describes it.

    `loss` names a tensor of the model, or is a graph whose first output is the loss: its inputs
    are tensors of the model by name, and others, such as labels, which the step then asks for.
    `trainable` are initializers, by default all floating ones that the loss depends on.
    `optimizer` is `"Adam"`, `"Adagrad"` or `"Momentum"`, or one of these with its coefficients.

    The training step has a Gradient node and an optimiser node; `update_binding` says which
    initializer takes which output; `initialization` brings the first values back. The learning
    rate and the number of updates are initializers `learning_rate` and `update_count`.
    """
    loaded = model if isinstance(model, Model) else load(model)
    proto = ir.to_proto(loaded.ir)
    info = proto.training_info.add()
    info.algorithm.name, info.initialization.name = "training_step", "initialization"
    name = add_loss(proto, info.algorithm, loss)
    xs, zs = independent(combined(proto, info.algorithm), name, trainable)
    chosen = OPTIMIZERS[optimizer]() if isinstance(optimizer, str) else optimizer
    add_step(info, loaded.constants, name, xs, zs, chosen, learning_rate)
    if not any(entry.domain == DOMAIN for entry in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return proto


def combined(model: onnx.ModelProto, algorithm: onnx.GraphProto) -> onnx.ModelProto:
    """The graph of a training step: the model's graph, and the algorithm's after it."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.training_info[:]
    for part in ("input", "initializer", "output", "node", "value_info", "sparse_initializer"):
        getattr(whole.graph, part).extend(getattr(algorithm, part))
    return whole


def add_loss(model: onnx.ModelProto, algorithm: onnx.GraphProto, loss: str | onnx.GraphProto) -> str:
    """The name of the loss, whose graph, if it has one, becomes part of the algorithm."""
    made = {name for node in model.graph.node for name in node.output}
    if isinstance(loss, str):
        if loss not in made:
            raise UnknownTensor(f"the model has no tensor {loss!r}.{closest(loss, made)}")
        return loss
    known = made | {value.name for value in (*model.graph.input, *model.graph.initializer)}
    algorithm.input.extend(value for value in loss.input if value.name not in known)
    algorithm.node.extend(loss.node)
    algorithm.initializer.extend(loss.initializer)
    algorithm.output.extend(loss.output)
    return loss.output[0].name


def independent(
    whole: onnx.ModelProto, loss: str, trainable: Iterable[str] | None
) -> tuple[list[str], list[str]]:
    """What is trained, and the inputs that the loss depends on besides."""
    model = load(whole)
    _, used = needed(model.steps, [loss])
    weights = [n for n, s in model.initializers.items() if s.dtype is not None and is_float(s.dtype)]
    xs = [name for name in weights if name in used] if trainable is None else list(trainable)
    for name in xs:
        if name not in weights:
            raise UnknownTensor(f"{name!r} is not a floating initializer.{closest(name, weights)}")
        if name not in used:
            raise InputError(f"the loss {loss!r} does not depend on {name!r}: it cannot be trained")
    if not xs:
        raise InputError(f"the loss {loss!r} depends on no floating initializer: nothing to train")
    return xs, [name for name in model.inputs if name in used]


def add_step(
    info: onnx.TrainingInfoProto, weights: Arrays, loss: str, xs: list[str], zs: list[str],
    optimizer: Optimizer, learning_rate: float,
) -> None:  # fmt: skip
    """Gradient, optimiser and count, with what they remember and how it is updated."""
    graph = info.algorithm
    slots = [f"{x}_{slot}" for slot in optimizer.memory for x in xs]
    gradients = [f"{x}_gradient" for x in xs]
    moving = [*xs, *slots]
    graph.node.extend([
        helper.make_node("Gradient", [*xs, *zs], gradients, "gradient", domain=DOMAIN,
                         xs=xs, y=loss, **({"zs": zs} if zs else {})),
        helper.make_node(type(optimizer).__name__, [RATE, COUNT, *xs, *gradients, *slots],
                         [f"{name}_new" for name in moving], "optimizer", domain=DOMAIN,
                         **asdict(optimizer)),
        helper.make_node("Add", [COUNT, "one_update"], [f"{COUNT}_new"], "count"),
    ])  # fmt: skip
    dtype = weights[xs[0]].dtype
    first = {x: weights[x] for x in xs}
    first |= {f"{x}_{slot}": np.zeros_like(weights[x]) for slot in optimizer.memory for x in xs}
    first[COUNT] = np.array(0, np.int64)
    held = {name: first[name] for name in (*slots, COUNT)}
    held |= {RATE: np.array(learning_rate, dtype), "one_update": np.array(1, np.int64)}
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in held.items())
    graph.output.extend(typed(f"{name}_new", first[name]) for name in first)
    bind(info.update_binding, {name: f"{name}_new" for name in first})
    add_initialization(info, first)


def add_initialization(info: onnx.TrainingInfoProto, first: Arrays) -> None:
    """A graph without inputs that gives every changing tensor its first value."""
    graph = info.initialization
    for name, array in first.items():
        zero = not array.any()  # a shape is enough
        held = np.array(array.shape, np.int64) if zero else array
        graph.initializer.append(numpy_helper.from_array(held, f"{name}_held"))
        kind, value = ("ConstantOfShape", numpy_helper.from_array(np.zeros(1, array.dtype)))
        graph.node.append(
            helper.make_node(kind, [f"{name}_held"], [f"{name}_first"], value=value)
            if zero else helper.make_node("Identity", [f"{name}_held"], [f"{name}_first"])
        )  # fmt: skip
        graph.output.append(typed(f"{name}_first", array))
    bind(info.initialization_binding, {name: f"{name}_first" for name in first})


def typed(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    """The declaration of a tensor like an array."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def bind(binding: Any, pairs: Mapping[str, str]) -> None:
    """Key and value of every pair, as `update_binding` and `initialization_binding` have them."""
    for key, value in pairs.items():
        binding.add(key=key, value=value)
