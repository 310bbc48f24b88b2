"""DFT and STFT, with complex numbers as pairs on the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from ...jacobians.foreign import space
from .table import ints, kernel


@kernel("DFT", wide=True, tensors=True, hosted=True)
def dft(
    x: Array, length: Any = None, axis: Any = -2, *, inverse: int = 0, onesided: int = 0
) -> Array:
    """The Fourier transform along an axis; `onesided` is half a spectrum, as input if `inverse`."""
    (axis,) = ints(-2 if axis is None else axis)
    axis = axis % x.ndim
    n = None if length is None else ints(length)[0]
    xp = space(x)
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
    """The transforms of frames of the signal, weighted by a window."""
    n = ints(frame_length)[0] if window is None and frame_length is not None else None
    n = n or (x.shape[1] if window is None else len(window))
    frames = np.lib.stride_tricks.sliding_window_view(x, n, axis=1)[:, :: ints(frame_step)[0]]
    weight = 1 if window is None else window
    return dft(np.moveaxis(frames * weight, -1, -2), onesided=onesided)
