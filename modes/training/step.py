"""Steps: one training step as a plain model, or executed, and the state that it changes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from ...jacobians.arguments import Natural, validated
from ...jacobians.errors import InputError, LoadError, UnknownTensor, closest
from ...ops.registry import version
from ..linear.derivatives.unroll import by_seed
from ..model.flow.contents import unique_name
from ..model.loading.load import load
from ..model.loading.patterns import proto_of
from ..model.primal.inputs import FLOATS, check_inputs
from ..model.primal.model import Dim, Model
from .lowering import lower_model
from .scope import sample_inputs
from .training_model import combined

BOUND = "onnxjac.update_binding"
"""The metadata key of a step: JSON that maps initializers to the outputs with their new values."""

ALGORITHMS = "onnxjac.algorithms"
"""The domain of the functions that hold algorithms; a step has them inlined."""


@dataclass(frozen=True)
class Exported:
    """An exported step, its training model in bytes, and the version of operator declarations."""

    source: list[bytes]
    declared: int
    model: Model
    inputs: tuple[str, ...]
    new: Mapping[str, str]

    def fits(self, training_model: onnx.ModelProto, inputs: Mapping[str, Any]) -> bool:
        """Whether this is the step of a model for inputs of these shapes."""
        if self.declared != version() or self.source != [*message_parts(training_model, self.new)]:
            return False
        specs = self.model.inputs
        try:
            shapes = {name: np.shape(x) for name, x in inputs.items() if name in specs}
        except (AttributeError, ValueError):  # no mapping, or a ragged list: the export will raise
            return False
        return all(
            len(shape) == len(dims := specs[name].shape or ())
            and all(not isinstance(d, int) or d == n for d, n in zip(dims, shape, strict=True))
            for name, shape in shapes.items()
        )


STEPS: deque[Exported] = deque(maxlen=4)
"""A cache of the steps that were exported last."""


def training_step(model: Any, inputs: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    """(batch, state) ↦ (outputs, new state): see `export`."""
    check_bindings(model)
    if not any(info.update_binding for info in model.training_info):
        raise InputError("training_info has no update_binding: a step changes nothing")
    whole, new = iteration(model)
    net = loaded(whole, "the model with its algorithm")
    point = sample_inputs(net, {}) if inputs is None else check_inputs(net, inputs)
    for name in point:
        if name not in net.inputs:
            raise no_input(name)
    chosen = {v.name for v in whole.graph.input} & net.initializers.keys()
    first = {pair.key for info in model.training_info for pair in info.initialization_binding}
    mutable = new.keys() | first | chosen
    made = lower_model(
        net, point, f"{net.name or 'model'}_step", mutable, chosen - new.keys() - first
    )
    check_updates(model, made, new)
    made.ir.metadata_props[BOUND] = json.dumps(new)
    return proto_of(made.ir)


def no_input(name: str) -> InputError:
    """The error for a tensor of the state among the inputs."""
    return InputError(f"{name!r} is no input of a step: what it changes is in state=")


def check_updates(model: onnx.ModelProto, made: Model, new: Mapping[str, str]) -> None:
    """Raises unless every new value fits its initializer, at all batch sizes."""
    held = initializers(model)
    for k, info in enumerate(model.training_info):
        for pair in info.update_binding:
            spec = made.outputs[new[pair.key]]
            what = binding(k, "update_binding", pair)
            check_fits(what, pair.value, spec.dtype, spec.shape or (), held[pair.key])


def iteration(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The graph of one step, and initializer -> output with its new value.

    Each of several algorithms becomes a function that includes the graph of the model, so that
    names do not collide. The functions are called in order, each after the updates before it.
    """
    infos = [info for info in model.training_info if info.update_binding or info.algorithm.node]
    first, *more = infos
    if not more:
        return combined(model, first.algorithm), {p.key: p.value for p in first.update_binding}
    whole, new = combined(model, onnx.GraphProto()), dict[str, str]()
    graph = whole.graph
    for part in ("node", "output", "value_info"):
        graph.ClearField(part)
    now = {tensor.name: tensor.name for tensor in graph.initializer}
    keys = {pair.key for info in infos for pair in info.update_binding}
    taken = {value.name for value in graph.input} | {*now} | keys
    for k, info in enumerate(infos):
        both, scope = combined(model, info.algorithm).graph, dict(now)
        for tensor in info.algorithm.initializer:
            known = any(pair.key == tensor.name for pair in info.update_binding)
            scope[tensor.name] = tensor.name if known else unique_name(tensor.name, taken)
            graph.initializer.add().CopyFrom(tensor)
            graph.initializer[-1].name = scope[tensor.name]
        for value in info.algorithm.input:
            name = scope.get(value.name, value.name)
            if name not in {known.name for known in graph.input}:
                graph.input.add().CopyFrom(value)
                graph.input[-1].name = name
        taken |= {value.name for value in graph.input}
        inputs = [*scope, *(value.name for value in both.input if value.name not in scope)]
        outputs = {value.name: unique_name(value.name, taken) for value in both.output}
        for value in both.output:
            graph.output.add().CopyFrom(value)
            graph.output[-1].name = outputs[value.name]
        function = helper.make_function(ALGORITHMS, f"algorithm_{k}", inputs, list(outputs),
                                        both.node, model.opset_import)  # fmt: skip
        whole.functions.append(function)
        given, made = [scope.get(name, name) for name in inputs], list(outputs.values())
        graph.node.append(helper.make_node(function.name, given, made, domain=ALGORITHMS))
        new |= {pair.key: outputs[pair.value] for pair in info.update_binding}
        now |= new
    whole.opset_import.append(helper.make_opsetid(ALGORITHMS, 1))
    return whole, new


