"""Optimisers: Adagrad, Adam and Momentum by ONNX's pseudo-code, and others as ONNX functions.

One class per operator of `ai.onnx.preview.training`: its attributes are fields, its formula is
`update`, in calls of the vocabulary. R is the learning rate, T the number of updates so far, X a
tensor, G its gradient; the other tensors are the optimiser's state for X.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import onnx
from onnx import helper

from ...jacobians import Array, Op
from ...jacobians.arguments import Range, validated
from ...jacobians.errors import InputError, closest
from ...ops import Step
from ...ops.node import TRAINING

Arrays = tuple[Array, ...]
First = float | Callable[[np.ndarray], Any]
Decay = Annotated[float, Range(0, below=1)]
COUNT, RATE = "update_count", "learning_rate"


@dataclass(frozen=True)
class Operator(ABC):
    """An operator (R, T, X₁ …, G₁ …, memory) ↦ (X₁' …, memory')."""

    memory: ClassVar[Mapping[str, First]]

    @abstractmethod
    def update(self, op: Op, r: Array, t: Array, x: Array, g: Array, *held: Array) -> Arrays:
        """X' and the new memory, from R, T, X, G and the memory `held`.

        `op` is their vocabulary; r, t, x and g are R, T, X and G.
        """

    def nodes(self, weights: Iterable[str]) -> Iterator[onnx.NodeProto]:
        """One node: the X, X_gradient, X_memory of all `weights` ↦ all X_new, X_memory_new."""
        slots = [f"{x}_{slot}" for slot in self.memory for x in weights]
        held = [RATE, COUNT, *weights, *(f"{x}_gradient" for x in weights), *slots]
        made = [f"{name}_new" for name in (*weights, *slots)]
        node = helper.make_node(type(self).__name__, held, made, "optimizer", domain=TRAINING)
        attributes = {k: v if isinstance(v, str) else float(v) for k, v in asdict(self).items()}
        node.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
        yield node

    @classmethod
    def lowered(cls, op: Op, step: Step, inputs: Sequence[Any]) -> list[Array]:
        """The outputs of a node `step` in the vocabulary `op`: the formula for its `inputs`."""
        r, t, *rest = inputs
        width = 2 + len(cls.memory)
        if len(rest) % width or None in inputs:
            raise InputError(f"{step} has {len(inputs)} inputs: R, T, and {width} for every tensor")
        count = len(rest) // width
        self = cls(**step.attrs)
        groups = zip(*(rest[k * count : (k + 1) * count] for k in range(width)), strict=True)
        updated = [self.update(op, op.CastLike(r, x), t, x, *others) for x, *others in groups]
        return list(chain.from_iterable(zip(*updated, strict=True)))


def regularized(op: Op, x: Array, g: Array, coefficient: float) -> Array:
    """G plus the gradient of ½ · coefficient · ‖X‖²."""
    return op.Add(op.Mul(x, coefficient), g) if coefficient else g


def updated_before(op: Op, t: Array, x: Array) -> Array:
    """Whether this is not the first update."""
    return op.Greater(op.CastLike(t, x), op.CastLike(0.0, x))


@validated
@dataclass(frozen=True)
class Adagrad(Operator):
    """H' = H + G²;  X' = X − R / (1 + T · decay_factor) · G / (√H' + ε).

    X is a weight, G its gradient plus `norm_coefficient` · X, R the learning rate, T the number of
    updates so far, ε the `epsilon`, `decay_factor` the decay of the learning rate; H is the
    optimiser's state for X, 0 at first.

    Shapes: G and H have the shape of X; R and T are scalars. Source: `Adagrad` of
    `ai.onnx.preview.training`, in the ONNX specification; Duchi, Hazan, Singer, 2011.
    """

    norm_coefficient: float = 0.0
    decay_factor: float = 0.0
    epsilon: float = 1e-6
    memory: ClassVar[Mapping[str, First]] = {"squares": 0.0}

    def update(self, op: Op, r: Array, t: Array, x: Array, g: Array, *held: Array) -> Arrays:
        g = regularized(op, x, g, self.norm_coefficient)
        squares = op.Add(held[0], op.Mul(g, g))
        rate = op.Div(r, op.Add(op.Mul(op.CastLike(t, x), self.decay_factor), 1.0))
        step = op.Div(op.Mul(rate, g), op.Add(op.Sqrt(squares), self.epsilon))
        return op.Sub(x, step), squares


@validated
@dataclass(frozen=True)
class Adam(Operator):
    """V' = αV + (1 − α)G;  H' = βH + (1 − β)G²;  X' = X − R' V' / (√H' + ε).

    R' = R √(1 − βᵀ) / (1 − αᵀ) from the second update on, and R' = R at the first. Finally X' is
    multiplied by 1 − `norm_coefficient_post`. α is `alpha`, β is `beta`. X is a weight, G its
    gradient plus `norm_coefficient` · X, R the learning rate, T the number of updates so far, ε the
    `epsilon`; V and H are the optimiser's state for X, 0 at first.

    Shapes: G, V and H have the shape of X; R and T are scalars. Source: `Adam` of
    `ai.onnx.preview.training`, in the ONNX specification; Kingma and Ba, 2015.
    """

    alpha: Decay = 0.9
    beta: Decay = 0.999
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0
    memory: ClassVar[Mapping[str, First]] = {"mean": 0.0, "squares": 0.0}

    def update(self, op: Op, r: Array, t: Array, x: Array, g: Array, *held: Array) -> Arrays:
        g = regularized(op, x, g, self.norm_coefficient)
        mean = op.Add(op.Mul(held[0], self.alpha), op.Mul(g, 1 - self.alpha))
        squares = op.Add(op.Mul(held[1], self.beta), op.Mul(op.Mul(g, g), 1 - self.beta))
        step = op.Div(mean, op.Add(op.Sqrt(squares), self.epsilon))
        x = op.Sub(x, op.Mul(self.rate(op, r, t), step))
        return op.Mul(x, 1 - self.norm_coefficient_post), mean, squares

    def rate(self, op: Op, r: Array, t: Array) -> Array:
        """The learning rate r in the vocabulary `op`, corrected for the bias of means at t."""
        turns, bases = op.CastLike(t, r), (self.beta, self.alpha)
        later = updated_before(op, t, r)
        power = op.Where(later, turns, op.CastLike(1.0, r))
        squares, mean = (op.Sub(1.0, op.Pow(op.CastLike(base, r), power)) for base in bases)
        return op.Where(later, op.Div(op.Mul(r, op.Sqrt(squares)), mean), r)


@validated
@dataclass(frozen=True)
class Momentum(Operator):
    """V' = αV + βG, with β = 1 at first;  X' = X − R V'.

    With `mode="nesterov"`, X' = X − R (G + αV'). α is `alpha`, β is `beta`. X is a weight, G its
    gradient plus `norm_coefficient` · X, R the learning rate; V is the optimiser's state for X, 0
    at first.

    Shapes: G and V have the shape of X; R is a scalar. Raises `InputError` for another `mode`.
    Source: `Momentum` of `ai.onnx.preview.training`, in the ONNX specification.
    """

    alpha: float = 0.9
    beta: float = 1.0
    mode: Literal["standard", "nesterov"] = "standard"
    norm_coefficient: float = 0.0
    memory: ClassVar[Mapping[str, First]] = {"velocity": 0.0}

    def update(self, op: Op, r: Array, t: Array, x: Array, g: Array, *held: Array) -> Arrays:
        g = regularized(op, x, g, self.norm_coefficient)
        one, beta = op.CastLike(1.0, x), op.CastLike(self.beta, x)
        scale = op.Where(updated_before(op, t, x), beta, one)
        velocity = op.Add(op.Mul(held[0], self.alpha), op.Mul(scale, g))
        way = velocity
        if self.mode == "nesterov":
            way = op.Add(g, op.Mul(velocity, self.alpha))
        return op.Sub(x, op.Mul(r, way)), velocity


OPERATORS: dict[str, type[Operator]] = {c.__name__: c for c in (Adagrad, Adam, Momentum)}


@dataclass(frozen=True)
class OptimizerFunction:
    """(R, T, X, G, memory) ↦ (X', memory'): an optimiser of your own, as an ONNX function.

    `function` is a `FunctionProto`, or an onnxscript function. The function is called for each
    trained tensor X, with G the gradient of the loss by X, R the learning rate, T the number of
    updates so far. `memory` names its state for X, in the order of its inputs and outputs, with
    initial values: a number fills a tensor like X, and a function of X returns any other array.
    `attributes` are attributes of the function. A float attribute of ONNX has single precision: for
    coefficients in double precision, the function takes a tensor, given as an array.

    >>> import onnx.parser
    >>> import onnxjac as oj
    >>> heavy_ball = onnx.parser.parse_function('''<domain: "me", opset_import: ["": 21]>
    ...     heavy_ball <alpha> (R, T, X, G, V) => (X1, V1) {
    ...     a = Constant<value_float: float = @alpha>()
    ...     b = CastLike(a, X) old = Mul(b, V) V1 = Add(old, G) d = Mul(R, V1) X1 = Sub(X, d) }''')
    >>> optimizer = oj.OptimizerFunction(heavy_ball, {"velocity": 0.0}, {"alpha": 0.5})
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     f (double[n] x) => (double l) <double w = {2}> {
    ...     y = Mul(w, x) l = ReduceSum<keepdims = 0>(y) }''')
    >>> training = oj.training_model(model, "l", optimizer=optimizer, learning_rate=0.5)
    >>> state = None
    >>> for _ in range(2):
    ...     state, _ = oj.train_step(training, state, {"x": [1.0, 2.0]})
    >>> state["w"], state["w_velocity"]  # 2 - 0.5 · 3 - 0.5 · (0.5 · 3 + 3)
    (array(-1.75), array(4.5))

    Shapes: G and X' have the shape and type of X, and R its type; R and T, an int64, are scalars;
    memory keeps its shape. The function is written for the opset of the loaded model, which is 21
    for older models. Raises `InputError` where the inputs, outputs or attributes of the function
    do not match.
    """

    function: Any
    memory: Mapping[str, First] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if hasattr(self.function, "to_function_proto"):
            object.__setattr__(self, "function", self.function.to_function_proto())
        if not isinstance(f := self.function, onnx.FunctionProto):
            raise InputError(f"an optimizer is a FunctionProto, not {type(f).__name__}")
        slots = ", ".join(["", *self.memory])
        if (len(f.input), len(f.output)) != (4 + len(self.memory), 1 + len(self.memory)):
            raise InputError(f"{f.name} maps ({', '.join(f.input)}) to ({', '.join(f.output)}), "
                             f"not (R, T, X, G{slots}) to (X{slots})")  # fmt: skip
        known = [*f.attribute, *(a.name for a in f.attribute_proto)]
        for name in self.attributes:
            if name not in known:
                raise InputError(f"{f.name} has no attribute {name!r}.{closest(name, known)}")
        for name in f.attribute:
            if name not in self.attributes:
                raise InputError(f"{f.name} needs the attribute {name!r}: give it in attributes=")

    def nodes(self, weights: Iterable[str]) -> Iterator[onnx.NodeProto]:
        """One call for each `X` of `weights`: X, X_gradient, X_memory ↦ X_new, X_memory_new."""
        f = self.function
        given = {k: onnx.numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
                 for k, v in self.attributes.items()}  # fmt: skip
        for x in weights:
            rate, slots = f"{x}_rate", [f"{x}_{slot}" for slot in self.memory]
            yield helper.make_node("CastLike", [RATE, x], [rate])
            held, made = [rate, COUNT, x, f"{x}_gradient", *slots], [x, *slots]
            yield helper.make_node(
                f.name, held, [f"{name}_new" for name in made], f"{x}_optimizer",
                domain=f.domain, overload=f.overload, **given,
            )  # fmt: skip


Optimizer = Operator | OptimizerFunction
