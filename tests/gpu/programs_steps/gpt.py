"""A transformer of 6 layers and 384 units on 64 rows of 256 characters, in the sizes of nanoGPT's character model."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 65, 384, 6, 6, 64, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.2))
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        shape = (x.size(0), x.size(1), HEADS, WIDTH // HEADS)
        q, k, v = (each.view(shape).transpose(1, 2) for each in self.attend(self.norm1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2 if self.training else 0.0, is_causal=True)
        x = x + self.dropout(self.project(y.transpose(1, 2).flatten(2)))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, WORDS), targets.view(-1))


def batches(device, steps):
    tokens = torch.randint(WORDS, (steps, BATCH, LENGTH + 1)).to(device)
    return [(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in tokens]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = batches(device, args.steps)
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        for tokens, targets in data:
            loss = model(tokens, targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", end=" ")
        print(f"took {(time.perf_counter() - begin) / args.steps * 1e3:.4f} ms a step", flush=True)


if __name__ == "__main__":
    main()
