"""Defects of ONNX Runtime: one row for each, with what is done about it.

A row names the operators, says what the runtime does and for which operands, and which version had
it last. Without a remedy the runtime is not asked, and a kernel of this package computes the step;
a function stands in for it; or the function that is named writes the graph otherwise.
`tests/suite/model/test_defects.py` runs the runtime itself at such operands, and fails where it is
mended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, parser

from ...jacobians import shape_of
from ...jacobians.readings import Reading
from ..node import Step, schema_defaults
from ..registry import full_name
from .simplify import COPIES, constant_numbers, rewrites

ENDS, HANGS, WRITES = "ends the process at", "does not return from", "writes to operands of"
DEPARTS, ROUNDS = "departs from ONNX in", "rounds doubles to float32 in"
REFUSES = "has no kernel for"


class Defect(NamedTuple):
    """A row; `where(step, *inputs)` with None for what is unknown, for a function `is_trap`'s."""

    name: str
    operators: str
    effect: str
    where: Callable[..., bool]
    remedy: str = ""
    seen: str = "1.32"


DEFECTS: dict[str, Defect] = {}
ROWS_OF: dict[str, list[Defect]] = {}
"""The rows by name, and by operator."""


def enter(*row: Any) -> None:
    """Enter a row."""
    entered = DEFECTS[row[0]] = Defect(*row)
    for operator in entered.operators.split():
        ROWS_OF.setdefault(operator, []).append(entered)


def refusal(step: Step, inputs: Any) -> str | None:
    """Why ONNX Runtime is not asked to compute a step; None if it may be."""
    for row in ROWS_OF.get(full_name(step.op_type, step.domain), ()):
        if not row.remedy and row.where(step, *inputs):
            return f"ONNX Runtime {row.effect} {step}. Try engine='numpy'."
    return None


def is_empty(x: Any) -> bool:
    return x is not None and 0 in np.shape(x)


def is_double(step: Step, x: Any = None, *inputs: Any) -> bool:
    return x is not None and bool(x.dtype == np.float64)


PAST = {"Attention": (4,), "DecoderMaskedMultiHeadAttention": (5, 6), "GroupQueryAttention": (3, 4),
        "MultiHeadAttention": (6, 7), "QAttention": (8,)}  # fmt: skip
"""The operands that are empty where a text begins."""


def empty_in_contrib(step: Step, *inputs: Any) -> bool:
    past = PAST.get(step.op_type, ())
    return any(is_empty(x) for k, x in enumerate(inputs) if k not in past)


def empty_frame(step: Step, x: Any, hop: Any, window: Any = None, length: Any = None) -> bool:
    return np.shape(window) == (0,) or (length is not None and not np.any(length))


def few_labels(step: Step, x: Any, *inputs: Any) -> bool:
    """It accepts fewer labels than samples, and a number of weights other than one per class."""
    shape = np.shape(x)
    wanted = (*shape[:1], *shape[2:]), shape[1:2]
    pairs = zip(inputs, wanted, strict=False) if shape else ()
    return any(given is not None and np.shape(given) != n for given, n in pairs)


def mirrored(step: Step, x: Any, length: Any = None, axis: Any = None) -> bool:
    """A onesided spectrum is turned back into another number of samples than 2 (n - 1)."""
    back = step.attrs.get("inverse") and step.attrs.get("onesided")
    if not back or len(step.inputs) < 2 or step.inputs[1] is None:
        return False
    along = step.attrs.get("axis", -2) if axis is None else int(axis)
    return x is None or length is None or int(length) != 2 * (np.shape(x)[along] - 1)


def leaps(step: Step, *inputs: Any) -> bool:
    """With SAME, it ignores dilations, and crops where a stride exceeds the window."""
    sizes = step.attrs.get("strides", ()), step.attrs.get("kernel_shape", ())
    wide = any(n > 1 for n in step.attrs.get("dilations", ())) or any(map(int.__gt__, *sizes))
    return wide and str(step.attrs.get("auto_pad", "")).startswith("SAME")


