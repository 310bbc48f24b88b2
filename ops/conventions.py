"""Conventions: the derivatives chosen where there is none, or more than one.

At a kink every value between the one-sided slopes is defensible, and at a tie every convex
combination of the candidates. Our choices follow four principles, in this order: the derivative of
a constant is 0; tied candidates share equally, unless the operator itself picks one of them; an
entry on a bound counts as inside; at 0, the derivative of a norm is the subgradient of least
length, 0. `CONVENTIONS` lists the numbers, `GIVEN` describes them in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Slopes = tuple[Any, ...] | str
"""∂(Σ y)/∂xᵢ for every floating input; a string where there is none."""


@dataclass(frozen=True)
class Convention:
    """The derivatives at a kink in onnxjac, PyTorch, JAX and TensorFlow, and why ours is chosen.

    A library that is not mentioned chooses as we do.
    """

    what: str
    op_type: str
    inputs: tuple[Any, ...]
    ours: Slopes
    why: str
    torch: Slopes = ()
    jax: Slopes = ()
    tensorflow: Slopes = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21

    def __post_init__(self) -> None:
        for library in ("torch", "jax", "tensorflow"):
            object.__setattr__(self, library, getattr(self, library) or self.ours)


NAN, INF = float("nan"), float("inf")
HALVES = (0.5, 0.5)
MISSING = "–"
BENDS = "the side on which it is constant"
EQUALLY = "those that tie share equally"
FIRST = "the operator names one entry, the first"
STEPS = "constant on either side"

CONVENTIONS = (
    Convention("relu(0)", "Relu", (0.0,), (0.0,), BENDS),
    Convention("leaky relu(0), slope 0.1", "LeakyRelu", (0.0,), (0.1,),
               "the formula of x > 0 begins behind 0", jax=(1.0,), attrs={"alpha": 0.1}),
    Convention("prelu(0), slope 0.1", "PRelu", ([0.0], [0.1]), ([0.1], [0.0]), "as leaky relu",
               jax=([1.0], [0.0]), tensorflow=([0.0], [0.0])),
    Convention("elu(0), α = 2", "Elu", (0.0,), (2.0,), "as leaky relu", tensorflow=MISSING,
               attrs={"alpha": 2.0}),
    Convention("selu(0)", "Selu", (0.0,), (1.7580993,), "as leaky relu", tensorflow=(1.0507010,)),
    Convention("hard sigmoid(∓3)", "HardSigmoid", ([-3.0, 3.0],), ([0.0, 0.0],), BENDS,
               tensorflow=MISSING, attrs={"alpha": 1 / 6, "beta": 0.5}),
    Convention("hard swish(∓3)", "HardSwish", ([-3.0, 3.0],), ([0.0, 1.0],),
               "the slopes of the outer pieces", tensorflow=MISSING),
    Convention("soft shrink(∓0.5)", "Shrink", ([-0.5, 0.5],), ([0.0, 0.0],), BENDS, jax=MISSING,
               tensorflow=MISSING, attrs={"lambd": 0.5, "bias": 0.5}),
    Convention("thresholded relu(1)", "ThresholdedRelu", (1.0,), (0.0,), BENDS, jax=MISSING,
               tensorflow=MISSING),
    Convention("|0|", "Abs", (0.0,), (0.0,), "the middle of [-1, 1]", jax=(1.0,)),
    Convention("sign(0), sign(1)", "Sign", ([0.0, 1.0],), ([0.0, 0.0],), STEPS),
    Convention("round(0.5), round(1.2)", "Round", ([0.5, 1.2],), ([0.0, 0.0],), STEPS,
               tensorflow="none"),
    Convention("floor(1), floor(1.2)", "Floor", ([1.0, 1.2],), ([0.0, 0.0],), STEPS,
               tensorflow="none"),
    Convention("√0", "Sqrt", (0.0,), (INF,), "the limit from the right"),
    Convention("0⁰", "Pow", (0.0, 0.0), (0.0, 0.0), "x⁰ is constant, and 0ʸ is 0 for y > 0",
               jax=(NAN, 0.0), tensorflow=(NAN, 0.0)),
    Convention("0¹", "Pow", (0.0, 1.0), (1.0, 0.0), "0ʸ is constant for y > 0"),
    Convention("(-2)²", "Pow", (-2.0, 2.0), (-4.0, NAN),
               "(-2)ʸ is real only for whole y: there is no derivative in y",
               tensorflow=(-4.0, 0.0)),
    Convention("max(1, 1)", "Max", (1.0, 1.0), HALVES, EQUALLY, tensorflow=(1.0, 0.0)),
    Convention("min(1, 1)", "Min", (1.0, 1.0), HALVES, EQUALLY, tensorflow=(1.0, 0.0)),
    Convention("max [1, 3, 3]", "ReduceMax", ([1.0, 3.0, 3.0],), ([0.0, 0.5, 0.5],), EQUALLY),
    Convention("min [1, 1, 3]", "ReduceMin", ([1.0, 1.0, 3.0],), ([0.5, 0.5, 0.0],), EQUALLY),
    Convention("max pool [1, 1]", "MaxPool", ([[[1.0, 1.0]]],), ([[[1.0, 0.0]]],), FIRST,
               attrs={"kernel_shape": [2]}),
    Convention("top 1 of [2, 2, 1]", "TopK", ([2.0, 2.0, 1.0], [1]), ([1.0, 0.0, 0.0],), FIRST),
    Convention("max written at 2, with 2", "ScatterElements", ([2.0, 1.0], [0], [2.0]),
               ([0.5, 1.0], [0.5]), EQUALLY, attrs={"reduction": "max"}),
    Convention("clip(x, -1, 1) at -1, 0, 1", "Clip", ([-1.0, 0.0, 1.0], -1.0, 1.0),
               ([1.0, 1.0, 1.0], 0.0, 0.0), "an entry on a bound counts as inside",
               jax=([0.5, 1.0, 0.5], 0.5, 0.5)),
    Convention("Π [2, 0, 3]", "ReduceProd", ([2.0, 0.0, 3.0],), ([0.0, 6.0, 0.0],),
               "no kink: no division by 0"),
    Convention("cumulative Π [2, 0, 3]", "CumProd", ([2.0, 0.0, 3.0], 0), ([1.0, 8.0, 0.0],),
               "no kink: no division by 0", tensorflow=([1.0, 0.0, 0.0],), opset=26),
    Convention("Σ |[0, 2]|", "ReduceL1", ([0.0, 2.0],), ([0.0, 1.0],), "as |0|",
               jax=([1.0, 1.0],)),
    Convention("‖[0, 0]‖", "ReduceL2", ([0.0, 0.0],), ([0.0, 0.0],), "the middle of the unit ball",
               jax=([NAN, NAN],), tensorflow=([NAN, NAN],)),
    Convention("3 mod 1.5", "Mod", (3.0, 1.5), (1.0, -2.0), "the slope from the right",
               attrs={"fmod": 1}),
)  # fmt: skip

NAMES = ("at", "operator", "onnxjac", "PyTorch", "JAX", "TensorFlow", "why")


def table() -> str:
    """The conventions as a Markdown table."""
    head = f"| {' | '.join(NAMES)} |\n|{'---|' * len(NAMES)}"
    rows = ((c.what, c.op_type, *map(shown, (c.ours, c.torch, c.jax, c.tensorflow)), c.why)
            for c in CONVENTIONS)  # fmt: skip
    lines = (f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |" for cells in rows)
    return "\n".join([head, *lines])


def shown(slopes: Any) -> str:
    """Slopes as readable text.

    >>> shown(([0.0, 0.5], 1.0))
    '[0, 0.5], 1'
    """
    if isinstance(slopes, tuple):
        return ", ".join(map(shown, slopes))
    if isinstance(slopes, list):
        return f"[{', '.join(map(shown, slopes))}]"
    return slopes if isinstance(slopes, str) else f"{slopes:.5g}"


LEFT = "as on the left"
SHARED = "shared equally by those that tie"
FIRST = "all of it goes to the first of those that tie"
BALL = "0, the middle of the unit ball"
LINE = "as just right of the line"
CONSTANT = "0: constant on either side"
BRANCH = "0: the choice stays as it is here"
PARTS = "as its parts have it"

GIVEN: dict[str, str] = {
    "Relu": f"0, {LEFT}",
    "LeakyRelu": f"alpha, {LEFT}",
    "PRelu": f"the slope of x ≤ 0, {LEFT}",
    "ThresholdedRelu": f"0, {LEFT}",
    "Elu": f"alpha, {LEFT}",
    "Selu": f"alpha · gamma, {LEFT}",
    "HardSigmoid": "0, as outside",
    "HardSwish": "0 at -3 and 1 at 3, as outside",
    "Shrink": "0, as inside",
    "Abs": "0, the middle of [-1, 1]",
    "Mod": "as on the right",
    "Clip": "1 for x: a bound counts as inside",
    **dict.fromkeys(("Max", "Min", "ReduceMax", "ReduceMin"), SHARED),
    **dict.fromkeys(("ScatterND", "ScatterElements"), f"{SHARED}; of updates written, the last"),
    "MaxRoiPool": SHARED,
    **dict.fromkeys(("MaxPool", "GlobalMaxPool", "TopK", "Unique"), FIRST),
    "ReduceL1": "0, as for |0|",
    **dict.fromkeys(("ReduceL2", "LpPool", "GlobalLpPool"), BALL),
    "LpNormalization": "0",
    "Normalizer": f"a norm of 0 counts as 1, |0| has 0, and a maximum is {SHARED}",
    "Imputer": "0: a constant stands there",
    "Range": "as with this number of entries",
    **dict.fromkeys(("GridSample", "DeformConv", "Resize"), LINE),
    "RoiAlign": f"{LINE}; a maximum is {SHARED}",
    **dict.fromkeys(("Floor", "Ceil", "Round", "Sign"), CONSTANT),
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"), BRANCH),
    **dict.fromkeys(("RNN", "GRU", "LSTM", "FusedGemm", "FusedConv"), PARTS),
    **dict.fromkeys(("DynamicQuantizeLinear", "DynamicQuantizeMatMul"), PARTS),
}
"""op_type -> the derivative that J has at the kink, in words."""
