"""Make: a random model with a point, and the `of` and `wrt` to differentiate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from . import control, deep
from .catalogue import CATALOGUE
from .contrib import spelled
from .graph import Graph, Unfit, contained

OPSETS = range(7, 27)

NEWER, OFTEN = 0.5, 0.3
"""The share of graphs with newer kinds of nodes, and of such nodes in these graphs."""


@dataclass
class Case:
    """A model, a point, and the tensors that are differentiated."""

    model: onnx.ModelProto
    point: dict[str, np.ndarray]
    of: list[str]
    wrt: list[str]
    symbolic: bool
    operators: list[str]
    traits: frozenset[str] = frozenset()
    """What decides how it is judged: see `traits`."""


def case(seed: int, number: int) -> Case:
    """The case with this seed and number."""
    rng = np.random.default_rng([seed, number])
    opset = int(rng.choice([13, 18, 21, 21, 22, 23, 24, 25, 26, *OPSETS]))
    g = Graph(rng, opset, symbolic=bool(rng.random() < 0.5), batch=int(rng.integers(1, 4)))
    g.spelled, newer = spelled, g.chance(NEWER)
    begin(g)
    wanted, names = g.integer(5, 40 if g.chance(0.2) else 14), sorted(CATALOGUE)
    for _ in range(8 * wanted):
        if len(g.nodes) >= wanted:
            break
        before = state(g)
        try:
            if newer and (g.chance(OFTEN) or not g.nodes):
                deep.any_of(g)
            elif g.chance(0.03):
                control.call(g)
            else:
                op = g.one_of(names)
                CATALOGUE[op](g, op)
        except (Unfit, ValueError, IndexError):
            restore(g, before)
    return chosen(g, newer)


def begin(g: Graph) -> None:
    """Add some initial inputs."""
    for _ in range(g.integer(1, 3)):
        ranks = [1, 2, 2, 3, 3, 4] if g.symbolic else [0, 1, 2, 2, 3, 3, 4]
        shape = [g.integer(1, 3) for _ in range(g.one_of(ranks))]
        if len(shape) == 4 and g.chance(0.5):
            shape[1] = 4
        if g.symbolic and shape and g.chance(0.85):
            shape[0] = g.batch
        elif shape and g.chance(0.03):
            shape[g.integer(0, len(shape) - 1)] = 0
        g.input(g.uniform(shape))
    g.fresh([g.integer(1, 3)])


def state(g: Graph) -> tuple[int, int, int, int]:
    return len(g.nodes), len(g.inputs), len(g.initializers), len(g.functions)


def restore(g: Graph, before: tuple[int, int, int, int]) -> None:
    """Undo what a maker added before it gave up."""
    nodes, inputs, initializers, functions = before
    for node in g.nodes[nodes:]:
        for name in node.output:
            g.values.pop(name, None)
    for kept, count in ((g.inputs, inputs), (g.initializers, initializers)):
        for name in list(kept)[count:]:
            del kept[name], g.values[name]
    del g.nodes[nodes:], g.functions[functions:]


def chosen(g: Graph, newer: bool) -> Case:
    """The graph as a case: random outputs, `of` and `wrt`; in newer ones they meet more often."""
    made = [n for n in g.arrays() if n not in g.inputs and n not in g.initializers]
    if not made:
        g.node("Identity", [g.arrays()[0]])
        made = g.arrays()[-1:]
    used = {name for node in g.nodes for name in node.input}
    ends = [n for n in made if n not in used] or made[-1:]
    outputs = [*ends[-g.integer(1, 3) :]]
    if g.chance(0.3):
        outputs = list(dict.fromkeys([*outputs, g.one_of(made)]))
    of = list(outputs)
    if g.chance(0.3):
        of = list(dict.fromkeys([*of, g.one_of(made)]))
    inputs = [n for n in g.inputs if g.values[n].dtype == g.dtype]
    weights = [n for n in g.initializers if g.values[n].dtype == g.dtype and n[0] == "w"]
    wrt = [n for n in inputs if g.chance(0.85)] or inputs[:1]
    wrt += [n for n in weights if g.chance(0.3)][:3]
    for _ in range(1 + newer):
        if g.chance(0.25):
            wrt = list(dict.fromkeys([*wrt, g.one_of(made)]))
    if newer and g.chance(0.2):
        of = list(dict.fromkeys([*of, g.one_of(wrt)]))
    if g.chance(0.1):
        g.rng.shuffle(wrt)
    if g.chance(0.1):
        g.rng.shuffle(of)
    while len(of) > 1 and sum(g.values[n].size for n in of) > 100:
        of.pop()
    while len(wrt) > 1 and sum(g.values[n].size for n in wrt) > 100:
        wrt.pop()
    operators = sorted({node.op_type for node in g.nodes})
    model = g.model(outputs)
    return Case(model, dict(g.inputs), of, wrt, g.symbolic, operators, traits(model, newer, g))


def traits(model: onnx.ModelProto, newer: bool, g: Graph) -> frozenset[str]:
    """Of "newer" (kinds of nodes), "long" (a loop of 60 turns), "drawn" (random numbers), "half"
    and "narrow" (numbers of 16 and of 32 bits).
    """
    nodes = [n for part in (model.graph, *model.functions) for n in contained(part.node)]
    turns = [g.values.get(n.input[0]) for n in model.graph.node if n.op_type == "Loop"]
    casts = {a.i for n in nodes if n.op_type == "Cast" for a in n.attribute}
    found = {
        "newer": newer,
        "long": any(n is not None and n > 50 for n in turns),
        "drawn": any(a.name == "seed" for n in nodes for a in n.attribute),
        "half": not casts.isdisjoint({onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}),
        "narrow": onnx.TensorProto.FLOAT in casts,
    }
    return frozenset(name for name, holds in found.items() if holds)
