"""The three PyTorch networks of the tests: small, seeded, with typical layers."""

import torch
from torch import nn


class Norm(nn.BatchNorm2d):
    """y = γ (x − μ) / √(σ² + ε) + β: exported as one node, else written out.

    PyTorch's kernel has no derivatives in μ and σ², the formula does.
    """

    def forward(self, x):
        if torch.compiler.is_exporting():
            return super().forward(x)
        scale = self.weight / torch.sqrt(self.running_var + self.eps)
        column = (-1, 1, 1)
        return (x - self.running_mean.view(column)) * scale.view(column) + self.bias.view(column)


class Residual(nn.Module):
    """relu(BN(conv(relu(BN(conv(x))))) + shortcut(x))."""

    def __init__(self, fan_in, fan_out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=False)
        self.norm1 = Norm(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, padding=1, bias=False)
        self.norm2 = Norm(fan_out)
        self.shortcut = nn.Identity()
        if stride != 1:
            down = nn.Conv2d(fan_in, fan_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(down, Norm(fan_out))

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Encoder(nn.Module):
    """Two layers of multi-head self-attention on 12 positions, averaged into 10 logits.

    With heads of width 16, the scale 1/√16 is exact in single precision.
    """

    def __init__(self, width=32, length=12):
        super().__init__()
        self.position = nn.Parameter(0.5 * torch.randn(length, width))
        self.layers = nn.ModuleList(self._layer(width, first) for first in (False, True))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    @staticmethod
    def _layer(width, norm_first):
        settings = {"activation": "gelu", "batch_first": True, "norm_first": norm_first}
        return nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, **settings)

    def forward(self, x):
        x = x + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


def mlp():
    """Three hidden layers, three activations."""
    hidden = [nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)]
    return nn.Sequential(*hidden, nn.ReLU(), nn.Linear(32, 10))


def cnn():
    """A small residual network with both poolings and a strided shortcut."""
    stem = [nn.Conv2d(3, 8, 3, padding=1), Norm(8), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    body = [Residual(8, 8), Residual(8, 16, stride=2), nn.AvgPool2d(2)]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


BUILDERS = {"mlp": mlp, "cnn": cnn, "encoder": Encoder}
INPUTS = {"mlp": (4, 20), "cnn": (2, 3, 16, 16), "encoder": (2, 12, 32)}
SEEDS = {"mlp": 1, "cnn": 2, "encoder": 3}


@torch.no_grad()
def seeded(name):
    """The network in single precision, with constant initial values perturbed."""
    torch.manual_seed(SEEDS[name])
    network = BUILDERS[name]().eval()
    for key, tensor in network.state_dict().items():
        if key.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif tensor.ndim == 1:
            tensor.add_(0.2 * torch.randn_like(tensor))
    return network