def kept_sizes(step: Step, x: Any, roi: Any = None, scales: Any = None, *_: Any) -> bool:
    """It ignores `roi` when it computes the size, and `scales` ≠ 1 where they keep the size."""
    if step.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return True
    if scales is None or not np.size(scales):
        return False
    if x is None:  # its size is not known before the run
        return bool(np.any(np.asarray(scales) != 1))
    axes, rank = step.attrs.get("axes", range(np.ndim(x))), np.ndim(x)
    if np.shape(scales) != (len(axes),) or not all(-rank <= axis < rank for axis in axes):
        return False  # the engine will report the error
    lengths = np.array([np.shape(x)[axis] for axis in axes], np.float32)
    same = np.all(np.floor(lengths * scales) == lengths)
    return bool(same and np.any(scales != 1)) or not np.all(scales)


MS, ML = "com.microsoft::", "ai.onnx.ml::"
CONTRIB = (*PAST, "Inverse", "RotaryEmbedding", "SkipLayerNormalization",
           "SkipSimplifiedLayerNormalization")  # fmt: skip
CLASSICAL = "FeatureVectorizer", "LinearClassifier", "Normalizer", "SVMClassifier", "Scaler"

for _row in (
    ("empty_operand", "Einsum GRU", ENDS, lambda step, *xs: any(map(is_empty, xs))),
    ("empty_slices", "Unique", ENDS, lambda step, x: "axis" in step.attrs and is_empty(x)),
    ("empty_batch", "LSTM", ENDS, lambda step, x, *_: np.shape(x)[1:2] == (0,)),
    ("empty_volume", "ConvTranspose", ENDS,
     lambda step, x, *_: np.ndim(x) > 4 and 0 in np.shape(x)[2:]),
    ("empty_window", f"Conv {MS}FusedConv", HANGS,
     lambda step, x, w=None, *_: 0 in np.shape(w)[2:]),
    ("empty_frame", "STFT", ENDS, empty_frame),
    ("empty_in_contrib", f"{ML}FeatureVectorizer {' '.join(MS + n for n in CONTRIB)}", ENDS,
     empty_in_contrib),
    ("no_present", f"{MS}DecoderMaskedMultiHeadAttention", ENDS,
     lambda step, *_: any(step.inputs[5:7]) and len([*filter(None, step.outputs)]) < 3),
    # With `g_idx` it reads two bits as four, beyond the end of the weights.
    ("order_of_two_bits", f"{MS}MatMulNBits", DEPARTS,
     lambda step, *_: step.attrs.get("bits") == 2 and any(step.inputs[4:5])),
    ("few_labels", "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", DEPARTS, few_labels),
    ("single_point", "AffineGrid", DEPARTS,  # with aligned corners, it is put at the axis' end
     lambda step, _, n=None: bool(step.attrs.get("align_corners")) and (n is None or 1 in n[2:])),
    ("mirrored", "DFT", DEPARTS, mirrored),
    # It places values by the inferred shape, not by the given one.
    ("given_shape", "MaxUnpool", DEPARTS, lambda step, *xs: any(x is not None for x in xs[2:])),
    ("leaps", "AveragePool LpPool MaxPool", DEPARTS, leaps),
    ("kept_sizes", "Resize", DEPARTS, kept_sizes),
    # Its generator goes on from run to run: the same seed gives other numbers.
    ("advancing_seed", "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform "
     "RandomUniformLike", DEPARTS,
     lambda step, *_: "seed" in step.attrs and (step.op_type != "Dropout" or any(step.inputs[2:]))),
    # From opset 28 on it has no kernel, and the function that it takes overflows.
    ("large_exponentials", "ReduceLogSumExp", DEPARTS, lambda step, *_: step.version > 27),
    ("single_window", "HammingWindow BlackmanWindow", ROUNDS,
     lambda step, *_: step.attrs.get("output_datatype", 1) == TensorProto.DOUBLE),
    ("single_shrink", "Shrink", ROUNDS, lambda step, x: x is None or is_double(step, x)),
    ("single_length", "DFT", ROUNDS,
     lambda step, *xs: bool(step.attrs.get("inverse")) and is_double(step, *xs)),
    ("single_factors", f"{MS}FastGelu", ROUNDS, is_double),
    ("single_groups", "GroupNormalization", ROUNDS,
     lambda step, *xs: step.attrs.get("stash_type", 1) == 1 and is_double(step, *xs)),
    ("single_results", " ".join(ML + name for name in CLASSICAL), ROUNDS,
     lambda step, *xs: any(is_double(step, x) for x in xs)),
    *((name, operators, effect, lambda step, *_: True, remedy, *seen)
      for name, operators, effect, remedy, *seen in (
        ("subset_of_pads", "Pad", DEPARTS, "ops.graphs.simplify._pad", "1.31"),
        ("dilated_same", "Conv", DEPARTS, "ops.graphs.simplify._with_pads"),
        ("omitted_output", "Loop Split", ENDS, "modes.model.loading.upgrade.name_outputs"),
        ("nested_branches", "If", ENDS, "modes.model.programs.onnxruntime.optimizers_off"),
        ("omitted_last_input", "LayerNormalization", ENDS,
         "modes.model.loading.upgrade.drop_empty_operands"),
        ("no_width", "RandomUniform", ENDS, "modes.model.loading.upgrade._check_range"),
        ("no_turn", "Scan", DEPARTS, "modes.recording.control.Turns.guarded"),
        ("unrounded_halves", "Cast", DEPARTS, "ops.graphs.defects.round_halves"),
        ("left_to_right", "Einsum", HANGS, "modes.model.primal.evaluate.Forecast._check_einsum"),
      )),
):  # fmt: skip
    enter(*_row)


