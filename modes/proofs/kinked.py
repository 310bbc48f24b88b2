"""Where an operator is not differentiable, and what is said of operators without a closed form."""

from __future__ import annotations

ORDER = "where the entries that decide the order are equal"
ZERO_NORM = "where the norm is 0"

KINKS: dict[str, str] = {
    "Abs": "x = 0", "Softsign": "x = 0, in the second derivative only", "Relu": "x = 0",
    "LeakyRelu": "x = 0", "PRelu": "x = 0", "Selu": "x = 0", "Elu": "x = 0, unless alpha = 1",
    "Celu": "x = 0, in the second derivative only", "ThresholdedRelu": "x = alpha",
    "HardSigmoid": "alpha x + beta = 0 or 1", "HardSwish": "x = ±3", "Shrink": "x = ±lambd",
    "Clip": "x = min or max", "Mod": "x / y whole", "Max": ORDER, "Min": ORDER,
    "ReduceMax": ORDER, "ReduceMin": ORDER, "ReduceL1": "x = 0", "ReduceL2": ZERO_NORM,
    "GlobalMaxPool": ORDER, "MaxPool": ORDER, "MaxRoiPool": ORDER, "TopK": ORDER, "Unique": ORDER,
    "LpPool": ZERO_NORM, "GlobalLpPool": ZERO_NORM, "LpNormalization": ZERO_NORM,
    "Normalizer": "where the norm is 0, or the greatest entries are equal",
    "GridSample": "where a point of the grid lies on a line of pixels",
    "Range": "where the number of entries changes",
    "DeformConv": "where a sampled point lies on a line of pixels",
    "Imputer": "x = the replaced value",
    "RoiAlign": "where a sampled point lies on a line of pixels",
    "Resize": "in scales and roi, where a sampled point lies on a pixel",
    "ScatterND": f"for max and min, {ORDER}", "ScatterElements": f"for max and min, {ORDER}",

    "DynamicQuantizeLinear": ORDER, "RNN": "at the kinks of its activations, if any",
    "GRU": "at the kinks of its activations, if any",
    "LSTM": "at the kinks of its activations, if any",
}  # fmt: skip
"""op_type -> where the derivative does not exist; the others have it everywhere."""

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
    "MaxRoiPool": ("a selection of entries of X; regions are rounded", frozenset({"X", "Y"})),
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
