"""Training steps of a small vision transformer that computes attention step by step."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, HEADS, DEPTH, LENGTH, BATCH, STEPS = (384, 6, 6, 1024, 8, 10) if device.type == "cuda" else (8, 2, 1, 5, 2, 2)


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.softmax(dim=-1)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


class Block(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.before, self.behind = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, num_heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.behind(x))


def run():
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(WIDTH, HEADS) for _ in range(DEPTH)]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    for batch in torch.randn(STEPS, BATCH, LENGTH, WIDTH, device=device):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = model(batch).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()
