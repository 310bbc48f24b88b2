"""NumPy as an engine, and what any reading of the vocabulary needs to be one.

A model runs step by step, each step checked, as its shapes may depend on the numbers. Where all
shapes are known, as in a product, the calls of the kernels are lines of a function of Python.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, dtype_of, shape_of
from ....jacobians.arrays import host
from ....jacobians.errors import LoadError, OnnxJacError, UnsupportedOp
from ....jacobians.readings import Library, library_of
from ....ops.graphs.build import Graph, build, simplify_graph
from ....ops.node import Step
from ....ops.numbers import numbers
from ....ops.numbers.table import FOREIGN, HOSTED, STATIC, settled
from ....ops.registry import full_name, omitted_output_error
from ..flow.contents import Contents
from ..flow.control import CONTROL, SEQUENCES, control, explained
from ..flow.steps import Meter, array_of, attributes_of, check_step, last_uses, steps_needed

Values = MutableMapping[str, Any]

SHAPE_ENTRIES = 64
"""The most whole numbers of a vector that may be a shape or axes, read on the host."""


def compute(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...], op: Library = numbers,
    constants: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The named tensors at the inputs; every other value is dropped after its last use.

    `constants` are the model's constants as the reading takes them.
    """
    indices, used = steps_needed(model.steps, names, inputs)
    steps = [model.steps[index] for index in indices]
    held = model.constants if constants is None else constants
    values: Values = {name: held[name] for name in used & held.keys()}
    values.update(inputs)
    meter = Meter(model.limits)
    for step, finished in zip(steps, last_uses(steps, names), strict=True):
        made = _run(model, step, values, meter, op)
        if full_name(step.op_type, step.domain) in FOREIGN:
            check_declared(model, step, made)
        values.update((name, value) for name, value in made.items() if name not in inputs)
        meter.keep(made.values(), f"what is held at {step}")
        meter.drop(values.pop(name, None) for name in finished if name not in inputs)
    return {name: values[name] for name in names}


def check_declared(model: Contents, step: Step, made: Mapping[str, Any]) -> None:
    """Raises `OnnxJacError` where results are not as the model declares them."""
    for name, y in made.items():
        spec, shape = model.spec(name), tuple(y.shape)
        pairs = zip(spec.shape or (), shape, strict=False)
        fits = len(spec.shape or shape) == len(shape) and (
            spec.dtype is None or spec.dtype.kind == dtype_of(y).kind)  # fmt: skip
        if not fits or any(isinstance(n, int) and n != m for n, m in pairs):
            raise OnnxJacError(f"{step}: its kernel gives {name!r} as {dtype_of(y)}{list(shape)}, "
                               f"which the model declares as {spec}")  # fmt: skip


def _run(model: Contents, step: Step, values: Values, meter: Meter, op: Library) -> dict[str, Any]:
    """The outputs of a step by name."""
    with explained(step, values):
        results = results_of(model, step, values, meter, op)
    if missing := list(filter(None, step.outputs[len(results) :])):
        raise LoadError(
            f"{step} gives {len(results)} outputs, none for {', '.join(missing)}: what it is given "
            "does not fit its attributes."
        )
    return {name: y for name, y in zip(step.outputs, results, strict=False) if name}


def results_of(
    model: Contents, step: Step, values: Values, meter: Meter, op: Library = numbers
) -> Sequence[Any]:
    """The outputs of a step, given the tensors that it and its bodies read."""
    inputs = [None if name is None else values[name] for name in step.inputs]
    check_step(step, inputs, model.limits)
    if step.op_type in SEQUENCES and not step.domain:
        return [SEQUENCES[step.op_type](op, step, host, *inputs)]
    if step.op_type in CONTROL and not step.domain:

        def run(graph: ir.Graph, arguments: Sequence[Any]) -> list[Any]:
            return _body(model, graph, arguments, values, meter, op)

        return control(op, step, inputs, run, host, meter)
    made = op.run(step.op_type, inputs, step.attrs, domain=step.domain, version=step.version,
                  outputs=len(step.outputs))  # fmt: skip
    for k, (name, y) in enumerate(zip(step.outputs, made, strict=False)):
        if name and y is None:
            raise UnsupportedOp(omitted_output_error(name, k))
    return made


def _body(
    model: Contents, graph: ir.Graph, arguments: Sequence[Any], outer: Values, meter: Meter,
    op: Library,
) -> list[Any]:  # fmt: skip
    """The outputs of a subgraph, which sees the values of the graph around it."""
    scope: Values = ChainMap({}, outer)
    scope.update((name, array_of(value)) for name, value in graph.initializers.items())
    scope.update(zip((str(value.name) for value in graph.inputs), arguments, strict=True))
    steps = model.body(graph)
    meter.turn(len(steps))
    for step in steps:
        scope.update(_run(model, step, scope, meter, op))
    return [scope[str(value.name)] for value in graph.outputs]


# -- graphs of known shapes ------------------------------------------------------------------------

Function = Callable[..., Any]


