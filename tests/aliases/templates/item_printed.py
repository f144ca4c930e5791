"""The running loss is printed, and starts anew, every few steps; another sum lives through all epochs."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, loader, optimizer):
    overall = 0.0
    # slot start: overall=number
    for epoch in range(2):
        running = 0.0
        # slot epoch: running=number overall=number!
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            # slot before: loss running=number! overall=number!
            running += loss.item()
            overall = overall + loss.item()
            # slot after: loss running=number! overall=number!
            if (step + 1) % 2 == 0:
                kept.append(f"{epoch} {step}: {running / 2}")
                # slot printed: loss running=number! overall=number!
                running = 0.0
        # slot behind: running=number overall=number!
        kept.append(str(running))
    return overall


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
