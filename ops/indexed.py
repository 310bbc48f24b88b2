"""Indexed: a rule that is lines of index notation, from which SymPy derives the Jacobian.

    m[*r] = mean(x[*r, *s], *s)
    y[*r, *s] = (x[*r, *s] - m[*r])*w[...]

An index with a star stands for any number of axes, `...` for the last indices of y, indices in
brackets, `(i, j)`, for one axis that is split, and `:` for all entries in row-major order; beside a
star or `...`, axes of length 1 are broadcast. SymPy
differentiates each sum once, whatever the shapes are; at a node, the indices of a coefficient say
which operator it is: a diagonal, a Kronecker product, a contraction, a sum or a broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..jacobians import (
    Array,
    Diagonal,
    Identity,
    Jacobian,
    Op,
    Reshape,
    Shape,
    Sum,
    Take,
    common,
    dtype_of,
    shape_of,
    slab,
    take_flat,
)
from ..jacobians.errors import InputError
from ..jacobians.symint import is_symbolic, largest, same
from .indices import Indices, chain_factors, count_up, from_the_start, letters, row_of
from .lines import AxisLayout, IndexedText
from .node import Node
from .numbers import numbers
from .registry import Blocks, declare
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

COUNTS = "counts"
"""The name of a mask of y in `numbers`: the other entries have zero rows."""

LAYOUTS = 1024
"""Layouts that are kept, each for a text and shapes."""

INDEXED: dict[str, Indexed] = {}
"""Operator -> its declaration in index notation."""

Numbers = Callable[[Node], Mapping[str, Any]]


def declare_indexed(
    op_type: str, text: str | Mapping[Any, str] | Callable[[Any], str], **how: Any
) -> None:  # fmt: skip
    """Declare an operator of ONNX by lines of index notation: see `Indexed` for `how`.

    What `declare` takes, such as `grows` or the allowed values of attributes, is passed on.
    """
    told = {name: how.pop(name) for name in ("grows", "values", "definition") if name in how}
    INDEXED[op_type] = rule = Indexed(text, **how)
    declare([op_type], rule, **told)


class Indexed:
    """y[i, ...] = an expression with sums over indices: values and Jacobian, stage by stage.

    `text` has one line, or several of which later ones use earlier ones; the `outputs` are lines,
    by default the last one. Or it maps each value of `by(node)` to a text; `shown` is one such
    value, to show the text by, where it is a function. The `inputs` are named
    in their order, and one that is left out counts as the number in `absent`. For a node, `axes`
    says which axes of the first input an index has (all other axes are the other index with a
    star), `sizes` how long some indices are, and `numbers` gives further numbers of the text, or
    others for an input or for Y, and under `COUNTS` which entries of y have a derivative. With
    `broadcasts`, axes of length 1 are repeated also where there is no star.
    """

    def __init__(
        self, text: str | Mapping[Any, str] | Callable[[Any], str], inputs: Sequence[str] = (), *,
        outputs: Sequence[str] = (), by: Callable[[Node], Any] | None = None, shown: Any = None,
        axes: Numbers | None = None, sizes: Numbers | None = None,
        numbers: Callable[[Op, Node], Mapping[str, Any]] | None = None,
        absent: Mapping[str, float] | None = None,
        defaults: Mapping[str, float] | None = None, broadcasts: bool = False,
    ) -> None:  # fmt: skip
        self.make = text if callable(text) else None
        if isinstance(text, Mapping):
            texts = dict(text)
        else:
            texts = {shown: text(shown) if callable(text) else text}
        self.by, self.axes, self.sizes, self.numbers = by, axes, sizes, numbers
        self.layouts = dict[Any, AxisLayout]()
        self.broadcasts = broadcasts
        self.forms = {key: IndexedText(text, broadcasts) for key, text in texts.items()}
        self.named = tuple(inputs)
        self.outputs = tuple(outputs) or (self.form.lines[-1].name,)
        self.defaults, self.absent = dict(defaults or {}), dict(absent or {})
        self.texts = tuple(form.text for form in self.forms.values())
        self.text = self.__doc__ = self.texts[0]

    @property
    def variables(self) -> Labels:
        """The names of the inputs."""
        return self.variables_of(self.form)

    def variables_of(self, form: IndexedText) -> Labels:
        """The names of the inputs in a text: by default in the order in which they occur."""
        return self.named or form.tensors

    @property
    def is_plain(self) -> bool:
        """Whether its one line says all of it, without stars and what a node tells."""
        tells = self.by or self.axes or self.sizes or self.numbers
        return not tells and len(self.form.lines) == 1 and not self.form.broadcasts

    @property
    def form(self) -> IndexedText:
        """The first text."""
        return next(iter(self.forms.values()))

    def form_of(self, node: Node) -> IndexedText:
        """The text for a node."""
        key = self.by(node) if self.by else next(iter(self.forms))
        if key not in self.forms and self.make:
            self.forms[key] = IndexedText(self.make(key), self.broadcasts)
        return self.forms[key]

    def layout(
        self, form: IndexedText, shapes: Mapping[str, Shape], axes: Mapping[str, Any] | None,
        sizes: Mapping[str, Any], stages: Mapping[str, Stage],
    ) -> AxisLayout:  # fmt: skip
        """The layout of a text, which is kept where all lengths are plain numbers."""
        held = (id(form), *shapes.items(), *(axes or {}).items(), *sizes.items())
        plain = not is_symbolic((*(n for shape in shapes.values() for n in shape),
                                 *sizes.values()))  # fmt: skip
        if plain and held in self.layouts:
            return self.layouts[held]
        tops = [stages[name] for name in self.outputs if name in stages]
        try:
            made = AxisLayout(form, shapes, axes, sizes, tops)
        except InputError as error:
            raise InputError(f"{self.text}: {error}") from None
        if plain:
            if len(self.layouts) >= LAYOUTS:
                self.layouts.clear()
            self.layouts[held] = made
        return made

    @property
    def stages(self) -> dict[str, Stage]:
        """The lines of the first text as nested sums."""
        return self.form.stages(self.variables, {}, self.sizes is not None)

    @property
    def stage(self) -> Stage:
        """The outermost sum of the first output."""
        return self.stages[self.outputs[0]]

    @property
    def term(self) -> str:
        """The expression of the last line."""
        return self.form.lines[-1].body

    @property
    def out(self) -> Labels:
        """The indices of the last line."""
        return self.form.lines[-1].labels

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
        at = NodeDefinition(op, self, node)
        return (at.value(at.made_by[self.outputs[0]]),)

    def __call__(self, op: Op, node: Node) -> Blocks:
        at = NodeDefinition(op, self, node)
        blocks = (((o, i), at.output_block(name, o, i)) for o, name in enumerate(self.outputs)
                  for i in range(min(len(node.inputs), len(at.variables)))
                  if name in at.made_by and node.wants(i, o) and node.inputs[i] is not None
                  and (o == 0 or o < len(node.outputs)))  # fmt: skip
        return {slot: J for slot, J in blocks if J is not None}


class NodeDefinition(Indices):
    """An indexed definition at the inputs of a node."""

    def __init__(self, op: Op, rule: Indexed, node: Node) -> None:
        form = rule.form_of(node)
        self.variables = rule.variables_of(form)
        pairs = zip(self.variables, node.inputs, strict=False)
        self.given = {n: x for n, x in pairs if x is not None}
        more = dict(rule.numbers(op, node)) if rule.numbers else {}
        self.given |= {n: more.pop(n) for n in form.patterns if n in more}
        absent = {n: rule.absent.get(n, 0.0) for n in form.patterns
                  if n in self.variables and n not in self.given}  # fmt: skip
        self.made_by = form.stages(self.variables, absent, rule.sizes is not None)
        floats = [dtype_of(x) for x in self.given.values() if dtype_of(x).kind not in "iub"]
        y = node.outputs[0]
        dtype = common(*floats) if y is None or dtype_of(y).kind in "iub" else dtype_of(y)
        axes = known_axes(rule.axes(node), len(node.x_shape)) if rule.axes else None
        sizes = rule.sizes(node) if rule.sizes else {}
        self.layout = rule.layout(
            form, {n: shape_of(x) for n, x in self.given.items()}, axes, sizes, self.made_by
        )
        super().__init__(op, self.layout.sizes, dtype)
        self.links = self.layout.links
        self.node, self.rule, self.form = node, rule, form
        self.y, self.counts = more.pop("Y", y), more.pop(COUNTS, None)
        self.attributes = {**rule.defaults, **node.attributes, **more}
        self.top, self.made = self.made_by[rule.outputs[0]], dict[Any, Any]()
        self.inputs: dict[str, Array] = {}

    def seen(self, name: str) -> Array:
        """An input as the text indexes it, in the dtype of the output."""
        if name not in self.inputs:
            self.inputs[name] = self.viewed(name, self.given[name])
        return self.inputs[name]

    def viewed(self, name: str, x: Array) -> Array:
        shape = self.layout.seen[name]
        ones = tuple(k for k, n in enumerate(shape_of(x)) if same(n, 1))
        if ones and same(shape, tuple(n for n in shape_of(x) if not same(n, 1))):
            x = self.op.Squeeze(x, ones)
        elif not same(shape, shape_of(x)):
            x = self.op.Reshape(x, shape)
        if name in self.form.integers or dtype_of(x) == self.dtype:
            return x
        return self.op.CastLike(x, np.zeros((), self.dtype))

    # -- values ------------------------------------------------------------------------------------

    def labels(self, atom: Access | Stage) -> Labels:
        return self.layout.have(atom) if isinstance(atom, Access) else self.layout.of(atom.labels)

    def value(self, atom: Access | Stage) -> Array:
        """The value of an input at its indices, or of a stage."""
        if isinstance(atom, Access):
            x = self.seen(atom.name)
            return x if atom.plain else self.selection(atom)._apply(self.op, x)
        if id(atom) not in self.made:
            known = atom is self.top and self.y is not None
            self.made[id(atom)] = self.output() if known else self.computed(atom)
        return self.made[id(atom)]

    def output(self) -> Array:
        """The first output with an axis for each of its indices."""
        shape = self.shape(self.layout.of(self.top.labels))
        return self.y if same(shape, shape_of(self.y)) else self.op.Reshape(self.y, shape)

    def computed(self, stage: Stage) -> Array:
        found = [self.factor(stage, tree) for tree in stage.factors]
        labels, summed = self.layout.of(stage.labels), self.layout.of(stage.summed)
        if len(found) > 1:
            grid = (*labels, *summed)
            terms = ",".join(letters(have, grid) for _, have in found)
            out = letters(labels, grid)
            y = self.op.Einsum(*(x for x, _ in found), equation=f"{terms}->{out}")
            return self.op.Div(y, self.count(stage.summed)) if stage.means else y
        ((x, have),) = found
        grid = self.layout.of((*stage.labels, *stage.summed))
        whole = self.aligned(x, have, grid)
        if not summed:
            return whole
        reduce = self.op.ReduceLogSumExp if stage.logs else (
            self.op.ReduceMean if stage.means else self.op.ReduceSum)  # fmt: skip
        y = reduce(whole, tuple(k for k, c in enumerate(grid) if c in summed), keepdims=0)
        return self.aligned(y, tuple(c for c in grid if c not in summed), labels)

    def count(self, summed: Labels) -> Any:
        """The number of terms of a sum, at least 1."""
        return largest(prod(self.shape(self.layout.of(summed))), 1)

    def share(self, stage: Stage) -> tuple[Array, Labels]:
        """exp(term) / Σ exp(term): from the term, since Y is rounded; or the output, if it is."""
        if stage.shares and self.y is not None:
            return self.value(self.top), self.layout.of(stage.shares)
        labels, summed = self.layout.of(stage.labels), self.layout.of(stage.summed)
        x, have = self.factor(stage, stage.factors[0])
        grid = (*labels, *summed)
        whole = self.aligned(x, have, grid)
        rows = self.op.Reshape(whole, (*shape_of(whole)[: len(labels)], prod(self.shape(summed))))
        return self.op.Reshape(self.op.Softmax(rows, axis=-1), shape_of(whole)), grid

    def factor(self, stage: Stage, tree: Tree) -> tuple[Array, Labels]:
        """A factor of a stage, and the labels of its axes; computed once."""
        if isinstance(tree, str) and tree in stage.atoms:
            return self.value(stage.atoms[tree]), self.labels(stage.atoms[tree])
        if tree == SHARE:
            return self.share(stage)
        atoms = {n: a for n, a in stage.atoms.items() if n in names(tree)}
        own = {"Y", SHARE} & names(tree)
        key = tree, tuple(map(id, atoms.values())), id(stage) if own else None
        if key not in self.made:
            self.made[key] = self.evaluated(stage, tree, atoms)
        return self.made[key]

    def evaluated(
        self, stage: Stage, tree: Tree, atoms: Mapping[str, Access | Stage]
    ) -> tuple[Array, Labels]:  # fmt: skip
        arrays = {n: (self.value(a), self.labels(a)) for n, a in atoms.items()}
        if "Y" in names(tree):
            arrays["Y"] = (self.value(stage), self.layout.of(stage.labels))
        if SHARE in names(tree):
            arrays[SHARE] = self.share(stage)
        union = {label for _, labels in arrays.values() for label in labels}
        grid = self.layout.of((*stage.labels, *stage.summed))
        want = tuple(label for label in grid if label in union)
        held = {n: self.aligned(x, have, want) for n, (x, have) in arrays.items()}
        told = {n: self.attributes[n] for n in names(tree) if n in self.attributes}
        return evaluate_tree(self.op, tree, {**told, **held}, self.dtype), want

    # -- the Jacobian ------------------------------------------------------------------------------

    def output_block(self, name: str, o: int, i: int) -> Jacobian | None:
        """∂output o/∂input i, between tensors in their own shapes."""
        x, stage = self.variables[i], self.made_by[name]
        J = self.block(stage, x)
        if J is None:
            return None
        shape, y = shape_of(self.node.inputs[i]), self.node.output(o)
        if not same(J.in_shape, shape):
            J = chain_factors(J, Reshape(J.in_shape, shape, self.dtype))
        out = J.out_shape if y is None else shape_of(y)
        J = J if same(J.out_shape, out) else chain_factors(Reshape(out, J.out_shape, self.dtype), J)
        return J if self.counts is None else Diagonal(self.counts, out, chooses=True) @ J

    def block(self, stage: Stage, name: str) -> Jacobian | None:
        """∂stage/∂input: one chain for every atom that the input is in."""
        if stage.direct is not None:
            self.made[id(stage.direct)] = self.value(stage)  # its slopes have this Y
            return self.block(stage.direct, name)
        if (stage, name) not in self.made:
            terms = []
            for symbol in self.paths(stage).get(name, ()):
                atom = stage.atoms[symbol]
                inner = (self.block(atom, name) if isinstance(atom, Stage)
                         else self.access(atom, name))  # fmt: skip
                if inner is not None:
                    terms.append(chain_factors(self.slope(stage, symbol), inner))
            whole = terms[0] if len(terms) == 1 else Sum(tuple(terms)) if terms else None
            self.made[stage, name] = whole
        return self.made[stage, name]

    def paths(self, stage: Stage) -> dict[str, list[str]]:
        """Input -> the atoms of a stage that depend on it, and whose slope is not 0."""
        if (stage, None) not in self.made:
            found = self.made[stage, None] = dict[str, list[str]]()
            for symbol in stage.slopes:
                atom = stage.atoms[symbol]
                for name in self.paths(atom) if isinstance(atom, Stage) else (atom.name,):
                    found.setdefault(name, []).append(symbol)
        return self.made[stage, None]

    def access(self, atom: Access, name: str) -> Jacobian | None:
        if atom.name != name:
            return None
        x = self.seen(name)
        return Identity(shape_of(x), self.dtype) if atom.plain else self.selection(atom)

    def selection(self, atom: Access) -> Jacobian:
        """The entries of an input at indices that are expressions."""
        x, labels, spelled = self.seen(atom.name), self.labels(atom), self.layout.spelled(atom)
        shape, computed = shape_of(x), [k for k, i in enumerate(spelled) if not isinstance(i, str)]
        if len(computed) == 1 and isinstance(index := spelled[k := computed[0]], Access):
            others = [i for i in spelled if isinstance(i, str)]
            if not {*others} & {*self.labels(index)} and len({*others}) == len(others):
                return self.taken(x, self.value(index), k)
        flat: Array = np.zeros((), np.int64)
        for n, index in zip(shape, spelled, strict=True):
            flat = self.op.Add(self.op.Mul(flat, np.int64(n)), self.index(index, labels, n, atom))
        return take_flat(self.op.Expand(flat, self.shape(labels)), shape, dtype_of(x))

    def taken(self, x: Array, index: Array, axis: int) -> Jacobian:
        """Rows of x along an axis: a slice if the index is a known scalar."""
        shape, row = shape_of(x), row_of(index, shape_of(x)[axis])
        if row is None:
            return Take(from_the_start(self.op, index, shape[axis]), axis, shape, self.dtype)
        J = slab(shape, axis, row, row + 1, self.dtype)
        return Reshape((*shape[:axis], *shape[axis + 1 :]), J.out_shape, self.dtype) @ J

    def index(self, index: Index, labels: Labels, n: Any, atom: Access) -> Array:
        """An index over the grid of some labels: affine in labels, or entries of an input."""
        if isinstance(index, Access):
            t = self.aligned(self.value(index), self.labels(index), labels)
            place = from_the_start(self.op, t, n)
        else:
            steps = {index: 1} if isinstance(index, str) else index
            place = np.full((1,) * len(labels), steps.get("", 0), np.int64)
            for k, label in enumerate(labels):
                if steps.get(label):
                    ones = (-1,) + (1,) * (len(labels) - k - 1)
                    along = self.op.Reshape(count_up(self.op, self.sizes[label]), ones)
                    place = self.op.Add(place, self.op.Mul(along, np.int64(steps[label])))
        if (
            isinstance(place, np.ndarray)
            and place.size
            and not (0 <= place.min() <= place.max() < n)
        ):
            raise InputError(f"an index of {atom.name} leaves the {n} entries of its axis")
        return place

    def is_number(self, tree: Tree) -> bool:
        """Whether a factor is a number of attributes."""
        return all(isinstance(self.attributes.get(n), float | int) for n in names(tree))

    def slope(self, stage: Stage, symbol: str) -> Jacobian:
        """∂stage/∂atom, whose kind the indices of its factors decide."""
        have, out = self.labels(stage.atoms[symbol]), self.layout.of(stage.labels)
        scale: Any = 1.0
        found = []
        for tree in stage.slopes[symbol]:
            if isinstance(tree, float) or self.is_number(tree):
                held = {n: self.attributes[n] for n in names(tree)}
                scale *= float(evaluate_tree(numbers, tree, held, np.dtype(np.float64)))
            else:
                found.append(self.factor(stage, tree))
        seen = {*have}.union(*(labels for _, labels in found))
        summed = self.layout.of(stage.summed)
        scale *= prod(self.sizes[label] for label in summed if label not in seen)
        J = self.operator(found, have, out, chooses=symbol in stage.choices)
        small = len(have) < len(out)
        if not same(scale, 1):  # beside the fewer entries, not into the array of a diagonal
            J = J @ (Identity(J.in_shape, self.dtype) * scale) if small else J * scale
        return J / self.count(stage.summed) if stage.means else J


def known_axes(axes: Mapping[str, Any], rank: int) -> dict[str, tuple[int, ...]]:
    """Axes that may be symbolic as plain numbers, which a recording then supposes."""
    return {label: tuple(k for k in range(rank) if k in some) for label, some in axes.items()}


def sizes_of(rule: Indexed, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The length of every label."""
    shapes = {name: shape_of(x) for name, x in inputs.items()}
    return rule.layout(rule.form, shapes, None, {}, rule.stages).sizes
