"""Derive: an operator from one line of mathematics, entry by entry or in index notation.

SymPy differentiates every sum of the line by the tensors and sums in it. A coefficient is a product
of factors with indices, and the indices say which operator it is: a diagonal, a Kronecker product,
a contraction, a sum or a broadcast. The Jacobian is the chain of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ..jacobians import Array, Identity, Jacobian, Op, Sum, common, dtype_of, shape_of, take_flat
from ..jacobians.errors import InputError, warn
from ..jacobians.symint import same
from ..jacobians.threads import cached_property
from .graphs import Recorder, build
from .indices import Indices, letters
from .node import Node, node_of
from .registry import Blocks, declare
from .rules.elementwise import Elementwise
from .rules.indexing import from_the_start
from .trees import (
    SHARE,
    Access,
    Index,
    Labels,
    Piece,
    Stage,
    Tree,
    accesses,
    evaluate_tree,
    names,
    stages,
)


def derive(
    name: str, definition: Any, *, inputs: Sequence[str] | None = None, **attributes: float
) -> Derived:
    """An operator from its formula: y = f(x, g) or y[i, k] = sum(a[i, j]*b[j, k], j).

    `name` is `Op` or `domain::Op`. SymPy derives its values, Jacobian, adjoint and derivatives of
    any order. `definition` is text or a SymPy expression. Without indices it holds entry by entry,
    with ONNX's broadcasting; with indices, `sum(term, j)` sums over j, an index may be `2*i + k` or
    `t[i]` for integers t, and every index of y runs over all entries. Functions are ONNX's,
    `sigmoid`, `softplus`, `max`, `min`, `Piecewise` and `a if c else b`. Exponentials are rewritten
    so that they do not overflow, log Σ exp included; if double precision still loses the value at 0
    or ±800, there is an `OnnxJacWarning`.

    The inputs are in the order of the text, or as in `inputs`; `attributes` have these defaults.

    Raises `InputError` for a formula that cannot be read.

    >>> mish = derive("my.domain::Mish", "x*tanh(log(1 + exp(x)))")
    >>> mish.derivatives["x"]
    x*(1 - tanh(softplus(x))**2)*sigmoid(x) + tanh(softplus(x))
    >>> derive("my.domain::Leaky", "x if x > 0 else alpha*x", alpha=0.1).kinks
    ('x = 0, unless alpha = 1',)
    >>> derive("my.domain::Product", "y[i, k] = sum(a[i, j]*b[j, k], j)")
    Derived(my.domain::Product: y[i, k] = sum(a[i, j]*b[j, k], j))
    """
    from .symbols import stages as reader

    head, body = reader.parted(definition)
    found = reader.names_in_text(body) - attributes.keys()
    names = tuple(sorted(found, key=lambda n: find_name(n, body)) if inputs is None else inputs)
    if set(names) != found or not names or "Y" in found or not name.rpartition("::")[0]:
        raise InputError(f"derive({name!r}, {body!r}): its inputs are "
                         f"{', '.join(sorted(found)) or 'none'}, not {', '.join(names)}; the name "
                         "is 'domain::Op', and Y is the output")  # fmt: skip
    rule: Elementwise | Indexed
    if reader.has_indices(body) or head:
        rule = Indexed(body, head, names, attributes)
        _ = rule.stage
    else:
        rule = Elementwise(body, names=names, defaults=attributes)
    if weak := reader.weakness(rule.pieces):
        warn(f"derive({name!r}): double precision gives {weak}")
    declare([name], rule, definition=rule.define)
    return Derived(name, rule)


def find_name(name: str, text: str) -> int:
    """Where a name first occurs in a text."""
    found = re.search(rf"\b{re.escape(name)}\b", text)
    return found.start() if found else len(text)


@dataclass(frozen=True)
class Derived:
    """An operator that SymPy derived, y = f(x): its derivatives, kinks and ONNX function.

    `derive` makes it, with its `name` and its `rule`.

    >>> gate = derive("my.domain::Gate", "g*sigmoid(x)")
    >>> isinstance(gate, Derived), gate.derivatives["x"], gate.kinks, gate.function().name
    (True, Y*sigmoid(-x), (), 'Gate')
    """

    name: str
    rule: Elementwise | Indexed

    @property
    def derivatives(self) -> dict[str, Any]:
        """∂Y/∂x as SymPy expressions by input; in index notation by the names in every sum."""
        from .symbols.stages import slopes

        return slopes(self.rule.pieces)

    @property
    def kinks(self) -> tuple[str, ...]:
        """Where the derivative does not exist, found by one-sided limits."""
        from .kinks import kinks_in

        found = (kink for piece in self.rule.pieces for kink in kinks_in(piece.text))
        return tuple(dict.fromkeys(map(str, found)))

    def function(self, *shapes: tuple[int, ...], opset: int = 21) -> onnx.FunctionProto:
        """The values as an ONNX function of `opset` for any floating type and all sizes.

        Indices such as `x[i + k]` and `x[t[i]]` need `shapes`, and the function is for these.
        """
        rule, (domain, _, op_type) = self.rule, self.name.rpartition("::")
        found = tuple(accesses(rule.stage)) if isinstance(rule, Indexed) else ()
        if not shapes and not all(access.plain for access in found):
            raise InputError(f"{self}: what it selects depends on sizes: give the shapes of its "
                             "inputs, function((3, 4), (4,))")  # fmt: skip
        sizes = {a.name: (2,) * len(a.indices) for a in found}
        sizes |= dict(zip(rule.variables, shapes, strict=False))
        record, whole = Recorder({"": opset}), frozenset[str](getattr(rule, "integers", ()))
        inputs = [record.like(np.ones(sizes.get(n, (2,)), np.int64 if n in whole else float), n)
                  for n in rule.variables]  # fmt: skip
        held = {n: record.like(np.ones(()), n) for n in rule.defaults}
        (y,) = rule.define(record, node_of(op_type, inputs, held, domain, opset))
        graph = ir.to_proto(build(record, [*inputs, *held.values()], {"Y": y}, op_type)).graph
        like = next(n for n in rule.variables if n not in whole)
        nodes = [node for t in graph.initializer for node in constant_nodes(t.name, like, t)]
        nodes += [node for n in held for node in constant_nodes(n, like)]
        defaults = [onnx.helper.make_attribute(n, float(v)) for n, v in rule.defaults.items()]
        return onnx.helper.make_function(
            domain, op_type, list(rule.variables), ["Y"], [*nodes, *graph.node],
            [onnx.helper.make_opsetid("", opset)], attribute_protos=defaults,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Derived({self.name}: {self.rule.text})"

    def _repr_latex_(self) -> str:
        from sympy import latex

        lines = (f"\\frac{{\\partial Y}}{{\\partial {x}}} &= {latex(d)}"
                 for x, d in self.derivatives.items())  # fmt: skip
        return "$$\\begin{aligned}" + r" \\ ".join(lines) + "\\end{aligned}$$"


def constant_nodes(
    name: str, like: str, value: onnx.TensorProto | None = None
) -> Iterator[onnx.NodeProto]:
    """Nodes for a number, or for the attribute of this name; floats take the type of an input."""
    if value is not None and value.data_type != onnx.TensorProto.DOUBLE:
        yield onnx.helper.make_node("Constant", [], [name], value=value)
        return
    plain = onnx.helper.make_node("Constant", [], [f"{name}_"], value=value)
    if value is None:
        kind = onnx.AttributeProto.FLOAT
        plain.attribute.append(
            onnx.AttributeProto(name="value_float", ref_attr_name=name, type=kind)
        )
    yield plain
    yield onnx.helper.make_node("CastLike", [f"{name}_", like], [name])


# -- index notation --------------------------------------------------------------------------------


class Indexed:
    """y[i, ...] = an expression with sums over indices: values and Jacobian, stage by stage."""

    def __init__(
        self, text: str, out: Labels, variables: Sequence[str],
        defaults: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.term, self.out, self.variables = text, out, tuple(variables)
        self.defaults = dict(defaults or {})
        self.text = self.__doc__ = f"y[{', '.join(out)}] = {text}"

    @cached_property
    def stage(self) -> Stage:
        """The outermost sum."""
        from .symbols.stages import stage_of

        return stage_of(self.term, self.out, self.variables)

    @property
    def integers(self) -> frozenset[str]:
        """The inputs that are indices of others."""
        found = (i for access in accesses(self.stage) for i in access.indices)
        return frozenset(i.name for i in found if isinstance(i, Access))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The formula of every stage."""
        return tuple(Piece(s.text, tuple(s.atoms), not s.summed) for s in stages(self.stage))

    def define(self, op: Op, node: Node) -> tuple[Array]:
        return (NodeDefinition(op, self, node).value(self.stage),)

    def __call__(self, op: Op, node: Node) -> Blocks:
        at = NodeDefinition(op, self, node)
        blocks = ((i, at.block(self.stage, x)) for i, x in enumerate(self.variables)
                  if node.wants(i))  # fmt: skip
        return {(0, i): J for i, J in blocks if J is not None}


