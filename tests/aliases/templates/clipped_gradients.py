"""Gradients are clamped one by one."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # slot start: model.weight.data
    for x in loader:
        x = x.to(device)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        # slot before: model.weight.grad
        for p in model.parameters():
            p.grad.data.clamp_(-0.01, 0.01)
        # slot between: model.weight.grad!
        optimizer.step()
        # slot last: x loss model.weight.data
    return loss


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    loader = [torch.randn(3, 4) for _ in range(3)]
    return {"result": train(model, loader), "weight": model.weight, "kept": kept}
