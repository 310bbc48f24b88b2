"""Given: the derivative at the kinks of every operator, in words; `conventions` has the numbers."""

from __future__ import annotations

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
    "DynamicQuantizeLinear": PARTS,
}
"""op_type -> what J has there."""
