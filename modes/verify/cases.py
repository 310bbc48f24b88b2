"""The cases of every proof: shapes, axes and attributes, for each operator."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from .case import Case, at, inside, ints, node_case, numbers, positive

CASES: dict[tuple[str, str], list[Case]] = {}
"""(op_type, domain) -> the cases that prove it."""


def case(op_types: str, *inputs: Any, **how: Any) -> None:
    """Enter one case into the table for each operator of a list."""
    for name in op_types.split():
        one = node_case(name, *inputs, **how)
        CASES.setdefault((one.op_type, one.domain), []).append(one)


# Elementwise operators: both sides of every kink, and every kind of broadcasting.

SIDES = numbers(1.25, -0.75)

case("Neg Abs Exp Erf Sin Cos Tan Sinh Cosh Tanh Asinh Atan", SIDES)
case("Sigmoid Softplus Softsign Mish Gelu Relu LeakyRelu Elu Celu Selu Reciprocal", SIDES)
case("Sqrt Log", positive(2), positive=(0,))
case("Asin Acos Atanh", inside(2))
case("Acosh", numbers(1.5, 3.25))
case("Gelu", SIDES, approximate="tanh")
case("Swish", SIDES)
case("Swish", SIDES, alpha=1.5)
case("LeakyRelu Elu Celu", SIDES, alpha=0.25)
case("Selu", SIDES, alpha=1.5, gamma=0.75)
case("ThresholdedRelu", numbers(0.5, 1.5))
case("ThresholdedRelu", numbers(0.5, -0.5), alpha=-0.25)
case("HardSigmoid", numbers(-4, 0.5, 4))
case("HardSigmoid", numbers(-4, 0.5, 4), alpha=0.5, beta=0.25)
case("HardSwish", numbers(-4, 0.5, 4))
case("Shrink", numbers(-2, 0.25, 2), bias=0.5, lambd=1.0)
case("Tanh Neg", at())
case("PRelu", at(2, 2), at(2, seed=1))
case("PRelu", at(2, 3, 1), at(3, 1, seed=1))

for a, b in (((2,), (2,)), ((2, 1), (3,)), ((2,), ()), ((), (2, 2)), ((2, 2), (1, 2))):
    case("Add Sub Mul Sum Mean Max Min", a, b)
    case("Div", a, positive(*b, seed=1))
    case("Mod", a, positive(*b, seed=1), fmod=1)
    case("Pow", positive(*a), b, positive=(0,))
case("Sum Mean Max Min", (2, 1), (3,), ())
case("Sum Mean Max Min", (2,))
case("Pow", at(3), ints(2, 3, 1))
case("Where", np.array([True, False]), (2,), (2,))
case("Where", np.array([[True], [False]]), (2,), ())
case("Clip", numbers(-3, 0.5, 3), np.array(-1.0), np.array(1.0))
case("Clip", numbers(-3, 3), np.array(0.25), None)
case("Clip", numbers(-3, 3), None, np.array(0.25))
case("Clip", numbers(-3, 3))
case("Identity", (2, 2))
case("Cast", (2,), to=1)
case("CastLike", (2,), np.zeros((), np.float64), wrt=(0,))
case("Dropout", (2, 2))

# Operators that move entries: every axis, negative steps, repeated and negative indices.

case("Reshape", (2, 3), ints(3, 2))
case("Reshape", (2, 3), ints(0, -1, 1))
case("Reshape", (), ints(1, 1))
case("Flatten", (2, 1, 3), axis=-1)
case("Flatten", (3,), axis=0)
case("Squeeze", (1, 2, 1), ints(0))
case("Squeeze", (1, 2, 1))
case("Unsqueeze", (2,), ints(0, -1))
case("Transpose", (2, 3))
case("Transpose", (1, 2, 3), perm=[1, 2, 0])
case("Expand", (2, 1), ints(2, 1, 3))
case("Expand", (), ints(2))
case("Tile", (2, 2), ints(2, 1))
case("Concat", (1, 2), (2, 2), axis=0)
case("Concat", (1, 2), (1, 1), axis=-1)
case("Split", (3, 2), outputs=2, num_outputs=2)
case("Split", (1, 4), ints(1, 3), outputs=2, axis=-1)
case("Slice", (3, 3), ints(-1, 2), ints(-5, 0), ints(0, 1), ints(-1, -2))
case("Slice", (4,), ints(1), ints(3))
case("Slice", (2, 3), ints(0), ints(2), ints(-1))
case("Gather", (3, 2), ints(-1, 0, -1), axis=0)
case("Gather", (2, 3), np.array([[1, -1]]), axis=1)
case("Gather", (3,), np.array(-2))
case("GatherElements", (2, 3), np.array([[-1, 0], [2, -1]]), axis=-1)
case("GatherElements", (2, 2), np.array([[1, -1]]), axis=0)
case("GatherND", (2, 2, 2), np.array([[1, -1], [0, 0]]))
case("GatherND", (2, 3), np.array([[-1], [0]]), batch_dims=1)
case("Compress", (2, 3), np.array([True, False, True]), axis=-1)
case("Compress", (2, 2), np.array([False, True, True]))
case("TopK", (2, 3), ints(2), outputs=2, of=(0,))
case("TopK", (3, 2), ints(2), outputs=2, of=(0,), axis=0, largest=0)
case("Unique", at(4), outputs=1)
case("DepthToSpace", (1, 4, 1, 2), blocksize=2)
case("DepthToSpace", (1, 4, 1, 2), blocksize=2, mode="CRD")
case("SpaceToDepth", (1, 1, 2, 4), blocksize=2)
case("Trilu", (2, 3), np.array(1))
case("Trilu", (3, 2), ints(-1), upper=0)
case("Pad", (2, 2), ints(1, -1, 0, 2), np.array(0.5))
case("Pad", (1, 2), ints(1, 2), None, ints(-1))
for mode in ("reflect", "edge", "wrap"):
    case("Pad", (3, 1), ints(2, 1), None, ints(0), mode=mode)
case("CenterCropPad", (3, 1), ints(2, 3))
case("ReverseSequence", (3, 2), ints(2, 3))
case("ReverseSequence", (2, 3), ints(2, 3), time_axis=1, batch_axis=0)
case("OneHot", ints(1, -1, 0), np.array(3), at(2, seed=1))
case("OneHot", ints(1, 0), np.array(2), at(2, seed=1), axis=0)
case("Range", np.array(1.25), np.array(3.0), np.array(0.5))

for reduction in ("none", "add", "mul", "max", "min"):
    case("ScatterND", (3,), np.array([[2], [0]]), (2,), reduction=reduction)
    case("ScatterElements", (2, 2), np.array([[1, -1]]), (1, 2), axis=0, reduction=reduction)
case("ScatterND", (3, 2), np.array([[1], [1]]), (2, 2), reduction="add")
case("ScatterElements", (2, 3), np.array([[0, -1]]), (1, 2), axis=1)
case("Scatter", (2, 2), np.array([[1, 0]]), (1, 2))
case("TensorScatter", (2, 3, 1), (2, 1, 1), ints(1, 2))
case("TensorScatter", (1, 3, 1), (1, 2, 1), ints(2), mode="circular")
case("MaxUnpool", (1, 1, 2), ints(1, 2).reshape(1, 1, 2), kernel_shape=[2], strides=[2])
case("Col2Im", (1, 2, 3), ints(1, 4), ints(1, 2))
case("Col2Im", (1, 4, 2), ints(3, 3), ints(2, 2), strides=[1, 2], dilations=[2, 1],
     pads=[0, 0, 0, 1])  # fmt: skip

# Products, convolutions and transforms.

for left, right in (
    ((2,), (2,)), ((2,), (2, 2)), ((2, 2), (2,)), ((2, 3), (3, 1)), ((2, 1, 2), (2, 2)),
    ((1, 2), (2, 2, 1)), ((2, 1, 2), (2, 2, 1)), ((1, 1, 2), (2, 1, 2, 1)),
):  # fmt: skip
    case("MatMul", left, right)
case("Gemm", (2, 2), (2, 2), (2,), alpha=0.5, beta=-1.5)
case("Gemm", (3, 2), (2, 3), (2, 1), transA=1, transB=1)
case("Gemm", (1, 2), (2, 2))
for equation, shapes in {
    "ij,jk->ik": ((2, 2), (2, 2)), "ij->ji": ((2, 3),), "ii->i": ((2, 2),), "ii": ((2, 2),),
    "i,j->ij": ((2,), (2,)), "i,i,i->": ((2,), (2,), (2,)), "...i,...i->...": ((2, 2), (1, 2)),
}.items():  # fmt: skip
    case("Einsum", *shapes, equation=equation)
case("Conv", (1, 1, 4), (1, 1, 2), (1,))
case("Conv", (1, 2, 5), (2, 1, 2), group=2, strides=[2], dilations=[2], pads=[1, 0])
case("Conv", (1, 2, 2, 3), (1, 2, 2, 2), auto_pad="SAME_UPPER")
case("ConvTranspose", (1, 1, 3), (1, 2, 2), (2,))
case("ConvTranspose", (1, 2, 2), (2, 1, 2), group=2, strides=[2], output_padding=[1], pads=[1, 0])
case("ConvTranspose", (1, 1, 3), (1, 1, 3), strides=[2], output_shape=[6])
case("ConvTranspose", (1, 1, 3), (1, 1, 3), strides=[2], auto_pad="SAME_UPPER")
case("ConvTranspose", (1, 1, 2, 2), (1, 1, 1, 2), dilations=[1, 2], strides=[2, 1])
case("Det", (2, 2))
case("Det", (2, 1, 1))
case("Det", (3, 3))
case("DFT", (1, 4, 1), None, np.array(1))
case("DFT", (1, 3, 2), None, np.array(1), inverse=1)
case("DFT", (1, 4, 1), None, np.array(1), onesided=1)
case("DFT", (1, 3, 1), np.array(4), np.array(1))
case("STFT", (1, 6, 1), np.array(2), (4,))
case("STFT", (1, 6, 1), np.array(2), None, np.array(4), onesided=0)

# Reductions, pools, normalisations, losses, dequantisation.

for inputs, attrs in (
    (((2, 2),), {}), (((2, 3), ints(-1)), {"keepdims": 0}), (((2, 1, 2), ints(0, 2)), {}),
    (((2,), ints()), {"noop_with_empty_axes": 1}),
):  # fmt: skip
    case("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1 ReduceL2 "
         "ReduceLogSumExp", *inputs, **attrs)  # fmt: skip
    case("ReduceLogSum", positive(*inputs[0]), *inputs[1:], positive=(0,), **attrs)
case("CumSum CumProd", (2, 3), np.array(-1))
case("CumSum CumProd", (3, 2), np.array(0), exclusive=1, reverse=1)

case("GlobalAveragePool GlobalMaxPool", (1, 2, 3))
case("GlobalAveragePool GlobalMaxPool", (1, 1, 2, 2))
case("GlobalLpPool", (1, 1, 3))
case("GlobalLpPool", (1, 1, 3), p=3)
for how in (
    {"kernel_shape": [2]}, {"kernel_shape": [2], "strides": [2], "ceil_mode": 1},
    {"kernel_shape": [2], "dilations": [2], "pads": [1, 1]},
    {"kernel_shape": [3], "auto_pad": "SAME_LOWER", "strides": [2]},
):  # fmt: skip
    case("MaxPool AveragePool LpPool", (1, 1, 5), **how)
case("AveragePool", (1, 1, 3), kernel_shape=[2], pads=[1, 1], count_include_pad=1)
case("MaxPool AveragePool", (1, 1, 2, 3), kernel_shape=[2, 2])
FIRST = {"wrt": (0,)}
case("MaxRoiPool", (1, 1, 3, 4), numbers(0, 0, 0, 3, 2).reshape(1, 5), pooled_shape=[2, 2], **FIRST)
case("MaxRoiPool", (1, 2, 2, 2), numbers(0, 1, 1, 4, 4).reshape(1, 5), pooled_shape=[3, 1], **FIRST)
case("MaxRoiPool", (2, 1, 3, 2), numbers(1, 0.5, 0.5, 1.5, 3.25, 0, -0.5, -1, 1, 5).reshape(2, 5),
     pooled_shape=[2, 2], spatial_scale=0.5, **FIRST)  # fmt: skip
case("MaxRoiPool", (1, 1, 3, 2), numbers(0, -1, -3, 1, 4).reshape(1, 5), pooled_shape=[2, 1],
     spatial_scale=0.5, **FIRST)  # fmt: skip
case("LRN", (1, 3, 1), size=3, alpha=0.5, beta=0.75, bias=1.5, second=False)
case("LRN", (1, 2, 1), size=2, alpha=0.5, beta=1.0)

case("Softmax LogSoftmax", (1, 3))
case("Softmax LogSoftmax", (2, 2), axis=0)
case("LayerNormalization", (1, 3), (3,), (3,), second=False)
case("LayerNormalization", (2, 2), (2,), (2,), epsilon=0.125)
case("LayerNormalization", (1, 2, 2), (2, 2), None, axis=1, outputs=3, second=False, wrt=(0,))
case("RMSNormalization", (1, 3), (3,))
case("RMSNormalization", (2, 2), (2,), epsilon=0.125)
case("InstanceNormalization", (1, 2, 2), (2,), (2,), epsilon=0.125)
case("GroupNormalization", (1, 2, 2), (2,), (2,), num_groups=2, epsilon=0.125)
case("GroupNormalization", (1, 2, 2), (2,), (2,), num_groups=1, epsilon=0.125, second=False)
case("MeanVarianceNormalization", (2, 1, 1, 2), second=False)
case("MeanVarianceNormalization", (2, 3), axes=[1], second=False)
case("MeanVarianceNormalization", (2, 1, 1, 1))
case("BatchNormalization", (2, 1), (1,), (1,), (1,), positive(1), positive=(4,), epsilon=0.125)
case("BatchNormalization", (1, 2, 2), (2,), (2,), (2,), positive(2), positive=(4,))
case("BatchNormalization", (3, 1), (1,), (1,), (1,), positive(1), positive=(4,), outputs=3,
     training_mode=1, momentum=0.75)  # fmt: skip
case("LpNormalization", (2, 2))
case("LpNormalization", (1, 3), p=1)

for reduction in ("none", "sum", "mean"):
    case("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", (2, 3), ints(0, 2), positive(3),
         reduction=reduction)  # fmt: skip
case("NegativeLogLikelihoodLoss", (2, 3), ints(1, -1), ignore_index=-1)
case("SoftmaxCrossEntropyLoss", (1, 3), ints(1), outputs=2)
case("SoftmaxCrossEntropyLoss", (1, 2), ints(1))

case("DequantizeLinear", np.array([3, -7], np.int8), np.array(0.5), np.array(2, np.int8))
case("DequantizeLinear", np.array([[3, -7]], np.int8), (2,), axis=1)

# Operators that interpolate between entries: every mode, padding and coordinate system.

FAR = numbers(0.3125, -0.6875, 1.4375, -3.3125).reshape(1, 1, 2, 2)
"""Points of a grid inside an image, just outside it and far outside it."""

WITHIN = numbers(0.3125, -0.6875).reshape(1, 1, 1, 2)

case("AffineGrid", (1, 2, 3), ints(1, 1, 2, 2))
case("AffineGrid", (1, 2, 3), ints(1, 1, 2, 3), align_corners=1)

for padding, corners in product(("zeros", "border", "reflection"), (0, 1)):
    how = {"padding_mode": padding, "align_corners": corners}
    case("GridSample", (1, 1, 3, 2), FAR, **how)
    case("GridSample", (1, 1, 3, 2), FAR, mode="nearest", **how)
    case("GridSample", (1, 1, 3), numbers(1.4375, -0.3125).reshape(1, 2, 1), **how)
    case("GridSample", (1, 1, 2, 3), FAR, mode="cubic", wrt=(0,), **how)
    case("GridSample", at(1, 1, 2, 3), WITHIN + 0.75, mode="cubic", wrt=(1,), **how)
    case("GridSample", (1, 1, 2, 1, 2), numbers(0.25, -0.375, 1.4375).reshape(1, 1, 1, 1, 3), **how)
    case("GridSample", (1, 1, 1, 2, 2), numbers(0.25, -0.375, 1.4375).reshape(1, 1, 1, 1, 3),
         mode="nearest", **how)  # fmt: skip
case("GridSample", (2, 2, 1, 2), numbers(0.25, -0.375, 0.5, 0.125).reshape(2, 1, 1, 2))
case("GridSample", (1, 1, 3), numbers(0.3125).reshape(1, 1, 1), mode="cubic")
case("GridSample", (1, 1, 2, 1, 2), numbers(0.25, -0.375, 0.125).reshape(1, 1, 1, 1, 3),
     align_corners=1, mode="cubic", wrt=(0,))  # fmt: skip

case("DeformConv", (1, 1, 2, 3), (1, 1, 1, 2), (1, 4, 2, 2))
case("DeformConv", (1, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 2), (1,), (1, 1, 1, 2))
case("DeformConv", (1, 2, 1, 2), (2, 1, 1, 1), (1, 4, 2, 3), None, (1, 2, 2, 3), group=2,
     offset_group=2, strides=[1, 2], pads=[0, 1, 1, 2])  # fmt: skip
case("DeformConv", (1, 1, 2, 3), (1, 1, 1, 2), (1, 4, 2, 1), dilations=[1, 2])

PLACES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners",
)  # fmt: skip
SCALED = {"axes": [2], "wrt": (0, 2)}
for mode, place in product(("linear", "cubic"), PLACES):
    how = {"mode": mode, "coordinate_transformation_mode": place, **SCALED}
    case("Resize", (1, 1, 2), None, numbers(1.75), **how)
    case("Resize", (1, 1, 2), None, numbers(1.75), exclude_outside=1, **how)
    case("Resize", (1, 1, 3), None, numbers(0.6875), antialias=1, exclude_outside=1, **how)
    case("Resize", (1, 1, 3), None, numbers(0.4375), antialias=1, **how)
for mode in ("linear", "cubic"):
    case("Resize", (1, 1, 4), None, None, ints(1, 1, 8), mode=mode)
    case("Resize", (1, 1, 3), None, None, ints(1, 1, 5), mode=mode, second=False)
    case("Resize", (1, 2, 2), None, numbers(1.75, 1.625), axes=[2, 1], mode=mode,
         second=mode == "linear")  # fmt: skip
case("Resize", (2, 4), None, None, ints(3, 8), mode="linear",
     keep_aspect_ratio_policy="not_smaller")  # fmt: skip
case("Resize", (2, 4), None, None, ints(4, 4), mode="linear", keep_aspect_ratio_policy="not_larger")
case("Resize", (1, 1, 3), None, numbers(0.625), mode="cubic", cubic_coeff_a=-0.5, **SCALED)
for place in PLACES:
    case("Resize", (1, 1, 3), None, numbers(1.75), coordinate_transformation_mode=place, **SCALED)
for near in ("round_prefer_ceil", "floor", "ceil"):
    case("Resize", (1, 1, 2), None, numbers(1.75), nearest_mode=near, **SCALED)
case("Resize", (1, 1, 3), None, None, ints(1, 1, 4))

CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
REGION = numbers(0, 0, 0.125, 1, 1, 0.75)
for mode in ("linear", "cubic"):
    case("Resize", (1, 1, 3), REGION, None, ints(1, 1, 2), mode=mode, wrt=(0, 1), **CROP)
    case("Resize", (1, 1, 3), numbers(0, 0, -0.25, 1, 1, 1.125), None, ints(1, 1, 3), mode=mode,
         extrapolation_value=0.5, wrt=(0, 1), **CROP)  # fmt: skip
    case("Resize", (1, 1, 3), numbers(0.125, 0.75), None, ints(1), axes=[-1], mode=mode, wrt=(0, 1),
         **CROP)  # fmt: skip
    case("Resize", (1, 1, 3), REGION, numbers(1, 1, 1.75), mode=mode, wrt=(0, 1), **CROP)

BINS = {"output_height": 1, "output_width": 2}
ROI = numbers(0.25, 0.5625, 2.375, 2.53125).reshape(1, 4)
for place, mode in product(("half_pixel", "output_half_pixel"), ("avg", "max")):
    region = {"coordinate_transformation_mode": place, "mode": mode}
    case("RoiAlign", (1, 1, 3, 3), ROI, ints(0), sampling_ratio=1, **BINS, **region)
    case("RoiAlign", (1, 1, 2, 2), ROI, ints(0), sampling_ratio=2, spatial_scale=0.5, **region)
    case("RoiAlign", (1, 1, 3, 2), ROI, ints(0), output_width=2, **region)
    case("RoiAlign", (2, 1, 2, 2), ROI - 0.6875, ints(1), sampling_ratio=1, **region)
    case("RoiAlign", (1, 1, 2, 2), numbers(0.25, 0.3125, 0.75, 0.625).reshape(1, 4), ints(0),
         sampling_ratio=1, **region)  # fmt: skip
    case("RoiAlign", (1, 1, 2, 2), np.concatenate([ROI - 2.75, ROI - 0.625]), ints(0, 0),
         sampling_ratio=1, **region)  # fmt: skip

# RNN, GRU and LSTM: directions, layouts, activations, lengths and options.

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

ACTIVATIONS: dict[str, dict[str, Any]] = {
    "Relu": {}, "Tanh": {}, "Sigmoid": {}, "Softsign": {}, "Softplus": {},
    "LeakyRelu": {"activation_alpha": [0.25]}, "ThresholdedRelu": {"activation_alpha": [0.125]},
    "Elu": {"activation_alpha": [0.5]},
    "HardSigmoid": {"activation_alpha": [0.25], "activation_beta": [0.375]},
    "Affine": {"activation_alpha": [0.5], "activation_beta": [0.25]},
    "ScaledTanh": {"activation_alpha": [0.5], "activation_beta": [1.5]},
}  # fmt: skip
"""Every activation of the specification, with its parameters."""


def recurrent(
    op_type: str, turns: int = 1, batch: int = 1, hidden: int = 1, *, bias: bool = False,
    initial: bool = True, lengths: Any = None, peepholes: bool = False, **how: Any,
) -> None:  # fmt: skip
    """A case of a layer with one feature."""
    gates, count = GATES[op_type], 2 if how.get("direction") == "bidirectional" else 1
    rows = gates * hidden
    x, state = (turns, batch, 1), (count, batch, hidden)
    if how.get("layout"):
        x, state = (batch, turns, 1), (batch, count, hidden)
    inputs: list[Any] = [x, (count, rows, 1), (count, rows, hidden)]
    inputs += [(count, 2 * rows) if bias else None, lengths, state if initial else None]
    if op_type == "LSTM":
        inputs += [state if initial else None, (count, 3 * hidden) if peepholes else None]
    outputs = 3 if op_type == "LSTM" else 2
    case(op_type, *inputs, hidden_size=hidden, outputs=outputs, **how)


ONE: dict[str, Any] = {"of": (0,)}
"""Differentiate Y alone: the last states are among its entries."""

recurrent("RNN", 2, bias=True)
recurrent("RNN", 1, 1, 2, initial=False)
recurrent("RNN", 2, 2, lengths=ints(2, 1), layout=1, direction="reverse", second=False)
recurrent("GRU", bias=True)
recurrent("GRU", bias=True, linear_before_reset=1, **ONE)
recurrent("GRU", 1, 1, 2, initial=False, second=False)
recurrent("GRU", 2, linear_before_reset=1, second=False)
recurrent("LSTM", bias=True, peepholes=True, second=False)
recurrent("LSTM", **ONE)
recurrent("LSTM", input_forget=1, peepholes=True, second=False)
recurrent("LSTM", input_forget=1, peepholes=True, wrt=(0, 5, 6, 7), **ONE)
recurrent("LSTM", 1, 1, 2, initial=False, second=False)
recurrent("LSTM", 2, 2, lengths=ints(2, 1), layout=1, direction="bidirectional", second=False,
          wrt=(0, 5))  # fmt: skip
recurrent("LSTM", peepholes=True, layout=1, direction="bidirectional", second=False)
for op_type, layout in product(("RNN", "GRU"), (0, 1)):
    recurrent(op_type, 2, 2, lengths=ints(1, 2), layout=layout, direction="bidirectional",
              second=False)  # fmt: skip
for op_type in GATES:
    recurrent(op_type, 2, direction="reverse", layout=1, second=False)
    recurrent(op_type, clip=0.5, bias=True, second=False)
for name, parameters in ACTIVATIONS.items():
    recurrent("RNN", activations=[name], **parameters)
    recurrent("RNN", activations=[name], clip=0.25, **parameters)
    recurrent("GRU", activations=["Sigmoid", name], initial=False, second=False, **parameters)
    recurrent("GRU", activations=[name, "Tanh"], second=False, **parameters)
    recurrent("LSTM", activations=["Sigmoid", "Tanh", name], second=False, **parameters)
recurrent("LSTM", activations=["HardSigmoid", "Affine", "ScaledTanh"], second=False,
          activation_alpha=[0.25, 0.5, 0.75], activation_beta=[0.375, 0.25])  # fmt: skip
recurrent("RNN", activations=["LeakyRelu", "ScaledTanh"], activation_alpha=[0.25, 0.5],
          activation_beta=[1.5], direction="bidirectional", second=False)  # fmt: skip

# Operators that ONNX defines by others.

case("Attention", (1, 1, 2, 1), (1, 1, 2, 1), (1, 1, 2, 1), (2, 2))
case("RotaryEmbedding", (1, 1, 2, 4), (2, 2), (2, 2), np.array([[0, 1]]))
case("SwiGLU", (1, 2), (1, 2))
case("CausalConvWithState", (1, 1, 2), (1, 1, 2), (1,), (1, 1, 1), outputs=2)
case("LinearAttention", *[(1, 2, 1)] * 3, (1, 1, 1, 1), outputs=2, q_num_heads=1, kv_num_heads=1,
     update_rule="linear")  # fmt: skip
case("ai.onnx.preview::FlexAttention", (1, 1, 2, 1), (1, 1, 2, 1), (1, 1, 2, 1))
case("Attention", *[(1, 1, 1, 1)] * 3, None, *[(1, 1, 1, 1)] * 2, outputs=4)
case("LinearAttention", *[(1, 2, 1)] * 3, (1, 1, 1, 1), *[(1, 2, 1)] * 2, outputs=2, q_num_heads=1,
     kv_num_heads=1, update_rule="gated_delta")  # fmt: skip

# Operators of `ai.onnx.ml` that compute with floats.

ML = "ai.onnx.ml::"
POSTS = ("NONE", "LOGISTIC", "SOFTMAX")

case(ML + "Scaler", (2, 2), offset=[0.5, -1.0], scale=[2.0, 0.25])
case(ML + "Imputer", numbers(1.5, -0.5).reshape(1, 2), imputed_value_floats=[0.25],
     replaced_value_float=0.0)  # fmt: skip
case(ML + "ArrayFeatureExtractor", (2, 3), ints(2, 0))
case(ML + "FeatureVectorizer", (1, 2), (1, 1), inputdimensions=[2, 1])
for norm in ("L1", "L2", "MAX"):
    case(ML + "Normalizer", numbers(0.5, 1.75, 0.25).reshape(1, 3), norm=norm)
PLAIN = {"coefficients": [0.5, -1.0], "intercepts": [0.5]}
case(ML + "LinearRegressor", (1, 2), **PLAIN)
case(ML + "LinearRegressor", (2, 2), **PLAIN)
WHOLE = {"coefficients": [0.5, -1.0, 0.25, 2.0], "intercepts": [0.5, 1.0]}
LABELS = {"outputs": 2, "of": (1,), "classlabels_ints": [0, 1]}
for post in POSTS:
    case(ML + "LinearRegressor", (1, 2), targets=2, post_transform=post, second=post == "NONE",
         **WHOLE)  # fmt: skip
    case(ML + "LinearClassifier", (1, 2), post_transform=post, **WHOLE, **LABELS)

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
PAIR = {"coefficients": [0.5, -1.0], "support_vectors": [1.0, 0.5, -0.25, 2.0], "rho": [0.75]}
for kernel in KERNELS:
    machine = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 3.0], **PAIR}
    case(ML + "SVMRegressor", (1, 2), n_supports=2, **machine)
    case(ML + "SVMClassifier", (1, 2), vectors_per_class=[1, 1], **machine, **LABELS)
case(ML + "SVMRegressor", (2, 2), coefficients=[0.5, -1.0], rho=[0.75])

THREE = {
    "coefficients": [0.5, -1.0, 0.75, 1.25, -0.5, 0.25, 1.5, -0.75], "rho": [0.75, -0.25, 0.5],
    "support_vectors": [1.0, -0.25, 2.0, 0.5], "vectors_per_class": [1, 2, 1],
    "outputs": 2, "of": (1,), "classlabels_ints": [0, 1, 2],
}  # fmt: skip
for kernel, post in (*product(KERNELS, POSTS[:1]), ("LINEAR", "LOGISTIC"), ("LINEAR", "SOFTMAX")):
    case(ML + "SVMClassifier", (2, 1), kernel_type=kernel, kernel_params=[0.5, 0.25, 2.0],
         post_transform=post, **THREE)  # fmt: skip
case(ML + "SVMClassifier", (1, 2), coefficients=[0.5, -1.0, 0.25, 2.0, 1.5, -0.5], rho=[0.75],
     outputs=2, of=(1,), classlabels_ints=[0, 1, 2])  # fmt: skip
# Two classes: with three, the probabilities are fractions too long for algebra.
case(ML + "SVMClassifier", (1, 1), vectors_per_class=[1, 1], prob_a=[-0.5], prob_b=[0.25],
     coefficients=[0.5, -2.0], support_vectors=[1.0, 0.5], rho=[0.75], second=False,
     **LABELS)  # fmt: skip

# ONNX Runtime's own operators, `com.microsoft`.

MS = "com.microsoft::"

case(MS + "Gelu", SIDES)
case(MS + "FastGelu", SIDES)
case(MS + "BiasGelu", (2, 2), (2,))
case(MS + "FastGelu", (2, 2), (2,))
case(MS + "QuickGelu", SIDES)
case(MS + "QuickGelu", SIDES, alpha=1.5)
case(MS + "SampleOp", (2,))
case(MS + "ScaledSiLU", SIDES, alpha=1.5)
case(MS + "ScaledSiLU", (2, 1), np.array(0.5))

case(MS + "FusedMatMul", (2, 3), (3, 1))
case(MS + "TransposeMatMul", (2, 2), (1, 2), transA=1, transB=1, alpha=0.5)
case(MS + "ExpandDims", (2,), np.array(0, np.int32))
case(MS + "UnfoldTensor", (2, 5, 1), dim=1, size=3, step=2)
case(MS + "UnfoldTensor", (3,), size=2)
case(MS + "CDist", (2, 2), (1, 2), metric="sqeuclidean")
case(MS + "CDist", (1, 2), (2, 2), metric="euclidean")
case(MS + "GridSample", (1, 1, 3, 2), numbers(0.25, -0.375).reshape(1, 1, 1, 2), mode="bilinear")
case(MS + "FusedMatMul", (2, 2), (1, 2), transA=1, transB=1, alpha=0.5)
case(MS + "FusedMatMul", (2, 1, 2), (1, 2, 2), transBatchA=1)
case(MS + "FusedMatMul", (1, 2, 2), (2, 1, 2), transBatchB=1, transB=1)
case(MS + "FusedGemm", (2, 2), (2, 2), (2,), transA=1, alpha=0.5)
case(MS + "FusedGemm", (1, 2), (2, 2), (2,), activation="LeakyRelu", activation_alpha=0.25)
case(MS + "FusedConv", (1, 1, 2, 3), (2, 1, 1, 2), (2,), activation="Relu")
case(MS + "FusedConv", (1, 1, 1, 3), (1, 1, 1, 2), (1,), (1, 1, 1, 2), activation="Clip",
     activation_params=[-0.5, 2.0])  # fmt: skip

NEAR = {"epsilon": 0.125}
case(MS + "SkipLayerNormalization", *[(1, 1, 2)] * 2, *[(2,)] * 3, second=False, **NEAR)
case(MS + "SkipLayerNormalization", (1, 2, 2), (1, 2, 2), (2,), outputs=4, of=(0, 3), **NEAR)
case(MS + "SkipSimplifiedLayerNormalization", (1, 1, 2), (1, 1, 2), (2,), (2,), **NEAR)
case(MS + "SimplifiedLayerNormalization", (2, 2), (2,), **NEAR)
case(MS + "SimplifiedLayerNormalization", (1, 2, 1), (2, 1), axis=1, **NEAR)

FOUR = {"K": 3, "N": 2, "bits": 4, "block_size": 2}
BYTES = np.array([[[0x21], [0xC3]], [[0xF8], [0x05]]], np.uint8)
case(MS + "MatMulNBits", (1, 3), BYTES, (2, 2), **FOUR)
case(MS + "MatMulNBits", (2, 3), BYTES, (2, 2), np.array([[0x35], [0x80]], np.uint8), None, (2,),
     **FOUR)  # fmt: skip
case(MS + "MatMulNBits", (1, 3), BYTES, (2, 2), None, np.array([1, 0, 1], np.int32), **FOUR)
case(MS + "MatMulNBits", (1, 2), np.array([[[3, 200]]], np.uint8), (1, 1), K=2, N=1, bits=8,
     block_size=2)  # fmt: skip
WORDS = np.array([[1, 0]], np.int32)
case(MS + "EmbedLayerNormalization", WORDS, WORDS, *[(2, 2)] * 3, (2,), (2,), second=False, **NEAR)
case(MS + "EmbedLayerNormalization", WORDS, None, (2, 2), (3, 2), None, (2,), (2,), None, WORDS + 1,
     outputs=3, of=(2,), **NEAR)  # fmt: skip

TURN = ((2, 1), (2, 1))
case(MS + "RotaryEmbedding", (1, 2, 2), ints(0), *TURN)
case(MS + "RotaryEmbedding", (1, 1, 2, 2), ints([1, 0]), *TURN, interleaved=1)
case(MS + "RotaryEmbedding", (1, 1, 6), ints([1]), *TURN, rotary_embedding_dim=2, num_heads=2)

FEW = {"num_heads": 2, "second": False}
case(MS + "Attention", (1, 2, 1), (1, 6), (6,), **FEW)
case(MS + "Attention", (1, 2, 1), (1, 3), num_heads=1)
case(MS + "Attention", (1, 2, 2), (2, 5), None, np.array([[1, 0]], np.int32), unidirectional=1,
     qkv_hidden_sizes=[2, 2, 1], num_heads=1, second=False)  # fmt: skip
case(MS + "MultiHeadAttention", (1, 1, 2), (1, 2, 2), (1, 2, 2), (6,), **FEW)
case(MS + "MultiHeadAttention", (1, 1, 1), (1, 2, 1), (1, 2, 1), None,
     np.array([[1, 0]], np.int32), (1, 1, 1, 2), num_heads=1, scale=0.5)  # fmt: skip
case(MS + "MultiHeadAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), num_heads=1, unidirectional=1,
     second=False)  # fmt: skip
case(MS + "MultiHeadAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), None, None, None, (1, 1, 1, 1),
     (1, 1, 1, 1), num_heads=1, outputs=3, second=False)  # fmt: skip

LENGTHS = {n: (np.array([n - 1], np.int32), np.array(n, np.int32)) for n in (2, 3)}
GROUP = {"num_heads": 2, "kv_num_heads": 1}
case(MS + "GroupQueryAttention", (1, 2, 2), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2], **GROUP)
case(MS + "GroupQueryAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
     *LENGTHS[3], outputs=3, **GROUP)  # fmt: skip
case(MS + "GroupQueryAttention", (1, 2, 2), (1, 2, 2), (1, 2, 2), None, None, *LENGTHS[2],
     *TURN, num_heads=1, kv_num_heads=1, do_rotary=1, second=False)  # fmt: skip
case(MS + "GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2],
     num_heads=1, kv_num_heads=1, softcap=2.0, local_window_size=1)  # fmt: skip
case(MS + "GroupQueryAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
     *LENGTHS[3], None, None, None, None, (2,), second=False, **GROUP)  # fmt: skip
case(MS + "GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2],
     num_heads=1, kv_num_heads=1, smooth_softmax=1, second=False)  # fmt: skip
case(MS + "Attention", (1, 1, 1), (1, 3), None, None, (2, 1, 1, 1, 1), num_heads=1, outputs=2)

BYTE = {n: np.arange(7, 7 + 29 * np.prod(n), 29).astype(np.uint8).reshape(n)
        for n in ((1,), (2,), (1, 1, 2), (1, 2), (2, 1), (2, 2), (2, 3), (2, 6))}  # fmt: skip
ZERO, UNIT = np.array(40, np.uint8), np.array(0.25)
case(MS + "MatMulIntegerToFloat", BYTE[2, 2], BYTE[2, 2], UNIT, (2,), ZERO, BYTE[(2,)], (2,))
case(MS + "MatMulIntegerToFloat", BYTE[2, 2], BYTE[2, 1], UNIT, UNIT)
case(MS + "DynamicQuantizeMatMul", (2, 2), BYTE[2, 2], (2,), BYTE[(2,)], (2,))
case(MS + "QGemm", BYTE[1, 2], UNIT, ZERO, BYTE[2, 2], UNIT, ZERO, np.array([3, -4], np.int32),
     alpha=0.5)  # fmt: skip
case(MS + "QGemm", BYTE[2, 1], UNIT, ZERO, BYTE[2, 2], (2,), BYTE[(2,)], transA=1, transB=1)
case(MS + "QAttention", BYTE[1, 1, 2], BYTE[2, 3], (3,), UNIT / 64, UNIT / 32, None, ZERO, ZERO,
     num_heads=1)  # fmt: skip
case(MS + "QAttention", BYTE[1, 1, 2], BYTE[2, 3], (3,), UNIT / 64, UNIT / 32, None, ZERO, ZERO,
     (2, 1, 1, 1, 1), num_heads=1, unidirectional=1, outputs=2, second=False)  # fmt: skip
case(MS + "QEmbedLayerNormalization", WORDS, WORDS, *[BYTE[2, 2]] * 3, BYTE[(2,)], BYTE[(2,)], None,
     *[UNIT] * 5, *[ZERO] * 5, outputs=2, of=(0,), wrt=(8, 11), **NEAR)  # fmt: skip

case(MS + "GatedAdd", (2, 2), (2, 2), (2, 1))
case(MS + "GatedRMSNorm", (1, 4), (2,), (1, 4), second=False, **NEAR)
case(MS + "GatedRMSNorm", (1, 2), (2,), (1, 2), activation="sigmoid", **NEAR)
case(MS + "BranchwiseRMSNorm", (1, 2, 2), (2,), **NEAR)
case(MS + "BranchwiseRMSNorm", (1, 4), (4,), num_branches=2, **NEAR)
case(MS + "HyperConnectionPreMix", (1, 2, 2), (1, 2), reduction_scale=0.5)
case(MS + "HyperConnectionPreMix", (1, 4), (1, 4), num_branches=2)
case(MS + "HyperConnectionPostMix", (1, 2, 2), (1, 2), (1, 2), (1, 2, 2))
case(MS + "HyperConnectionPostMix", (1, 4), (1, 2), (1, 2, 2), num_branches=2)
case(MS + "LinearAttentionGate", (1, 2, 2), (2,), (2,), (1, 2, 2), outputs=2)
RULE = {"outputs": 2, "q_num_heads": 1, "kv_num_heads": 1}
case(MS + "LinearAttention", *[(1, 2, 1)] * 3, (1, 1, 1, 1), *[(1, 2, 1)] * 2, **RULE)
case(MS + "LinearAttention", (1, 2, 2), (1, 2, 2), (1, 2, 1), update_rule="linear", **RULE)
case(MS + "LinearAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), None, (1, 1, 1), update_rule="gated",
     scale=0.5, outputs=2, q_num_heads=2, kv_num_heads=1)  # fmt: skip
case(MS + "LinearAttention", *[(1, 2, 1)] * 3, None, None, (1, 2, 1), update_rule="delta", **RULE)
case(MS + "CausalConvWithState", (1, 1, 3), (1, 1, 2), (1,), (1, 1, 2), dilation=2, outputs=2)
case(MS + "CausalConvWithState", (1, 2, 2), (2, 1, 2), outputs=2, channels_last=1,
     activation="silu")  # fmt: skip
case(MS + "Inverse", (2, 2))
case(MS + "Inverse", (1, 1, 1))
SECTIONS = np.array([[[1]], [[0]], [[1]]])
case(MS + "MRotaryEmbedding", (1, 1, 1, 6), SECTIONS, (2, 3), (2, 3), mrope_section=[1, 1, 1],
     scale=2.0)  # fmt: skip
case(MS + "MRotaryEmbedding", (1, 1, 1, 6), SECTIONS, (2, 3), (2, 3), mrope_section=[1, 1, 1],
     mrope_layout=1, interleaved=1)  # fmt: skip
QUARTER = {"K": 3, "N": 2, "block_size": 4, "quant_type": 0}
case(MS + "MatMulBnb4", (1, 3), np.array([0x21, 0x0B, 0x01], np.uint8), (2,), **QUARTER)
case(MS + "MatMulBnb4", (1, 2), np.array([0x21, 0x0B, 0x01], np.uint8), (2,), transB=0, **QUARTER)
case(MS + "ConvTransposeWithDynamicPads", (1, 1, 2, 1), (1, 1, 2, 1), ints(1, 0, 0, 0), (1,),
     strides=[2, 1])  # fmt: skip
case(MS + "GatherBlockQuantized", BYTE[2, 2], ints(1, -1, 5), (2, 2), BYTE[2, 1], block_size=2)
case(MS + "GatherBlockQuantized", BYTE[2, 2], ints([0]), (2, 1), block_size=16)

case(MS + "SparseToDenseMatMul", (2, 2), (2, 1), alpha=0.5)
Q4 = np.concatenate([np.array([0.25], np.float32).view(np.uint8),
                     np.arange(17, dtype=np.uint8) * 15])  # fmt: skip
case(MS + "MatMulFpQ4", (1, 18), Q4, ints(18, 1))
case(MS + "MatMulFpQ4", (1, 2), np.delete(Q4, 4), ints(2, 1), blk_quant_type=0)
case(MS + "NGramRepeatBlock", np.array([[1, 2, 3, 1, 2], [0, 0, 1, 2, 3]]), (2, 4), ngram_size=9)
case(MS + "MaxpoolWithMask", (1, 1, 5), np.array([[[1, 1, 0, 1, 1]]], np.int32), kernel_shape=[2],
     pads=[1, 0], strides=[2])  # fmt: skip
case(MS + "MaxpoolWithMask", numbers(3, -1, 2, 0.5, 1, -2).reshape(1, 1, 2, 3),
     np.array([[[[0, 1, 1], [0, 1, 1]]]], np.int32), kernel_shape=[2, 2])  # fmt: skip
case(MS + "WordConvEmbedding", np.array([[1, 2, 1, 0], [2, 0, 0, 0]], np.int32), (1, 1, 2, 1), (1,),
     (3, 1))  # fmt: skip
CORNERS = numbers(0.125, 0.25, 0.875, 0.75).reshape(1, 4)
case(MS + "CropAndResize", (1, 1, 3, 2), CORNERS, np.array([0], np.int32),
     np.array([2, 1], np.int32))  # fmt: skip
case(MS + "VarlenCausalConvWithState", (3, 1), (1, 1, 2), np.array([0, 2, 3], np.int32), (1,),
     (2, 1, 1), outputs=2)  # fmt: skip
case(MS + "VarlenCausalConvWithState", (2, 1), (1, 1, 2), np.array([0, 2], np.int32), (1,),
     (1, 1, 2), dilation=2, activation="silu", outputs=2, second=False)  # fmt: skip
case(MS + "DecoderMaskedMultiHeadAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), None, None,
     (1, 1, 3, 1), (1, 1, 3, 1), np.array([1], np.int32), num_heads=1, past_present_share_buffer=1,
     outputs=3, second=False)  # fmt: skip
case(MS + "DecoderMaskedMultiHeadAttention", (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1), num_heads=1)
case(MS + "MoE", (1, 1), (1, 2), (2, 1, 1), (2, 1), (2, 1, 1), (2, 1), k=1, activation_type="silu",
     second=False)  # fmt: skip
case(MS + "MoE", (1, 2), (1, 2), (2, 1, 2), None, (2, 2, 1), k=2, normalize_routing_weights=1,
     second=False)  # fmt: skip
case(MS + "MoE", (1, 1), (1, 2), (2, 1, 1), None, (2, 1, 1), k=1)
case(MS + "QMoE", (1, 2), (1, 2), BYTE[2, 2].reshape(2, 2, 1), (2, 2), None,
     BYTE[2, 2].reshape(2, 2, 1)[::-1], (2, 2))  # fmt: skip
case(MS + "QMoE", (1, 2), (1, 2), BYTE[2, 2].reshape(2, 2, 1), (2, 2), (2, 2),
     BYTE[2, 2].reshape(2, 2, 1)[::-1], (2, 2), k=2, activation_type="identity",
     second=False)  # fmt: skip
case(MS + "MoEGroupRouter", (1, 4), (4,), top_k=1, n_group=2, topk_group=1, group_topk=2, outputs=3)
