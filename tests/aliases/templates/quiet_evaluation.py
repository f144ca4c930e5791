"""A model is evaluated while gradients are recorded."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def evaluate(model, loader):
    model.eval()
    total, hits = 0.0, []
    # slot start: total=number hits=list model.weight.data
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        # slot first: x! hits=list
        out = model(x)
        # slot before: x out! total=number
        total += F.mse_loss(out, y).item()
        hits.append((out > y).sum().item())
        # slot last: x out! total=number hits=list
    # slot behind: total=number hits=list model.weight.data
    return total, hits


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    loader = [(torch.randn(3, 4), torch.randn(3, 3)) for _ in range(3)]
    results = [evaluate(model, loader), evaluate(model, loader[:1])]
    return {"results": results, "weight": model.weight, "loader": loader, "kept": kept}
