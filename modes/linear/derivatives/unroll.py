"""Unroll: the model at a point without control flow, sequences or composite operators.

If becomes its branch, Loop and Scan become their turns, sequences become their tensors, and an
operator that is defined by others becomes its definition. The result is an ordinary model for
this point. Tensors keep their names, and tensors of turn i of a body get a prefix.

Of control flow that is kept, only the bodies are made flat: see `closed`.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, shape_of
from ....jacobians.arrays import SINGLE, host, zeros
from ....jacobians.conditions import Condition
from ....jacobians.errors import OnnxJacError
from ....jacobians.symint import Symbols, is_symbolic
from ....ops import Node, Recorder, Step, Twin, build, copy_value, find, numbers
from ....ops.graphs import body_of, surrogate
from ....ops.graphs.shapes import Measured
from ....ops.node import AT, node_of
from ....ops.registry import traits_of
from ....ops.rules.quantization import DOMAIN as ESTIMATORS
from ...model.flow.contents import ESTIMATES, free_sizes, unique_name
from ...model.flow.control import (
    CONTROL,
    SEQUENCES,
    LongLoop,
    begin,
    control,
    end,
    explained,
    kept_whole,
    shape_formals,
    shape_outputs,
    stack_outputs,
    turns_of_scan,
)
from ...model.flow.steps import (
    SHAPES,
    Meter,
    array_of,
    check_step,
    may_stop,
    moving,
    reads,
    steps_needed,
    turns,
)
from ...model.primal.evaluate import evaluate
from ...model.primal.inputs import is_float
from ...model.primal.model import Model
from ...model.programs.numpy import results_of
from .record import definition_of, draws, is_flat

Scope = MutableMapping[str, Any]

TURN = 20
"""The least nodes that a turn counts for, as a program of few nodes is quick to record."""


class Estimating(Twin):
    """A twin in which definitions call the straight-through estimators of operators."""

    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        declared = find(op_type, ESTIMATORS)
        if declared is None or declared.definition is None:
            return super().call(op_type, *inputs, **attrs)
        (made,) = declared.definition(self, node_of(op_type, inputs, attrs))
        return made


def unrolled(
    model: Model, point: Mapping[str, Any], names: Iterable[str],
    most: int | None = None, engine: str | None = None, unkept: Collection[str | None] = (),
    symbols: Symbols | None = None, estimate: bool = False,
) -> Model:  # fmt: skip
    """The part of the model that the named tensors need, flat; the model itself if it is flat.

    Loops whose turns have more than `most` nodes, turns of inner loops included, are kept with flat
    bodies; with `most` = 0 all control flow is. `unkept` are outputs of the steps that cannot be
    kept; `NotKept` is raised for a further one. With `symbols`, free sizes stay free unless they
    decide what is unrolled. With `estimate`, quantised tensors are the same numbers, but floating.
    """
    wanted, estimate = tuple(names), estimate or model.estimates
    steps = [model.steps[k] for k in steps_needed(model.steps, wanted, point)[0]]
    known = {**model.constants, **point}
    if is_flat(steps, known, estimate) or (not unkept and point.keys() <= model.inputs.keys()
       and all(stays(model, step, known, most, estimate) for step in steps)):  # fmt: skip
        return model
    whole = [name for s in steps for name in s.outputs
             if name and ((s.op_type in CONTROL and not s.domain) or definition_of(s, estimate))]
    values = cache(partial(evaluate, model, point, whole, engine=engine))
    met = {name for s in steps for name in reads(s)}.intersection(wanted)
    unroller = Unroller(model, most, unkept, values, symbols, estimate, met)
    given = [name for name in dict.fromkeys((*model.inputs, *point)) if name in point]
    tensors = [name for name in given if is_variable(model, name, point[name])]
    inputs = [unroller.op.input(point[name], name) for name in tensors]
    if symbols is not None:
        unroller.op.recorder.open(inputs, free_sizes(model.inputs))
    unroller.moving.update(map(id, inputs))
    scope: Scope = dict(zip(tensors, inputs, strict=True))
    for name, array in {**model.constants, **point}.items():
        if name not in scope:
            scope[name] = unroller.constant(array, name)
    unroller.run(steps, scope, "")
    outputs = {name: scope[name] for name in wanted if not stands(scope[name], name)}
    held = [scope[name] for name in wanted if name not in outputs]
    decided = {id(c.of) for c in symbols.conditions.values()} if symbols else set()
    held += [y for node in unroller.op.recorder.nodes for y in node.outputs if id(y) in decided]
    flat = build(unroller.op.recorder, inputs, outputs, model.name or "unrolled", held)
    if model.estimates:
        flat.metadata_props[ESTIMATES] = "1"
    return Model(flat, model.limits)


def stays(
    model: Model, step: Step, known: Mapping[str, Any], most: int | None, estimate: bool
) -> bool:
    """Whether a step is flat, or is to be kept and was recorded with its bodies."""
    graphs = [value for value in step.attrs.values() if isinstance(value, ir.Graph)]
    if not graphs:
        return is_flat([step], known, estimate)
    if most != 0:
        held = [known.get(n or "") for n in step.inputs]
        if step.op_type == "Scan":
            shapes = [(model.spec(n).shape or ()) if n else () for n in step.inputs]
            sizes = (tuple(k if isinstance(k, int) else 0 for k in shape) for shape in shapes)
            held = [zeros(shape, SINGLE) for shape in sizes]
        if step.op_type == "If" or most is None or nodes_of(model, step, held) <= most:
            return False
    values = (x for g in graphs for x in (*g.inputs, *(y for node in g for y in node.outputs)))
    return (all(isinstance(x.shape, Measured) and not is_symbolic(shape_of(x)) for x in values)
            and all(stays(model, s, known, 0, estimate) for g in graphs for s in model.body(g)))


def nodes_of(model: Model, step: Step, held: Sequence[Any]) -> int:
    """The nodes of all turns of a Loop or Scan; 0 where turns decide how many there are."""
    with suppress(LookupError, TypeError):  # a run names what is ill-formed
        return (trips(model, step, held) or 0) * max(len(model.body(step.attrs["body"])), TURN)
    return 0


def trips(model: Model, step: Step, held: Sequence[Any]) -> int | None:
    """The trip count of a Loop or Scan with these inputs; None where turns decide it."""
    body = step.attrs["body"]
    if step.op_type == "Scan":
        return int(turns_of_scan(step, [None if x is None else shape_of(x) for x in held]))
    limit, go = held[:2]
    true = {name for name, x in body.initializers.items() if np.all(array_of(x))}
    ends = str(body.outputs[0].name), str(body.inputs[1].name)
    stops = may_stop(model.body(body), *ends, lambda name: name not in true)
    if limit is None or stops or not (go is None or np.all(go)):
        return None
    return max(int(np.ravel(limit)[0]), 0)


def is_variable(model: Model, name: str, array: Any) -> bool:
    """Whether a tensor of the point is an input of the flat model, not a constant in it."""
    return hasattr(array, "dtype") and (name in model.inputs or is_float(dtype_of(array)))


def stands(value: Any, name: str) -> bool:
    """Whether a value is an input or an initializer of that name, and not computed."""
    return isinstance(value, ir.Value) and value.producer() is None and value.name == name


def flatly(value: Any) -> Iterator[Any]:
    """The tensors of a value, which may be a sequence."""
    if isinstance(value, list):
        for part in value:
            yield from flatly(part)
    elif value is not None:
        yield value


def shaped_as_here(model: Model, free: Collection[str] = ()) -> Symbols:
    """Symbols for a recording that serves all points of the same shapes but for `free` sizes."""
    sizes = free_sizes(model.inputs).values()
    return Symbols(fixed={size for axes in sizes for size in axes.values()}.difference(free))


def decisions(flat: Model, symbols: Symbols) -> list[Condition] | None:
    """By the numbers or by the shapes of what tensors it was decided how a model is unrolled, still
    without these; None where one of the tensors is not in the model.
    """
    atoms = {a: c.reader for c in symbols.relations() for a in c.of.roots()}
    numbers = {a.tensor: why for a, why in atoms.items() if a.is_entry} | symbols.pinned()
    found = {a.tensor: why for a, why in atoms.items()} | numbers
    made = (name for step in flat.steps for name in step.outputs)
    if not found.keys() <= {*flat.inputs, *flat.constants, *made}:
        return None
    moved = found.keys() & moving(flat.steps, [*flat.inputs])
    return [Condition("numbers" if n in numbers else "shape", n, found[n]) for n in sorted(moved)]


class Unroller:
    """Runs the steps of a model and records the flat ones among them.

    `moving` are the values that may differ at another point, or at another turn of a kept body;
    nothing inside such a body may depend on their numbers here. `values` runs the model once, for
    the outputs of all steps that may be kept. Definitions are not simplified past `met` tensors.
    """

    def __init__(
        self, model: Model, most: int | None, unkept: Collection[str | None],
        values: Callable[[], Mapping[str, Any]], symbols: Symbols | None = None,
        estimate: bool = False, met: Collection[str | None] = (),
    ) -> None:  # fmt: skip
        self.model, self.meter, self.estimate = model, Meter(model.limits), estimate
        self.met = frozenset(met)
        twin = Estimating if estimate else Twin
        self.op = twin(Recorder(model.ir.opset_imports, symbols))
        self.most, self.unkept, self.values = most, unkept, values
        self.moving: set[int] = set()
        self.inside = False  # a body that is kept
        self.turns, self.nodes, self.stop = 0, 0, math.inf

    def constant(self, value: Any, name: str) -> Any:
        """A tensor, or a sequence of tensors, that is fixed at the point."""
        if isinstance(value, list):
            return [self.constant(x, f"{name}_{k}") for k, x in enumerate(value)]
        return value if value is None else self.op.initializer(np.asarray(value), name)

    def run(self, steps: Iterable[Step], scope: Scope, prefix: str) -> None:
        """Record the steps; `scope` gets their outputs by name."""
        for step in steps:
            if self.op.recorder.symbols is not None:
                self.op.recorder.symbols.reader = str(step)
            with explained(step, scope):
                inputs = [None if name is None else scope[name] for name in step.inputs]
                names = tuple(name and prefix + name for name in step.outputs)
                check_step(step, [self.number(x) for x in inputs], self.model.limits)
                results = self.results(step, inputs, scope, names)
                self.follow(step, scope, results)
                self.meter.keep(map(self.number, results), f"the model, unrolled as far as {step},")
            scope.update((n, y) for n, y in zip(step.outputs, results, strict=False) if n)

    def follow(self, step: Step, scope: Scope, results: Iterable[Any]) -> None:
        """The outputs of a step move if one of its inputs does."""
        if step.op_type in SHAPES and not step.domain:
            return
        read = [value for name in reads(step) for value in flatly(scope[name])]
        if any(id(value) in self.moving for value in read):
            for value in flatly([*results]):
                self.moving.add(id(value))
                if self.inside and isinstance(value, ir.Value):
                    value.meta.pop(AT, None)

    def at(self, value: Any, reader: str) -> Any:
        """The number of a value on which the rest of the recording depends."""
        if self.inside and id(value) in self.moving:
            raise OnnxJacError(f"{reader} depends on numbers that change from turn to turn")
        return self.op.at(value, reader)

    def number(self, value: Any) -> Any:
        """The array of a value, or the arrays of a sequence, at the point."""
        return [*map(self.op.number, value)] if isinstance(value, list) else self.op.number(value)

    def results(
        self, step: Step, inputs: list[Any], scope: Scope, names: tuple[str | None, ...]
    ) -> Sequence[Any]:
        """The outputs of one step of any kind."""
        at = partial(self.at, reader=str(step))
        if step.op_type == "Identity" and (isinstance(inputs[0], list) or inputs[0] is None):
            made = inputs
        elif step.op_type in SEQUENCES and not step.domain:
            made = [SEQUENCES[step.op_type](self.op, step, at, *inputs)]
        elif step.op_type in CONTROL and not step.domain:
            run = partial(self.body, outer=scope)
            at = partial(self.at, reader=f"{step}, unrolled")
            spread = partial(control, self.op, step, inputs, run, at, self.meter)
            tried = self.tried(step, inputs, spread, names)
            if tried is None:
                with kept_whole(step):
                    return self.kept(step, inputs, scope, names)
            made = tried
        elif step.surrogate is not None:  # its tangents are a surrogate's
            made = [surrogate(self.op, *inputs)]
        elif draws(step, {}):
            if self.inside:
                raise OnnxJacError(f"{step} draws anew in every turn")
            made = drawn(self.op, step, inputs, at)
        elif declared := definition_of(step, self.estimate):
            self.op.keeps, self.op.faked = self.is_long(step, inputs), False
            made = list(declared.outputs(self.op, Node(step, tuple(inputs), (None,) * len(names))))
            if self.op.faked and not self.inside:
                made = [y and self.op.recorder.value(y) for y in made]
                for y, number in zip(made, self.known(step, scope, names), strict=False):
                    if number is not None:
                        self.op.remember(y, number)
        else:
            found = self.op.run(step, inputs, names)
            if self.met.isdisjoint(names):
                return found
            for y in found:
                if y is not None:
                    y.name = None
            made = list(found)  # a second node has the name: no rewrite sees what is before it
        return [self.named(y, name) for y, name in zip(made, names, strict=False)]

    def is_long(self, step: Step, inputs: list[Any]) -> bool:
        """Whether the loop in a definition is kept: all are with `most` = 0, none with None."""
        if self.most is None or self.most == 0:
            return self.most == 0
        return TURN * turns(step, [*map(self.number, inputs)]) > self.most

    def body(self, graph: ir.Graph, arguments: Sequence[Any], outer: Scope) -> list[Any]:
        """The outputs of one turn of a subgraph, which sees the tensors around it."""
        prefix = self.prefix(graph)
        scope: Scope = ChainMap({}, outer)
        scope.update((name, array_of(value)) for name, value in graph.initializers.items())
        scope.update(zip((str(value.name) for value in graph.inputs), arguments, strict=True))
        steps = self.model.body(graph)
        self.nodes += max(len(steps), TURN)
        if self.nodes > self.stop:
            raise LongLoop
        self.meter.turn(len(steps))
        self.run(steps, scope, prefix)
        return [scope[str(value.name)] for value in graph.outputs]

    def tried(
        self, step: Step, inputs: list[Any], spread: Callable[[], list[Any]],
        names: tuple[str | None, ...],
    ) -> list[Any] | None:  # fmt: skip
        """A step with bodies, turn by turn; None where the step is kept.

        Long loops are kept, in the branch that an If takes as well, and all control flow in a kept
        body.
        """
        if self.inside:
            return None
        unkept = any(name in self.unkept for name in (*names, *step.outputs) if name)
        if self.most is None or unkept:
            return spread()
        if self.most == 0:
            return None if names == step.outputs else spread()
        if step.op_type == "If" or self.stop < math.inf:
            return spread()
        if nodes_of(self.model, step, [*map(self.number, inputs)]) > self.most:
            return None
        start, self.stop = len(self.op.recorder.nodes), self.nodes + self.most
        try:
            return spread()
        except LongLoop:
            if symbols := self.op.recorder.symbols:
                for node in self.op.recorder.nodes[start:]:
                    for value in node.outputs:
                        symbols.conditions.pop(value.name or value, None)
            return None
        finally:
            self.stop = math.inf

    def kept(
        self, step: Step, inputs: list[Any], scope: Scope, names: tuple[str | None, ...]
    ) -> Sequence[Any]:
        """A step with bodies as it is, each body flat and recorded at its first turn."""
        if any(isinstance(value, list) for value in inputs):
            raise OnnxJacError(f"{step} is given a sequence")
        held = [*map(self.number, inputs)]
        bodies, found = {}, {}
        outside, self.inside = self.inside, True
        try:
            for key, graph in step.attrs.items():
                if isinstance(graph, ir.Graph):
                    bodies[key], found[key] = self.kept_body(step, graph, inputs, scope)
        finally:
            self.inside = outside
        whole = replace(step, attrs={**step.attrs, **bodies})
        here = end(step, held, found) if outside else self.known(step, scope, names)
        numbers = stack_outputs(step, here, found)
        made = self.op.recorder.copy(whole, inputs, numbers, names)
        still = step.op_type == "Loop" and not any(id(x) in self.moving for x in inputs[:2])
        count = trips(self.model, step, held) if still else None
        shape_outputs(self.op.recorder, step, bodies, inputs, made, count)
        for value, number in zip(made, numbers, strict=True):
            self.op.remember(value, number)
        return made

    def known(self, step: Step, scope: Scope, names: tuple[str | None, ...]) -> list[Any]:
        """The outputs of a step at the point, run anew where it stands in a body."""
        if names == step.outputs:
            found = self.values()
            return [name and found[name] for name in names]
        values = {name: self.number(scope[name]) for name in reads(step)}
        return [*results_of(self.model, step, values, self.meter)]

    def kept_body(
        self, step: Step, graph: ir.Graph, inputs: list[Any], outer: Scope
    ) -> tuple[ir.Graph, list[Any]]:
        """A subgraph of a step made flat, and its outputs at the first turn."""
        prefix, arguments = self.prefix(graph), begin(step, [*map(self.number, inputs)])
        scope: Scope = ChainMap({}, outer)
        with self.op.recorder.body():
            for name, value in graph.initializers.items():
                scope[name] = self.op.initializer(array_of(value), prefix + name)
            formals = []
            for value, number in zip(graph.inputs, arguments, strict=True):
                formals.append(self.op.input(np.asarray(number), prefix + str(value.name)))
                formals[-1].meta.pop(AT, None)
                scope[str(value.name)] = formals[-1]
            shape_formals(self.op.recorder, step, formals, inputs)
            self.moving.update(map(id, formals))
            steps = self.model.body(graph)
            self.meter.turn(len(steps))
            self.run(steps, scope, prefix)
            made = [scope[str(value.name)] for value in graph.outputs]
            if any(value is None or isinstance(value, list) for value in made):
                raise OnnxJacError("a body gives a sequence or an optional")
            whole = body_of(self.op.recorder, formals, made, graph.name or "body")
            return whole, [*map(self.number, made)]

    def prefix(self, graph: ir.Graph) -> str:
        """The prefix of names in a turn."""
        self.turns += 1
        return f"{graph.name or 'body'}_{self.turns - 1}_"

    def named(self, value: Any, name: str | None) -> Any:
        """A tensor of the model under its name, so that `wrt` and `of` can speak of it."""
        if name is None or isinstance(value, list) or value is None:
            return value
        number = np.asarray(self.op.number(value))
        tensor = self.op.recorder.value(value)
        assert tensor is not None
        made = copy_value(self.op.recorder, tensor, name)
        self.op.remember(made, number)
        return made


# -- random steps: `fixed` draws once for a model, `drawn` for a step that is unrolled -------------

SEEDS = 2**24
"""The float attribute `seed` represents all integers below this number."""


def fixed(
    model: Model, point: Mapping[str, Any], engine: str | None, symbols: Symbols | None = None
) -> Model:
    """The model with the samples of one run as constants; the model itself if nothing is random.

    The modes of Dropout are conditions.
    """
    known = {**model.constants, **point}
    random = {step.outputs[0] for step in model.steps if draws(step, known)} - point.keys()
    if not random:
        return model
    copy = model.ir.clone()
    nodes = [node for node in copy.graph if node.outputs and node.outputs[0].name in random]
    taken = set(model.names)
    samples = [sample_of(node, taken) for node in nodes]
    sampled = Model(copy, model.limits)
    values = evaluate(sampled, point, [str(s.name) for s in samples], engine=engine)
    for node, sample in zip(nodes, samples, strict=True):
        held = add_initializer(copy.graph, str(sample.name), host(values[str(sample.name)]))
        if node.op_type == "Dropout":
            mode = node.inputs[2]
            assert mode is not None  # as the step is random
            if symbols is not None:
                symbols.pin(str(mode.name), f"Dropout (node {node.name!r})")
            masked(node, held, taken)
        ir.convenience.replace_all_uses_with(sample, held, replace_graph_outputs=True)
        copy.graph.remove(node)
    return Model(copy, model.limits)


def by_seed(
    model: Model, point: Mapping[str, Any], names: Iterable[str], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The named tensors, where the generator gives each random operator a seed of its own."""
    copy = model.ir.clone()
    every = ir.traversal.RecursiveGraphIterator(copy.graph)
    nodes = [node for node in every if traits_of(node).random]
    for node, seed in zip(nodes, rng.choice(SEEDS, len(nodes), replace=False), strict=True):
        whole = node.op_type == "Dropout"
        node.attributes["seed"] = (
            ir.AttrInt64("seed", int(seed)) if whole else ir.AttrFloat32("seed", float(seed))
        )
    if not nodes:
        return evaluate(model, point, names)
    return evaluate(Model(copy, model.limits), point, names, engine="numpy")


