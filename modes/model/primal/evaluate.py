"""Evaluate: the values of the wanted tensors of a model at a point, whose sizes are foreseen.

For the forecast, sizes are inferred step by step; small tensors that decide sizes are computed on
the way. Where a size depends on other numbers, only the run itself can tell, so that it must be a
run that is checked at every step.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians.arrays import Shape, buffer_of, on_host, owner, shape_of, zeros
from ....jacobians.errors import InputError, LimitError, OnnxJacError, not_allowed, warn
from ....jacobians.readings import is_kept, library_of, library_of_engine, runs_on
from ....ops.graphs.defects import refusal
from ....ops.graphs.infer import Kind, shape_in
from ....ops.node import Node, Step
from ....ops.numbers import numbers
from ....ops.registry import traits_of
from ....ops.rules.matmul import product_bytes
from ..flow.contents import Contents, TensorSpec
from ..flow.control import CONTROL, iteration_inputs, shapes_around, shapes_within, turns_of_scan
from ..flow.steps import (
    DECIDING_ELEMENTS,
    Meter,
    array_kind,
    array_of,
    check_operands,
    check_sizes,
    dtype_in,
    kind_bytes,
    last_uses,
    output_kinds,
    steps_needed,
)
from ..programs import jax as xla
from ..programs import numpy as own
from ..programs import onnxruntime as ort
from ..programs import torch as tensors

ENGINES = (None, "onnxruntime", "numpy", "torch", "jax")


def over_arrays(engine: str) -> Any:
    """The module of an engine that computes with arrays of a library of its own."""
    return {"torch": tensors, "jax": xla}[engine.partition(":")[0]]


def evaluate(
    model: Contents, inputs: Mapping[str, Any], wanted: Iterable[str], *, engine: str | None = None,
    pooled: bool = True,
) -> dict[str, np.ndarray]:  # fmt: skip
    """The values of the wanted tensors, by any name the model has, at the (checked) inputs.

    Without an engine, ONNX Runtime runs the model if it is installed, has all the kernels, and all
    sizes are known beforehand. Sizes are not known where a loop decides when to end or changes the
    shape of its state, or where floating-point values decide a size: NumPy runs such a model, and
    checks the limits of the model at every step.

    PyTorch runs it on the device after a colon, `"torch:cuda"`, and keeps the weights there; with
    `"jax"`, XLA compiles it. The values are arrays of that library if an input is one.

    ONNX Runtime keeps its memory for the next run, unless `pooled` is false: a pool would hold the
    memory of all tensors as long as one of them lives.
    """
    name, _, device = (engine or "").partition(":")
    if (name or None) not in ENGINES or (device and name not in ("torch", "jax")):
        raise not_allowed("engine", engine, ENGINES)
    names = tuple(dict.fromkeys(wanted))
    if all(name in inputs for name in names):
        return {name: inputs[name] for name in names}
    for name in names:
        if name not in model:
            model.spec(name)  # says what is meant
    model = model.literal(inputs)
    if any(runs_on(engine, x) for x in inputs.values()):
        return over_arrays(str(engine)).results(model, inputs, names, str(engine))
    held = {**transposed_views(model, inputs, names), **model.constants, **inputs}
    asked = tuple(name for name in names if name not in held)
    if missing := [spec for name, spec in model.inputs.items() if name in asked]:
        raise missing_inputs(missing)  # by its type it is not a tensor, but it is wanted
    made = _compute(model, inputs, asked, engine, pooled) if asked else {}
    return {name: held[name] if name in held else made[name] for name in names}


def evaluate_there(
    model: Contents, inputs: Mapping[str, Any], wanted: Iterable[str], engine: str
) -> dict[str, Any]:  # fmt: skip
    """The values of the wanted tensors as arrays of the library of the engine."""
    names = tuple(dict.fromkeys(wanted))
    return over_arrays(engine).compute(model, inputs, names, engine)


def kinds_there(
    model: Contents, inputs: Mapping[str, Any], wanted: Iterable[str], engine: str
) -> dict[str, Any]:  # fmt: skip
    """Shapes and dtypes of the wanted tensors, by an engine that compiles whole functions."""
    return over_arrays(engine).kinds(model, inputs, tuple(dict.fromkeys(wanted)))


def transposed_views(
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
    if engine is not None and library_of_engine(engine):
        made = evaluate_there(model, inputs, names, engine)
        return {name: on_host(y) for name, y in made.items()}
    try:
        if foreseen(model, inputs, names) or engine == "onnxruntime":
            return ort.compute(model, inputs, names, pooled=pooled)
    except ort.EngineError as error:
        if engine == "onnxruntime":
            raise
        if isinstance(error, ort.OutdatedEngine):
            warn(f"NumPy runs the model, which may take far longer: {error}")
    return own.compute(model, inputs, names)  # may know the operator, or will report the error


def shape_at(
    model: Contents, inputs: Mapping[str, Any], name: str, engine: str | None
) -> Shape:
    """The shape of a tensor at the (checked) inputs; the model runs only if nothing else tells."""
    forecast = Forecast(model, inputs, True)
    with suppress(OnnxJacError):
        shape = shape_in(forecast.types.get(name)) if forecast.of((name,)) else None
        if shape is not None and min(shape, default=0) >= 0:
            return shape
    return shape_of(evaluate(model, inputs, [name], engine=engine)[name])


def own_memory(arrays: Mapping[str, np.ndarray], point: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays, copied where needed so that each is writeable and owns its memory."""
    taken, found = set(map(buffer_of, point.values())), {}
    for name, x in arrays.items():
        free = buffer_of(x) not in taken
        if isinstance(x, np.ndarray):
            free = free and owner(x).flags.writeable and x.flags.writeable
            x = x if free else np.array(x)
        elif is_kept(x) and not free:
            x = library_of(x).copy(x)
        found[name] = x
        taken.add(buffer_of(x))
    return found