class NodeDefinition(Indices):
    """An indexed definition at the inputs of a node."""

    def __init__(self, op: Op, rule: Indexed, node: Node) -> None:
        self.inputs = dict(zip(rule.variables, node.inputs, strict=True))
        floats = [dtype_of(x) for x in node.inputs if dtype_of(x).kind not in "iub"]
        super().__init__(op, sizes_of(rule, self.inputs), common(*floats))
        self.attributes = {**rule.defaults, **node.attributes}
        self.top, self.y, self.made = rule.stage, node.outputs[0], dict[int, Array]()

    def value(self, atom: Access | Stage) -> Array:
        """The value of an input at its indices, or of a stage."""
        if isinstance(atom, Access):
            x = self.inputs[atom.name]
            return x if atom.plain else self.selection(atom)._apply(self.op, x)
        if atom is self.top and self.y is not None:
            return self.y
        if id(atom) not in self.made:
            self.made[id(atom)] = self.computed(atom)
        return self.made[id(atom)]

    def computed(self, stage: Stage) -> Array:
        found = [self.factor(stage, tree) for tree in stage.factors]
        if len(found) > 1:
            grid = (*stage.labels, *stage.summed)
            terms = ",".join(letters(labels, grid) for _, labels in found)
            out = letters(stage.labels, grid)
            return self.op.Einsum(*(x for x, _ in found), equation=f"{terms}->{out}")
        ((x, have),) = found
        whole, n = self.aligned(x, have, (*stage.labels, *stage.summed)), len(stage.labels)
        if not stage.summed:
            return whole
        reduce = self.op.ReduceLogSumExp if stage.logs else self.op.ReduceSum
        return reduce(whole, tuple(range(n, n + len(stage.summed))), keepdims=0)

    def share(self, stage: Stage) -> Array:
        """exp(term) / Σ exp(term): from the term, since Y is rounded."""
        x, have = self.factor(stage, stage.factors[0])
        whole = self.aligned(x, have, (*stage.labels, *stage.summed))
        rows = self.op.Reshape(whole, (*shape_of(whole)[: len(stage.labels)], -1))
        return self.op.Reshape(self.op.Softmax(rows, axis=-1), shape_of(whole))

    def factor(self, stage: Stage, tree: Tree) -> tuple[Array, Labels]:
        """A factor of a stage, and the labels of its axes."""
        if isinstance(tree, str) and tree in stage.atoms:
            return self.value(stage.atoms[tree]), stage.atoms[tree].labels
        atoms = {n: a for n, a in stage.atoms.items() if n in names(tree)}
        arrays = {n: (self.value(a), a.labels) for n, a in atoms.items()}
        if "Y" in names(tree):
            arrays["Y"] = (self.value(stage), stage.labels)
        if SHARE in names(tree):
            arrays[SHARE] = (self.share(stage), (*stage.labels, *stage.summed))
        union = {label for _, labels in arrays.values() for label in labels}
        want = tuple(label for label in (*stage.labels, *stage.summed) if label in union)
        held = {n: self.aligned(x, have, want) for n, (x, have) in arrays.items()}
        return evaluate_tree(self.op, tree, {**self.attributes, **held}, self.dtype), want

    # -- the Jacobian ------------------------------------------------------------------------------

    def block(self, stage: Stage, name: str) -> Jacobian | None:
        """∂stage/∂input: one chain for every atom that the input is in."""
        terms = []
        for symbol, atom in stage.atoms.items():
            inner = self.block(atom, name) if isinstance(atom, Stage) else self.access(atom, name)
            if inner is not None:
                terms.append(self.slope(stage, symbol) @ inner)
        if not terms:
            return None
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))

    def access(self, atom: Access, name: str) -> Jacobian | None:
        if atom.name != name:
            return None
        x = self.inputs[name]
        return Identity(shape_of(x), self.dtype) if atom.plain else self.selection(atom)

    def selection(self, atom: Access) -> Jacobian:
        """The entries of an input at indices that are expressions."""
        x, flat = self.inputs[atom.name], np.zeros((), np.int64)
        for n, index in zip(shape_of(x), atom.indices, strict=True):
            flat = self.op.Add(self.op.Mul(flat, np.int64(n)), self.index(index, atom, int(n)))
        return take_flat(self.op.Expand(flat, self.shape(atom.labels)), shape_of(x), dtype_of(x))

    def index(self, index: Index, atom: Access, n: int) -> Array:
        """An index over the grid of its labels: affine in labels, or entries of an input."""
        if isinstance(index, Access):
            t = self.aligned(self.value(index), index.labels, atom.labels)
            place = from_the_start(self.op, t, n)
        else:
            steps = {index: 1} if isinstance(index, str) else index
            place = np.full((1,) * len(atom.labels), steps.get("", 0), np.int64)
            for k, label in enumerate(atom.labels):
                along = np.arange(int(self.sizes[label]))
                ones = (-1,) + (1,) * (len(atom.labels) - k - 1)
                place = place + steps.get(label, 0) * along.reshape(ones)
        if isinstance(place, np.ndarray) and place.size and not 0 <= place.min() <= place.max() < n:
            raise InputError(f"an index of {atom.name} leaves the {n} entries of its axis")
        return place

    def slope(self, stage: Stage, symbol: str) -> Jacobian:
        """∂stage/∂atom, whose kind the indices of its factors decide."""
        have, out = stage.atoms[symbol].labels, stage.labels
        scale, found = 1.0, []
        for tree in stage.slopes[symbol]:
            if isinstance(tree, float):
                scale *= tree
            else:
                found.append(self.factor(stage, tree))
        seen = {*have}.union(*(labels for _, labels in found))
        scale *= prod(self.sizes[label] for label in stage.summed if label not in seen)
        J = self.operator(found, have, out)
        return J if same(scale, 1) and scale == 1 else J * scale


