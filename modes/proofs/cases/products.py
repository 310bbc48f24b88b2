"""Products, convolutions and transforms."""

import numpy as np

from .table import case

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
