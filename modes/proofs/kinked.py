"""Where an operator is not differentiable, and what is said of operators without a closed form."""

from __future__ import annotations

from ...ops.rules.elementwise import FORMULAS
from .pieces import SECOND, kinked

ORDER = "where the entries that decide the order are equal"
ZERO_NORM = "where the norm is 0"
LINE = "where a sampled point lies on a line of pixels"
ACTIVATIONS = "at the kinks of its activations, if any"
WRITTEN = f"for max and min, {ORDER}; without a reduction, at positions named twice"
NORMS = f"{ZERO_NORM}; for p = 1, where an entry is 0"

KINKS: dict[str, str] = {
    "Clip": "x = min or max", "Max": ORDER, "Min": ORDER, "ReduceMax": ORDER, "ReduceMin": ORDER,
    "GlobalMaxPool": ORDER, "MaxPool": ORDER, "MaxRoiPool": ORDER, "TopK": ORDER, "Unique": ORDER,
    **dict.fromkeys(("ScatterND", "ScatterElements"), WRITTEN),
    "ReduceL1": "where an entry is 0", "ReduceL2": ZERO_NORM,
    "LpPool": NORMS, "GlobalLpPool": NORMS, "LpNormalization": NORMS,
    "Normalizer": f"{ZERO_NORM}; for L1, where an entry is 0; for MAX, {ORDER}",
    "Imputer": "where an entry is the replaced value",
    "GridSample": LINE, "DeformConv": LINE, "RoiAlign": LINE,
    "Resize": f"in scales and roi, {LINE}", "Range": "where the number of entries changes",
    "DynamicQuantizeLinear": ORDER,
    "MeanVarianceNormalization": f"where the variance is 0{SECOND}",
    "RNN": ACTIVATIONS, "GRU": ACTIVATIONS, "LSTM": ACTIVATIONS,
    "FusedGemm": ACTIVATIONS, "FusedConv": ACTIVATIONS,
}  # fmt: skip
"""op_type -> where the derivative does not exist; elementwise formulas tell it themselves."""


def kink_set(op_type: str) -> str:
    """Where the derivative of an operator does not exist, in words; empty where it always does.

    >>> kink_set("ThresholdedRelu"), kink_set("ReduceL2"), kink_set("MatMul")
    ('x = alpha', 'where the norm is 0', '')
    """
    return kinked(op_type) if op_type in FORMULAS else KINKS.get(op_type, "")


FLOW = "the branch, or the turns, at the point are differentiated: tests/modes"
SEQUENCE = "a sequence stands for its tensors, each of them copied: tests/modes"
OPTIONAL = "an optional stands for what it holds"
UPDATE = "replaced by plain operators, which have proofs: lower_gradients"

STATED: dict[str, tuple[str, frozenset[str]]] = {
    "If": (FLOW, frozenset({"outputs"})),
    "Loop": (FLOW, frozenset({"v_initial", "v_final_and_scan_outputs"})),
    "Scan": (FLOW, frozenset({"initial_state_and_scan_inputs", "final_state_and_scan_outputs"})),
    "SequenceAt": (SEQUENCE, frozenset({"input_sequence", "tensor"})),
    "SequenceConstruct": (SEQUENCE, frozenset({"inputs", "output_sequence"})),
    "SequenceInsert": (SEQUENCE, frozenset({"input_sequence", "tensor", "output_sequence"})),
    "SequenceErase": (SEQUENCE, frozenset({"input_sequence", "output_sequence"})),
    "SequenceMap": (SEQUENCE, frozenset({"input_sequence", "additional_inputs", "out_sequence"})),
    "ConcatFromSequence": (SEQUENCE, frozenset({"input_sequence", "concat_result"})),
    "SplitToSequence": (SEQUENCE, frozenset({"input", "output_sequence"})),
    "ReverseSequence": (SEQUENCE, frozenset({"input", "Y"})),
    "SequenceEmpty": ("an empty sequence", frozenset()),
    "Optional": (OPTIONAL, frozenset({"input", "output"})),
    "OptionalGetElement": (OPTIONAL, frozenset({"input", "output"})),
    "Gradient": (UPDATE, frozenset({"Inputs", "Outputs"})),
    "Adagrad": (UPDATE, frozenset({"R", "inputs", "outputs"})),
    "Adam": (UPDATE, frozenset({"R", "inputs", "outputs"})),
    "Momentum": (UPDATE, frozenset({"R", "inputs", "outputs"})),
    "DynamicQuantizeLinear": (
        "y_scale = (max x - min x) / 255; y is rounded",
        frozenset({"x", "y_scale"}),
    ),
    "Dropout": ("in training y = x mask / (1 - ratio)", frozenset({"data", "ratio", "output"})),
    "BatchNormalization": (
        "in training the running statistics are affine in the old ones",
        frozenset(),
    ),
}
"""op_type -> why, and its differentiable ports, where the cases do not show them."""
