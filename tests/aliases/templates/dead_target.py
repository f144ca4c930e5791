"""The values of a second model are a target."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, other, loader, optimizer):
    # slot start: model.weight.data other.weight.data
    for x in loader:
        x = x.to(device)
        # slot before: x! other.weight.data
        target = other(x).detach()
        # slot between: x target! other.weight.data
        loss = F.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        # slot backward: target! model.weight.grad
        optimizer.step()
        # slot last: x target! loss
        kept.append(target)
    # slot behind: model.weight.data other.weight.data
    return model.weight


def run():
    torch.manual_seed(0)
    model, other = nn.Linear(4, 3).to(device), nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [torch.randn(3, 4) for _ in range(3)]
    result = train(model, other, loader, optimizer)
    return {"result": result, "other": other.weight, "loader": loader, "kept": kept}