def sample_of(node: ir.Node, taken: set[str]) -> ir.Value:
    """The random output of a node: for Dropout the mask, whose name is not `taken`."""
    if node.op_type != "Dropout":
        return node.outputs[0]
    if len(node.outputs) == 1:
        node.resize_outputs(2)
    mask = node.outputs[1]
    mask.name = mask.name or unique_name(f"{node.outputs[0].name}_mask", taken)
    mask.type, mask.shape = ir.TensorType(ir.DataType.BOOL), node.outputs[0].shape
    return mask


def add_initializer(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A new initializer."""
    value = ir.Value(name=name, shape=ir.Shape(array.shape))
    value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
    value.const_value = ir.tensor(array, name=name)
    graph.initializers[name] = value
    return value


def masked(node: ir.Node, mask: ir.Value, taken: set[str]) -> None:
    """Dropout becomes y = x mask / (1 - ratio), by tensors whose names are not `taken`."""
    graph, y = node.graph, node.outputs[0]
    assert isinstance(graph, ir.Graph)
    x, ratio = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    names = (unique_name(f"{y.name}_{part}", taken) for part in ("one", "ratio"))
    one = add_initializer(graph, next(names), np.array(1.0, np.float32))
    ratio = ratio or add_initializer(graph, next(names), np.array(0.5, np.float32))
    tape = ir.tape.Tape()
    part, one_x, ratio_x = (tape.op("CastLike", [value, x]) for value in (mask, one, ratio))
    kept, rest = tape.op("Mul", [x, part]), tape.op("Sub", [one_x, ratio_x])
    result = tape.op("Div", [kept, rest])
    for value in (part, one_x, ratio_x, kept, rest, result):
        value.name, value.type = unique_name(str(y.name), taken), y.type
    result.shape = y.shape
    graph.insert_before(node, tape.nodes)
    ir.convenience.replace_all_uses_with(y, result, replace_graph_outputs=True)
    y.name, result.name = None, y.name


def drawn(op: Twin, step: Step, inputs: Sequence[Any], at: Any) -> list[Any]:
    """The outputs of a random step: constants, or for Dropout a product with a constant."""
    held = [op.number(x) for x in inputs]
    if step.op_type != "Dropout":
        made = numbers.run(step.op_type, held, step.attrs, domain=step.domain,
                           version=step.version, outputs=1)  # fmt: skip
        return [np.asarray(y) for y in made]
    x, ratio, mode = (*inputs, None, None)[:3]
    if mode is None or not np.all(at(mode)):
        return [x, np.ones(shape_of(x), bool)]
    ones = np.ones(shape_of(x), dtype_of(x))
    _, mask = numbers.run("Dropout", [ones, *held[1:]], step.attrs, version=step.version, outputs=2)
    rest = op.Sub(1.0, op.CastLike(np.array(0.5) if ratio is None else ratio, x))
    return [op.Div(op.Mul(x, mask.astype(ones.dtype)), rest), mask]
