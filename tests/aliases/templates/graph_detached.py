"""Losses are added up, and kept, with their graphs."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, loader, optimizer):
    total, losses = 0, []
    # slot start: losses=rows model.weight.data
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = F.mse_loss(model(x), y)
        # slot before: x loss.data!
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # slot stepped: x loss.data! total
        total += loss
        losses.append(loss)
        # slot last: loss.data! total losses=rows
    # slot behind: total losses=rows
    return total.item(), torch.stack(losses).mean().item()


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [(torch.randn(3, 4), torch.randn(3, 3)) for _ in range(3)]
    return {"results": [train(model, loader, optimizer)], "weight": model.weight, "kept": kept}