@validated
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
    update. A step runs the model that ``export(training_model, "training_step", inputs)`` makes;
    the last few such models are cached, for all batches whose shapes they accept.

    - `training_model`: what `training_model` makes, or another model with `training_info`.
    - `inputs`: a batch, an array by name for every input of the step.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: each tensor of the state keeps its shape; inputs are as the model declares them, and a
    free dimension may change from step to step. Raises `InputError` for a model without
    `training_info` and for an input that is missing, `UnknownTensor` for a name that the model does
    not have, and another `OnnxJacError` where an operator fails on its inputs.

    Source: `TrainingInfoProto`, in the ONNX specification.
    """
    held = initial_state(training_model) if state is None else dict(state)
    step = step_for(training_model, inputs)
    for name in held:
        if name not in step.inputs:
            raise UnknownTensor(f"state has no tensor {name!r}.{closest(name, step.inputs)}")
        if name in inputs:
            raise no_input(name)
    found = step.model.run({**held, **inputs}, engine=engine)
    return {**held, **{key: found[value] for key, value in step.new.items()}}, found


def step_for(training_model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Exported:
    """The exported step of a training model for inputs of these shapes."""
    kept = next((step for step in tuple(STEPS) if step.fits(training_model, inputs)), None)
    if kept is not None:
        return kept
    made = training_step(training_model, inputs)
    bound = next(entry.value for entry in made.metadata_props if entry.key == BOUND)
    names, new = tuple(value.name for value in made.graph.input), json.loads(bound)
    step = Exported([*message_parts(training_model, new)], version(), load(made), names, new)
    STEPS.appendleft(step)
    return step


def message_parts(message: Any, state: Container[str]) -> Iterator[bytes]:
    """A training model in bytes, part by part, without the floating-point values of a state."""
    for field, value in message.ListFields():
        yield field.name.encode()
        if field.name in ("graph", "algorithm", "initialization"):
            yield from message_parts(value, state)
        elif field.name == "training_info":
            for info in value:
                yield from message_parts(info, state)
        elif field.name == "initializer":
            for tensor in value:
                yield repr((tensor.name, tensor.data_type, [*tensor.dims])).encode()
                if tensor.name not in state or tensor.data_type not in FLOATS:
                    yield tensor.SerializeToString(deterministic=True)
        elif field.message_type is None:
            yield repr(value).encode()
        else:
            parts = value if hasattr(value, "add") else [value]
            yield from (part.SerializeToString(deterministic=True) for part in parts)


State = dict[str, np.ndarray]


# -- the state, kept in the initializers of the model ----------------------------------------------


@validated
def initial_state(training_model: onnx.ModelProto, *, seed: Natural | None = None) -> State:
    """The tensors that training changes, by name, before the first step.

    The values are the initializers, overwritten by the results of `initialization`. With a `seed`,
    random operators of `initialization` draw from it: the same seed gives the same state on every
    machine, another seed gives another state, and seeds in the file are ignored. A node draws the
    same numbers in every iteration of a loop. Without a seed, an operator with an attribute `seed`
    draws from it, and others draw as the engine does, perhaps the same numbers at each call. The
    result of `training_model` has random operators only where its `initialization=` has them.

    Shapes: each tensor has the shape of its initializer. Raises `LoadError` where an
    `initialization` is no valid graph, `UnknownTensor` for a binding that names no initializer or
    no output, `InputError` for one that does not fit. Source: `TrainingInfoProto`, in the ONNX
    specification.
    """
    state = load_state(training_model)
    rng = None if seed is None else np.random.default_rng(seed)
    for k, info in enumerate(training_model.training_info):
        made = initialized(training_model, k, rng)
        held = initializers(training_model)
        for pair in info.initialization_binding:
            what, array = binding(k, "initialization_binding", pair), np.array(made[pair.value])
            check_fits(what, pair.value, array.dtype, array.shape, held[pair.key])
            state[pair.key] = array
    return state


def load_state(training_model: onnx.ModelProto) -> State:
    """The tensors that training changes, by name, with the values of the model's initializers.

    The state is the one that `save_state` wrote, or the one that the model came with.

    - `training_model`: what `training_model` makes, or another model with `training_info`.

    >>> import numpy as np
    >>> import onnx.parser
    >>> import onnxjac as oj
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     f (double[n] x) => (double l) <double w = {2}> {
    ...     y = Mul(w, x) l = ReduceSum<keepdims = 0>(y) }''')
    >>> training = oj.training_model(model, "l", optimizer="Momentum", learning_rate=0.5)
    >>> state, _ = oj.train_step(training, None, {"x": [1.0, 2.0]})
    >>> trained = oj.save_state(training, state)
    >>> oj.load_state(trained)["w"], oj.initial_state(trained)["w"]
    (array(0.5), array(2.))

    Shapes: each tensor has the shape of its initializer. Raises `InputError` and `UnknownTensor`
    as `initial_state` does.
    """
    check_bindings(training_model)
    held = initializers(training_model)
    infos = training_model.training_info
    keys = [p.key for i in infos for p in (*i.update_binding, *i.initialization_binding)]
    for key in keys:
        if held[key].data_location == onnx.TensorProto.EXTERNAL:
            raise LoadError(f"the data of {key!r} is in a file: load the model with its data")
    return {key: np.array(numpy_helper.to_array(held[key])) for key in dict.fromkeys(keys)}


def save_state(training_model: onnx.ModelProto, state: Mapping[str, Any]) -> onnx.ModelProto:
    """The training model with the tensors of `state` as its initializers.

    The result can be run and deployed, and trained further from `load_state`. `state` may be a part
    of the state, and may hold other initializers, such as the learning rate. Neither the given
    model nor `initialization` changes: `initial_state` still returns the state before the first
    step.

    - `training_model`: what `training_model` makes, or another model with `training_info`.

    Shapes: each tensor has the shape of its initializer. Raises `UnknownTensor` for a name that is
    no initializer, `InputError` for a shape or type that does not fit.
    """
    check_training(training_model)
    if not isinstance(state, Mapping):
        raise InputError(f"a state is a dict from name to array, not {type(state).__name__}")
    state = dict(state)
    saved = onnx.ModelProto()
    saved.CopyFrom(training_model)
    for name in state:
        if name not in (held := initializers(saved)):
            raise UnknownTensor(f"state has {name!r}, no initializer.{closest(name, held)}")
    for tensor in all_initializers(saved):
        if tensor.name not in state:
            continue
        array, dtype = np.asarray(state[tensor.name]), tensor_dtype_to_np_dtype(tensor.data_type)
        if np.can_cast(array.dtype, dtype, "same_kind"):
            array = array.astype(dtype, copy=False)
        check_fits("state", tensor.name, array.dtype, array.shape, tensor)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return saved


def initializers(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """The initializers of the model and of its algorithms by name."""
    return {tensor.name: tensor for tensor in all_initializers(model)}


def all_initializers(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The initializers of the model and of its algorithms."""
    for graph in (model.graph, *(info.algorithm for info in model.training_info)):
        yield from graph.initializer


def initialized(model: onnx.ModelProto, k: int, rng: np.random.Generator | None) -> State:
    """The results of the `initialization` of one training_info; a generator seeds its operators."""
    graph = model.training_info[k].initialization
    if not graph.output:
        return {}
    if graph.input:
        raise InputError(f"training_info[{k}].initialization has an input {graph.input[0].name!r}: "
                         "nothing can be given to it")  # fmt: skip
    alone = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import,
                            functions=model.functions, graph=graph)  # fmt: skip
    first = loaded(alone, f"training_info[{k}].initialization")
    return first.run({}) if rng is None else by_seed(first, {}, first.outputs, rng)


def loaded(graph: onnx.ModelProto, what: str) -> Model:
    """A graph of a training model, loaded; an error names the graph."""
    try:
        return load(graph)
    except LoadError as error:
        raise LoadError(f"{what}: {error}") from error


def check_training(model: Any) -> None:
    """Raises `InputError` for a model without `training_info`."""
    if not isinstance(model, onnx.ModelProto):
        raise InputError(f"a training model is an onnx.ModelProto, not {type(model).__name__}: "
                         "pass what training_model made, or onnx.load(path)")  # fmt: skip
    if not model.training_info:
        raise InputError("the model has no training_info: make one with training_model")


def check_bindings(model: onnx.ModelProto) -> None:
    """Raises unless every binding names an initializer and an output, and none is bound twice."""
    check_training(model)
    shared, results = ([part.name for part in parts] for parts in
                       (model.graph.initializer, model.graph.output))  # fmt: skip
    updated: dict[str, str] = {}
    for k, info in enumerate(model.training_info):
        held = [*shared, *(tensor.name for tensor in info.algorithm.initializer)]
        made = [*results, *(value.name for value in info.algorithm.output)]
        first, initial = [value.name for value in info.initialization.output], dict[str, str]()
        for kind, graph, outputs, bound in (
            ("update_binding", "algorithm", made, updated),
            ("initialization_binding", "initialization", first, initial),
        ):
            for pair in getattr(info, kind):
                key, what = pair.key, binding(k, kind, pair)
                if key not in held:
                    raise UnknownTensor(f"{what}: {key!r} is no initializer of the model or of its "
                                        f"algorithm.{closest(key, held)}")  # fmt: skip
                if pair.value not in outputs:
                    raise UnknownTensor(f"{what}: {pair.value!r} is no output of the {graph}."
                                        f"{closest(pair.value, outputs)}")  # fmt: skip
                if key in bound:
                    raise InputError(f"{what}: {key!r} is bound twice, before by {bound[key]}")
                bound[key] = what


def check_fits(
    what: str, value: str, dtype: np.dtype[Any] | None, shape: Sequence[Dim], held: onnx.TensorProto
) -> None:
    """Raises where a new value does not have the dtype and shape of its initializer."""
    kind = tensor_dtype_to_np_dtype(held.data_type)
    if dtype != kind or tuple(shape) != tuple(held.dims):
        found = f"{dtype}[{', '.join(map(str, shape))}]"
        wanted = f"{kind}[{', '.join(map(str, held.dims))}]"
        raise InputError(f"{what}: {value!r} is {found}, the initializer {held.name!r} {wanted}")


def binding(k: int, kind: str, pair: onnx.StringStringEntryProto) -> str:
    """A binding as text, for a message."""
    return f"training_info[{k}].{kind} {pair.key!r} <- {pair.value!r}"
