"""Matrix products, Fourier transforms, determinants: MatMul, Gemm, Einsum, DFT, STFT, Det."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...jacobians.arrays import Array, dtype_of
from ...jacobians.readings import module_of
from .table import as_ints, as_type, holds_halves, kernel, meeting, single

STACKED_COLUMNS = 8
"""The most columns for which a stack of right factors is faster as one tall left factor."""
LOOPED_ELEMENTS = 256
"""A sum of products with fewer elements in all is faster as a plain loop than through BLAS."""
LOOPED_OPERANDS = 4
"""The most operands for which a loop over small ones and a search of all orders are cheap."""


@kernel("MatMul")
def matmul(a: Array, b: Array) -> Array:
    """A B over the last two axes, the axes before them broadcast; as few BLAS calls as possible."""
    if holds_halves(a):
        return matmul(single(a), single(b)).astype(meeting(a, b), copy=False)
    if (a.ndim == 2 and b.ndim == 2) or a.ndim < 2 or b.ndim < 2:
        return np.matmul(a, b)
    left, right = unrepeated(a), unrepeated(b)
    product = stacked(left, right)
    if left is a and right is b:
        return product
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return np.broadcast_to(product, (*batch, *product.shape[-2:]))


def unrepeated(x: Array) -> Array:
    """x without leading axes of stride 0, which only repeat the matrices."""
    while x.ndim > 2 and x.strides[0] == 0 and x.size:
        x = x[0]
    return x


def stacked(a: Array, b: Array) -> Array:
    """A B; a stack times one matrix is one tall product, where it takes no copy or a cheap one."""
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and a.size:
        return np.matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    if a.ndim == 2 and b.ndim > 2 and b.shape[-1] <= STACKED_COLUMNS:
        return np.swapaxes(stacked(np.ascontiguousarray(np.swapaxes(b, -1, -2)), a.T), -1, -2)
    return np.matmul(a, b)


@kernel("Gemm", tensors=True)
def gemm(
    a: Array, b: Array, c: Array | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Array:  # fmt: skip
    """α A' B' + β C, where ' transposes if the flag is set."""
    multiply = matmul if isinstance(a, np.ndarray) else module_of(a).matmul
    product = scaled(alpha, multiply(a.T if transA else a, b.T if transB else b))
    return product if c is None else as_type(product + scaled(beta, c), dtype_of(a))


def scaled(factor: float, x: Array) -> Array:
    """x times a factor, without an operation for the factor 1."""
    return x if factor == 1 else as_type(factor * x, dtype_of(x))


@kernel("Einsum", wide=True)
def einsum(*inputs: Array, equation: str) -> Array:
    """The sum of products that the equation defines, contracted in a cheap order."""
    order = contraction_order(equation, *(x.shape for x in inputs))
    return np.einsum(equation, *inputs, optimize=order)


@functools.lru_cache(maxsize=4096)
def contraction_order(equation: str, *shapes: tuple[int, ...]) -> Any:
    """The order of pairwise contractions for NumPy; False if a plain loop is faster."""
    operands = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    few = len(operands) <= LOOPED_OPERANDS  # both are exponential in the number of operands
    if len(operands) < 2 or (few and sum(x.size for x in operands) < LOOPED_ELEMENTS):
        return False
    # with a memory limit, NumPy would contract the remaining operands in one loop over all labels
    way = "optimal" if few else "greedy"
    return np.einsum_path(equation, *operands, optimize=(way, 2**62))[0]


@kernel("Det", wide=True, tensors=True)
def det(x: Array) -> Array:
    """The determinant of every matrix."""
    return module_of(x).linalg.det(x)


@kernel("DFT", wide=True, tensors=True, hosted=True)
def dft(
    x: Array, length: Any = None, axis: Any = -2, *, inverse: int = 0, onesided: int = 0
) -> Array:
    """The Fourier transform along an axis; `onesided` is half a spectrum, as input if `inverse`."""
    (axis,) = as_ints(-2 if axis is None else axis)
    axis = axis % x.ndim
    n = None if length is None else as_ints(length)[0]
    xp = module_of(x)
    signal = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    if onesided and inverse:
        return xp.fft.irfft(signal, n, axis)[..., None]
    y = (xp.fft.ifft if inverse else xp.fft.fft)(signal, n, axis)
    if onesided:
        y = y[(slice(None),) * axis + (slice(y.shape[axis] // 2 + 1),)]
    return xp.stack([y.real, y.imag], -1)


@kernel("STFT")
def stft(
    x: Array, frame_step: Any, window: Any = None, frame_length: Any = None, *, onesided: int = 1
) -> Array:
    """The transforms of frames of the signal, weighted by a window.

    A real signal may lack the axis of its parts.
    """
    x = x[..., None] if x.ndim == 2 else x
    n = as_ints(frame_length)[0] if window is None and frame_length is not None else None
    n = n or (x.shape[1] if window is None else len(window))
    step = as_ints(frame_step)[0]
    check_frames(n, step, x.shape[1])
    frames = np.lib.stride_tricks.sliding_window_view(x, n, axis=1)[:, ::step]
    weight = 1 if window is None else window
    return dft(np.moveaxis(frames * weight, -1, -2), onesided=onesided)


def check_frames(n: int, step: int, most: int) -> None:
    """Raises `ValueError` where a signal has no frames of this length, a step apart."""
    if not 0 < n <= most or step < 1:
        raise ValueError(f"frames of {n} entries, {step} apart, of a signal of {most}")
