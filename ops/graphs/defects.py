"""Defects of ONNX Runtime: one row for each, with what is done about it.

A row names the operators, says what the runtime does and for which operands, and with which
version this was seen last. The remedy is one of three: the runtime is not asked, and a kernel of
this package computes the step; a function in other operators stands in for the step; or a function
elsewhere, which the row names, writes the graph otherwise. `tests/model/test_defects.py` runs the
runtime itself at such operands, and fails where it is mended: then the row can go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, parser

from ...jacobians import shape_of
from ..node import Step, schema_defaults

ENDS, HANGS = "ends the process at", "does not return from"
DEPARTS, WRITES, REFUSES = "departs from ONNX in", "writes to operands of", "refuses"

Where = Callable[..., bool]
"""where(step, *inputs): whether the runtime fails; what is not known of an input is None."""


@dataclass(frozen=True)
class Defect:
    """A row: without a `remedy`, the runtime is not asked `where` it fails."""

    name: str
    operators: tuple[str, ...]
    effect: str
    where: Where
    remedy: str = ""
    seen: str = "1.32"


DEFECTS: dict[str, Defect] = {}
ROWS_OF: dict[str, list[Defect]] = {}
"""The rows by name, and by operator."""


def enter(name: str, operators: str, effect: str, where: Where, **facts: Any) -> None:
    """Enter a row; `operators` are separated by spaces."""
    row = DEFECTS[name] = Defect(name, (*operators.split(),), effect, where, **facts)
    for operator in row.operators:
        ROWS_OF.setdefault(operator, []).append(row)


def always(step: Step, *inputs: Any) -> bool:
    """For all operands; or the remedy knows for which."""
    return True


def defect(operators: str, effect: str, **facts: Any) -> Callable[[Where], Where]:
    """Enter a row under the name of its predicate."""

    def register(where: Where) -> Where:
        enter(where.__name__, operators, effect, where, **facts)
        return where

    return register


def refusal(step: Step, inputs: Any) -> str | None:
    """Why ONNX Runtime is not asked to compute a step; None if it may be."""
    name = f"{step.domain}::{step.op_type}" if step.domain else step.op_type
    for row in ROWS_OF.get(name, ()):
        if not row.remedy and row.where(step, *inputs):
            return f"ONNX Runtime {row.effect} {step}. Try engine='numpy'."
    return None


# -- steps that kernels of this package compute: operands that end the process ---------------------


def is_empty(x: Any) -> bool:
    """Whether an operand is known to have no entries."""
    return x is not None and 0 in np.shape(x)


@defect("Einsum GRU", ENDS)
def empty_operand(step: Step, *inputs: Any) -> bool:
    return any(map(is_empty, inputs))


@defect("Unique", ENDS)
def empty_slices(step: Step, x: Any) -> bool:
    return "axis" in step.attrs and is_empty(x)


@defect("LSTM", ENDS)
def empty_batch(step: Step, x: Any, *inputs: Any) -> bool:
    return np.shape(x)[1:2] == (0,)


@defect("ConvTranspose", ENDS)
def empty_volume(step: Step, x: Any, *inputs: Any) -> bool:
    """Three or more spatial axes, one of them empty."""
    return len(np.shape(x)) > 4 and 0 in np.shape(x)[2:]


@defect("Conv com.microsoft::FusedConv", HANGS)
def empty_window(step: Step, x: Any, w: Any = None, *inputs: Any) -> bool:
    return 0 in np.shape(w)[2:]


@defect("STFT", ENDS)
def empty_frame(step: Step, x: Any, hop: Any, window: Any = None, length: Any = None) -> bool:
    return np.shape(window) == (0,) or (length is not None and not np.any(length))


PAST = {"Attention": (4,), "DecoderMaskedMultiHeadAttention": (5, 6), "GroupQueryAttention": (3, 4),
        "MultiHeadAttention": (6, 7), "QAttention": (8,)}  # fmt: skip
"""The operands that are empty where a text begins."""


@defect(" ".join(f"com.microsoft::{name}" for name in (
    *PAST, "Inverse", "RotaryEmbedding", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization")) + " ai.onnx.ml::FeatureVectorizer", ENDS)  # fmt: skip
def empty_in_contrib(step: Step, *inputs: Any) -> bool:
    past = PAST.get(step.op_type, ())
    return any(is_empty(x) for k, x in enumerate(inputs) if k not in past)


@defect("com.microsoft::DecoderMaskedMultiHeadAttention", ENDS)
def no_present(step: Step, *inputs: Any) -> bool:
    return len([*filter(None, step.outputs)]) < 3


# -- operands for which it departs from ONNX -------------------------------------------------------


@defect("com.microsoft::MatMulNBits", DEPARTS)
def order_of_two_bits(step: Step, *inputs: Any) -> bool:
    """With `g_idx` it reads two bits as four, beyond the end of the weights."""
    return step.attrs.get("bits") == 2 and any(name is not None for name in step.inputs[4:5])


@defect("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", DEPARTS)
def few_labels(step: Step, x: Any, *inputs: Any) -> bool:
    """It accepts fewer labels than samples, and a number of weights other than one per class."""
    shape = np.shape(x)
    wanted = (*shape[:1], *shape[2:]), shape[1:2]
    pairs = zip(inputs, wanted, strict=False) if shape else ()
    return any(given is not None and np.shape(given) != n for given, n in pairs)


@defect("HammingWindow BlackmanWindow", DEPARTS)
def single_window(step: Step, *inputs: Any) -> bool:
    """The coefficients are rounded to float32."""
    return bool(step.attrs.get("output_datatype", 1) == TensorProto.DOUBLE)


@defect("Shrink", DEPARTS)
def single_shrink(step: Step, x: Any) -> bool:
    """It computes in float32 even for double."""
    return x is None or bool(x.dtype == np.float64)


@defect("AffineGrid", DEPARTS)
def single_point(step: Step, theta: Any, sizes: Any = None) -> bool:
    """With aligned corners, the only point of an axis is put at its end."""
    return bool(step.attrs.get("align_corners")) and (sizes is None or 1 in sizes[2:])


@defect("DFT", DEPARTS)
def mirrored(step: Step, x: Any, length: Any = None, axis: Any = None) -> bool:
    """A onesided spectrum is turned back into another number of samples than 2 (n - 1)."""
    back = step.attrs.get("inverse") and step.attrs.get("onesided")
    if not back or len(step.inputs) < 2 or step.inputs[1] is None:
        return False
    along = step.attrs.get("axis", -2) if axis is None else int(axis)
    return x is None or length is None or int(length) != 2 * (np.shape(x)[along] - 1)


@defect("MaxUnpool", DEPARTS)
def given_shape(step: Step, x: Any, index: Any, shape: Any = None) -> bool:
    """It places values by the inferred shape, not by the given one."""
    return shape is not None


@defect("AveragePool LpPool MaxPool", DEPARTS)
def leaps(step: Step, *inputs: Any) -> bool:
    """With SAME, it ignores dilations, and crops where a stride exceeds the window."""
    sizes = step.attrs.get("strides", ()), step.attrs.get("kernel_shape", ())
    wide = any(n > 1 for n in step.attrs.get("dilations", ())) or any(map(int.__gt__, *sizes))
    return wide and str(step.attrs.get("auto_pad", "")).startswith("SAME")


@defect("Resize", DEPARTS)
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


# -- functions that stand in for operators ---------------------------------------------------------

GUARD = "onnxjac.guard"
"""The domain of the functions that replace operators of ONNX Runtime."""

FUNCTIONS = {"Div": """Div (a, b) => (y) {
    minus_one = Constant<value_int = -1>()
    zero = Constant<value_int = 0>()
    minus_one_like_b = CastLike(minus_one, b)
    zero_like_b = CastLike(zero, b)
    equal = Equal(b, minus_one_like_b)
    negative = Less(b, zero_like_b)
    by_minus_one = And(equal, negative)
    product = Mul(a, b)
    one = Mul(b, b)
    divisor = Where(by_minus_one, one, b)
    quotient = Div(a, divisor)
    y = Where(by_minus_one, product, quotient)
}""", "ScatterND": """ScatterND <reduction> (x, at, updates) => (y) {
    none = Constant<value_int = 0>()
    step = Constant<value_int = 1>()
    first = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    end = Constant<value_ints = [9223372036854775807]>()
    shape = Shape(x)
    depth = Shape<start = -1>(at)
    sizes = Slice(shape, first, depth)
    rest = Slice(shape, depth, end)
    rest_or_one = Concat<axis = 0>(rest, one)
    width = ReduceProd(rest_or_one)
    count = ReduceProd<keepdims = 0>(sizes)
    places = Range(none, count, step)
    numbered = Reshape<allowzero = 1>(places, sizes)
    index = GatherND(numbered, at)
    rows = Size(index)
    rows_alone = Reshape(rows, one)
    count_alone = Reshape(count, one)
    column_shape = Concat<axis = 0>(rows_alone, one)
    rows_shape = Concat<axis = 0>(rows_alone, width)
    flat_shape = Concat<axis = 0>(count_alone, width)
    column = Reshape<allowzero = 1>(index, column_shape)
    columns = Expand(column, rows_shape)
    flat_x = Reshape<allowzero = 1>(x, flat_shape)
    moved = Reshape<allowzero = 1>(updates, rows_shape)
    flat_y = ScatterElements<axis = 0, reduction: string = @reduction>(flat_x, columns, moved)
    y = Reshape<allowzero = 1>(flat_y, shape)
}""", "BatchNormalization": """BatchNormalization
<training_mode, epsilon: float = 1e-5, momentum: float = 0.9>
(x, scale, b, old_mean, old_variance) => (y, new_mean, new_variance) {
    axes = Constant<value_ints = [0, -1]>()
    column = Constant<value_ints = [-1, 1]>()
    one = Constant<value_int = 1>()
    shape = Shape(x)
    ahead = Shape<start = 0, end = 2>(x)
    rest = Constant<value_ints = [-1]>()
    rows = Concat<axis = 0>(ahead, rest)
    flat = Reshape(x, rows)
    mean = ReduceMean<keepdims = 1>(flat, axes)
    centred = Sub(flat, mean)
    square = Mul(centred, centred)
    variance = ReduceMean<keepdims = 1>(square, axes)
    offset = Constant<value_float: float = @epsilon>()
    offset_like_x = CastLike(offset, x)
    shifted = Add(variance, offset_like_x)
    deviation = Sqrt(shifted)
    normal = Div(centred, deviation)
    scale_column = Reshape(scale, column)
    b_column = Reshape(b, column)
    scale_like_x = CastLike(scale_column, x)
    b_like_x = CastLike(b_column, x)
    scaled = Mul(normal, scale_like_x)
    flat_y = Add(scaled, b_like_x)
    y = Reshape(flat_y, shape)
    part = Constant<value_float: float = @momentum>()
    old_part = CastLike(part, old_mean)
    whole = CastLike(one, old_mean)
    new_part = Sub(whole, old_part)
    channels = Shape(old_mean)
    flat_mean = Reshape(mean, channels)
    flat_variance = Reshape(variance, channels)
    batch_mean = CastLike(flat_mean, old_mean)
    batch_variance = CastLike(flat_variance, old_mean)
    kept_mean = Mul(old_mean, old_part)
    kept_variance = Mul(old_variance, old_part)
    added_mean = Mul(batch_mean, new_part)
    added_variance = Mul(batch_variance, new_part)
    new_mean = Add(kept_mean, added_mean)
    new_variance = Add(kept_variance, added_variance)
}""", "Sigmoid": """Sigmoid (x) => (y) {
    one = Constant<value_float = 1.0>()
    one_like_x = CastLike(one, x)
    minus = Neg(x)
    power = Exp(minus)
    sum = Add(one_like_x, power)
    y = Reciprocal(sum)
}""", "Softplus": """Softplus (x) => (y) {
    one = Constant<value_float = 1.0>()
    one_like_x = CastLike(one, x)
    zero = Sub(one_like_x, one_like_x)
    size = Abs(x)
    minus = Neg(size)
    power = Exp(minus)
    sum = Add(one_like_x, power)
    rounded = Sub(sum, one_like_x)
    log = Log(sum)
    product = Mul(log, power)
    small = Equal(rounded, zero)
    divisor = Where(small, one_like_x, rounded)
    quotient = Div(product, divisor)
    rest = Where(small, power, quotient)
    above = Max(x, zero)
    y = Add(above, rest)
}"""}
"""a / b, but a b where b = -1; no unsigned b is negative. y[at] = reduction(x[at], updates), one
update after the other; slices of x as rows. Batch statistics, and the running ones as new tensors.
1 / (1 + exp(-x)). max(x, 0) + log(1 + exp(-|x|)), where log(1 + e) = log(u) e / (u - 1) for the
rounded u = 1 + e.
"""


@cache
def function(op_type: str) -> onnx.FunctionProto:
    """The function that stands in for an operator."""
    return parser.parse_function(f'<domain: "{GUARD}", opset_import: ["": 21]>{FUNCTIONS[op_type]}')


def by_function(op: Any, step: Step, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outputs of a step by the function that stands in for it, in calls of the vocabulary."""
    body, values = function(step.op_type), dict[str, Any]()
    values.update(zip(body.input, inputs, strict=True))
    told = {**schema_defaults(step.op_type, "", step.version), **step.attrs}
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


