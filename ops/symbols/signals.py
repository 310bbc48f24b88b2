"""Fourier transforms with exact roots of unity."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp

from .table import kernel


@kernel("DFT")
def dft(
    x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    """y[k] = Σ x[j] exp(∓2πi jk/n), over n where inverse; the last axis is (re, im)."""
    axis = -2 if axis is None else int(np.ravel(axis)[0])
    axis = axis % x.ndim
    half = bool(onesided and inverse)
    n = int(np.ravel(length)[0]) if length is not None else x.shape[axis]
    n = n if length is not None or not half else 2 * (n - 1)
    rows = np.moveaxis(x, axis, 0)
    real = rows[..., 0]
    imaginary = rows[..., 1] if rows.shape[-1] == 2 else 0 * real
    if half:
        real, imaginary = mirrored(real, n), mirrored(imaginary, n, -1)
    real, imaginary = fitted(real, n), fitted(imaginary, n)
    c, s = roots(n)
    s = s if inverse else -s
    y_real = tensordot(c, real) - tensordot(s, imaginary)
    y_imaginary = tensordot(c, imaginary) + tensordot(s, real)
    if inverse:
        y_real, y_imaginary = y_real / n, y_imaginary / n
    y = np.stack([y_real] if half else [y_real, y_imaginary], axis=-1)
    y = y[: n // 2 + 1] if onesided and not inverse else y
    return np.moveaxis(y, 0, axis)


def tensordot(matrix: Any, x: Any) -> Any:
    """The matrix times the first axis."""
    flat = np.matmul(matrix, x.reshape(x.shape[0], -1))
    return flat.reshape(matrix.shape[0], *x.shape[1:])


def roots(n: int) -> tuple[Any, Any]:
    """cos and sin of 2π jk/n."""
    angles = np.empty((n, n), object), np.empty((n, n), object)
    for j, k in np.ndindex(n, n):
        angle = 2 * sp.pi * sp.Rational(j * k % n, n)
        angles[0][j, k], angles[1][j, k] = sp.cos(angle), sp.sin(angle)
    return angles


def fitted(x: Any, n: int) -> Any:
    """The first n rows, with zeros behind them where there are fewer."""
    if len(x) >= n:
        return x[:n]
    return np.concatenate([x, np.zeros((n - len(x), *x.shape[1:]), object)])


def mirrored(x: Any, n: int, sign: int = 1) -> Any:
    """A half spectrum and its mirror image."""
    rows = [
        x[k] if k < len(x) else sign * x[n - k] if n - k < len(x) else 0 * x[0] for k in range(n)
    ]
    return np.stack(rows)


@kernel("STFT")
def stft(x: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1) -> Any:
    """The transforms of frames of the signal, weighted by the window."""
    n = len(window) if window is not None else int(np.ravel(length)[0])
    starts = range(0, x.shape[1] - n + 1, int(np.ravel(step)[0]))
    frames = np.stack([x[:, s : s + n] for s in starts], axis=1)
    if window is not None:
        frames = frames * window.reshape(n, 1)
    return dft(frames, axis=2, onesided=onesided)
