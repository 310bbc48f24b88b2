"""Sizes: which tensors have shapes and numbers that follow from the shapes of the inputs alone.

A derivative is recorded with the sizes that its tensors have at a point. Where numbers of the point
decide a size, the recording holds for these numbers only, and this tells whose they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from ...ops import Step, numbers
from ...ops.numbers.fallback import proto
from ..flow.steps import SHAPES
from ..naming.names import is_float
from ..primal.draws import is_random
from ..primal.sizes import SMALL, Types, dtype_in, inferred, shape_in, type_of
from ..tape.bodies import Body, bodies_of, explicit, may_stop, series, slots

Names = frozenset[str]
NONE: Names = frozenset()


class Sizes:
    """The types of tensors step by step, with a gap for every size that numbers decide.

    `known` are the numbers of small tensors that constants and shapes determine; `number` tells
    the numbers at the point, by which the tensors behind a gap are found: `causes` for a shape,
    `roots` for numbers that hang on such a shape.
    """

    def __init__(
        self,
        types: Types,
        constants: Mapping[str, np.ndarray],
        number: Callable[[str], Any] = lambda name: None,
    ) -> None:
        self.types = dict(types)
        self.known = {n: a for n, a in constants.items() if a.size <= SMALL}
        self.still = set(constants)
        self.causes: dict[str, Names] = {}
        self.roots: dict[str, Names] = {}
        self._number = number

    def run(self, steps: Iterable[Step]) -> Sizes:
        """The types of all that these steps make."""
        for step in steps:
            self.step(step)
        return self

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor; None where numbers decide it, or ONNX cannot tell."""
        return shape_in(self.types.get(name))

    def step(self, step: Step) -> None:
        """The types, causes and known numbers of the outputs of one step."""
        if any(isinstance(value, ir.Graph | Body) for value in step.attrs.values()):
            self._whole(step)
            return
        names = [name for name in step.inputs if name]
        moving = [name for name in names if name not in self.still]
        found = inferred(node_of(step), step.version, self.types, self.known)
        inherited = NONE.union(*(self.causes.get(name, NONE) for name in names))
        moved = () if only_shapes(step) else moving
        behind = NONE.union(inherited, *(self.roots.get(name, NONE) for name in moved))
        still = not behind and not moved and not is_random(step)
        decided: Names | None = None
        for name in filter(None, step.outputs):
            kind = found.get(name)
            if shape_in(kind) is None:
                if decided is None:
                    decided = inherited | self._deciding(step, moving)
                if decided:
                    self.causes[name] = decided
                else:  # ONNX cannot tell, but no number decides it
                    kind = typed(self._number(name)) or kind
            if kind is not None:
                self.types[name] = kind
            if still:
                self.still.add(name)
            elif behind:
                self.roots[name] = behind
        if still:
            self._compute(step)

    def _whole(self, step: Step) -> None:
        """A step with bodies gives what it gives at the point, but for rows of unknown number."""
        inner = {key: self.inside(body) for key, body in bodies_of(step).items()}
        if not inner:
            made = {n: typed(self._number(n)) for n in step.outputs if n}
            self.types.update((n, kind) for n, kind in made.items() if kind is not None)
            return
        state = {k: self._of(n) for k, n in enumerate(step.inputs[: explicit(step)])}
        for k, name in enumerate(step.outputs):
            if not name:
                continue
            behind = NONE
            for key, body in bodies_of(step).items():
                place, start = slots(step, k)
                behind |= inner[key].causes.get(body.results[place], NONE)
                if start is not None:  # a state, as it was at the beginning
                    behind |= state[start]
                else:
                    behind |= NONE.union(*(state[i] for i in series(step)))
            if step.op_type == "Loop" and slots(step, k)[1] is None:
                behind |= self._turns(step, name)
            kind = typed(self._number(name))
            if behind:
                self.causes[name] = frozenset(n if n in self.types else name for n in behind)
                if kind is not None:
                    for dim in kind.tensor_type.shape.dim:
                        dim.Clear()
            if kind is not None:
                self.types[name] = kind

    def _of(self, name: str | None) -> Names:
        """What decides the size of an input."""
        return self.causes.get(name, NONE) if name else NONE

    def _turns(self, step: Step, name: str) -> Names:
        """What decides how many turns a Loop has; a body that decides it stands for its rows."""
        asked = [n for n in step.inputs[:2] if n and n not in self.still]
        found = NONE.union(*(self.roots.get(n, frozenset((n,))) for n in asked))
        return found | {name} if may_stop(step.attrs["body"]) else found

    def inside(self, body: Body) -> Sizes:
        """The sizes in a body, whose inputs have the types of the point and unknown numbers."""
        like = {n: np.ones(x.shape, x.dtype) if x.dtype.kind in "iub" else x
                for n, x in body.like.items()}  # fmt: skip
        types = {n: kind for n in body.formals if (kind := typed(like[n])) is not None}
        types |= {n: self.types[n] for n in body.captured if n in self.types}
        known = {n: self.known[n] for n in body.captured if n in self.known and n not in body.moved}
        inner = Sizes(types, known, lambda n: like[n] if n in like else self._number(n))
        inner.still |= self.still & {*body.captured} - body.moved
        inner.causes = {n: self.causes[n] for n in body.captured if n in self.causes}
        return inner.run(body.steps)

    def _deciding(self, step: Step, moving: list[str]) -> Names:
        """The tensors whose numbers decide the sizes of a step that is no more than the shapes."""
        numbers = {n: self._number(n) for n in filter(None, step.inputs)}
        types = {n: kind for n, x in numbers.items() if (kind := typed(x)) is not None}
        if len(types) < len(numbers):
            return NONE
        node, known = node_of(step), {n: numbers[n] for n in self.still & {*step.inputs}}

        def told(names: Iterable[str]) -> bool:
            held = known | {n: numbers[n] for n in names}
            found = inferred(node, step.version, types, held)
            return all(shape_in(found.get(name)) is not None for name in filter(None, step.outputs))

        if told(()):
            return NONE
        few = [n for n in dict.fromkeys(moving) if np.size(numbers[n]) <= SMALL]
        if told(few):
            for name in tuple(few):
                if told(n for n in few if n != name):
                    few.remove(name)
        elif infers(step):
            few = [n for n in moving if not floating(numbers[n])]
            outputs = [n for n in step.outputs if n and not floating(self._number(n))]
            few = few or (outputs or [n for n in step.outputs if n] if moving else [])
        else:
            few = []
        return NONE.union(*(self.roots.get(n, frozenset((n,))) for n in few))

    def _compute(self, step: Step) -> None:
        """The numbers of small outputs that constants and shapes determine."""
        shapes = [self.shape(name) for name in step.outputs if name]
        if any(s is None or np.prod(s, dtype=float) > SMALL for s in shapes):
            return
        told = self._stand_in if only_shapes(step) else self.known.get
        inputs = [None if name is None else told(name) for name in step.inputs]
        if any(x is None and name for x, name in zip(inputs, step.inputs, strict=True)):
            return
        try:
            made = numbers.run(step.op_type, inputs, step.attrs, domain=step.domain,
                               version=step.version, outputs=len(step.outputs))  # fmt: skip
        except Exception:  # it is not needed to know all
            return
        pairs = zip(step.outputs, made, strict=False)
        self.known.update((n, y) for n, y in pairs if n and isinstance(y, np.ndarray))

    def _stand_in(self, name: str) -> np.ndarray | None:
        """Zeros of the shape of a tensor."""
        shape = self.shape(name)
        if shape is None:
            return None
        return np.broadcast_to(np.zeros((), dtype_in(self.types[name])), shape)


def only_shapes(step: Step) -> bool:
    """Whether a step looks at the shape of its input alone."""
    return not step.domain and step.op_type in SHAPES


def node_of(step: Step) -> onnx.NodeProto:
    """A step without subgraphs as a node, for shape inference."""
    outputs = [name or "" for name in step.outputs]
    node = helper.make_node(step.op_type, [name or "" for name in step.inputs], outputs)
    node.domain = step.domain
    node.attribute.extend(proto(name, value) for name, value in step.attrs.items())
    return node


def infers(step: Step) -> bool:
    """Whether ONNX infers shapes for the operator, so that what it cannot tell hangs on data."""
    if not onnx.defs.has(step.op_type, step.version, step.domain):
        return False
    schema = onnx.defs.get_schema(step.op_type, step.version, step.domain)
    return bool(schema.has_type_and_shape_inference_function)


def typed(array: Any) -> onnx.TypeProto | None:
    """The type of a tensor; None for sequences and the like."""
    return type_of(array) if isinstance(array, np.ndarray) else None


def floating(array: Any) -> bool:
    """Whether an array is one of floating numbers."""
    return is_float(getattr(array, "dtype", np.dtype(object)))
