"""``oj.training_model``: a model with its training step, as ONNX's `TrainingInfoProto`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...jacobians.arguments import validated
from ...jacobians.errors import InputError, UnknownTensor, closest
from ...ops.node import TRAINING
from ..model.flow.contents import nodes as nodes_of
from ..model.flow.steps import steps_needed
from ..model.loading.bodies import add_import
from ..model.loading.load import load
from ..model.loading.patterns import proto_of
from ..model.primal.inputs import is_float, weights_of
from ..model.primal.model import Model, ModelLike, as_model
from .optimizers import COUNT, OPERATORS, RATE, Optimizer, OptimizerFunction

Arrays = Mapping[str, np.ndarray]
ONE = "one_update"


@validated
def training_model(
    model: ModelLike,
    loss: str | onnx.GraphProto,
    trainable: Iterable[str] | None = None,
    optimizer: str | Optimizer = "Adam",
    *,
    learning_rate: float = 1e-3,
    initialization: onnx.GraphProto | None = None,
    straight_through: bool = False,
) -> onnx.ModelProto:
    """The model with one training step beside it, as ONNX's `TrainingInfoProto` describes it.

    `loss` names a tensor of the model, or is a graph whose first output is the loss: its inputs
    are tensors of the model, by name, or further inputs of the step, such as labels.
    `trainable` are initializers, by default all floating ones that the loss depends on, and of a
    file of PyTorch only the parameters of the module. The running statistics of BatchNormalization
    are never trained. With `training_mode=1` a step sets them to the node's running outputs,
    momentum · old + (1 - momentum) · batch, where the variance of the batch is over n (PyTorch:
    n - 1); with `training_mode=0` they do not change.
    `optimizer` is `"Adam"`, `"Adagrad"` or `"Momentum"`, one of these with its coefficients, or an
    `OptimizerFunction` of your own. `initialization` is a graph without inputs; its outputs are
    initial values, possibly random, of the tensors of the same names.

    The training step has a Gradient node and nodes of the optimiser; `update_binding` maps
    each initializer to its output; `initialization` restores the other tensors to the values that
    the model came with. The learning rate and the number of updates are initializers:
    `learning_rate`, the default of an input of the step, and `update_count`.
    Raises `UnknownTensor` for a name that is no floating initializer, `InputError` for one that
    cannot be trained, and for a name that would be in the step twice.

    - `model`: the model, as `load` gives or takes it.
    - `straight_through`: True lets gradients pass rounding and quantisation, as in training that is
      aware of quantisation; the metadata of the result say so.

    Shapes: the loss is a scalar, or its elements are summed by the Gradient node; the state
    that `"Adam"` and the like keep for a tensor has its shape. Source: `TrainingInfoProto` and the
    operators of `ai.onnx.preview.training`, in the ONNX specification.
    """
    loaded: Model = as_model(model, straight_through=straight_through)
    proto = proto_of(loaded.ir)
    info = proto.training_info.add()
    info.algorithm.name, info.initialization.name = "training_step", "initialization"
    if initialization is not None:
        info.initialization.CopyFrom(initialization)
    name = add_loss(proto, info.algorithm, loss)
    statistics = running_statistics(proto)
    xs, zs = independent(combined(proto, info.algorithm), name, trainable, statistics)
    running = {old: new for old, new in statistics.items() if new and old in loaded.constants}
    chosen = optimizer_of(optimizer)
    add_step(info, loaded.constants, name, xs, [*zs, *running], chosen, learning_rate, running)
    add_import(proto, TRAINING)
    if isinstance(chosen, OptimizerFunction):
        f = chosen.function
        for entry in f.opset_import:  # ONNX cannot convert functions
            if entry.domain in ("", "ai.onnx") and entry.version != loaded.opset:
                raise InputError(
                    f"{f.name} is written for opset {entry.version}, the model is at "
                    f"{loaded.opset}: write the function for opset {loaded.opset}"
                )
        proto.functions.append(f)
        add_import(proto, f.domain)
    check_names(combined(proto, info.algorithm).graph)
    return proto


def check_names(graph: onnx.GraphProto) -> None:
    """Raises where two tensors share a name; an initializer may be the default of an input."""
    made = [name for node in graph.node for name in node.output if name]
    for part in (graph.input, graph.initializer):
        names = Counter([*(each.name for each in part), *made])
        for name, count in names.items():
            if count > 1:
                raise InputError(
                    f"{name!r} would be in the training step twice: rename it in the model, in the "
                    "loss or in what the optimizer remembers"
                )


def optimizer_of(given: str | Optimizer) -> Optimizer:
    """An optimiser, with default coefficients where it is given by name."""
    if isinstance(given, Optimizer):
        return given
    if not isinstance(given, str):
        raise InputError(f"an optimizer is no {type(given).__name__}: name it, or make an "
                         "OptimizerFunction of a function")  # fmt: skip
    if given not in OPERATORS:
        raise InputError(f"there is no optimizer {given!r}.{closest(given, OPERATORS)}")
    return OPERATORS[given]()


def combined(model: onnx.ModelProto, algorithm: onnx.GraphProto) -> onnx.ModelProto:
    """The graph of a training step: the graph of the model, then the algorithm."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.training_info[:]
    for part in ("input", "initializer", "output", "node", "value_info", "sparse_initializer"):
        getattr(whole.graph, part).extend(getattr(algorithm, part))
    return whole