def sizes_of(rule: Indexed, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The length of every label; a label in `2*i + k` alone is as long as fits."""
    found: dict[str, int] = {}
    places = [(access.name, axis, index) for access in accesses(rule.stage)
              for axis, index in enumerate(access.indices)]  # fmt: skip
    for access in accesses(rule.stage):
        if len(access.indices) != len(shape_of(inputs[access.name])):
            raise InputError(f"{rule.text}: {access.name} has {len(access.indices)} indices, "
                             f"not the shape {list(shape_of(inputs[access.name]))}")  # fmt: skip
    for name, axis, index in places:
        n = shape_of(inputs[name])[axis]
        if isinstance(index, str) and not same(found.setdefault(index, n), n):
            raise InputError(f"{rule.text}: the index {index} runs to {found[index]}, and to {n} "
                             f"in axis {axis} of {name}")  # fmt: skip
    for name, axis, index in places:
        if not isinstance(index, dict):
            continue
        unknown = [label for label in index if label and label not in found]
        n = int(shape_of(inputs[name])[axis])
        last = n - 1 - index.get("", 0)
        last -= sum(c * (int(found[k]) - 1) for k, c in index.items() if k in found and c > 0)
        if len(unknown) > 1 or last < 0 or any(index[k] < 1 for k in unknown):
            raise InputError(f"{rule.text}: index {axis} of {name} does not fit its length {n}")
        found.update((label, last // index[label] + 1) for label in unknown)
    return found