class Call(NamedTuple):
    """outputs ← function(*inputs), by number."""

    function: Function
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def in_line(
    calls: Sequence[Call], arguments: Sequence[int], results: Sequence[int],
    constants: Mapping[int, Any],
) -> Callable[..., tuple[Any, ...]]:  # fmt: skip
    """(*arguments) ↦ results, by number: a function of Python that makes all calls, line by line.

    A loop over the calls would take half a microsecond for each. Values are dropped after their
    last use.
    """
    last = {n: k for k, call in enumerate(calls) for n in (*call.outputs, *call.inputs)}
    read = {*results, *(n for call in calls for n in call.inputs)}
    kept, known = constants.keys() | set(results), {f"v{n}": x for n, x in constants.items()}
    lines = [f"def program({', '.join(f'v{n}' for n in arguments)}):"]
    for k, (function, inputs, outputs) in enumerate(calls):
        known[f"f{k}"], first = function, outputs[0]
        lines += [f" v{first} = f{k}({', '.join(f'v{n}' for n in inputs)})",
                  f" if isinstance(v{first}, tuple):"]  # fmt: skip
        rest = [(j, n) for j, n in enumerate(outputs) if j and n in read]
        lines += [*(f"  v{n} = v{first}[{j}]" for j, n in rest), f"  v{first} = v{first}[0]"]
        made = {first, *(n for _, n in rest)}
        gone = sorted(n for n in {*inputs, *made} - kept if last[n] == k)
        lines += [f" del {', '.join(f'v{n}' for n in gone)}"] if gone else []
    exec("\n".join([*lines, f" return {''.join(f'v{n}, ' for n in results)}"]), known)
    program: Callable[..., tuple[Any, ...]] = known["program"]
    return program


Bind = Callable[[ir.Node, Graph], tuple[Function, int]]
"""A node ↦ the function of its first operands that computes it, and how many it takes."""


class Program:
    """v ↦ J v. The result belongs to the caller; several threads may call at the same time."""

    def __init__(
        self, graph: Graph, bind: Bind | None = None,
        take: Function = lambda _, x: np.asarray(x), in_line: Callable[..., Function] = in_line,
    ) -> None:  # fmt: skip
        bind, numbered, constants = bind or kernel_at, dict[int, int](), dict[int, Any]()

        def number(value: ir.Value | None) -> int:
            if id(value) not in numbered:
                n = numbered[id(value)] = len(numbered)
                held = None if value is None else graph.array(value)
                if held is not None or value is None:
                    constants[n] = None if held is None else take(value, held)
            return numbered[id(value)]

        y, arguments = number(graph.y), [*map(number, (graph.v, *graph.residuals.values()))]
        calls = list[Call]()
        for node in graph.nodes:
            inputs, outputs = (tuple(map(number, x)) for x in (node.inputs, node.outputs))
            function, count = bind(node, graph)
            calls.append(Call(function, inputs[:count], outputs))
        self.dtype, self.keys = dtype_of(graph.v), tuple(graph.residuals)
        self.constants = (*constants.values(),)
        self._run = in_line(calls, arguments, (y,), constants)

    def __call__(
        self, v: np.ndarray, residuals: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> np.ndarray:
        """y for these residuals, by key."""
        v = np.asarray(v, self.dtype)
        with np.errstate(all="ignore"):  # infinities and NaN are values, as in every engine
            y = np.asarray(self.run(v, residuals))
        given = (v, *self.constants, *residuals.values())
        own = y.base is None and not any(y is x for x in given)
        return y if own and y.flags.c_contiguous else np.array(y, order="C")

    def bind(self, residuals: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """The program for these residuals, by key."""
        return partial(self, residuals=residuals)

    def run(self, v: Array, residuals: Mapping[str, Array]) -> Array:
        """y, which may be a view of v or of a residual."""
        (y,) = self._run(v, *[residuals[key] for key in self.keys])
        return y


def kernel_at(node: ir.Node, graph: Graph) -> tuple[Function, int]:
    """The kernel of a node with its attributes, shapes and axes, and without the error state of
    each NumPy call.
    """
    name, known = node.op_type, [x and graph.array(x) for x in node.inputs]
    function = getattr(numbers, name)
    plain, attrs = getattr(function, "__wrapped__", function), keywords(node)
    told = all(x is None or y is not None for x, y in zip(node.inputs[1:], known[1:], strict=True))
    if name not in HOSTED or not told:
        return partial(plain, **attrs), len(known)
    shapes = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    return settled(name, {name: plain}, STATIC, shapes, known[1:], attrs), 1


def keywords(node: ir.Node) -> dict[str, Any]:
    """The keywords of a kernel."""
    count = len(node.outputs)
    return attributes_of(node) | ({} if count == 1 else {"outputs": count})


def stepwise(graph: Graph) -> Function:
    """A product with subgraphs, such as loops, which runs step by step as a model does."""
    copy = simplify_graph(graph)
    model = Contents(build(copy, copy.inputs.values(), copy.outputs, "product"))
    (v,), (y,) = model.inputs, model.outputs

    def run(array: np.ndarray) -> np.ndarray:
        made: np.ndarray = compute(model, {v: array}, (y,))[y]
        return made

    def product(v: Any) -> Any:
        return library_of(v).by_numbers("loop", run, v)

    return product


def compile(graph: Graph) -> Function:
    """The program of a product."""
    return stepwise(graph) if graph.has_bodies else Program(graph)