# -- functions that stand in for operators ---------------------------------------------------------

GUARD = "onnxjac.guard"
"""The domain of the functions that replace operators of ONNX Runtime."""

FUNCTIONS = {"Div": """Div (a, b) => (y) {
    n = Constant<value_int = -1>() minus_one = CastLike(n, b) equal = Equal(b, minus_one)
    o = Constant<value_int = 0>() zero = CastLike(o, b) negative = Less(b, zero)
    by_minus_one = And(equal, negative) product = Mul(a, b) one = Mul(b, b)
    divisor = Where(by_minus_one, one, b) quotient = Div(a, divisor)
    y = Where(by_minus_one, product, quotient)
}""", "ScatterND": """ScatterND <reduction> (x, at, updates) => (y) {
    none = Constant<value_int = 0>() step = Constant<value_int = 1>()
    first = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
    end = Constant<value_ints = [9223372036854775807]>()
    shape = Shape(x) depth = Shape<start = -1>(at)
    sizes = Slice(shape, first, depth) rest = Slice(shape, depth, end)
    rest_or_one = Concat<axis = 0>(rest, one) width = ReduceProd(rest_or_one)
    count = ReduceProd<keepdims = 0>(sizes) places = Range(none, count, step)
    numbered = Reshape<allowzero = 1>(places, sizes) index = GatherND(numbered, at)
    n = Size(index) rows = Reshape(n, one) length = Reshape(count, one)
    column_shape = Concat<axis = 0>(rows, one) column = Reshape<allowzero = 1>(index, column_shape)
    rows_shape = Concat<axis = 0>(rows, width) columns = Expand(column, rows_shape)
    flat_shape = Concat<axis = 0>(length, width) flat_x = Reshape<allowzero = 1>(x, flat_shape)
    moved = Reshape<allowzero = 1>(updates, rows_shape)
    flat_y = ScatterElements<axis = 0, reduction: string = @reduction>(flat_x, columns, moved)
    y = Reshape<allowzero = 1>(flat_y, shape)
}""", "BatchNormalization": """BatchNormalization
<training_mode, epsilon: float = 1e-5, momentum: float = 0.9>
(x, scale, b, old_mean, old_variance) => (y, new_mean, new_variance) {
    axes = Constant<value_ints = [0, -1]>() column = Constant<value_ints = [-1, 1]>()
    ahead = Shape<start = 0, end = 2>(x) rest = Constant<value_ints = [-1]>()
    rows = Concat<axis = 0>(ahead, rest) flat = Reshape(x, rows)
    mean = ReduceMean<keepdims = 1>(flat, axes) centred = Sub(flat, mean)
    square = Mul(centred, centred) variance = ReduceMean<keepdims = 1>(square, axes)
    e = Constant<value_float: float = @epsilon>() offset = CastLike(e, x)
    shifted = Add(variance, offset) deviation = Sqrt(shifted) normal = Div(centred, deviation)
    scales = Reshape(scale, column) slope = CastLike(scales, x) scaled = Mul(normal, slope)
    shifts = Reshape(b, column) shift = CastLike(shifts, x) flat_y = Add(scaled, shift)
    shape = Shape(x) y = Reshape(flat_y, shape)
    m = Constant<value_float: float = @momentum>() old_part = CastLike(m, old_mean)
    w = Constant<value_int = 1>() whole = CastLike(w, old_mean) part = Sub(whole, old_part)
    channels = Shape(old_mean) flat_mean = Reshape(mean, channels)
    seen_mean = CastLike(flat_mean, old_mean) added_mean = Mul(seen_mean, part)
    flat_variance = Reshape(variance, channels)
    seen_variance = CastLike(flat_variance, old_mean) added_variance = Mul(seen_variance, part)
    kept_mean = Mul(old_mean, old_part) new_mean = Add(kept_mean, added_mean)
    kept_variance = Mul(old_variance, old_part) new_variance = Add(kept_variance, added_variance)
}""", "Sigmoid": """Sigmoid (x) => (y) {
    w = Constant<value_float = 1.0>() one = CastLike(w, x)
    minus = Neg(x) power = Exp(minus) sum = Add(one, power) y = Reciprocal(sum)
}""", "Gelu": """Gelu (x) => (y) {
    c = Constant<value = double {0.044715}>() one = Constant<value = double {1}>()
    scale = Constant<value = double {-1.5957691216057308}>()
    square = Mul(x, x) cube = Mul(square, x) bend = Mul(cube, c) bent = Add(x, bend)
    minus = Mul(bent, scale) power = Exp(minus) sum = Add(one, power) y = Div(x, sum)
}""", "Softplus": """Softplus (x) => (y) {
    w = Constant<value_float = 1.0>() one = CastLike(w, x) zero = Sub(one, one)
    size = Abs(x) minus = Neg(size) power = Exp(minus) sum = Add(one, power)
    rounded = Sub(sum, one) log = Log(sum) product = Mul(log, power)
    small = Equal(rounded, zero) divisor = Where(small, one, rounded)
    quotient = Div(product, divisor) rest = Where(small, power, quotient)
    above = Max(x, zero) y = Add(above, rest)
}"""}
"""a / b, but a b where b = -1; no unsigned b is negative. y[at] = reduction(x[at], updates), one
update after the other; slices of x as rows. Batch statistics, and the running ones as new tensors.
1 / (1 + exp(-x)). x / (1 + exp(-√(8/π) (x + 0.044715 x³))), Gelu by tanh. max(x, 0) +
log(1 + exp(-|x|)), where log(1 + e) = log(u) e / (u - 1) for the rounded u = 1 + e.
"""


