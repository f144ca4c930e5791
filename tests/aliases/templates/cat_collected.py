"""Rows are put together as they come."""

import torch
from torch import nn

kept = []


def collected(model: nn.Module, first, batches):
    # slot start: first
    out = torch.tanh(first)
    # slot begun: first out!
    for x in batches:
        # slot head: first out! x
        y = model(x)
        # slot before: first out! y
        out = torch.cat([out, y])
        # slot after: first out! y!
    # slot behind: out
    return out


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    first = torch.randn(2, 3)
    # slot caller: first
    results = [collected(model, first, [torch.randn(n, 4) for n in (1, 2)]), collected(model, first.clone(), [])]
    return {"results": results, "first": first, "kept": kept}
