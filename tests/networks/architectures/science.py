"""Graphs, differential equations and densities."""

import torch
from torch import nn


class GraphConvolution(nn.Module):
    """Messages along edges: gathered from their sources, summed at their targets."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x, edges):
        x = torch.relu(self.spread(self.first(x), edges))
        return self.spread(self.second(x), edges)

    def spread(self, x, edges):
        source, end = edges
        degree = torch.ones_like(x[:, 0]).index_add(0, end, torch.ones_like(x[:, 0])[source])
        scale = torch.rsqrt(degree)[:, None]
        return scale * (x * scale).index_add(0, end, (x * scale)[source])


class Step(nn.Module):
    """x ← x + f(x) / 8, a fixed number of times."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 12), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor, steps: torch.Tensor):
        for _ in range(int(steps)):
            x = x + 0.125 * self.outer(torch.tanh(self.inner(x)))
        return x


class Pinn(nn.Module):
    """u(x, t) with sine activations, smooth enough for its differential equation."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList((nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 1)))

    def forward(self, points):
        for layer in self.layers[:-1]:
            points = torch.sin(2 * layer(points))
        return self.layers[-1](points)


class Flow(nn.Module):
    """Affine couplings; the log density of every row."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 4)) for _ in range(2)
        )

    def forward(self, x):
        log_det = 0.0
        for net in self.nets:
            a, b = x.chunk(2, -1)
            shift, scale = net(a).chunk(2, -1)
            scale = torch.tanh(scale)
            x = torch.cat((b * torch.exp(scale) + shift, a), -1)
            log_det = log_det + scale.sum(-1)
        return log_det - 0.5 * x.square().sum(-1)