@cache
def function(op_type: str) -> onnx.FunctionProto:
    """The function that stands in for an operator."""
    return parser.parse_function(f'<domain: "{GUARD}", opset_import: ["": 21]>{FUNCTIONS[op_type]}')


@rewrites("BatchNormalization", engine=COPIES)
def _by_function(op: Reading, *inputs: Any, training_mode: int = 0, **told: Any) -> Any:
    """A runtime may write running statistics over the old ones: the function makes new tensors."""
    if not training_mode:
        return None
    body = function("BatchNormalization")
    values: dict[str, Any] = dict(zip(body.input, inputs, strict=True))
    told = schema_defaults("BatchNormalization", "", 21) | told
    for node in body.node:
        attrs = {a.name: told[a.ref_attr_name] if a.ref_attr_name else helper.get_attribute_value(a)
                 for a in node.attribute}  # fmt: skip
        given = [values[name] for name in node.input]
        if node.op_type == "Shape":
            made: Any = shape_of(given[0])[attrs.get("start", 0) : attrs.get("end")]
        else:
            made = op.call(node.op_type, *given, **attrs)
        values[node.output[0]] = made
    return tuple(values[name] for name in body.output)


TRAPPED = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UNDEFINED, None)
"""Types of a quotient at which the processor may trap, and the unknown type."""


