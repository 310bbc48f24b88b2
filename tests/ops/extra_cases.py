"""Points at which a rule can be wrong and that ONNX's own cases miss."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

EXTRA = []
RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Extra:
    """A node at a point; `dense` is its Jacobian where that is known and differences are not."""

    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21
    dense: np.ndarray | None = None

    def __str__(self) -> str:
        shapes = ["none" if x is None else "×".join(map(str, np.shape(x))) for x in self.inputs]
        attrs = (f"{k}={v}".replace(" ", "") for k, v in self.attrs.items())
        return "-".join((self.op_type, *shapes, *attrs))


def case(op_types, *inputs, outputs=1, opset=21, dense=None, **attrs):
    """One point for every operator of a list; a tuple stands for a normal draw of that shape."""
    for op_type in op_types.split():
        arrays = tuple(N(*x) if isinstance(x, tuple) else x for x in inputs)
        EXTRA.append(Extra(op_type, arrays, attrs, outputs, opset, dense))


def N(*shape):
    return RNG.standard_normal(shape)


def positive(*shape):
    return RNG.uniform(0.5, 2, shape)


def ints(*values):
    return np.array(values, np.int64)


def number(x):
    return np.array(x, np.float64)


# Broadcasting, of either operand and of both.
for a, b in (((3, 1), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((2,), ())):
    case("Add Sub Mul Max Min Sum Mean", a, b)
    case("Div Mod", a, positive(*b), **({}))
    case("Pow", positive(*a), b)
    case("Where", RNG.integers(0, 2, b).astype(bool), a, b)
case("Sum Mean Max Min", (2, 1), (3,), (1, 3), ())
case("PRelu", (2, 3, 4), (3, 1))
case("PRelu", (2, 3), ())
