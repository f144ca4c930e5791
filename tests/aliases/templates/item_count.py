"""Hits and losses are counted, in a loop without gradients."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


@torch.no_grad()
def train(model, loader, optimizer):
    model.eval()
    total, correct, seen = 0.0, 0, 0
    for x, y in loader:
        # slot first: x model.weight.data total=number! correct=number!
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = F.mse_loss(out, y)
        # slot before: loss out total=number! correct=number!
        total += loss.item() * x.size(0)
        # slot middle: loss out total=number! correct=number!
        correct += (out.argmax(dim=1) == y.argmax(dim=1)).sum().item()
        seen += x.size(0)
        # slot after: loss! out! total=number! correct=number! seen=number!
    # slot behind: total=number correct=number
    return total, correct, seen


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