def is_trap(node: ir.Node) -> bool:
    """Whether a function stands in for a node, by the types and numbers that are known."""
    rows = () if node.domain else ROWS_OF.get(node.op_type, ())
    return any(row.remedy == FUNCTION and row.where(node) for row in rows)


def overflow(node: ir.Node) -> bool:
    """The least integer divided by -1; here it wraps around to itself, as in NumPy."""
    if node.outputs[0].dtype not in TRAPPED:
        return False
    divisor = constant_numbers(node.inputs[1])
    return divisor is None or bool(np.any(divisor == -1))


def race(node: ir.Node) -> bool:
    """Threads reduce several updates for one place at the same time, and lose some."""
    if node.attributes.get_string("reduction", "none") == "none":
        return False
    at = constant_numbers(node.inputs[1])
    places = at.reshape(-1, at.shape[-1]) if at is not None and not np.any(at < 0) else None
    return places is None or len(np.unique(places, axis=0)) < len(places)


def training(node: ir.Node) -> bool:
    """Running statistics are written over the old ones: inputs, weights, residuals."""
    return bool(node.attributes.get_int("training_mode", 0))


def rounded_tail(node: ir.Node) -> bool:
    """Sigmoid is 0 from x = -18 on."""
    return node.outputs[0].dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def gives_double(node: ir.Node) -> bool:
    """Softplus has no kernel for double, and Gelu by tanh, but not by erf, rounds it."""
    by_erf = node.op_type == "Gelu" and node.attributes.get_string("approximate", "none") != "tanh"
    return not by_erf and node.outputs[0].dtype == ir.DataType.DOUBLE


FUNCTION = "ops.graphs.defects.function"
enter("overflow", "Div", ENDS, overflow, FUNCTION)
enter("race", "ScatterND", DEPARTS, race, FUNCTION)
enter("training", "BatchNormalization", WRITES, training, FUNCTION)
enter("rounded_tail", "Sigmoid", DEPARTS, rounded_tail, FUNCTION)
enter("single_tanh", "Gelu", ROUNDS, gives_double, FUNCTION)
enter("double_softplus", "Softplus", REFUSES, gives_double, FUNCTION)


# -- halves ----------------------------------------------------------------------------------------


def round_halves(node: ir.Node) -> None:
    """Put Max of one operand, which has a kernel for halves, behind a step that computes halves.

    The runtime computes most steps in float32 and leaves out the rounding between two of them, so
    that a tensor would depend on which others are asked for.
    """
    for y in node.outputs if node.op_type not in MOVES else ():
        if y.dtype == ir.DataType.FLOAT16:
            rounded = ir.Value(name=y.name, shape=y.shape, type=y.type)
            y.name = f"{y.name} unrounded"
            y.replace_all_uses_with(rounded, replace_graph_outputs=True)
            node.append(ir.Node("", "Max", [y], outputs=[rounded]))


MOVES = {
    "Concat", "Constant", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements",
    "GatherND", "If", "Identity", "Loop", "Max", "Min", "Relu", "Reshape", "Scan", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators whose results are entries of their operands, and control flow."""
