"""The loop is left early, skips steps and has an else."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, loader, optimizer):
    total, count, losses = 0.0, 0, []
    # slot start: losses=list! total=number
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        # slot before: loss total=number! losses=list!
        if step == 1:
            continue
        total += loss.item()
        # slot middle: loss total=number! losses=list!
        if step == 3:
            break
        losses.append(loss.item())
        count += (loss > 0).item()
        # slot after: loss total=number! losses=list! count=number!
    else:
        kept.append("all")
        # slot otherwise: total=number! losses=list! count=number!
    # slot behind: total=number losses=list count=number
    return total, count, losses


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
