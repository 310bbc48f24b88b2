"""Evaluate: the values of the wanted tensors of a model at a point, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ....jacobians.arrays import buffer_of, host, is_tensor, owner
from ....jacobians.errors import InputError, not_allowed, warn
from ..flow.contents import Contents, TensorSpec
from .engines import numpy as own
from .engines import onnxruntime as ort
from .engines import torch as tensors
from .forecast import foreseen

ENGINES = (None, "onnxruntime", "numpy", "torch")


def evaluate(
    model: Contents, inputs: Mapping[str, Any], wanted: Iterable[str], *, engine: str | None = None,
    pooled: bool = True,
) -> dict[str, np.ndarray]:  # fmt: skip
    """The values of the wanted tensors, by any name the model has, at the (checked) inputs.

    Without an engine, ONNX Runtime runs the model if it is installed, has all the kernels, and all
    sizes are known beforehand. Sizes are not known where a loop decides when to end or changes the
    shape of its state, or where floating-point values decide a size: NumPy runs such a model, and
    checks the limits of the model at every step.

    PyTorch runs it on the device after a colon, `"torch:cuda"`, and keeps the weights there. The
    values are tensors if an input is one.

    ONNX Runtime keeps its memory for the next run, unless `pooled` is false: a pool would hold the
    memory of all tensors as long as one of them lives.
    """
    name, _, device = (engine or "").partition(":")
    if (name or None) not in ENGINES or (device and name != "torch"):
        raise not_allowed("engine", engine, ENGINES)
    names = tuple(dict.fromkeys(wanted))
    if all(name in inputs for name in names):
        return {name: inputs[name] for name in names}
    for name in names:
        model.spec(name)
    if by_torch(engine) and any(map(is_tensor, inputs.values())):
        return tensors.results(model, inputs, names, str(engine))
    held = {**turned(model, inputs, names), **model.constants, **inputs}
    asked = tuple(name for name in names if name not in held)
    if missing := [spec for name, spec in model.inputs.items() if name in asked]:
        raise left_out(missing)  # by its type it is not a tensor, but it is wanted
    made = _compute(model, inputs, asked, engine, pooled) if asked else {}
    return {name: held[name] if name in held else made[name] for name in names}


def evaluate_there(
    model: Contents, inputs: Mapping[str, Any], wanted: Iterable[str], engine: str
) -> dict[str, Any]:  # fmt: skip
    """The values of the wanted tensors as tensors of PyTorch, where `engine` computes."""
    names = tuple(dict.fromkeys(wanted))
    return tensors.compute(model, inputs, names, engine)


def turned(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The named tensors that are transposed constants, as views, which take no memory."""
    known = {name: model.turned[name] for name in names if name in model.turned}
    return {
        name: model.constants[source].transpose(order)
        for name, (source, order) in known.items()
        if source not in inputs
    }


def _compute(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...], engine: str | None,
    pooled: bool,
) -> dict[str, np.ndarray]:  # fmt: skip
    if engine == "numpy" or (engine is None and not ort.installed()):
        return own.compute(model, inputs, names)
    if engine is not None and by_torch(engine):
        made = tensors.compute(model, inputs, names, engine)
        return {name: host(y) if is_tensor(y) else y for name, y in made.items()}
    try:
        if foreseen(model, inputs, names) or engine == "onnxruntime":
            return ort.compute(model, inputs, names, pooled=pooled)
    except ort.EngineError as error:
        if engine == "onnxruntime":
            raise
        if isinstance(error, ort.OutdatedEngine):
            warn(f"NumPy runs the model, which may take far longer: {error}")
    return own.compute(model, inputs, names)  # may know the operator, or will report the error


def apart(arrays: Mapping[str, np.ndarray], point: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays, copied where needed so that each is writeable and owns its memory."""
    taken, found = set(map(buffer_of, point.values())), {}
    for name, x in arrays.items():
        free = buffer_of(x) not in taken
        if isinstance(x, np.ndarray):
            free = free and owner(x).flags.writeable and x.flags.writeable
            x = x if free else np.array(x)
        elif is_tensor(x) and not free:
            x = x.clone()
        found[name] = x
        taken.add(buffer_of(x))
    return found


def left_out(specs: Iterable[TensorSpec]) -> InputError:
    """The error for missing inputs."""
    names = ", ".join(map(str, specs))
    return InputError(f"missing input: {names}. Give every input of the model by name.")


def by_torch(engine: str | None) -> bool:
    """Whether PyTorch runs the model."""
    return engine is not None and engine.startswith("torch")
