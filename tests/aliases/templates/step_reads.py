"""A model is trained in steps whose losses are read in between, and which draw random numbers."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total, history = 0.0, []
    # slot start: history=list model.weight.data
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        noise = torch.randn_like(x) * 0.1
        # slot before: x! y! noise!
        optimizer.zero_grad()
        out = model(x + noise)
        first = F.mse_loss(out, y)
        second = out.abs().mean()
        # slot forward: x! noise! out.data! first.data
        total += first.item()
        loss = first + second
        loss.backward()
        # slot backward: out.data first.data! second.data! model.weight.grad
        history.append(second.item())
        optimizer.step()
        # slot behind: x noise first.data! second.data! total=number history=list
    # slot after: total=number history=list
    return total, history


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    loader = [(torch.randn(5, 4), torch.randn(5, 3)) for _ in range(4)]
    results = [train(model, loader), train(model, loader[:1])]
    dice = torch.rand(1)
    return {"results": results, "weight": model.weight, "loader": loader, "kept": kept, "dice": dice}
