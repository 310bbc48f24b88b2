"""Images: a residual network, a mobile one, a U-Net, a detector."""

import torch
from torch import nn
from torch.nn import functional as F

SIXTH = 0.1666666716337204
"""1/6 in single precision, as in attributes of ONNX files."""


def conv(fan_in, fan_out, kernel=3, stride=1, groups=1):
    """Convolution without bias, then batch normalisation."""
    pad = kernel // 2
    layer = nn.Conv2d(fan_in, fan_out, kernel, stride, pad, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(fan_out))


def hard_sigmoid(x):
    """One node in the file; else written out, since PyTorch's is only once differentiable."""
    exporting = torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()
    return F.hardsigmoid(x) if exporting else torch.clamp(SIXTH * x + 0.5, 0, 1)


def hard_swish(x):
    """x · min(max(x / 6 + 1/2, 0), 1), exported and written out in the same way."""
    exporting = torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()
    return F.hardswish(x) if exporting else x * torch.clamp(x / 6 + 0.5, 0, 1)


class ResNet(nn.Module):
    """Two residual blocks, the second with a strided shortcut."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 4)
        self.a1, self.a2 = conv(4, 4), conv(4, 4)
        self.b1, self.b2, self.skip = conv(4, 8, 3, 2), conv(8, 8), conv(4, 8, 1, 2)
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.stem(image)), 2)
        x = F.relu(x + self.a2(F.relu(self.a1(x))))
        x = F.relu(self.skip(x) + self.b2(F.relu(self.b1(x))))
        return self.head(x.mean((2, 3)))


class MobileNet(nn.Module):
    """An inverted residual: expansion, depthwise convolution, squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 8, 3, 2)
        self.expand, self.project = conv(8, 16, 1), conv(16, 8, 1)
        self.depthwise = conv(16, 16, 3, groups=16)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        x = hard_swish(self.stem(image))
        y = hard_swish(self.depthwise(hard_swish(self.expand(x))))
        gate = self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1))))
        x = x + self.project(y * hard_sigmoid(gate))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class UNet(nn.Module):
    """Max pooling, then upsampling by a transposed convolution and by interpolation."""

    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.join, self.last = nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(4, 1, 1)

    def forward(self, image):
        x = torch.tanh(self.down(image))
        y = torch.tanh(self.middle(F.max_pool2d(x, 2)))
        y = F.elu(self.join(torch.cat((self.up(y), x), 1)))
        return self.last(F.interpolate(y, scale_factor=2, mode="bilinear"))


class Yolo(nn.Module):
    """A detection head: pyramid pooling, then boxes decoded on a grid with anchors."""

    def __init__(self):
        super().__init__()
        self.stem, self.mix = conv(3, 8, 3, 2), conv(24, 8, 1)
        self.detect = nn.Conv2d(8, 2 * 7, 1)
        rows, columns = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
        self.register_buffer("grid", torch.stack((columns, rows), -1))
        self.register_buffer("anchors", torch.tensor([[1.0, 2.0], [2.5, 1.5]])[:, None, None])

    def forward(self, image):
        x = F.silu(self.stem(image))
        y = F.max_pool2d(x, 3, 1, 1)
        x = F.silu(self.mix(torch.cat((x, y, F.max_pool2d(y, 3, 1, 1)), 1)))
        p = torch.sigmoid(self.detect(x).view(-1, 2, 7, 4, 4).permute(0, 1, 3, 4, 2))
        centre = (p[..., :2] * 2 + self.grid - 0.5) * 2
        size = (p[..., 2:4] * 2) ** 2 * self.anchors
        return torch.cat((centre, size, p[..., 4:]), -1).flatten(1, 3)
