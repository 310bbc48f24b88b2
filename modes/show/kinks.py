"""Kinks: where J's point lies on a kink or a jump, or where a derivative is not finite.

The proofs say where the kinks are: by the one-sided limits of a formula, in words for other
operators, which declare the values given there and how entries on kinks are counted.
√x at 0, log 0 and 1 / 0 have blocks with infinities or NaN although the inputs are finite; at 0⁰
Pow has a value although the formula of its derivative has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.threads import cached_property
from ...ops import Node, Step
from ...ops.conventions import CONVENTIONS, SECOND, marked
from ...ops.registry import Count, Kinks, find, full_name, traits_of
from ...ops.rules.elementwise import FORMULAS
from ..linear.derivatives.record import active_steps, cuts, definition_of
from ..linear.explanation import StepKink
from ..linear.linearization import Linearization
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import finite, is_float
from .blocks import Held, end_names, held_in

Values = Mapping[str, Any]

Outputs = tuple[str | None, ...]
"""The names of a step's outputs, which identify the step."""

def kinks_at(J: Linearization, only: Step | None = None) -> tuple[StepKink, ...]:
    """The kinks of J's steps, or of one step, at its point; largest counts first.

    Runs the model if some step may have a kink.
    """
    found = AtPoint(J, only)
    return tuple(sorted((*found.kinks(), *found.unbounded()), key=lambda kink: -kink.count))


@dataclass(frozen=True)
class AtPoint:
    """The steps behind a Jacobian, in the flat model of its point, and their tensors."""

    J: Linearization
    only: Step | None = None

    @cached_property
    def route(self) -> Any:
        """The plan after unrolling, and its inputs."""
        return self.J.route.flat(self.J.point)

    @cached_property
    def owners(self) -> Mapping[Outputs, Step]:
        """A step of the flat model -> the step of the model whose definition contains it.

        Parts precede the part that computes the last output of the whole.
        """
        made = {name: step for step in self.J.route.steps for name in step.outputs if name}
        found, owner = {}, None
        for step in reversed(self.route[0].steps):
            owner = next((made[n] for n in step.outputs if n in made), owner)
            if owner is not None and definition_of(owner, self.J.route.estimate):
                found[step.outputs] = owner
        return found

    def within(self, step: Step) -> str:
        """The node whose definition contains a step; empty for a step of the model itself."""
        return owner.name if (owner := self.owners.get(step.outputs)) else ""

    def chosen(self, step: Step) -> bool:
        """Whether a step is examined: every step is, or only one step with its parts."""
        whole = self.owners.get(step.outputs, step)
        return self.only is None or self.only.outputs in (step.outputs, whole.outputs)

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """The blocks of the examined steps."""
        return tuple(held for held in held_in(self.J) if self.chosen(held.step))

    @cached_property
    def active(self) -> tuple[Step, ...]:
        """The steps with blocks, and the slots of the blocks, also where J is checkpointed."""
        if not self.J.entries:
            found = active_steps(self.route[0].steps, *end_names(self.J))
            return tuple(s for s in found if self.chosen(s))
        groups = (list(blocks) for _, blocks in groupby(self.held, lambda h: h.step.outputs))
        return tuple(replace(g[0].step, wanted=frozenset(h.key for h in g)) for g in groups)

    def values(self, steps: tuple[Step, ...], *, flat: bool = True) -> Values:
        """The tensors of some steps, of the flat model or of the model itself."""
        route, point = self.route if flat else (self.J.route, self.J.point)
        names = dict.fromkeys(n for s in steps for n in s.tensors)
        return evaluate(route.model, point, names, engine=route.engine) if names else {}

    def kinks(self) -> Iterator[StepKink]:
        """Kinks and jumps; a definition is counted as a whole if it has a count, else by parts."""
        cut = (s for s, _ in cuts(self.route[0].steps, *end_names(self.J))
               if jumps(s) and self.chosen(s))  # fmt: skip
        found = [(s, self.owners.get(s.outputs)) for s in (*self.active, *cut)]
        wholes = {o.outputs for _, o in found if o is not None and counter(o)}
        of_model = active_steps(self.J.route.steps, *end_names(self.J)) if wholes else ()
        yield from self.counted([s for s in of_model if s.outputs in wholes], flat=False)
        yield from self.counted([s for s, o in found if (o is None or o.outputs not in wholes)
                                 and has_kinks(s)])  # fmt: skip

    def counted(self, steps: list[Step], *, flat: bool = True) -> Iterator[StepKink]:
        """The kinks of some steps; integers have no jumps."""
        values = self.values(tuple(steps), flat=flat)
        for step in steps:
            node = node_with_tensors(step, values, step.wanted)
            if is_float(np.asarray(node.x).dtype):
                yield from node_kinks(node, self.within(step) if flat else "")

    def unbounded(self) -> Iterator[StepKink]:
        """The derivatives that have no finite value."""
        found = [h for h in self.held if key(h.step) == "Pow" or not_finite(h.operator).size]
        values = self.values(tuple(h.step for h in found))
        for held in found:
            yield from unbounded(held, values, self.within(held.step))


