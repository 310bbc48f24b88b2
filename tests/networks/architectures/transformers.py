"""Attention: small versions of ViT, BERT, GPT-2, T5 and LLaMA.

Scales are powers of two, so that a file in single precision holds them exactly.
"""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS = 16, 4  # heads of width 4: the scale is 1/2


def split(x, heads=HEADS):
    """(batch, length, heads · width) -> (batch, heads, length, width)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(q, k, v, bias=0.0):
    """softmax(Q Kᵀ / √d + bias) V, the heads joined again."""
    weights = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias, -1)
    return (weights @ v).transpose(1, 2).flatten(2)


def causal(length):
    """A mask that hides the future."""
    return torch.full((length, length), -torch.inf).triu(1)


class Attention(nn.Module):
    """Queries, keys and values from one projection."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, bias=0.0):
        return self.out(attend(*map(split, self.qkv(x).chunk(3, -1)), bias))


class Block(nn.Module):
    """Attention and an MLP, with normalisation before or after."""

    def __init__(self, activation, before=True):
        super().__init__()
        self.attention = Attention()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.activation, self.before = activation, before

    def forward(self, x, bias=0.0):
        if self.before:
            x = x + self.attention(self.norm1(x), bias)
            return x + self.inner(self.norm2(x))
        x = self.norm1(x + self.attention(x, bias))
        return self.norm2(x + self.inner(x))

    def inner(self, x):
        return self.down(self.activation(self.up(x)))


class ViT(nn.Module):
    """Patches by a convolution, a class token, learned positions."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.position = nn.Parameter(torch.randn(5, WIDTH))
        self.block, self.norm, self.head = Block(F.gelu), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.position
        return self.head(self.norm(self.block(x))[:, 0])


class Bert(nn.Module):
    """Three embeddings, a padding mask, normalisation after, a pooler."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(12, WIDTH), nn.Embedding(6, WIDTH)
        self.types, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH)
        self.block, self.pooler = Block(F.gelu, before=False), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, ids, types, mask):
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1])) + self.types(types)
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        x = self.block(self.norm(x), bias)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class GPT2(nn.Module):
    """Causal, with the tanh form of GELU; the embedding is also the head."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(12, WIDTH), nn.Embedding(6, WIDTH)
        self.block, self.norm = Block(nn.GELU(approximate="tanh")), nn.LayerNorm(WIDTH)
        self.register_buffer("mask", causal(6))

    def forward(self, ids):
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.norm(self.block(x, self.mask)) @ self.words.weight.T


class RMSNorm(nn.Module):
    """x / √(mean x² + ε), scaled."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class T5(nn.Module):
    """An encoder with bucketed relative positions, and a decoder with cross-attention."""

    def __init__(self):
        super().__init__()
        self.words, self.bias = nn.Embedding(12, WIDTH), nn.Embedding(5, HEADS)
        self.encoder, self.inside = Attention(), Attention()
        self.query, self.memory = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.norms = nn.ModuleList(RMSNorm() for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 32, False), nn.Linear(32, WIDTH, False)

    def relative(self, length):
        at = torch.arange(length)
        buckets = (at[None] - at[:, None]).clamp(-2, 2) + 2
        return self.bias(buckets).permute(2, 0, 1)

    def forward(self, ids, targets):
        x, y = self.words(ids), self.words(targets)
        x = x + self.encoder(self.norms[0](x), self.relative(ids.shape[1]))
        length = targets.shape[1]
        y = y + self.inside(self.norms[1](y), self.relative(length) + causal(length).to(y.dtype))
        k, v = map(split, self.memory(x).chunk(2, -1))
        y = y + attend(split(self.query(self.norms[2](y))), k, v)
        y = y + self.down(F.relu(self.up(self.norms[3](y))))
        return y @ self.words.weight.T


class Llama(nn.Module):
    """RMS normalisation, rotary positions, four query heads for two key heads, SwiGLU."""

    def __init__(self, length=6):
        super().__init__()
        self.words, self.norm1, self.norm2 = nn.Embedding(12, WIDTH), RMSNorm(), RMSNorm()
        self.q, self.kv = nn.Linear(WIDTH, WIDTH, False), nn.Linear(WIDTH, WIDTH, False)
        self.o, self.head = nn.Linear(WIDTH, WIDTH, False), nn.Linear(WIDTH, 12, False)
        self.gate, self.up = nn.Linear(WIDTH, 24, False), nn.Linear(WIDTH, 24, False)
        self.down = nn.Linear(24, WIDTH, False)
        angles = torch.outer(torch.arange(float(length)), torch.tensor([1.0, 0.01]))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))
        self.register_buffer("mask", causal(length))

    def rotated(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, ids):
        x = self.words(ids)
        y = self.norm1(x)
        k, v = (split(part, 2) for part in self.kv(y).chunk(2, -1))
        k, v = (part.repeat_interleave(2, 1) for part in (self.rotated(k), v))
        x = x + self.o(attend(self.rotated(split(self.q(y))), k, v, self.mask))
        y = self.norm2(x)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))