def add_loss(
    model: onnx.ModelProto, algorithm: onnx.GraphProto, loss: str | onnx.GraphProto
) -> str:
    """The name of the loss; a graph of the loss becomes part of the algorithm."""
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


def running_statistics(model: onnx.ModelProto) -> dict[str, str]:
    """Running mean or variance of BatchNormalization -> the tensor with its new value.

    The name is empty where the node only normalises; otherwise the node gets this output.
    """
    found: dict[str, str] = {}
    for node in nodes_of(model):
        if node.op_type != "BatchNormalization" or node.domain not in ("", "ai.onnx"):
            continue
        trains = any(a.name == "training_mode" and a.i for a in node.attribute)
        made = running_outputs(model, node) if trains else ("", "")
        for old, new in zip(node.input[3:5], made, strict=True):
            if found.get(old) and new:
                raise InputError(
                    f"{old!r} is a running statistic of two BatchNormalization nodes, with outputs "
                    f"{found[old]!r} and {new!r}: give each its own"
                )
            found[old] = found.get(old) or new
    return found


def running_outputs(model: onnx.ModelProto, node: onnx.NodeProto) -> tuple[str, str]:
    """The names of the running outputs of a node, which are added where they are left out."""
    if not any(node is other for other in model.graph.node):
        raise InputError(f"BatchNormalization {node.name or node.output[0]!r} has training_mode=1 "
                         "in a subgraph, whose running statistics no step can update")  # fmt: skip
    for place, statistic in ((1, "running_mean"), (2, "running_var")):
        if len(node.output) <= place:
            node.output.append("")
        node.output[place] = node.output[place] or f"{node.output[0]}_{statistic}"
    return node.output[1], node.output[2]


def independent(
    whole: onnx.ModelProto, loss: str, trainable: Iterable[str] | None, statistics: Iterable[str]
) -> tuple[list[str], list[str]]:
    """The trained initializers, and the inputs that the loss depends on."""
    model = load(whole)
    _, used = steps_needed(model.steps, [loss])
    weights = [name for name, array in model.constants.items() if is_float(array.dtype)]
    held = set(statistics)
    found = [name for name in weights_of(model)
             if name in weights and name in used and name not in held]  # fmt: skip
    xs = found if trainable is None else list(trainable)
    for name in xs:
        if name in held:
            raise InputError(
                f"{name!r} is a running statistic of BatchNormalization: it follows the batches "
                "and is not trained. Leave it out of trainable="
            )
        if name not in weights:
            raise UnknownTensor(f"{name!r} is not a floating initializer.{closest(name, weights)}")
        if name not in used:
            raise InputError(f"the loss {loss!r} does not depend on {name!r}: it cannot be trained")
    if not xs:
        raise InputError(f"the loss {loss!r} depends on no floating initializer: nothing to train")
    return xs, [name for name in model.inputs if name in used]


