"""PyTorch as an engine, over tensors of one device.

A model runs step by step twice; from then on, for inputs of the same shapes, it is calls in line,
as a product is from the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of
from ....jacobians.arrays import buffer_of, host
from ....jacobians.errors import first_line, warn
from ....jacobians.placing import Place
from ....jacobians.readings import is_kept, place_of_engine
from ....ops.graphs.build import Graph
from ....ops.node import Step
from ....ops.registry import traits_of, version
from ..flow.contents import Contents
from ..flow.control import CONTROL, SEQUENCES
from ..flow.steps import steps_needed
from . import numpy as own
from .numpy import SHAPE_ENTRIES, Call, in_line, keywords


class OtherSize(Exception):
    """Numbers decide a size: an output has another shape than at the point before."""


def compute(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...], engine: str
) -> dict[str, Any]:
    """The named tensors at the inputs, as tensors; the model keeps its constants on the device."""
    there = place_of_engine(engine)
    assert there is not None
    given = {name: to_place(x, there) for name, x in inputs.items()}
    key = there.name, names, version(), *((n, dtype_of(x), shape_of(x)) if hasattr(x, "dtype")
                                          else n for n, x in given.items())  # fmt: skip
    program = model.programs.get(key, False)
    held = partial(constants_of, model, given, names, there)
    if program is None:  # the sizes of all steps were checked in the run before
        program = model.programs[key] = program_of(model, given, names, held(), there)
    failed: Exception | None = None
    if program:
        try:
            return program(given)
        except OtherSize:
            model.programs[key] = ()
        except Exception as error:  # the steps say which of them fails; if none does, we say so
            failed = error
    from ....ops.torch import tensors

    found = own.compute(model, given, names, tensors, held())
    if failed:
        model.programs[key] = ()
        warn(f"PyTorch's program of {', '.join(names)} fails where its steps do not, a "
             f"defect of onnxjac: {first_line(failed)}. Results are right; from now on the steps "
             "run one at a time. Report the model, if you can.")  # fmt: skip
    if program is False:
        model.programs[key] = None
    return found


def constants_of(
    model: Contents, given: Mapping[str, Any], names: tuple[str, ...], there: Place
) -> dict[str, Any]:
    """The model's constants at a place, those that the named tensors need among them."""
    from ....ops.torch.table import shared_constant

    held, hold = (
        model.tensors.setdefault(there.name, {}),
        partial(shared_constant, device=there.name),
    )
    if missing := steps_needed(model.steps, names, given)[1] & model.constants.keys() - held.keys():
        ours = as_tensors(model.steps)
        for name in missing:
            x = model.constants[name]
            held[name] = hold(x) if name in ours else to_place(x, there, hold)
    return held


def as_tensors(nodes: Iterable[Step | ir.Node]) -> set[Any]:
    """The inputs of nodes that kernels alone read, and not as shapes or axes."""
    from ....ops.torch.table import HOSTED, KERNELS

    read = [(x, node.op_type in KERNELS and not (k and node.op_type in HOSTED))
            for node in nodes for k, x in enumerate(node.inputs)]  # fmt: skip
    return {x for x, _ in read} - {x for x, is_tensor in read if not is_tensor}


