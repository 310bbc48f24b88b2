"""Reductions, pooling, normalisation, losses, recurrent operators."""

import numpy as np

from .table import case, ints, numbers, positive

LINEAR = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1"
for inputs, attrs in (
    (((2, 2),), {}), (((2, 3), ints(-1)), {"keepdims": 0}), (((2, 1, 2), ints(0, 2)), {}),
    (((2,), ints()), {"noop_with_empty_axes": 1}),
):  # fmt: skip
    case(LINEAR, *inputs, **attrs)
    case("ReduceL2 ReduceLogSumExp", *inputs, **attrs)
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
    case("MaxPool AveragePool", (1, 1, 5), **how)
    case("LpPool", (1, 1, 5), **how)
case("AveragePool", (1, 1, 3), kernel_shape=[2], pads=[1, 1], count_include_pad=1)
case("MaxPool AveragePool", (1, 1, 2, 3), kernel_shape=[2, 2])
ROI = {"wrt": (0,)}
case("MaxRoiPool", (1, 1, 3, 4), numbers(0, 0, 0, 3, 2).reshape(1, 5), pooled_shape=[2, 2], **ROI)
case("MaxRoiPool", (1, 2, 2, 2), numbers(0, 1, 1, 4, 4).reshape(1, 5), pooled_shape=[3, 1], **ROI)
case(
    "MaxRoiPool", (2, 1, 3, 2), numbers(1, 0.5, 0.5, 1.5, 3.25, 0, -0.5, -1, 1, 5).reshape(2, 5),
    pooled_shape=[2, 2], spatial_scale=0.5, **ROI,
)  # fmt: skip
case("MaxRoiPool", (1, 1, 3, 2), numbers(0, -1, -3, 1, 4).reshape(1, 5), pooled_shape=[2, 1],
     spatial_scale=0.5, **ROI)  # fmt: skip
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
case(
    "BatchNormalization", (3, 1), (1,), (1,), (1,), positive(1), positive=(4,), outputs=3,
    training_mode=1, momentum=0.75,
)  # fmt: skip
case("LpNormalization", (2, 2))
case("LpNormalization", (1, 3), p=1)

LABELS = ints(0, 2)
for reduction in ("none", "sum", "mean"):
    case("NegativeLogLikelihoodLoss", (2, 3), LABELS, positive(3), reduction=reduction)
    case("SoftmaxCrossEntropyLoss", (2, 3), LABELS, positive(3), reduction=reduction)
case("NegativeLogLikelihoodLoss", (2, 3), ints(1, -1), ignore_index=-1)
case("SoftmaxCrossEntropyLoss", (1, 3), ints(1), outputs=2)
case("SoftmaxCrossEntropyLoss", (1, 2), ints(1))

case("DequantizeLinear", np.array([3, -7], np.int8), np.array(0.5), np.array(2, np.int8))
case("DequantizeLinear", np.array([[3, -7]], np.int8), (2,), axis=1)
