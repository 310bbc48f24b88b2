"""State: the tensors that a training step changes, kept in the model's initializers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from ...jacobians.errors import InputError, LoadError, UnknownTensor, closest
from ..linear.tape.record import by_seed
from ..model.loading.load import load
from ..model.primal.model import Dim, Model

State = dict[str, np.ndarray]


def initial_state(training_model: onnx.ModelProto, *, seed: int | None = None) -> State:
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
    state = checked(state)
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


def checked(state: Any) -> dict[str, Any]:
    """A copy of the state; raises `InputError` where it is not a mapping."""
    if not isinstance(state, Mapping):
        raise InputError(f"a state is a dict from name to array, not {type(state).__name__}")
    return dict(state)


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
        if not info.update_binding:
            raise InputError(f"training_info[{k}] has no update_binding: its step changes nothing")
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
