"""Points at which a rule can be wrong, and which ONNX's own cases miss.

A tuple of ints stands for a normal draw of that shape.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

EXTRA = []
RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Extra:
    """A node at a point; `dense` is its Jacobian where differences do not apply."""

    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21
    dense: np.ndarray | None = None

    def __str__(self) -> str:
        shapes = ["none" if a is None else "×".join(map(str, np.shape(a))) for a in self.inputs]
        attrs = (f"{k}={v}".replace(" ", "") for k, v in self.attrs.items())
        return "-".join((self.op_type, *shapes, *attrs))


def case(op_types, *inputs, outputs=1, opset=21, dense=None, **attrs):
    """One point for every operator of a list."""
    for op_type in op_types.split():
        arrays = tuple(N(*a) if isinstance(a, tuple) else a for a in inputs)
        EXTRA.append(Extra(op_type, arrays, attrs, outputs, opset, dense))


def N(*shape):
    return RNG.standard_normal(shape)


def positive(*shape):
    return RNG.uniform(0.5, 2, shape)


def ints(*values):
    return np.array(values, np.int64)


def x(*values):
    """A vector of exactly these numbers."""
    return np.array(values, np.float64)


# Broadcasting, of either operand and of both.
for a, b in (((3, 1), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((2,), ())):
    case("Add Sub Mul Max Min Sum Mean", a, b)
    case("Div", a, positive(*b))
    case("Mod", a, positive(*b), fmod=1)
    case("Pow", positive(*a), b)
    case("Where", RNG.integers(0, 2, b).astype(bool), a, b)
    case("Where", RNG.integers(0, 2, a).astype(bool), (), b)
case("Sum Mean Max Min", (2, 1), (3,), (1, 3), ())
case("PRelu", (2, 3, 4), (3, 1))
case("PRelu", (2, 3), ())
case("Pow", positive(3), ints(2, 0, -1))
case("Pow", x(-2, -0.5, 3), ints(3, 2, 1))
case("Mul Add", x(2, 3), (2,), opset=14)

# Ties, bounds and zeros: no derivative, or none by division; the value is declared.
case(
    "Max",
    x(1, 2, 3),
    x(1, 5, 3),
    dense=np.array([[0.5, 0, 0, 0.5, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0.5, 0, 0, 0.5]]),
)
case("Min", x(1), x(1), x(1), dense=np.full((1, 3), 1 / 3))
case("ReduceMax", x(1, 3, 3, 2), dense=np.array([[0, 0.5, 0.5, 0]]), keepdims=0)
case("ReduceMin", x(1, 1, 1), dense=np.full((1, 3), 1 / 3))
case("ReduceProd", x(2, 0, 3), dense=np.array([[0, 6.0, 0]]))
case("ReduceProd", x(0, 0, 3), dense=np.zeros((1, 3)))
case("ReduceL1", x(-2, 0, 3), dense=np.array([[-1.0, 0, 1]]))
case("ReduceL2", x(0, 0), dense=np.zeros((1, 2)))
case("Pow", x(0, 0, 0), x(0, 1, 2), dense=np.hstack([np.diag([0.0, 1, 0]), np.zeros((3, 3))]))
case("Clip", x(-1, 0, 1), np.array(-1.0), np.array(1.0), dense=np.eye(3, 5))
case(
    "Clip",
    x(-3, 0.5, 3),
    np.array(-1.0),
    np.array(1.0),
    dense=np.array([[0.0, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]),
)
case("Clip", x(-3, 0, 3), np.array(1.0), np.array(-1.0), dense=np.array([[0.0, 0, 0, 0, 1]] * 3))
case("Clip", x(-3, 3), np.array(0.0), None, dense=np.array([[0.0, 0, 1], [0, 1, 0]]))
case("Clip", x(-3, 3), None, np.array(0.0), dense=np.array([[1.0, 0, 0], [0, 0, 1]]))
case("Clip", x(-3, 3), dense=np.eye(2))
case(
    "MaxPool",
    x(1, 1, 0).reshape(1, 1, 3),
    kernel_shape=[2],
    dense=np.array([[1.0, 0, 0], [0, 1, 0]]),
)
case("GlobalMaxPool", x(2, 2, 1).reshape(1, 1, 3), dense=np.array([[1.0, 0, 0]]))

# Matrix products.
for a, b in (
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((4, 2, 3), (3,)),
    ((3,), (4, 3, 2)),
    ((4, 2, 3), (3, 2)),
    ((2, 3), (4, 3, 2)),
    ((4, 2, 3), (4, 3, 2)),
    ((4, 1, 2, 3), (5, 3, 2)),
    ((1, 2, 3), (4, 3, 2)),
    ((4, 2, 1), (1, 1, 3)),
    ((2, 1, 3), (2, 3, 1)),
):
    case("MatMul", a, b)
for transA, transB, c in (
    (0, 0, (2, 4)),
    (1, 0, (4,)),
    (0, 1, (2, 1)),
    (1, 1, ()),
    (0, 0, (1, 4)),
    (1, 1, None),
):
    a, b = ((3, 2) if transA else (2, 3)), ((4, 3) if transB else (3, 4))
    case("Gemm", a, b, c, transA=transA, transB=transB, alpha=0.5, beta=-1.5)
    case("Gemm", a, b, c, transA=transA, transB=transB)
for equation, shapes in {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "ij,jk": ((2, 3), (3, 4)),
    "bij, bjk -> bik": ((2, 2, 3), (2, 3, 2)),
    "ij->ji": ((2, 3),),
    "ii": ((3, 3),),
    "ii->i": ((3, 3),),
    "iij->j": ((2, 2, 3),),
    "ij->": ((2, 3),),
    "ij->i": ((2, 3),),
    "ij->j": ((2, 3),),
    "ii->": ((3, 3),),
    "iij->": ((2, 2, 3),),
    "...j->...": ((2, 3),),
    "ij,k->": ((2, 3), (1,)),
    "ij,i->j": ((2, 0), (2,)),
    "i,i->i": ((0,), (1,)),
    "i, i->": ((1,), (0,)),
    "i,j->ij": ((2,), (3,)),
    "i,i->": ((3,), (3,)),
    "i,i": ((3,), (3,)),
    "ij,j->j": ((2, 3), (3,)),
    "ij,k->k": ((2, 3), (4,)),
    "ii,i->i": ((3, 3), (3,)),
    "ii,jj->ij": ((2, 2), (3, 3)),
    "ij,jk,kl->il": ((2, 3), (3, 2), (2, 4)),
    "i,i,i->i": ((3,), (3,), (3,)),
    ",ij->ij": ((), (2, 3)),
    "...ij,...jk->...ik": ((4, 2, 3), (3, 2)),
    "...i->...": ((2, 3, 4),),
    "i...->...i": ((2, 3, 4),),
    "...,...": ((2, 1), (3,)),
    "...ii->...i": ((2, 3, 3),),
    "ij,ij->ij": ((1, 3), (2, 3)),
    "ij,jk->ik ": ((2, 1), (3, 4)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 2), (2, 2, 4, 2)),
    "ij,ij->i": ((2, 1), (1, 3)),
    "...i,j...->...ij": ((2, 3), (4, 2)),
    "i->i": ((3,),),
}.items():
    case("Einsum", *shapes, equation=equation)

# Convolutions.
case("Conv", (2, 3, 5), (4, 3, 3), (4,))
case("Conv", (1, 4, 6), (4, 2, 2), group=2, strides=[2], dilations=[2], pads=[1, 2])
case("Conv", (1, 3, 4, 5), (6, 1, 3, 2), (6,), group=3, pads=[1, 0, 2, 1])
case("Conv", (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), strides=[1, 2, 1], pads=[1, 0, 0, 0, 1, 1])
for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case("Conv", (1, 2, 5, 4), (2, 2, 2, 3), strides=[2, 1], auto_pad=auto_pad)
    case("ConvTranspose", (1, 2, 3, 4), (2, 2, 2, 3), strides=[2, 1], auto_pad=auto_pad)
case("ConvTranspose", (2, 3, 4), (3, 2, 3), (2,))
case("ConvTranspose", (1, 4, 3), (4, 3, 2), (6,), group=2, strides=[3], dilations=[2], pads=[1, 0])
case("ConvTranspose", (1, 3, 2, 3), (3, 1, 2, 2), group=3, strides=[2, 2], output_padding=[1, 0])
case("ConvTranspose", (1, 2, 3, 3), (2, 2, 3, 3), strides=[2, 2], output_shape=[6, 5])
case("ConvTranspose", (1, 2, 3, 3), (2, 2, 3, 3), strides=[2, 2], output_shape=[6, 8])
case("ConvTranspose", (1, 1, 3), (1, 1, 3), strides=[2], output_shape=[6], auto_pad="SAME_UPPER")
case("ConvTranspose", (1, 1, 3), (1, 1, 3), strides=[2], output_shape=[6], auto_pad="SAME_LOWER")
case("ConvTranspose", (1, 1, 3), (1, 1, 2), dilations=[2], output_padding=[1])
case("ConvTranspose", (2, 2, 2, 1), (2, 2, 3, 2), strides=[2, 1], dilations=[1, 2])
case("ConvTranspose", (2, 2, 2), (2, 2, 4), group=2, strides=[2], dilations=[3], output_padding=[1])
case("ConvTranspose", (1, 2, 2, 2, 3), (2, 1, 2, 1, 2), strides=[1, 1, 2], pads=[0, 0, 1, 1, 0, 0])


# Pooling.
def pools(**how):
    case("MaxPool AveragePool", (2, 2, 6), **how)
    case("AveragePool", (2, 2, 6), count_include_pad=1, **how)


pools(kernel_shape=[3], strides=[2])
pools(kernel_shape=[3], strides=[2], ceil_mode=1)
pools(kernel_shape=[2], dilations=[2], pads=[1, 1])
pools(kernel_shape=[3], pads=[2, 1], strides=[3])
pools(kernel_shape=[2], strides=[2], auto_pad="SAME_UPPER")
pools(kernel_shape=[3], strides=[2], auto_pad="SAME_LOWER")
pools(kernel_shape=[3], strides=[2], pads=[1, 0], ceil_mode=1)
case("MaxPool", (1, 2, 4, 5), outputs=2, kernel_shape=[2, 3], pads=[1, 1, 0, 1], strides=[1, 2])
case("MaxPool", (1, 2, 4, 5), outputs=2, kernel_shape=[2, 2], storage_order=1)
case("MaxPool AveragePool", (1, 2, 3, 4, 3), kernel_shape=[2, 2, 2], dilations=[1, 2, 1])
case(
    "AveragePool", (1, 2, 5, 5), kernel_shape=[3, 2], ceil_mode=1, strides=[2, 2], pads=[1, 0, 0, 1]
)
case("GlobalAveragePool GlobalMaxPool", (2, 3, 4))
case("GlobalAveragePool GlobalMaxPool", (1, 2, 2, 3, 2))
case("LRN", (2, 5, 2, 3), size=3, alpha=0.5, beta=0.75, bias=1.5)
case("LRN", (1, 4, 3), size=4, alpha=0.7)
case("LRN", (1, 2, 2), size=5)

# Selections.
case("Gather", (4, 3), ints(-1, 0, -1, 2), axis=-2)
case("Gather", (2, 4, 3), np.array([[-1, 0], [3, 3]]), axis=1)
case("Gather", (4,), np.array(-2))
case("GatherElements", (3, 4), np.array([[-1, 0], [2, -1]]), axis=-1)
case("GatherElements", (3, 4), np.array([[0, 2, 1, -1]]), axis=0)
case("GatherND", (2, 3, 4), np.array([[[-1], [0]], [[2], [2]]]), batch_dims=1)
case("GatherND", (2, 3, 4), np.array([[1, -1], [0, 0], [0, 0]]))
case("GatherND", (2, 3), np.array([[1, 2]]))
case("Slice", (4, 5), ints(-1, 4), ints(-5, 0), ints(0, 1), ints(-1, -2))
case("Slice", (4, 5), ints(-2), ints(100), ints(-1))
case("Slice", (5,), ints(10), ints(-100), ints(0), ints(-3))
case("Slice", (4, 5), ints(1, 1), ints(3, 3))
case("Slice", (4, 5), ints(3), ints(1), ints(1))
case("Slice", (4,), ints(-100), ints(-200), ints(0), ints(-1))
case("Split", (7, 2), outputs=3, num_outputs=3)
case("Split", (2, 7), ints(1, 4, 2), outputs=3, axis=-1)
case("Split", (2, 3), ints(0, 3), outputs=2, axis=1)
case("Concat", (2, 1, 3), (2, 2, 3), (2, 0, 3), axis=-2)
case("Concat", (2,), axis=0)
case("Pad", (3, 4), ints(1, -1, 0, 2), np.array(0.5))
case("Pad", (3, 4), ints(-1, -1, -1, -2))
case("Pad", (2, 3, 4), ints(1, 2), None, ints(-2))
case("Pad", (2, 3), ints(2, -1, 2, 1), np.array(1.5), ints(-1, 0))
for mode in ("reflect", "edge", "wrap"):
    case("Pad", (4, 3), ints(2, 1, 3, 2), mode=mode)
    case("Pad", (4, 3), ints(-1, 1, 2, -1), mode=mode)
case("Tile", (2, 3), ints(2, 1))
case("Tile", (2, 1, 3), ints(1, 3, 2))
case("Expand", (3, 1), ints(2, 1, 4))
case("Expand", (), ints(2, 3))
case("Transpose", (2, 3, 4))
case("Trilu", (2, 3, 4), np.array(1))
case("Trilu", (4, 3), ints(-1), upper=0)
case("Compress", (3, 4), np.array([True, False, True]), axis=-1)
case("Compress", (2, 2), np.array([False, True, True]))
case("TopK", (3, 4), ints(2), outputs=2, axis=0, largest=0)
case("DepthToSpace", (2, 8, 1, 2), blocksize=2, mode="CRD")
case("SpaceToDepth", (2, 2, 4, 2), blocksize=2)
case("Reshape", (2, 3), ints(0, -1, 1))
case("Flatten", (2, 3, 4), axis=-1)
case("Flatten", (3,), axis=0)
case("ScatterND", (4, 3), np.array([[2], [-4]]), (2, 3))
case("ScatterND", (4, 3), np.array([[2, 1], [2, 1], [0, 0]]), (3,), reduction="add")
case("ScatterElements", (3, 3), np.array([[0, -1], [1, 1]]), (2, 2), axis=1, reduction="add")
case("ScatterElements", (3, 3), np.array([[0, -1, 2]]), (1, 3))

# Reductions.
for reduce in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"):
    case(f"Reduce{reduce}", (2, 3, 4), ints(-1, 0), keepdims=0)
    case(f"Reduce{reduce}", (2, 3))
    case(f"Reduce{reduce}", (3,), ints(0), keepdims=0)
case("ReduceLogSum", positive(2, 3, 4), ints(1))
case("ReduceSum ReduceMean ReduceMax ReduceProd", (2, 3), ints(), noop_with_empty_axes=1)
case("ReduceLogSumExp", 800 + N(3), keepdims=0)
case("CumSum", (2, 3), np.array(-1), exclusive=1, reverse=1)
case("CumSum", (2, 3), np.array(0), exclusive=1)

# Normalisations.
case("Softmax LogSoftmax", (2, 3, 4), axis=1)
case("LayerNormalization", (2, 3, 4), (4,), (4,), outputs=3, epsilon=0.1)
case("LayerNormalization", (2, 3, 4), (3, 4), outputs=3, axis=1)
case("LayerNormalization", (2, 3, 4), (1, 4), (4,), axis=-2)
case("RMSNormalization", (2, 3, 4), (3, 4), axis=1, epsilon=0.1, opset=23)
case("RMSNormalization", (2, 3, 4), (4,), opset=23)
case("InstanceNormalization", (2, 3, 4), (3,), (3,), epsilon=0.1)
case("GroupNormalization", (2, 4, 3), (4,), (4,), num_groups=2, epsilon=0.1)
case("BatchNormalization", (2, 3), (3,), (3,), (3,), positive(3), epsilon=0.1)
case(
    "BatchNormalization",
    (4, 3, 2),
    (3,),
    (3,),
    (3,),
    positive(3),
    outputs=3,
    training_mode=1,
    momentum=0.7,
)
case("BatchNormalization", (4, 3), (3,), (3,), (3,), positive(3), training_mode=1, outputs=1)
case("MeanVarianceNormalization", (2, 3, 4), axes=[0, -1])

# Dropout: the identity, or a mask fixed by the seed.
case("Dropout", (2, 3))
case("Dropout", (2, 3), np.array(0.4), np.array(False), outputs=2)
case("Dropout", (4, 5), np.array(0.4), np.array(True), outputs=2, seed=3)
case("Dropout", (4, 5), None, np.array(True), seed=3)

# Losses over labels, some of which are ignored.
LABELS = np.array([[0, 2], [1, -1]])
for reduction in ("none", "sum", "mean"):
    case("SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", (2, 3, 2), LABELS, positive(3),
         ignore_index=-1, reduction=reduction)  # fmt: skip
    case("SoftmaxCrossEntropyLoss", (3, 4), ints(1, 0, 3), outputs=2, reduction=reduction)
    case("NegativeLogLikelihoodLoss", (3, 4), ints(1, 0, 3), reduction=reduction)
case("SoftmaxCrossEntropyLoss", (4, 3), ints(0, 2, 1, -1), positive(3), outputs=2, ignore_index=-1)
case("SoftmaxCrossEntropyLoss", (2, 3, 2, 2), RNG.integers(0, 3, (2, 2, 2)), ignore_index=1)

# Tensors laid out by integers, and the different entries of a tensor.
for axis in (-1, 0, 1):
    case("OneHot", np.array([[0, -1], [2, 7]]), np.array(3), (2,), axis=axis)
case("Range", np.array(0.3), np.array(3.0), np.array(0.7))
case("Range", np.array(3.0), np.array(-1.0), np.array(-0.9))
TWICE = x(3, 1, 3, 2, 1, 5).reshape(3, 2)
TWICE_FROM = np.eye(6)
case("Unique", TWICE, dense=TWICE_FROM[[1, 3, 0, 5]])
case("Unique", TWICE, outputs=4, sorted=0, dense=TWICE_FROM[[0, 1, 3, 5]])
for outputs in (1, 2):
    case(
        "Unique",
        x(1, 2, 0, 3, 1, 2).reshape(3, 2),
        outputs=outputs,
        axis=0,
        dense=TWICE_FROM[[2, 3, 0, 1]],
    )

# Images: interpolation between pixels, also outside the border and in regions.
SIZES = ints(1, 2, 5, 3)
for mode in ("linear", "cubic"):
    case("Resize", (1, 2, 4, 5), None, None, SIZES, mode=mode, antialias=1)
    case("Resize", (1, 2, 4, 5), None, None, SIZES, mode=mode, exclude_outside=1)
    case("Resize", (4, 5), x(0.1, 0.3, 0.8, 1.23), None, ints(3, 7), mode=mode,
         coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.0)  # fmt: skip
for transform in ("half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"):
    case(
        "Resize",
        (4, 5),
        None,
        None,
        ints(7, 1),
        mode="cubic",
        coordinate_transformation_mode=transform,
    )
case(
    "Resize",
    (4, 5),
    None,
    None,
    ints(9),
    mode="linear",
    axes=[-1],
    keep_aspect_ratio_policy="not_smaller",
)
for mode in ("linear", "cubic", "nearest"):
    for padding in ("zeros", "border", "reflection"):
        for align in (0, 1):
            case("GridSample", (2, 2, 4, 5), RNG.uniform(-1.7, 1.7, (2, 3, 2, 2)), mode=mode,
                 padding_mode=padding, align_corners=align)  # fmt: skip
case("GridSample", (1, 2, 3, 4, 5), RNG.uniform(-1.2, 1.2, (1, 2, 2, 2, 3)), mode="linear")
case("AffineGrid", (2, 2, 3), ints(2, 1, 3, 4), align_corners=1)
case("AffineGrid", (1, 3, 4), ints(1, 1, 2, 3, 2))
REGIONS = x(0.4, -1.3, 5.2, 3.1, 1.2, 2.3, 6.6, 9.7).reshape(2, 4)
for mode in ("avg", "max"):
    for ratio in (0, 2):
        case("RoiAlign", (2, 2, 6, 7), REGIONS, ints(1, 0), mode=mode, sampling_ratio=ratio,
             output_height=2, output_width=3, spatial_scale=0.7)  # fmt: skip
case("MaxRoiPool", (1, 2, 6, 7), x(0.3, 0.4, 1.4, 5.2, 3.1).reshape(1, 5), pooled_shape=[2, 3])
case("DeformConv", (2, 4, 5, 4), (4, 2, 2, 3), (2, 24, 5, 2), (4,), (2, 12, 5, 2), group=2,
     offset_group=2, strides=[1, 2], pads=[1, 1, 1, 1], dilations=[2, 1])  # fmt: skip

# Norms, products with zeros, moved entries.
case("LpPool", (1, 2, 6, 5), kernel_shape=[2, 3], p=3, strides=[2, 1], pads=[1, 0, 0, 2])
case("LpPool", (1, 1, 7), kernel_shape=[3], p=1, dilations=[2], ceil_mode=1, strides=[2], opset=22)
case("GlobalLpPool", (2, 2, 3, 4))
case("GlobalLpPool", (2, 2, 5), p=3)
case("LpNormalization", (2, 3, 4), axis=1, p=1)
case("LpNormalization", x(0, 0), dense=np.zeros((2, 2)))
case("CumProd", x(2, 0, 3), np.array(0), opset=26, dense=x(1, 0, 0, 0, 2, 0, 0, 6, 0).reshape(3, 3))
case("CumProd", (2, 5, 3), np.array(-2), opset=26, exclusive=1, reverse=1)
case("Det", x(1, 2, 2, 4).reshape(2, 2), dense=x(4, -2, -2, 1).reshape(1, 4))
case("Det", (2, 3, 4, 4))
case(
    "MaxUnpool",
    (1, 1, 2, 2),
    ints(0, 2, 2, 15).reshape(1, 1, 2, 2),
    kernel_shape=[2, 2],
    strides=[2, 2],
)
case("CenterCropPad", (3, 6), ints(4, 2), axes=[1, 0])
case("ReverseSequence", (2, 4, 3), ints(3, 1), batch_axis=0, time_axis=1)
case("TensorScatter", (2, 3, 4, 2), (2, 3, 2, 2), ints(1, 3), mode="circular", opset=24)
case(
    "Col2Im",
    (2, 12, 4),
    ints(4, 5),
    ints(2, 3),
    dilations=[2, 1],
    strides=[1, 2],
    pads=[0, 0, 0, 0],
)

# Transforms.
for onesided in (0, 1):
    case("DFT", (2, 5, 3, 1), None, np.array(1), onesided=onesided)
    case("DFT", (2, 5, 1), np.array(8), onesided=onesided)
case("DFT", (2, 5, 3, 2), np.array(4), np.array(0), inverse=1)
case("DFT", (4, 2), np.array(7), np.array(0), inverse=1, onesided=1, opset=28)
case("DFT", (4, 2), None, np.array(0), inverse=1, onesided=1, opset=28)
case("STFT", (2, 11, 1), np.array(3), (5,), None)
case("STFT", (1, 9, 2), np.array(2), (4,), np.array(4), onesided=0)
case("STFT", (1, 9, 1), np.array(2), None, np.array(4))
case("STFT", (2, 11), np.array(3), (5,), None)
