"""Sums of products: matrix products, einsum, convolutions, Fourier transforms, determinants."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..numbers.convolution import check_kernel
from ..numbers.layout import framed
from ..numbers.matmul import contraction_order
from ..numbers.windows import padded, transposed_windows, whole, windows
from .table import SAME, Tensor, common, kernel

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
SPREAD = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
"""Convolutions and transposed convolutions by the number of spatial axes."""


SAME["MatMul"] = torch.matmul


@kernel("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """A B over the last two axes, the axes before them broadcast."""
    return torch.matmul(*common(a, b))


@kernel("Einsum", wide=True)
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    """The sum of products that the equation defines, contracted pair by pair in a cheap order."""
    equation = equation.replace(" ", "")
    if "->" not in equation or len(inputs) < 3:
        return torch.einsum(equation, *common(*inputs))
    left = dict(enumerate(common(*inputs)))
    terms, out = dict(enumerate(equation.split("->")[0].split(","))), equation.split("->")[1]
    order = contraction_order(equation, *(tuple(x.shape) for x in inputs))
    for step, places in enumerate(order[1:] if order else [tuple(left)]):
        keys = [sorted(left)[place] for place in places]
        chosen, names = [left.pop(key) for key in keys], [terms.pop(key) for key in keys]
        rest = out + "".join(terms.values())
        kept = dict.fromkeys(c for name in names for c in name if c.isalpha() and c in rest)
        dots = "..." if any("..." in name for name in names) else ""
        made = dots + "".join(kept) if left else out
        key = len(inputs) + step
        left[key], terms[key] = torch.einsum(f"{','.join(names)}->{made}", *chosen), made
    return left.popitem()[1]


@kernel("Conv")
def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, group: int = 1, kernel_shape: Any = None,
    **geometry: Any,
) -> Tensor:  # fmt: skip
    """y[n, m, o] = Σ w[m, c, t] x[n, c, o · stride + t · dilation − begin] + b[m]."""
    check_kernel(w, kernel_shape)
    grid = whole(windows(tuple(x.shape[2:]), tuple(w.shape[2:]), **geometry))
    x, w, b = common(x, w, b)
    x = padded(x, grid)
    if x.ndim - 2 not in CONV or 0 in (*x.shape, *w.shape, *grid.count):
        raise NotImplementedError("torch convolves along one to three axes that are not empty")
    y = CONV[x.ndim - 2](x, w, b, grid.strides, 0, grid.dilations, group)
    return y[(..., *map(slice, grid.count))]


@kernel("ConvTranspose")
def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, group: int = 1, kernel_shape: Any = None,
    **geometry: Any,
) -> Tensor:  # fmt: skip
    """y[n, m, i · stride + t · dilation − begin] is Σ w[c, m, t] x[n, c, i], plus b[m]."""
    check_kernel(w, kernel_shape)
    grid = transposed_windows(tuple(x.shape[2:]), tuple(w.shape[2:]), **geometry)
    x, w = common(x, w)
    if x.ndim - 2 not in SPREAD or 0 in (*x.shape, *w.shape):
        raise NotImplementedError("torch convolves along one to three axes that are not empty")
    y = SPREAD[x.ndim - 2](x, w, None, grid.strides, 0, 0, group, grid.dilations)
    margins = [(0, max(n - m, 0)) for n, m in zip(grid.framed, y.shape[2:], strict=True)]
    y = framed(y, [(0, 0), (0, 0), *margins], 0)
    y = y[(..., *(slice(a, a + n) for a, n in zip(grid.begins, grid.space, strict=True)))]
    return y if b is None else y + b.reshape(-1, *(1,) * (y.ndim - 2))


