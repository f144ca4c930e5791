"""Sums and lists are kept by float() and int()."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


@torch.no_grad()
def train(model, loader, optimizer):
    total, close, worst = 0.0, 0, []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        error = (model(x) - y).abs()
        peak = error.max().float()
        # slot before: error peak total=number! worst=list close=number!
        total += float(error.mean())
        close += int((error < 0.5).sum())
        # slot middle: error peak total=number! worst=list close=number!
        worst.append(float(peak))
        # slot after: error! peak! total=number! worst=list! close=number!
    # slot behind: error total=number worst=list close=number
    return total, close, worst


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