FUNCTION = "ops.graphs.defects.function"

TRAPPED = (TensorProto.INT32, TensorProto.INT64, TensorProto.UNDEFINED)
"""Types of a quotient at which the processor may trap, and the unknown type."""

Types, Numbers = Mapping[str, int], Mapping[str, np.ndarray]


def is_trap(node: onnx.NodeProto, types: Types, known: Numbers) -> bool:
    """Whether a function stands in for a node, by the types and numbers that are known."""
    rows = () if node.domain else ROWS_OF.get(node.op_type, ())
    return any(row.remedy == FUNCTION and row.where(node, types, known) for row in rows)


@defect("Div", ENDS, remedy=FUNCTION)
def overflow(node: onnx.NodeProto, types: Types, known: Numbers) -> bool:
    """The least integer divided by -1; here it wraps around to itself, as in NumPy."""
    divisor = known.get(node.input[1])
    whole = types.get(node.output[0], TensorProto.UNDEFINED) in TRAPPED
    return whole and (divisor is None or bool(np.any(divisor == -1)))


@defect("ScatterND", DEPARTS, remedy=FUNCTION)
def race(node: onnx.NodeProto, types: Types, known: Numbers) -> bool:
    """Threads reduce several updates for one place at the same time, and lose some."""
    if all(a.name != "reduction" or a.s == b"none" for a in node.attribute):
        return False
    at = known.get(node.input[1])
    if at is None or np.any(at < 0):
        return True
    places = at.reshape(-1, at.shape[-1])
    return len(np.unique(places, axis=0)) < len(places)