def missing_inputs(specs: Iterable[TensorSpec]) -> InputError:
    """The error for missing inputs."""
    names = ", ".join(map(str, specs))
    return InputError(f"missing input: {names}. Give every input of the model by name.")


# -- forecast: the bytes of all tensors of a run, before an engine starts it -----------------------


def foreseen(model: Contents, inputs: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether all sizes are known and within the limits; raises `LimitError` if one exceeds them.

    Where the shapes of the inputs tell all sizes, as with labels and counters among the inputs, the
    answer holds for all their values. Raises `EngineError` where ONNX Runtime must not be used.
    """
    wanted = tuple(names)
    return any(known_forecast(model, inputs, wanted, numbers) for numbers in (False, True))


def known_forecast(
    model: Contents, inputs: Mapping[str, Any], wanted: tuple[str, ...], numbers: bool
) -> bool:
    """The cached forecast from the numbers of the inputs, or from their shapes alone; from shapes,
    it is true only if they tell all sizes, and these are within the limits.
    """
    key, forecasts = (wanted, numbers, signature(inputs, numbers)), model.cache["forecast"]
    found = forecasts.get(key)
    if found is None:
        forecast = Forecast(model, inputs, numbers)
        try:
            found = forecast.of(wanted) and (numbers or forecast.told)
        except (LimitError, InputError, ort.EngineError):
            if numbers:
                raise
            found = False
        forecasts[key] = found
    return found


def signature(inputs: Mapping[str, Any], numbers: bool) -> tuple[Any, ...]:
    """Shapes and types of the inputs, and the numbers of inputs that may decide a size."""
    return tuple(
        (name, x.shape, x.dtype, x.tobytes() if numbers and may_decide(x) else b"")
        if isinstance(x, np.ndarray) else (name, id(x))
        for name, x in sorted(inputs.items())
    )  # fmt: skip


def may_decide(array: np.ndarray) -> bool:
    """Whether the numbers of an array may be shapes, counts or axes."""
    return array.dtype.kind in "iub" and array.size <= DECIDING_ELEMENTS


class Forecast:
    """The types of the tensors seen so far, and the numbers of the small ones that are known.

    `told` is whether all sizes so far are known. In a body of control flow, `times` is how often it
    runs; if that is unknown, or tensors change their shape between iterations, only the run itself
    can tell.
    """

    def __init__(self, model: Contents, inputs: Mapping[str, Any], numbers: bool) -> None:
        self.model, self.given = model, inputs.keys()
        arrays = {n: x for n, x in {**model.constants, **inputs}.items() if hasattr(x, "dtype")}
        self.types: MutableMapping[str, Kind] = {n: array_kind(x) for n, x in arrays.items()}
        fixed = {
            n: a
            for n, a in model.constants.items()
            if n not in inputs and a.size <= DECIDING_ELEMENTS
        }
        given = {n: x for n, x in arrays.items() if numbers and n in inputs and may_decide(x)}
        self.known: MutableMapping[str, np.ndarray] = {**fixed, **given}
        self.told, self.times = True, 1
        self.meter = Meter(model.limits)

    def of(self, wanted: tuple[str, ...]) -> bool:
        """Whether all sizes on the way to the wanted tensors are known."""
        steps = self.model.steps
        indices = steps_needed(steps, wanted, self.given)[0]
        return self._walk([steps[index] for index in indices], wanted, 0)

    def _walk(self, steps: Sequence[Step], wanted: Iterable[str], held: int) -> bool:
        """Forecast steps, freeing each tensor after its last use; `held` bytes are held outside."""
        sure, made = True, dict[str, int]()
        for step, finished in zip(steps, last_uses(steps, wanted), strict=True):
            if step.op_type in CONTROL and not step.domain:
                kinds = self._flow(step, held)
                sure = sure and kinds is not None
                found = self._given(dict(zip(step.outputs, kinds or (), strict=False)), step)
            else:
                found = self._step(step)
                sure = sure and not (traits_of(step).grows and None in found.values())
            made.update((name, size or 0) for name, size in found.items())
            held += sum(made[name] for name in found)
            self.model.limits.check("bytes", held, f"what is held at {step}")
            held -= sum(made.pop(name, 0) for name in finished)
        return sure

    def _step(self, step: Step) -> dict[str, int | None]:
        """The bytes of the outputs of a step by name, None where they are not known."""
        operands = [self._stand_in(name) for name in step.inputs]
        check_operands(step, operands, self.model.limits)
        if reason := refusal(step, operands):
            raise ort.EngineError(reason)
        if step.op_type == "Einsum":
            self._check_einsum(step, operands)
        kinds = output_kinds(step, self.types, self.known)
        check_sizes(kinds, f"{step}: ")
        found = self._given(kinds, step)
        self.told = self.told and None not in found.values()
        self._compute(step)
        return found

    def _given(self, kinds: Mapping[Any, Any], step: Step) -> dict[str, int | None]:
        """Record the types of the outputs of a step, and return their bytes by name."""
        found = {name: kind for name, kind in kinds.items() if name and kind is not None}
        self.types.update((name, k) for name, k in found.items() if name not in self.given)
        return {name: kind_bytes(self.types.get(name)) for name in step.outputs if name}

    def _flow(self, step: Step, held: int) -> list[Kind] | None:
        """The types of the outputs of an If, Loop or Scan; None where only the run can tell."""
        if step.op_type == "If":
            return self._branches(step, held)
        body, numbered = step.attrs["body"], step.op_type == "Loop"
        kinds = self._whole(step.inputs[2:] if numbered else step.inputs)
        if kinds is None or (turns := self._turns(step, kinds)) < 1:
            first = [self.types.get(n or "") for n in ("", "", *step.inputs[2:]) if numbered]
            with suppress(LimitError, InputError):  # it may make no turn: it is only not refused
                self._inside(body, first, held, 1)
            return None
        shapes = [None] * 2 * numbered + [*map(shape_in, kinds)]
        inner = shapes_within(step, shapes)[2 * numbered :]
        formals = [array_kind(x) for x in iteration_inputs(body, 0)] if numbered else []
        formals += [Kind(kind.dtype, shape) for kind, shape in zip(kinds, inner, strict=True)]
        results = self._inside(body, formals, held, turns)
        if results is None:
            return None
        try:
            found = shapes_around(step, shapes, [[shape_in(kind) or () for kind in results]], turns)
        except OnnxJacError:  # a state changes its shape
            return None
        pairs = zip(results[numbered:], found, strict=True)
        return [Kind(kind.dtype, shape) for kind, shape in pairs]

    def _turns(self, step: Step, kinds: list[Kind]) -> int:
        """The trip count of a Loop or Scan; 0 if it is unknown."""
        if step.op_type == "Scan":
            return turns_of_scan(step, [*map(shape_in, kinds)]) if step.version >= 9 else 0
        limit, go = (*step.inputs, None)[:2]
        count = self.known.get(limit or "")
        goes = go is None or bool(np.all(self.known.get(go, False)))
        if count is None or not goes or not self._goes_on(step.attrs["body"]):
            return 0
        return int(np.ravel(count)[0])

    def _branches(self, step: Step, held: int) -> list[Kind] | None:
        """The types of the outputs of an If: of the branch that a known condition takes, or of both
        branches if these give the same shapes, else None.
        """
        then_body, other_body = (step.attrs[f"{name}_branch"] for name in ("then", "else"))
        condition = self.known.get(step.inputs[0] or "")
        if condition is not None:
            return self._inside(then_body if np.all(condition) else other_body, [], held, 1)
        try:
            then, other = (self._inside(body, [], held, 1) for body in (then_body, other_body))
        except (LimitError, InputError):  # of a branch that may not be taken
            return None
        if then is None or other is None:
            return None
        return then if [*map(shape_in, then)] == [*map(shape_in, other)] else None

    def _whole(self, names: Iterable[str | None]) -> list[Kind] | None:
        """The types of some tensors; None unless all their shapes are known."""
        kinds = [self.types.get(name or "") for name in names]
        whole = [kind for kind in kinds if kind is not None and shape_in(kind) is not None]
        return whole if len(whole) == len(kinds) else None

    def _inside(
        self, graph: ir.Graph, formals: Sequence[Kind | None], held: int, turns: int
    ) -> list[Kind] | None:
        """The types of the outputs of a body; None where not all sizes in it are known."""
        steps, inner = self.model.body(graph), copy(self)
        inner.times = self.times * turns
        self.meter.turn(inner.times * (len(steps) + 1) - 1)
        names = [str(value.name) for value in graph.inputs]
        arrays = {name: array_of(value) for name, value in graph.initializers.items()}
        inner.types, inner.known = ChainMap({}, self.types), ChainMap({}, self.known)
        inner.types.update((n, k) for n, k in zip(names, formals, strict=False) if k is not None)
        inner.types.update((n, array_kind(x)) for n, x in arrays.items())
        inner.known.update((n, x) for n, x in arrays.items() if x.size <= DECIDING_ELEMENTS)
        outputs = [str(value.name) for value in graph.outputs]
        sure = inner._walk(steps, outputs, held)
        self.told = self.told and inner.told
        return inner._whole(outputs) if sure else None

    def _goes_on(self, body: ir.Graph) -> bool:
        """Whether the body of a Loop passes its condition on unchanged, or makes it true."""
        made = {step.outputs[0]: step for step in self.model.body(body)}
        name = body.outputs[0].name
        while name in made and made[name].op_type == "Identity":
            name = made[name].inputs[0]
        if name in made:
            return made[name].op_type == "Constant" and bool(np.all(made[name].attrs.get("value")))
        if name is not None and name in body.initializers:
            return bool(np.all(array_of(body.initializers[name])))
        return name == body.inputs[1].name or bool(np.all(self.known.get(name or "", False)))

    def _check_einsum(self, step: Step, operands: list[np.ndarray | None]) -> None:
        """ONNX Runtime multiplies from left to right, however large the products become."""
        node = Node(step, tuple(operands), ())
        if product_bytes(node, left_to_right=True) > self.model.limits.bytes:
            raise ort.EngineError(
                f"ONNX Runtime multiplies the operands of {step} from left to right, which takes "
                "more memory than the limits allow. Try engine='numpy'."
            )

    def _stand_in(self, name: str | None) -> np.ndarray | None:
        """The numbers of a tensor if they are known, else zeros of its shape; None for no shape."""
        kind = self.types.get(name or "")
        shape = shape_in(kind)
        if name in self.known or kind is None or shape is None or min(shape, default=0) < 0:
            return self.known.get(name or "")
        try:
            return zeros(shape, dtype_in(kind))
        except ValueError:  # an empty tensor whose other sizes overflow in NumPy
            return None

    def _compute(self, step: Step) -> None:
        """Compute small outputs of a step if its inputs are known or only their shapes matter."""
        if step.op_type in ("Shape", "Size"):
            inputs = [self._stand_in(name) for name in step.inputs]
        else:
            inputs = [None if name is None else self.known.get(name) for name in step.inputs]
        missing = sum(name is not None for name in step.inputs) - sum(x is not None for x in inputs)
        if missing or traits_of(step).random or not self._is_small(step):
            return
        try:
            made = numbers.run(step.op_type, inputs, step.attrs, domain=step.domain,
                               version=step.version, outputs=len(step.outputs))  # fmt: skip
        except Exception:  # the engine will report the error
            return
        pairs = zip(step.outputs, made, strict=False)
        self.known.update((n, y) for n, y in pairs if n and isinstance(y, np.ndarray))

    def _is_small(self, step: Step) -> bool:
        """Whether all outputs are small."""
        sizes = [shape_in(self.types.get(name)) for name in step.outputs if name]
        return all(s is not None and np.prod(s, dtype=float) <= DECIDING_ELEMENTS for s in sizes)