def program_of(
    model: Contents, given: Mapping[str, Any], names: tuple[str, ...],
    constants: Mapping[str, Any], there: Place,
) -> Callable[[Mapping[str, Any]], dict[str, Any]] | tuple[()]:  # fmt: skip
    """The steps as calls for all inputs of these shapes; () where numbers decide a size.

    What follows from shapes and constants alone is computed now, and placed like a constant.
    """
    from ....ops.numbers.table import COUNTED
    from ....ops.torch import bound, tensors
    from ....ops.torch.table import HOSTED, KERNELS

    steps = [model.steps[k] for k in steps_needed(model.steps, names, given)[0]]
    places: dict[str, int] = {}
    for name in (*given, *constants, *(n for step in steps for n in step.outputs if n)):
        places.setdefault(name, len(places))
    none = len(places)
    values, calls = {**constants, **given}, list[Call]()
    known = {name: x for name, x in constants.items() if name not in given}
    for step in steps:
        name, operands = step.op_type, [n and values[n] for n in step.inputs]
        if step.domain or name in CONTROL or name in SEQUENCES:
            return ()
        told = [known.get(n or "") for n in step.inputs]
        varying = (hasattr(x, "dtype") and dtype_of(x).kind in "iub" and y is None
                   for x, y in zip(operands[1:], told[1:], strict=True))  # fmt: skip
        if (traits_of(step).grows or name in HOSTED) and any(varying):
            return ()
        is_known = not traits_of(step).random and all(n in known for n in step.inputs if n)
        count = len(step.outputs)
        made = tensors.run(name, operands, step.attrs, version=step.version, outputs=count)
        found = {n: y for n, y in zip(step.outputs, made, strict=False) if n and n not in given}
        if name in ("Shape", "Size") or (is_known and step.inputs):
            known |= {n: to_place(y, there) for n, y in found.items()}
            values |= known
            continue
        values |= found
        attrs = {**step.attrs, **({"outputs": count} if name in COUNTED else {})}
        if name in KERNELS:
            call, taken = bound(name, operands, told, attrs, shape_of(made[0]))
        else:
            call, taken = partial(as_before, step, [shape_of(y) for y in made]), len(told)
        inputs = tuple(places[n] if n else none for n in step.inputs[:taken])
        outputs = tuple(places[n] if n and n not in given else none + 1 for n in step.outputs)
        calls.append(Call(call, inputs, outputs))
    held = {none: None, **{places[name]: x for name, x in known.items()}}
    arguments = [places[name] for name in given]
    run = in_line_at(calls, arguments, [places[name] for name in names], held)

    def program(given: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(zip(names, run(*given.values()), strict=True))
        return {n: y.clone() if n in known and is_kept(y) else y for n, y in found.items()}

    return program


def in_line_at(
    calls: Sequence[Call], arguments: Sequence[int], results: Sequence[int],
    constants: Mapping[int, Any], fresh: int | None = None,
) -> Callable[..., tuple[Any, ...]]:  # fmt: skip
    """(*arguments) ↦ results; on a GPU the calls are replayed: see `replay_on_gpu` for `fresh`."""
    from ....ops.torch.replay import replay_on_gpu

    return replay_on_gpu(in_line(calls, arguments, results, constants), fresh)


def as_before(step: Step, shapes: list[Shape], *inputs: Any) -> tuple[Any, ...]:
    """The outputs of an operator without a kernel here; `OtherSize` for outputs of other shapes."""
    from ....ops.torch import tensors

    count = len(step.outputs)
    made = tensors.run(step.op_type, inputs, step.attrs, version=step.version, outputs=count)
    if [shape_of(y) for y in made] != shapes:
        raise OtherSize
    return made


def results(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...], engine: str
) -> dict[str, Any]:
    """The named tensors as the caller may have them: none shares memory with a constant."""
    there, made = place_of_engine(engine), compute(model, inputs, names, engine)
    assert there is not None
    kept = set(map(buffer_of, model.tensors[there.name].values()))
    shared = {name for name, y in made.items() if is_kept(y) and buffer_of(y) in kept}
    return {name: y.clone() if name in shared else there.take(y) if hasattr(y, "dtype") else y
            for name, y in made.items()}  # fmt: skip


def to_place(x: Any, there: Place, take: Callable[[Any], Any] | None = None) -> Any:
    """An array as a tensor, by `there.take`; few integers may be a shape, and stay."""
    if not hasattr(x, "dtype"):
        return x
    is_whole = isinstance(x, np.ndarray) and x.dtype.kind in "iu"
    return x if is_whole and x.ndim < 2 and x.size <= SHAPE_ENTRIES else (take or there.take)(x)


# -- products --------------------------------------------------------------------------------------


class Program(own.Program):
    """v ↦ J v, with the constants on the device `provider`.

    A tensor gives a tensor on its own device, an array an array. `on_host` are the operators
    without kernels of PyTorch.
    """

    def __init__(self, graph: Graph, provider: str) -> None:
        from ....ops.torch.table import DTYPES, KERNELS

        there, ours = place_of_engine(f"torch:{provider}"), as_tensors(graph.nodes)
        assert there is not None

        def take(value: ir.Value, x: Any) -> Any:
            return there.hold(x) if value in ours else to_place(x, there, there.hold)

        super().__init__(graph, tensor_kernel_at, take, partial(in_line_at, fresh=1))
        self.there, self.kind = there, DTYPES[self.dtype]
        self.on_host = {node.op_type for node in graph.nodes} - KERNELS.keys()
        self.held = frozenset(buffer_of(x) for x in self.constants if is_kept(x))

    def bind(self, residuals: Mapping[str, Any]) -> Callable[[Any], Any]:
        """The program for these residuals, by key."""
        found = {k: r if is_kept(r) else to_place(r, self.there) for k, r in residuals.items()}
        held = self.held | {buffer_of(r) for r in found.values() if is_kept(r)}
        return partial(self._product, residuals=found, held=held)

    def __call__(self, v: Any, residuals: Mapping[str, Any] = MappingProxyType({})) -> Any:
        """y for these residuals, by key."""
        return self.bind(residuals)(v) if residuals else self._product(v, residuals, self.held)

    def _product(self, v: Any, residuals: Mapping[str, Any], held: Set[int]) -> Any:
        if not is_kept(v):
            return host(self._product(self.there.take(v), residuals, held))
        if v.requires_grad or v.dtype != self.kind or v.device != self.there.device:
            x = v.detach().to(self.there.device, self.kind)
            return self._product(x, residuals, held).to(v.device)
        y = self.run(v, residuals)
        y = y if is_kept(y) else self.there.take(y)
        memory = buffer_of(y)
        return y.clone() if memory in held or memory == buffer_of(v) else y  # of the caller's


def tensor_kernel_at(node: ir.Node, graph: Graph) -> tuple[Callable[..., Any], int]:
    """The function of a node, and how many operands it takes."""
    from ....ops.torch import bound

    known = [x and graph.array(x) for x in node.inputs]
    shape = shape_of(node.outputs[0])
    return bound(node.op_type, node.inputs, known, keywords(node), shape)


def compile(graph: Graph, provider: str = "cpu") -> Callable[..., Any]:
    """The program of a product; its constants are on the device `provider`."""
    return own.stepwise(graph) if graph.has_bodies else Program(graph, provider)
