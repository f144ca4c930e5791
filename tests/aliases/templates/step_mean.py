"""A model is trained in steps, beside a running mean that the loop carries."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mean, losses = torch.zeros(3, device=device), []
    # slot start: mean losses=list
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        # slot before: x! y! mean!
        optimizer.zero_grad()
        out = model(x)
        # slot forward: x! y! mean! out.data
        loss = F.mse_loss(out + mean, y)
        loss.backward()
        # slot backward: x! mean! model.weight.grad
        optimizer.step()
        mean = 0.9 * mean + 0.1 * out.detach().mean(0)
        # slot behind: x! mean! model.weight.data
        losses.append(loss.item())
        # slot last: x mean losses=list
    # slot after: mean losses=list
    return mean, losses


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    loader = [(torch.randn(5, 4), torch.randn(5, 3)) for _ in range(4)]
    results = [train(model, loader), train(model, loader[:1])]
    return {"results": results, "weight": model.weight, "loader": loader, "kept": kept}
