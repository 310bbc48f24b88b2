"""Fourier transforms."""

from __future__ import annotations

import torch
from torch import Tensor

from .graphs import Node, integers, kernel
from .layout import padded


@kernel("DFT")
def dft(
    node: Node, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None
) -> Tensor:
    along = node["axis"] if node.opset < 20 else (-2 if axis is None else integers(axis)[0])
    along = along % x.ndim
    n = x.shape[along] if length is None else integers(length)[0]
    zero = torch.zeros((), dtype=x.dtype)
    x = padded(x, along, 0, n - x.shape[along], "constant", zero)
    inverse, half = bool(node["inverse"]), bool(node["onesided"])
    if inverse and half:
        z = torch.view_as_complex(x.contiguous())
        n = 2 * (n - 1) if length is None else n
        return torch.fft.irfft(z, n, along).unsqueeze(-1)
    if x.shape[-1] == 1:
        z = torch.complex(x[..., 0], torch.zeros_like(x[..., 0]))
    else:
        z = torch.view_as_complex(x.contiguous())
    z = torch.fft.ifft(z, dim=along) if inverse else torch.fft.fft(z, dim=along)
    return torch.view_as_real(z.narrow(along, 0, n // 2 + 1) if half else z)


@kernel("STFT")
def stft(
    node: Node, signal: Tensor, step: Tensor, window: Tensor | None = None,
    length: Tensor | None = None,
) -> Tensor:
    size = integers(length)[0] if length is not None else window.shape[0]
    hop = integers(step)[0]
    starts = range(0, signal.shape[1] - size + 1, hop)
    frames = torch.stack([signal.narrow(1, s, size) for s in starts], 1)
    if window is not None:
        frames = frames * window.to(frames.dtype).reshape(1, 1, -1, 1)
    if frames.shape[-1] == 1:
        z = torch.complex(frames[..., 0], torch.zeros_like(frames[..., 0]))
    else:
        z = torch.view_as_complex(frames.contiguous())
    z = torch.fft.fft(z, dim=2)
    return torch.view_as_real(z.narrow(2, 0, size // 2 + 1) if node["onesided"] else z)
