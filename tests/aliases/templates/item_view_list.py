"""Numbers of a tensor that lives on are kept in a list."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


@torch.no_grad()
def train(model, loader, optimizer):
    peaks = []
    best = torch.zeros(3, device=device)
    # slot start: best peaks=list! model.weight.data
    for x, y in loader:
        out = model(x.to(device))
        best = torch.maximum(best, out.amax(0))
        # slot before: best out peaks=list!
        peaks.append(best[0].item())
        # slot after: best! out peaks=list!
    # slot behind: best peaks=list
    return peaks, best


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
