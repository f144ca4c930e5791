"""Losses are kept in a list."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, loader, optimizer):
    losses = []
    # slot start: losses=list! model.weight.data
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        # slot first: x losses=list!
        out = model(x)
        loss = F.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # slot before: loss losses=list!
        losses.append(loss.item())
        # slot after: loss losses=list!
    # slot behind: losses=list
    return losses


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [(torch.randn(3, 4), torch.randn(3, 3)) for _ in range(4)]
    results = [train(model, loader, optimizer), train(model, loader[:1], optimizer)]
    try:
        results.append(train(model, [], optimizer))
    except Exception as error:
        results.append(type(error).__name__)
    return {"results": results, "weight": model.weight, "kept": kept}
