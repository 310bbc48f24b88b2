"""Products, convolutions and transforms."""

import numpy as np

from .table import case, ints, numbers

for a, b in (
    ((2,), (2,)), ((2,), (2, 2)), ((2, 2), (2,)), ((2, 3), (3, 1)), ((2, 1, 2), (2, 2)),
    ((1, 2), (2, 2, 1)), ((2, 1, 2), (2, 2, 1)), ((1, 1, 2), (2, 1, 2, 1)),
):  # fmt: skip
    case("MatMul", a, b)
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
case("Conv", (1, 2, 2, 3), (1, 2, 2, 2), auto_pad="SAME_UPPER", second=False)
case("ConvTranspose", (1, 1, 3), (1, 2, 2), (2,))
case("ConvTranspose", (1, 2, 2), (2, 1, 2), group=2, strides=[2], output_padding=[1], pads=[1, 0])
case("DeformConv", (1, 1, 2, 3), (1, 1, 1, 2), (1, 4, 2, 2), second=False)
case(
    "DeformConv", (1, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 2), (1,), (1, 1, 1, 2), second=False,
)  # fmt: skip
case("Det", (2, 2))
case("Det", (2, 1, 1))
case("Det", (3, 3))
case("DFT", (1, 4, 1), None, np.array(1))
case("DFT", (1, 3, 2), None, np.array(1), inverse=1)
case("DFT", (1, 4, 1), None, np.array(1), onesided=1)
case("DFT", (1, 3, 1), np.array(4), np.array(1))
case("STFT", (1, 6, 1), np.array(2), (4,))
case("STFT", (1, 6, 1), np.array(2), None, np.array(4), onesided=0)
case("AffineGrid", (1, 2, 3), ints(1, 1, 2, 2))
case("AffineGrid", (1, 2, 3), ints(1, 1, 2, 3), align_corners=1)
case("GridSample", (1, 1, 3, 3), 0.25 * numbers(1, -1.5, 0.5, 2.75).reshape(1, 1, 2, 2))
case("GridSample", (1, 1, 3, 2), numbers(0.5, -0.75).reshape(1, 1, 1, 2), align_corners=1)
case("GridSample", (1, 1, 2, 2), numbers(1.25, -0.25).reshape(1, 1, 1, 2), padding_mode="border")
# A recorded graph holds rounded weights, which its second derivative shows.
case("Resize", (1, 1, 3), None, None, ints(1, 1, 5), mode="linear", second=False)
case("Resize", (1, 1, 3), None, None, ints(1, 1, 4), mode="nearest", second=False)
case("Resize", (1, 1, 4), None, None, ints(1, 1, 3), mode="cubic", second=False)
case("Resize", (1, 1, 2), None, np.array([1, 1, 2.5]), mode="linear", wrt=(0, 2), second=False)
case(
    "Resize", (1, 1, 3), numbers(0, 0, 0.125, 1, 1, 0.75), None, ints(1, 1, 2), mode="linear",
    coordinate_transformation_mode="tf_crop_and_resize", second=False, wrt=(0, 1),
)  # fmt: skip
