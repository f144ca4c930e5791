"""The rows of a mask are read in every step."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, optimizer, x, y):
    train_mask = x.sum(1) > 0
    # slot start: x y train_mask!
    for _ in range(3):
        # slot before: x train_mask!
        out = model(x)
        loss = F.mse_loss(out[train_mask], y[train_mask])
        # slot between: x train_mask! loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # slot last: y train_mask! model.weight.data
    # slot behind: x train_mask
    return train_mask.sum()


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(6, 4).to(device), torch.randn(6, 3).to(device)
    result = train(model, optimizer, x, y)
    return {"result": result, "weight": model.weight, "x": x, "kept": kept}
