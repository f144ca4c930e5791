"""Decoders as people write them, with no thought of graphs: what `perflint fix --unsafe` makes of them is measured."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Decoder(nn.Module):
    """Embedding, one-layer LSTM called a step at a time, projection."""

    def __init__(self, vocabulary: int = 1000, width: int = 512) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, vocabulary)

    def step(self, token: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(B,) tokens to (B, V) logits."""
        hidden, state = self.lstm(self.embed(token).unsqueeze(1), state)
        return self.out(hidden.squeeze(1)), state

    @torch.no_grad()
    def greedy(self, token: Tensor, h: Tensor, c: Tensor, steps: int) -> Tensor:
        """(B,) start tokens to (B, steps) tokens."""
        tokens = []
        state = (h, c)
        for _ in range(steps):
            logits, state = self.step(token, state)
            token = logits.argmax(-1)
            tokens.append(token)
        return torch.stack(tokens, 1)

    @torch.no_grad()
    def until(self, token: Tensor, h: Tensor, c: Tensor, steps: int, end: int) -> Tensor:
        """The same, until every row's token is `end`."""
        tokens = []
        state = (h, c)
        for _ in range(steps):
            logits, state = self.step(token, state)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == end).all():
                break
        return torch.stack(tokens, 1)


class Attention(nn.Module):
    """An LSTM cell with additive attention over the encoder's positions, fed with the right tokens."""

    def __init__(self, vocabulary: int = 1000, width: int = 512) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.cell = nn.LSTMCell(2 * width, width)
        self.keys = nn.Linear(width, width)
        self.query = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)
        self.out = nn.Linear(2 * width, vocabulary)

    def forward(self, encoded: Tensor, tokens: Tensor) -> Tensor:
        """(B, S, D) and (B, T) to (B, T, V)."""
        keys = self.keys(encoded)
        h = encoded.mean(1)
        c = torch.zeros_like(h)
        logits = []
        for t in range(tokens.size(1)):
            scores = self.score(torch.tanh(keys + self.query(h).unsqueeze(1))).squeeze(-1)
            context = torch.bmm(F.softmax(scores, -1).unsqueeze(1), encoded).squeeze(1)
            h, c = self.cell(torch.cat([self.embed(tokens[:, t]), context], -1), (h, c))
            logits.append(self.out(torch.cat([h, context], -1)))
        return torch.stack(logits, 1)


class NormedCell(nn.Module):
    """An LSTM cell whose state is normalised between steps, which no RNN of torch's does."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        h = torch.zeros_like(x[:, 0])
        c = torch.zeros_like(h)
        states = []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            h = self.norm(h)
            states.append(h)
        return torch.stack(states, 1)


class Block(nn.Module):
    """One layer of a Transformer decoder whose key/value cache has room for all positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, cache: Tensor, position: int, mask: Tensor) -> Tensor:
        """(B, 1, D) at one position; the cache is (2, B, H, T, D / H)."""
        batch, _, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, 3, self.heads, 1, width // self.heads).unbind(1)
        cache[0, :, :, position : position + 1] = k
        cache[1, :, :, position : position + 1] = v
        attended = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=mask[position])
        x = x + self.project(attended.transpose(1, 2).reshape(batch, 1, width))
        y: Tensor = self.mlp(self.norm2(x))
        return x + y


class Transformer(nn.Module):
    """A small decoder-only Transformer with a static cache."""

    def __init__(
        self, vocabulary: int = 1000, width: int = 256, layers: int = 4, heads: int = 4, room: int = 64
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(room, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.out = nn.Linear(width, vocabulary)
        self.register_buffer("mask", torch.ones(room, room, dtype=torch.bool).tril().view(room, 1, 1, room))
        self.shape = (layers, 2, -1, heads, room, width // heads)

    def empty_cache(self, batch: int) -> Tensor:
        """A cache of zeros for all layers."""
        shape = [batch if size == -1 else size for size in self.shape]
        return torch.zeros(shape, device=self.out.weight.device)

    @torch.no_grad()
    def generate(self, token: Tensor, cache: Tensor, steps: int) -> Tensor:
        """(B,) start tokens to (B, steps) tokens; the cache is written."""
        tokens = []
        for position in range(steps):
            x = (self.embed(token) + self.places.weight[position]).unsqueeze(1)
            for number, block in enumerate(self.blocks):
                x = block(x, cache[number], position, self.mask)
            token = self.out(x[:, 0]).argmax(-1)
            tokens.append(token)
        return torch.stack(tokens, 1)


def advantages(rewards: Tensor, values: Tensor, dones: Tensor, gamma: float = 0.99, lam: float = 0.95) -> Tensor:
    """Generalised advantage estimation: (T, B), (T + 1, B) and (T, B) to (T, B)."""
    result = torch.zeros_like(rewards)
    last = torch.zeros_like(rewards[0])
    for t in reversed(range(rewards.size(0))):
        alive = 1.0 - dones[t]
        delta = rewards[t] + gamma * values[t + 1] * alive - values[t]
        last = delta + gamma * lam * alive * last
        result[t] = last
    return result
