"""The cases of every proof: shapes, axes and attributes, and what the operator is in PyTorch."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np

from . import contrib_cases  # noqa: F401  (it registers the cases of ONNX Runtime)
from .case import CASES, SAME, SCRIPTS, SIDES, case, inside, ints, numbers, positive, script, signed

__all__ = ["CASES", "SCRIPTS"]

# Elementwise operators: both sides of every kink, and every kind of broadcasting.

case("Neg Abs Exp Erf Sin Cos Tan Sinh Cosh Tanh Asinh Atan", SIDES, torch=SAME)
case("Sigmoid Relu Celu Selu Reciprocal", SIDES, torch=SAME)
case("Softplus Softsign Mish Gelu Elu", SIDES, torch="F.{name}({all})")
case("LeakyRelu", SIDES, torch="F.leaky_relu({0}, 0.01)")
case("Sqrt Log", positive(2), positive=(0,), torch=SAME)
case("Asin Acos Atanh", inside(2), torch=SAME)
case("Acosh", numbers(1.5, 3.25), torch=SAME)
case("Gelu", SIDES, approximate="tanh")
case("Swish", SIDES, torch="F.silu({0})")
case("Swish", SIDES, alpha=1.5)
case("LeakyRelu Elu Celu", SIDES, alpha=0.25)
case("Selu", SIDES, alpha=1.5, gamma=0.75)
case("ThresholdedRelu", numbers(0.5, 1.5), torch="F.threshold({0}, 1.0, 0.0)")
case("ThresholdedRelu", numbers(0.5, -0.5), alpha=-0.25)
case("HardSigmoid", numbers(-4, 0.5, 4), torch="torch.clamp(0.2 * {0} + 0.5, 0, 1)")
case("HardSigmoid", numbers(-4, 0.5, 4), alpha=0.5, beta=0.25)
case("HardSwish", numbers(-4, 0.5, 4), torch="F.hardswish({all})")
case("Shrink", numbers(-2, 0.25, 2), bias=0.5, lambd=1.0)
case("Tanh Neg", signed())
case("PRelu", signed(2, 2), signed(2, seed=1), torch="torch.where({0} > 0, {0}, {1} * {0})")
case("PRelu", signed(2, 3, 1), signed(3, 1, seed=1))

for a, b in (((2,), (2,)), ((2, 1), (3,)), ((2,), ()), ((), (2, 2)), ((2, 2), (1, 2))):
    case("Add Sub Mul", a, b, torch=SAME)
    case("Max Min", a, b, torch="torch.{name}imum({all})")
    case("Sum", a, b, torch="{0} + {1}")
    case("Mean", a, b, torch="({0} + {1}) / 2")
    case("Div", a, positive(*b, seed=1), torch=SAME)
    case("Mod", a, positive(*b, seed=1), fmod=1, torch="torch.fmod({all})")
    case("Pow", positive(*a), b, positive=(0,), torch=SAME)
case("Mod", SIDES, numbers(1.5, 1.0), fmod=1)
case("Sum Mean Max", (2, 1), (3,), ())
case("Min", (2, 1), (3,), numbers(-0.875))
case("Sum Mean Max Min", (2,))
case("Pow", signed(3), ints(2, 3, 1))
case("Where", np.array([True, False]), (2,), (2,), torch="torch.where({all})")
case("Where", np.array([[True], [False]]), (2,), ())
case("Clip", numbers(-3, 0.5, 3), np.array(-1.0), np.array(1.0), torch="torch.clamp({all})")
case("Clip", numbers(-3), np.array(-1.0), np.array(1.0))
case("Clip", numbers(-3, 0.5, 3), np.array(1.0), np.array(-1.0))
case("Clip", numbers(-3, 3), np.array(0.25), None)
case("Clip", numbers(-3, 3), None, np.array(0.25))
case("Clip", numbers(-3, 3))
case("Identity", (2, 2), torch="{0}.clone()")
case("Cast", (2,), to=1, torch="{0}.double()")
case("CastLike", (2,), np.zeros((), np.float64), wrt=(0,), torch="{0}.type_as({1})")
case("Dropout", (2, 2), torch="F.dropout({0}, training=False)")
case("Dropout", (3,), np.array(0.25), np.array(True), seed=1, outputs=2, of=(0,))

# Operators that move entries: every axis, negative steps, repeated and negative indices.

case("Reshape", (2, 3), ints(3, 2), torch="{0}.reshape({1}.tolist())")
case("Reshape", (2, 3), ints(0, -1, 1))
case("Reshape", (), ints(1, 1))
case("Flatten", (2, 1, 3), axis=-1, torch="torch.flatten({0}, 0, 1)")
case("Flatten", (3,), axis=0)
case("Squeeze", (1, 2, 1), ints(0), torch="{0}.squeeze(0)")
case("Squeeze", (1, 2, 1))
case("Unsqueeze", (2,), ints(0, -1), torch="{0}[None, :, None]")
case("Transpose", (2, 3), torch="{0}.permute(*reversed(range({0}.ndim)))")
case("Transpose", (1, 2, 3), perm=[1, 2, 0])
case("Expand", (2, 1), ints(2, 1, 3), torch="{0}.expand(2, 2, 3)")
case("Expand", (), ints(2))
case("Tile", (2, 2), ints(2, 1), torch="{0}.tile({1}.tolist())")
case("Concat", (1, 2), (2, 2), axis=0, torch="torch.cat(({all}), 0)")
case("Concat", (1, 2), (1, 1), axis=-1)
case("Split", (3, 2), outputs=2, num_outputs=2, torch="{0}.split(2)[0]")
case("Split", (1, 4), ints(1, 3), outputs=2, axis=-1)
case("Slice", (3, 3), ints(-1, 2), ints(-5, 0), ints(0, 1), ints(-1, -2))
case("Slice", (4,), ints(1), ints(3))
case("Slice", (2, 3), ints(0), ints(2), ints(-1))
case("Gather", (3, 2), ints(-1, 0, -1), axis=0)
case("Gather", (2, 3), np.array([[1, -1]]), axis=1)
case("Gather", (3,), np.array(-2), torch="{0}[{1}]")
case("GatherElements", (2, 3), np.array([[-1, 0], [2, -1]]), axis=-1)
case("GatherElements", (2, 2), np.array([[1, -1]]), axis=0)
case("GatherND", (2, 2, 2), np.array([[1, -1], [0, 0]]), torch="{0}[tuple({1}.T)]")
case("GatherND", (2, 3), np.array([[-1], [0]]), batch_dims=1)
case("Compress", (2, 3), np.array([True, False, True]), axis=-1)
case("Compress", (2, 2), np.array([False, True, True]), torch="{0}.ravel()[:3][{1}]")
case("TopK", (2, 3), ints(2), outputs=2, of=(0,), torch="{0}.topk(2).values")
case("TopK", (3, 2), ints(2), outputs=2, of=(0,), axis=0, largest=0)
case("Unique", signed(4), outputs=1)
case("DepthToSpace", (1, 4, 1, 2), blocksize=2)
case("DepthToSpace", (1, 4, 1, 2), blocksize=2, mode="CRD")
case("SpaceToDepth", (1, 1, 2, 4), blocksize=2, torch="torch.pixel_unshuffle({0}, 2)")
case("Trilu", (2, 3), np.array(1), torch="{0}.triu(1)")
case("Trilu", (3, 2), ints(-1), upper=0)
case("Pad", (2, 2), ints(1, -1, 0, 2), np.array(0.5))
case("Pad", (1, 2), ints(1, 2), None, ints(-1))
for mode in ("reflect", "edge", "wrap"):
    case("Pad", (3, 1), ints(2, 1), None, ints(0), mode=mode)
case("CenterCropPad", (3, 1), ints(2, 3))
case("ReverseSequence", (3, 2), ints(2, 3))
case("ReverseSequence", (2, 3), ints(2, 3), time_axis=1, batch_axis=0)
case("OneHot", ints(1, -1, 0), np.array(3), signed(2, seed=1))
case("OneHot", ints(1, 0), np.array(2), signed(2, seed=1), axis=0)
case("Range", np.array(1.25), np.array(3.0), np.array(0.5))

for reduction in ("none", "add", "mul", "max", "min"):
    case("ScatterND", (3,), np.array([[2], [0]]), (2,), reduction=reduction)
    case("ScatterElements", (2, 2), np.array([[1, -1]]), (1, 2), axis=0, reduction=reduction)
case("ScatterND", (3, 2), np.array([[1], [1]]), (2, 2), reduction="add",
     torch="{0}.index_put(({1}[:, 0],), {2}, accumulate=True)")  # fmt: skip
case("ScatterElements", (2, 3), np.array([[0, -1]]), (1, 2), axis=1)
case("Scatter", (2, 2), np.array([[1, 0]]), (1, 2), torch="{0}.scatter(0, {1}, {2})")
case("TensorScatter", (2, 3, 1), (2, 1, 1), ints(1, 2))
case("TensorScatter", (1, 3, 1), (1, 2, 1), ints(2), mode="circular")
case("MaxUnpool", (1, 1, 2), ints(1, 2).reshape(1, 1, 2), kernel_shape=[2], strides=[2],
     torch="torch.zeros(1, 1, 4).double().scatter(2, {1}, {0})")  # fmt: skip
case("Col2Im", (1, 2, 3), ints(1, 4), ints(1, 2), torch="F.fold({0}, (1, 4), (1, 2))")
case("Col2Im", (1, 4, 2), ints(3, 3), ints(2, 2), strides=[1, 2], dilations=[2, 1],
     pads=[0, 0, 0, 1])  # fmt: skip

# Products, convolutions and transforms.

for left, right in (
    ((2,), (2,)), ((2,), (2, 2)), ((2, 2), (2,)), ((2, 3), (3, 1)), ((2, 1, 2), (2, 2)),
    ((1, 2), (2, 2, 1)), ((2, 1, 2), (2, 2, 1)), ((1, 1, 2), (2, 1, 2, 1)),
):  # fmt: skip
    case("MatMul", left, right, torch=SAME)
case("Gemm", (2, 2), (2, 2), (2,), alpha=0.5, beta=-1.5)
case("Gemm", (3, 2), (2, 3), (2, 1), transA=1, transB=1)
case("Gemm", (1, 2), (2, 2), torch="{0} @ {1}")
for equation, shapes in {
    "ij,jk->ik": ((2, 2), (2, 2)), "ij->ji": ((2, 3),), "ii->i": ((2, 2),), "ii": ((2, 2),),
    "i,j->ij": ((2,), (2,)), "i,i,i->": ((2,), (2,), (2,)), "...i,...i->...": ((2, 2), (1, 2)),
}.items():  # fmt: skip
    case("Einsum", *shapes, equation=equation, torch=f"torch.einsum('{equation}', {{all}})")
case("Conv", (1, 1, 4), (1, 1, 2), (1,), torch="F.conv1d({all})")
case("Conv", (1, 2, 5), (2, 1, 2), group=2, strides=[2], dilations=[2], pads=[1, 0])
case("Conv", (1, 2, 2, 3), (1, 2, 2, 2), auto_pad="SAME_UPPER")
case("ConvTranspose", (1, 1, 3), (1, 2, 2), (2,), torch="F.conv_transpose1d({all})")
case("ConvTranspose", (1, 2, 2), (2, 1, 2), group=2, strides=[2], output_padding=[1], pads=[1, 0])
case("ConvTranspose", (1, 1, 3), (1, 1, 3), strides=[2], output_shape=[6])
case("ConvTranspose", (1, 1, 3), (1, 1, 3), strides=[2], auto_pad="SAME_UPPER")
case("ConvTranspose", (1, 1, 2, 2), (1, 1, 1, 2), dilations=[1, 2], strides=[2, 1])
case("Det", (2, 2), torch="torch.linalg.det({0})")
case("Det", (2, 1, 1))
case("Det", (3, 3))
case("DFT", (1, 4, 1), None, np.array(1), torch="torch.view_as_real(torch.fft.fft({0}[..., 0]))")
case("DFT", (1, 3, 2), None, np.array(1), inverse=1)
case("DFT", (1, 4, 1), None, np.array(1), onesided=1)
case("DFT", (1, 3, 1), np.array(4), np.array(1))
case("STFT", (1, 6, 1), np.array(2), (4,),
     torch="torch.view_as_real(torch.stft({0}[..., 0], 4, 2, 4, {2}, center=False, "
           "return_complex=True)).transpose(1, 2)")  # fmt: skip
case("STFT", (1, 6, 1), np.array(2), None, np.array(4), onesided=0)

# Reductions, pools, normalisations, losses, dequantisation.

WHOLE_SHAPE = ".reshape([1] * {0}.ndim)"

for inputs, attrs in (
    (((2, 2),), {}), (((2, 3), ints(-1)), {"keepdims": 0}), (((2, 1, 2), ints(0, 2)), {}),
    (((2,), ints()), {"noop_with_empty_axes": 1}),
):  # fmt: skip
    for name, value in {
        "Sum": "{0}.sum()", "Mean": "{0}.mean()", "Max": "{0}.amax()", "Min": "{0}.amin()",
        "Prod": "{0}.prod()", "SumSquare": "({0} * {0}).sum()", "L1": "{0}.abs().sum()",
        "L2": "{0}.norm()", "LogSumExp": "torch.logsumexp({0}.ravel(), 0)",
    }.items():  # fmt: skip
        case(f"Reduce{name}", *inputs, torch=value + WHOLE_SHAPE, **attrs)
    case("ReduceLogSum", positive(*inputs[0]), *inputs[1:], positive=(0,),
         torch="{0}.sum().log()" + WHOLE_SHAPE, **attrs)  # fmt: skip
case("CumSum CumProd", (2, 3), np.array(-1), torch="{0}.{name}(-1)")
case("CumSum CumProd", (3, 2), np.array(0), exclusive=1, reverse=1)

case("GlobalAveragePool", (1, 2, 3), torch="{0}.mean(-1, keepdim=True)")
case("GlobalMaxPool", (1, 2, 3), torch="{0}.amax(-1, keepdim=True)")
case("GlobalAveragePool GlobalMaxPool", (1, 1, 2, 2))
case("GlobalLpPool", (1, 1, 3), torch="{0}.norm(dim=-1, keepdim=True)")
case("GlobalLpPool", (1, 1, 3), p=3)
for how in (
    {"kernel_shape": [2]}, {"kernel_shape": [2], "strides": [2], "ceil_mode": 1},
    {"kernel_shape": [2], "dilations": [2], "pads": [1, 1]},
    {"kernel_shape": [3], "auto_pad": "SAME_LOWER", "strides": [2]},
):  # fmt: skip
    case("MaxPool", (1, 1, 5), torch="F.max_pool1d({0}, 2, 1)", **how)
    case("AveragePool", (1, 1, 5), torch="F.avg_pool1d({0}, 2, 1)", **how)
    case("LpPool", (1, 1, 5), torch="F.lp_pool1d({0}, 2, 2, 1)", **how)
case("AveragePool", (1, 1, 3), kernel_shape=[2], pads=[1, 1], count_include_pad=1)
case("MaxPool AveragePool", (1, 1, 2, 3), kernel_shape=[2, 2])
FIRST = {"wrt": (0,)}
case("MaxRoiPool", (1, 1, 3, 4), numbers(0, 0, 0, 3, 2).reshape(1, 5), pooled_shape=[2, 2], **FIRST)
case("MaxRoiPool", (1, 2, 2, 2), numbers(0, 1, 1, 4, 4).reshape(1, 5), pooled_shape=[3, 1], **FIRST)
case("MaxRoiPool", (2, 1, 3, 2), numbers(1, 0.5, 0.5, 1.5, 3.25, 0, -0.5, -1, 1, 5).reshape(2, 5),
     pooled_shape=[2, 2], spatial_scale=0.5, **FIRST)  # fmt: skip
case("MaxRoiPool", (1, 1, 3, 2), numbers(0, -1, -3, 1, 4).reshape(1, 5), pooled_shape=[2, 1],
     spatial_scale=0.5, **FIRST)  # fmt: skip
case("LRN", (1, 3, 1), size=3, alpha=0.5, beta=0.75, bias=1.5, second=False,
     torch="F.local_response_norm({0}, 3, 0.5, 0.75, 1.5)")  # fmt: skip
case("LRN", (1, 2, 1), size=2, alpha=0.5, beta=1.0)

case("Softmax", (1, 3), torch="torch.softmax({0}, -1)")
case("LogSoftmax", (1, 3), torch="torch.log_softmax({0}, -1)")
case("Softmax LogSoftmax", (2, 2), axis=0)
case("LayerNormalization", (1, 3), (3,), (3,), second=False,
     torch="F.layer_norm({0}, {1}.shape, {1}, {2})")  # fmt: skip
case("LayerNormalization", (2, 2), (2,), (2,), epsilon=0.125)
case("LayerNormalization", (1, 2, 2), (2, 2), None, axis=1, outputs=3, second=False, wrt=(0,))
case("RMSNormalization", (1, 3), (3,), torch="F.rms_norm({0}, {1}.shape, {1}, 1e-5)")
case("RMSNormalization", (2, 2), (2,), epsilon=0.125)
case("InstanceNormalization", (1, 2, 2), (2,), (2,), epsilon=0.125,
     torch="F.instance_norm({0}, weight={1}, bias={2}, eps=0.125)")  # fmt: skip
case("GroupNormalization", (1, 2, 2), (2,), (2,), num_groups=2, epsilon=0.125,
     torch="F.group_norm({0}, 2, {1}, {2}, 0.125)")  # fmt: skip
case("GroupNormalization", (1, 2, 2), (2,), (2,), num_groups=1, epsilon=0.125, second=False)
case("MeanVarianceNormalization", (2, 1, 1, 2), second=False)
case("MeanVarianceNormalization", (2, 3), axes=[1], second=False)
case("MeanVarianceNormalization", (2, 1, 1, 1))
case("BatchNormalization", (2, 1), (1,), (1,), (1,), positive(1), positive=(4,), epsilon=0.125)
case("BatchNormalization", (1, 2, 2), (2,), (2,), (2,), positive(2), positive=(4,))
case("BatchNormalization", (3, 1), (1,), (1,), (1,), positive(1), positive=(4,), outputs=3,
     training_mode=1, momentum=0.75)  # fmt: skip
case("LpNormalization", (2, 2), torch="F.normalize({0}, dim=-1)")
case("LpNormalization", (1, 3), p=1)

for reduction in ("none", "sum", "mean"):
    case("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", (2, 3), ints(0, 2), positive(3),
         reduction=reduction)  # fmt: skip
case("NegativeLogLikelihoodLoss", (2, 3), ints(1, -1), ignore_index=-1)
case("SoftmaxCrossEntropyLoss", (1, 3), ints(1), outputs=2)
case("SoftmaxCrossEntropyLoss", (1, 2), ints(1))

case("DequantizeLinear", np.array([3, -7], np.int8), np.array(0.5), np.array(2, np.int8),
     torch="({0} - {2}) * {1}")  # fmt: skip
case("DequantizeLinear", np.array([[3, -7]], np.int8), (2,), axis=1)

# Operators that interpolate between entries: every mode, padding and coordinate system.

FAR = numbers(0.3125, -0.6875, 1.4375, -3.3125).reshape(1, 1, 2, 2)
"""Points of a grid inside an image, just outside it and far outside it."""

WITHIN = numbers(0.3125, -0.6875).reshape(1, 1, 1, 2)

case("AffineGrid", (1, 2, 3), ints(1, 1, 2, 2),
     torch="F.affine_grid({0}, (1, 1, 2, 2), align_corners=False)")  # fmt: skip
case("AffineGrid", (1, 2, 3), ints(1, 1, 2, 3), align_corners=1)

for padding, corners in product(("zeros", "border", "reflection"), (0, 1)):
    how = {"padding_mode": padding, "align_corners": corners}
    case("GridSample", (1, 1, 3, 2), FAR, **how)
    case("GridSample", (1, 1, 3, 2), FAR, mode="nearest", **how)
    case("GridSample", (1, 1, 3), numbers(1.4375, -0.3125).reshape(1, 2, 1), **how)
    case("GridSample", (1, 1, 2, 3), FAR, mode="cubic", wrt=(0,), **how)
    case("GridSample", signed(1, 1, 2, 3), WITHIN + 0.75, mode="cubic", wrt=(1,), **how)
    case("GridSample", (1, 1, 2, 1, 2), numbers(0.25, -0.375, 1.4375).reshape(1, 1, 1, 1, 3), **how)
    case("GridSample", (1, 1, 1, 2, 2), numbers(0.25, -0.375, 1.4375).reshape(1, 1, 1, 1, 3),
         mode="nearest", **how)  # fmt: skip
case("GridSample", (2, 2, 1, 2), numbers(0.25, -0.375, 0.5, 0.125).reshape(2, 1, 1, 2),
     torch="F.grid_sample({0}, {1}, align_corners=False)")  # fmt: skip
case("GridSample", (1, 1, 3), numbers(0.3125).reshape(1, 1, 1), mode="cubic")
case("GridSample", (1, 1, 2, 1, 2), numbers(0.25, -0.375, 0.125).reshape(1, 1, 1, 1, 3),
     align_corners=1, mode="cubic", wrt=(0,))  # fmt: skip

case("DeformConv", (1, 1, 2, 3), (1, 1, 1, 2), (1, 4, 2, 2))
case("DeformConv", (1, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 2), (1,), (1, 1, 1, 2))
case("DeformConv", (1, 2, 1, 2), (2, 1, 1, 1), (1, 4, 2, 3), None, (1, 2, 2, 3), group=2,
     offset_group=2, strides=[1, 2], pads=[0, 1, 1, 2])  # fmt: skip
case("DeformConv", (1, 1, 2, 3), (1, 1, 1, 2), (1, 4, 2, 1), dilations=[1, 2])

PLACES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")
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

case("Attention", (1, 1, 2, 1), (1, 1, 2, 1), (1, 1, 2, 1), (2, 2),
     torch="F.scaled_dot_product_attention({all})")  # fmt: skip
case("RotaryEmbedding", (1, 1, 2, 4), (2, 2), (2, 2), np.array([[0, 1]]))
case("SwiGLU", (1, 2), (1, 2), torch="F.silu({0}) * {1}")
case("CausalConvWithState", (1, 1, 2), (1, 1, 2), (1,), (1, 1, 1), outputs=2,
     torch="F.conv1d(torch.cat(({3}, {0}), 2), {1}, {2})")  # fmt: skip
case("LinearAttention", *[(1, 2, 1)] * 3, (1, 1, 1, 1), outputs=2, q_num_heads=1, kv_num_heads=1,
     update_rule="linear")  # fmt: skip
case("ai.onnx.preview::FlexAttention", (1, 1, 2, 1), (1, 1, 2, 1), (1, 1, 2, 1),
     torch="F.scaled_dot_product_attention({all})")  # fmt: skip
case("Attention", *[(1, 1, 1, 1)] * 3, None, *[(1, 1, 1, 1)] * 2, outputs=4)
case("LinearAttention", *[(1, 2, 1)] * 3, (1, 1, 1, 1), *[(1, 2, 1)] * 2, outputs=2, q_num_heads=1,
     kv_num_heads=1, update_rule="gated_delta")  # fmt: skip

# Operators of `ai.onnx.ml` that compute with floats.

ml = partial(case, domain="ai.onnx.ml")
POSTS = ("NONE", "LOGISTIC", "SOFTMAX")

ml("Scaler", (2, 2), offset=[0.5, -1.0], scale=[2.0, 0.25])
ml("Imputer", numbers(1.5, -0.5).reshape(1, 2), imputed_value_floats=[0.25],
   replaced_value_float=0.0)  # fmt: skip
ml("ArrayFeatureExtractor", (2, 3), ints(2, 0), torch="{0}.index_select(-1, {1})")
ml("FeatureVectorizer", (1, 2), (1, 1), inputdimensions=[2, 1], torch="torch.cat(({all}), 1)")
for norm in ("L1", "L2", "MAX"):
    ml("Normalizer", numbers(0.5, 1.75, -0.25).reshape(1, 3), norm=norm,
       torch="F.normalize({0}, 1, -1)")  # fmt: skip
PLAIN = {"coefficients": [0.5, -1.0], "intercepts": [0.5]}
ml("LinearRegressor", (1, 2), **PLAIN, torch="{0} @ torch.tensor([[0.5], [-1.0]]).double() + 0.5")
ml("LinearRegressor", (2, 2), **PLAIN)
WHOLE = {"coefficients": [0.5, -1.0, 0.25, 2.0], "intercepts": [0.5, 1.0]}
LABELS = {"outputs": 2, "of": (1,), "classlabels_ints": [0, 1]}
for post in POSTS:
    ml("LinearRegressor", (1, 2), targets=2, post_transform=post, second=post == "NONE", **WHOLE)
    ml("LinearClassifier", (1, 2), post_transform=post, **WHOLE, **LABELS)

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
PAIR = {"coefficients": [0.5, -1.0], "support_vectors": [1.0, 0.5, -0.25, 2.0], "rho": [0.75]}
for kernel in KERNELS:
    machine = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 3.0], **PAIR}
    ml("SVMRegressor", (1, 2), n_supports=2, **machine)
    ml("SVMClassifier", (1, 2), vectors_per_class=[1, 1], **machine, **LABELS)
ml("SVMRegressor", (2, 2), coefficients=[0.5, -1.0], rho=[0.75])

THREE = {
    "coefficients": [0.5, -1.0, 0.75, 1.25, -0.5, 0.25, 1.5, -0.75], "rho": [0.75, -0.25, 0.5],
    "support_vectors": [1.0, -0.25, 2.0, 0.5], "vectors_per_class": [1, 2, 1],
    "outputs": 2, "of": (1,), "classlabels_ints": [0, 1, 2],
}  # fmt: skip
for kernel, post in (*product(KERNELS, POSTS[:1]), ("LINEAR", "LOGISTIC"), ("LINEAR", "SOFTMAX")):
    ml("SVMClassifier", (2, 1), kernel_type=kernel, kernel_params=[0.5, 0.25, 2.0],
       post_transform=post, **THREE)  # fmt: skip
ml("SVMClassifier", (1, 2), coefficients=[0.5, -1.0, 0.25, 2.0, 1.5, -0.5], rho=[0.75],
   outputs=2, of=(1,), classlabels_ints=[0, 1, 2])  # fmt: skip
# Two classes: with three, the probabilities are fractions too long for algebra.
ml("SVMClassifier", (1, 1), vectors_per_class=[1, 1], prob_a=[-0.5], prob_b=[0.25],
   coefficients=[0.5, -2.0], support_vectors=[1.0, 0.5], rho=[0.75], second=False,
   **LABELS)  # fmt: skip

# What the operators are in PyTorch, where no case of a proof says it.

script("Shrink", "F.softshrink({0}, 0.5)", numbers(-2, 0.25, 2), lambd=0.5, bias=0.5)
script("Slice", "{0}[1:3]", (4, 2), ints(1), ints(3))
script("GatherElements", "{0}.gather(1, {1})", (2, 3), ints([1, 0], [2, 1]), axis=1)
script("DepthToSpace", "torch.pixel_shuffle({0}, 2)", (1, 4, 1, 2), blocksize=2, mode="CRD")
script("Pad", "F.pad({0}, (0, 2, 1, 0), 'reflect')", (1, 3, 3), ints(0, 1, 0, 0, 0, 2),
       mode="reflect")  # fmt: skip
script("ReverseSequence", "{0}.flip(0)", (3, 2), ints(3, 3))
script("OneHot", "torch.where(F.one_hot({0}, 3).bool(), {2}[1], {2}[0])", ints(1, 0),
       np.array(3), (2,))  # fmt: skip
script("ScatterElements", "{0}.scatter(1, {1}, {2})", (2, 3), ints([0, 2]), (1, 2), axis=1)
script("TensorScatter", "{0}.slice_scatter({1}, 1, 1, 2)", (1, 3, 2), (1, 1, 2), ints(1), axis=1)
script("Resize", "F.interpolate({0}, 5, mode='linear')", (1, 1, 3), None, None, ints(1, 1, 5),
       mode="linear")  # fmt: skip
script("BatchNormalization", "F.batch_norm({0}, {3}, {4}, {1}, {2}, eps=0.125)", (1, 2, 2),
       (2,), (2,), (2,), positive(2), epsilon=0.125, wrt=(0, 1, 2))  # fmt: skip
script("MeanVarianceNormalization", "({0} - {0}.mean(0)) / ({0}.std(0, correction=0) + 1e-9)",
       (2, 3), axes=[0])  # fmt: skip
script("NegativeLogLikelihoodLoss", "F.nll_loss({0}, {1}, {2})", (2, 3), ints(0, 2),
       positive(3), wrt=(0,))  # fmt: skip
script("SoftmaxCrossEntropyLoss", "F.cross_entropy({0}, {1}, {2})", (2, 3), ints(0, 2),
       positive(3), wrt=(0,))  # fmt: skip
CELL = "True, 1, 0.0, False, False, False)[0].unsqueeze(1)"
script("RNN", "torch.rnn_tanh({0}, {5}, ({1}[0], {2}[0], {3}[0, :2], {3}[0, 2:]), " + CELL,
       (2, 1, 1), (1, 2, 1), (1, 2, 2), (1, 4), None, (1, 1, 2), hidden_size=2, outputs=2,
       of=(0,))  # fmt: skip
script("GRU", "(lambda gates: torch.gru({0}, {5}, ({1}[0][gates], {2}[0][gates], {3}[0, :3][gates],"
       " {3}[0, 3:][gates]), " + CELL + ")([1, 0, 2])", (2, 1, 2), (1, 3, 2), (1, 3, 1), (1, 6),
       None, (1, 1, 1), hidden_size=1, linear_before_reset=1, outputs=2, of=(0,))  # fmt: skip
script("LSTM", "(lambda gates: torch.lstm({0}, ({5}, {6}), ({1}[0][gates], {2}[0][gates], "
       "{3}[0, :4][gates], {3}[0, 4:][gates]), " + CELL + ")([0, 2, 3, 1])", (2, 1, 2), (1, 4, 2),
       (1, 4, 1), (1, 8), None, (1, 1, 1), (1, 1, 1), hidden_size=1, outputs=3,
       of=(0,))  # fmt: skip
script("CenterCropPad", "F.pad({0}[0:2], (1, 1))", (3, 1), ints(2, 3))
script("Range", "{0} + {2} * torch.arange(4)", np.array(1.25), np.array(3.0), np.array(0.5))
script("Unique", "{0}.sort().values", (4,))
BIN_CENTRES = ("torch.stack(({1}[0, 0] - 0.5 + ({1}[0, 2] - {1}[0, 0]) * "
               "torch.tensor([0.25, 0.75]), "
               "({1}[0, 1] + {1}[0, 3] - 1).expand(2) / 2), -1)")  # fmt: skip
script("RoiAlign", f"F.grid_sample({{0}}, ((2 * {BIN_CENTRES} + 1) / 3 - 1)[None, None], "
       "align_corners=False)", (1, 1, 3, 3), ROI, ints(0), sampling_ratio=1, **BINS)  # fmt: skip
script("ai.onnx.ml::Scaler", "({0} - torch.tensor([0.5, -1.0])) * torch.tensor([2.0, 0.25])",
       (2, 2), offset=[0.5, -1.0], scale=[2.0, 0.25])  # fmt: skip
script("ai.onnx.ml::Imputer", "torch.where({0} == 0, 0.25, {0})", numbers(1.5, -0.5).reshape(1, 2),
       imputed_value_floats=[0.25], replaced_value_float=0.0)  # fmt: skip
