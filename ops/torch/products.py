"""Sums of products: matrix products, einsum, convolutions, Fourier transforms, determinants."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..numbers.convolution import check_kernel
from ..numbers.matmul import contraction_order
from ..numbers.table import ints
from ..numbers.windows import Windows, transposed_windows, whole, windows
from .layout import framed
from .table import SAME, Tensor, common, kernel

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
SPREAD = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
"""Convolutions and transposed convolutions by the number of spatial axes."""


SAME["MatMul"] = torch.matmul


@kernel("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """A B over the last two axes, the axes before them broadcast."""
    return torch.matmul(*common(a, b))


@kernel("Gemm")
def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    """α A' B' + β C, where ' transposes if the flag is set."""
    product = scaled(alpha, matmul(a.T if transA else a, b.T if transB else b))
    return product if c is None else (product + scaled(beta, c)).to(a.dtype)


def scaled(factor: float, x: Tensor) -> Tensor:
    """x times a factor, without an operation for the factor 1."""
    return x if factor == 1 else (factor * x).to(x.dtype)


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
    x = within(x, grid, x.ndim - len(grid.space))
    if x.ndim - 2 not in CONV or 0 in (*x.shape, *w.shape, *grid.count):
        raise NotImplementedError("torch convolves along one to three axes that are not empty")
    y = CONV[x.ndim - 2](x, w, b, grid.strides, 0, grid.dilations, group)
    return y[(..., *map(slice, grid.count))]


def within(x: Tensor, grid: Windows, lead: int) -> Tensor:
    """x inside the frame that the windows need."""
    return framed(x, [(0, 0)] * lead + grid.frame, 0)


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


@kernel("Det", wide=True)
def det(x: Tensor) -> Tensor:
    """The determinant of every matrix."""
    return torch.linalg.det(x)


@kernel("DFT", hosted=True, wide=True)
def dft(
    x: Tensor, length: Any = None, axis: Any = -2, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """The Fourier transform along an axis; `onesided` is half a spectrum, as input if `inverse`."""
    (axis,) = ints(-2 if axis is None else axis)
    axis = axis % x.ndim
    n = None if length is None else ints(length)[0]
    pairs = x.shape[-1] == 2
    signal = torch.complex(x[..., 0], x[..., 1]) if pairs else x[..., 0]
    if onesided and inverse:
        return torch.fft.irfft(signal, n, axis)[..., None]
    y = (torch.fft.ifft if inverse else torch.fft.fft)(signal, n, axis)
    y = y.narrow(axis, 0, y.shape[axis] // 2 + 1) if onesided else y
    return torch.view_as_real(y.resolve_conj())
