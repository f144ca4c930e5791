"""Numbers of a tensor that is changed in place are kept in a list."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


@torch.no_grad()
def train(model, loader, optimizer):
    history, total = [], 0.0
    mean = torch.zeros(3, device=device)
    # slot start: mean history=list!
    for x, y in loader:
        out = model(x.to(device))
        mean.mul_(0.9).add_(out.mean(0))
        # slot before: mean out history=list! total=number!
        history.append(mean[0].item())
        total += mean[1].item()
        # slot after: mean! history=list! total=number!
    # slot behind: mean history=list total=number
    return history, total, mean


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