@defect("BatchNormalization", WRITES, remedy=FUNCTION)
def training(node: onnx.NodeProto, types: Types, known: Numbers) -> bool:
    """Running statistics are written over the old ones: inputs, weights, residuals."""
    return any(a.name == "training_mode" and a.i for a in node.attribute)


@defect("Sigmoid", DEPARTS, remedy=FUNCTION)
def rounded_tail(node: onnx.NodeProto, types: Types, known: Numbers) -> bool:
    """It is 0 from x = -18 on."""
    return types.get(node.output[0]) in (TensorProto.FLOAT, TensorProto.DOUBLE)


@defect("Softplus", REFUSES, remedy=FUNCTION)
def double_softplus(node: onnx.NodeProto, types: Types, known: Numbers) -> bool:
    """It has no kernel for double."""
    return types.get(node.output[0]) == TensorProto.DOUBLE


def writes(step: Step) -> bool:
    """Whether a runtime may write to the operands of a step, which is recorded as its function."""
    return step.op_type == "BatchNormalization" and bool(step.attrs.get("training_mode"))


# -- graphs that are written otherwise -------------------------------------------------------------

RECORDER, LOADING = "ops.graphs.recorder", "modes.model.loading.upgrade"

enter("subset_of_pads", "Pad", DEPARTS, always, remedy=f"{RECORDER}._pad")
enter("dilated_same", "AveragePool Conv LpPool MaxPool", DEPARTS, always, remedy=f"{RECORDER}.with_pads")
enter("rows_at_once", "ScatterND", DEPARTS, always, remedy=f"{RECORDER}._scatter_nd")
enter("omitted_output", "If Loop Scan Split", ENDS, always, remedy=f"{LOADING}.name_outputs")
enter("omitted_last_input", "LayerNormalization", ENDS, always, remedy=f"{LOADING}.drop_empty_operands")
enter("no_width", "RandomNormal RandomUniform", ENDS, always, remedy=f"{LOADING}._check_range")
enter("no_turn", "Scan", REFUSES, always, remedy="modes.recording.control.Turns.guarded")
enter("copied_row", "Gemm", DEPARTS, always, remedy="modes.recording.control.Turns.stack")
enter("left_to_right", "Einsum", HANGS, always, remedy="modes.model.primal.evaluate.Forecast._check_einsum")
enter("double_transform", "DFT STFT", DEPARTS, always, remedy="modes.linear.products.compiled.is_inexact")