# -- kinks and jumps of one step -------------------------------------------------------------------


def key(step: Step) -> str:
    """The full name of a step's operator."""
    return full_name(step.op_type, step.domain)


def node_with_tensors(step: Step, values: Values, wanted: frozenset[tuple[int, int]]) -> Node:
    """A step with its tensors, as a rule sees it."""
    inputs, outputs = (tuple(values.get(n or "") for n in names)
                       for names in (step.inputs, step.outputs))  # fmt: skip
    return Node(step, inputs, outputs, wanted)


def counter(step: Step) -> Callable[[Node], Count] | None:
    """The function that counts the entries on a kink of an operator without a formula."""
    return told.count if (told := traits_of(step).kinks) else None


def jumps(step: Step) -> bool:
    """Whether an operator without a derivative jumps at some entries of a node."""
    declared = find(step.op_type, step.domain)
    return declared is not None and declared.zero is not None and counter(step) is not None


def has_kinks(step: Step) -> bool:
    """Whether the operator of a step has kinks of its own, not only the parts of its definition."""
    from ...ops.kinks import kink_set

    return bool(counter(step) or (key(step) in FORMULAS and kink_set(step.op_type)))


def node_kinks(node: Node, within: str = "") -> Iterator[StepKink]:
    """The kinks of a node, with the derivative given there."""
    step = node.step
    told = traits_of(step).kinks or Kinks("", "")
    names = [step.inputs[k] for k in told.moves if node.wants(k)]
    tensor = next(filter(None, (*names, *step.inputs)), "")
    for where, count in count_kinks(node):
        yield StepKink(step.op_type, step.name, tensor, where, *count, told.given, within)


def count_kinks(node: Node) -> Iterator[tuple[str, Count]]:
    """The kinks of the first derivative, and how many of how many entries lie on each.

    A formula gives kinks for the attributes of the node; other operators declare them.
    """
    from ...ops.kinks import GENERIC, kink_set, kinks

    name = key(node.step)
    if name not in FORMULAS:
        if count := counter(node.step):
            yield kink_set(node.step.op_type, node.step.domain), count(node)
        return
    attributes = {s: v for s in GENERIC if (v := getattr(node, str(s))) is not None}
    for kink in kinks(name):
        smooth = any(attributes.get(s) == float(value) for s, value in kink.unless)
        if not smooth and not str(kink).endswith(SECOND):
            yield str(kink), (on_kink(kink, node, attributes), np.size(node.x))


def on_kink(kink: Any, node: Node, attributes: Mapping[Any, Any]) -> int:
    """How many entries lie on a kink of a formula, a root in x or a whole quotient."""
    from sympy import lambdify

    from ...ops.formulas import NAMES

    if kink.whole:
        quotient = lambdify([NAMES["x"], NAMES["y"]], kink.where)(*map(np.asarray, node.inputs[:2]))
        return int(np.count_nonzero(quotient == np.floor(quotient)))
    x, root = np.asarray(node.x), float((NAMES["x"] - kink.where).subs(attributes))
    return int(np.count_nonzero(x == np.asarray(root, x.dtype)))


# -- derivatives that are not finite ---------------------------------------------------------------


def unbounded(held: Held, values: Values, within: str) -> Iterator[StepKink]:
    """The entries of one block that are not finite although the inputs of the step are."""
    step, (output, input) = held.step, held.key
    kink = partial(StepKink, step.op_type, step.name, step.inputs[input] or "", within=within)
    if key(step) == "Pow" and input == 0:
        node = node_with_tensors(step, values, frozenset((held.key,)))
        (declared,) = (c for c in CONVENTIONS if c.what == "0⁰")
        given = ", ".join(f"{slope:g}" for slope in declared.ours)
        count = marked((node.x == 0) & (node.inputs[1] == 0))
        yield kink("0⁰: x = 0 and y = 0", *count, f"{given}: {declared.why}")
    found = not_finite(held.operator)
    if found.size and all(map(finite, (values.get(n) for n in step.inputs if n))):
        given = ", ".join(sorted({f"{value:g}" for value in found.tolist()}))
        size = max(np.size(values[step.outputs[output] or ""]), found.size)
        yield kink(f"{slope_text(held)} is not finite", found.size, size, given)


def not_finite(J: Jacobian) -> np.ndarray:
    """The infinities and NaN among the numbers that an operator holds."""
    arrays = (np.asarray(a) for a in J.arrays() if is_float(a.dtype))
    found = [a[~np.isfinite(a)].astype(float) for a in arrays]
    return np.concatenate(found) if found else np.empty(0)


def slope_text(held: Held) -> str:
    """The derivative by the formula of an elementwise operator, else by the names of the block.

    A Sqrt has ∂Y/∂x = 1/(2*Y).
    """
    if key(held.step) not in FORMULAS:
        return held.text
    from ...ops.formulas import derive, parse

    declared = FORMULAS[held.step.op_type]
    text = declared.formulas.get("", next(iter(declared.formulas.values())))
    name = declared.variables[held.key[1]]
    return f"∂Y/∂{name} = {derive(parse(text), name)}"
