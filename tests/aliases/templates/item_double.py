"""The losses are doubles already, and the sum begins with the first of them."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


@torch.no_grad()
def train(model, loader, optimizer):
    total, worst = 0.0, []
    shift = torch.zeros((), dtype=torch.double, device=device)
    # slot start: shift total=number worst=list!
    for x, y in loader:
        out = model(x.to(device)).double()
        shift = shift + out.mean()
        # slot before: shift out total=number worst=list!
        total = shift.item() + total
        worst.append(out[0, 0].item())
        # slot after: shift! out total=number! worst=list!
    # slot behind: shift total=number worst=list
    return total, worst, shift


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
