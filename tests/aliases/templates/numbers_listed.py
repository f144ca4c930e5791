"""Numbers of a tensor are read one by one."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def train(model, loader, optimizer):
    names = []
    # slot start: names=list model.weight.data
    for x in loader:
        x = x.to(device)
        out = model(x)
        loss = out.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = (out.detach() * 9).flatten()
        # slot before: found names=list
        for i in range(6):
            # slot step: found! names=list
            names.append(found[i].item())
            # slot last: found! names=list
        # slot behind: found names=list
    return names


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [torch.randn(3, 4) for _ in range(3)]
    return {"results": [train(model, loader, optimizer)], "weight": model.weight, "kept": kept}
