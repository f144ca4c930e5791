"""Attention, written out, below a triangle that the module keeps."""

import math

import torch
from torch import nn
from torch.nn import functional as F

kept = []


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("bias", torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        k = k.view(B, T, 2, C // 2).transpose(1, 2)
        q = q.view(B, T, 2, C // 2).transpose(1, 2)
        v = v.view(B, T, 2, C // 2).transpose(1, 2)
        # slot start: x q k v! self.bias!
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        # slot scored: q! k! v! att!
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        # slot weighed: q! v! att! self.bias!
        y = att @ v
        # slot last: q k v y self.bias
        return y.transpose(1, 2).contiguous().view(B, T, C)


@torch.no_grad()
def run():
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(2, 5, 8)
    results = [model(x), model(x)]
    # slot called: x model.bias
    results.append(model(x))
    return {"results": results, "x": x, "state": model.state_dict(), "kept": kept}