def add_step(
    info: onnx.TrainingInfoProto, weights: Arrays, loss: str, xs: list[str], zs: list[str],
    optimizer: Optimizer, learning_rate: float, running: Mapping[str, str],
) -> None:  # fmt: skip
    """Add gradient, optimiser and count, with their state and its updates.

    `running` are the running statistics, each with the tensor of its new value.
    """
    graph = info.algorithm
    trained = {x: weights[x] for x in xs}
    slots = {f"{x}_{slot}": np.asarray(held(a)) if callable(held) else np.full_like(a, held)
             for slot, held in optimizer.memory.items() for x, a in trained.items()}  # fmt: skip
    state = {**trained, **slots, COUNT: np.array(0, np.int64)}
    state |= {name: weights[name] for name in running}
    graph.node.extend(
        helper.make_node("Identity", [made], [f"{name}_new"], f"{name}_update")
        for name, made in running.items()
    )
    named: dict[str, Any] = {"xs": xs, "y": loss} | ({"zs": zs} if zs else {})
    slopes = [f"{x}_gradient" for x in xs]
    graph.node.append(
        helper.make_node("Gradient", [*xs, *zs], slopes, "gradient", domain=TRAINING, **named)
    )
    graph.node.extend(optimizer.nodes(trained))
    graph.node.append(helper.make_node("Add", [COUNT, ONE], [f"{COUNT}_new"], "count"))
    with np.errstate(over="ignore"):
        rate = np.array(learning_rate, weights[xs[0]].dtype)
    if not np.isfinite(rate):
        raise InputError(f"learning_rate={learning_rate} must be a finite number of {rate.dtype}, "
                         f"the type of {xs[0]!r}")  # fmt: skip
    own = {**slots, COUNT: state[COUNT], RATE: rate, ONE: np.array(1, np.int64)}
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in own.items())
    graph.input.append(declare_tensor(RATE, rate))  # its initializer is its default
    graph.output.extend(declare_tensor(f"{name}_new", array) for name, array in state.items())
    bind(info.update_binding, {name: f"{name}_new" for name in state})
    first = {value.name: value.name for value in info.initialization.output}
    for name in first:
        if name not in state:
            raise UnknownTensor(f"initialization gives {name!r}, which no step changes."
                                f"{closest(name, state)}")  # fmt: skip
    for name, array in state.items():
        if name not in first:
            add_first(info.initialization, name, array)
    bind(info.initialization_binding, {name: f"{name}_first" for name in state} | first)


def add_first(graph: onnx.GraphProto, name: str, array: np.ndarray) -> None:
    """Add the first value of a tensor to the outputs of an initialization graph."""
    held, made = f"{name}_held", f"{name}_first"
    if array.any():
        graph.initializer.append(numpy_helper.from_array(array, held))
        graph.node.append(helper.make_node("Identity", [held], [made]))
    else:  # a shape is enough
        zero = numpy_helper.from_array(np.zeros(1, array.dtype))
        graph.initializer.append(numpy_helper.from_array(np.array(array.shape, np.int64), held))
        graph.node.append(helper.make_node("ConstantOfShape", [held], [made], value=zero))
    graph.output.append(declare_tensor(made, array))


def declare_tensor(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    """The declaration of a tensor with dtype and shape of an array."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def bind(binding: Any, pairs: Mapping[str, str]) -> None:
    """Add the pairs to `update_binding` or `initialization_binding`."""
    for key, value in pairs.items():
        binding.add(key=key, value=value)
