"""Recurrence: a selective scan, a bidirectional LSTM, a GRU with attention."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, STATE = 8, 4


class Mamba(nn.Module):
    """h ← exp(Δ A) h + Δ B x, y = C h + D x, with Δ, B and C computed from x."""

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(WIDTH, 2 * WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=2, groups=WIDTH)
        self.select, self.step = nn.Linear(WIDTH, 2 * STATE), nn.Linear(WIDTH, WIDTH)
        self.log_a = nn.Parameter(torch.randn(WIDTH, STATE))
        self.d, self.out = nn.Parameter(torch.randn(WIDTH)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x, gate = self.into(x).chunk(2, -1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        b, c = self.select(x).chunk(2, -1)
        step = F.softplus(self.step(x))
        decay = torch.exp(step[..., None] * -torch.exp(self.log_a))
        drive = (step * x)[..., None] * b[:, :, None]
        h, rows = torch.zeros_like(drive[:, 0]), []
        for t in range(x.shape[1]):
            h = decay[:, t] * h + drive[:, t]
            rows.append((h * c[:, t, None]).sum(-1))
        y = torch.stack(rows, 1) + self.d * x
        return self.out(y * F.silu(gate))


class Tagger(nn.Module):
    """A label for every word, from a bidirectional LSTM."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(12, WIDTH)
        self.lstm = nn.LSTM(WIDTH, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 5)

    def forward(self, ids):
        return torch.log_softmax(self.head(self.lstm(self.words(ids))[0]), -1)


class Attentive(nn.Module):
    """A GRU with attention of the last state to all states."""

    def __init__(self):
        super().__init__()
        self.gru, self.score = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(2 * WIDTH, 3)

    def forward(self, x):
        states, last = self.gru(x)
        query = self.score(last[-1])[:, :, None]
        weights = torch.softmax(states @ query, 1)
        return self.head(torch.cat(((weights * states).sum(1), last[-1]), -1))
