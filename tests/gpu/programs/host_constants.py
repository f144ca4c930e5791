"""Training steps that make a few constants out of Python numbers on the device."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, STEPS = (512, 100) if device.type == "cuda" else (8, 2)


def train(model, optimizer, inputs):
    for batch in inputs:
        total = torch.tensor(0.0, device=device)
        scale = torch.tensor(0.5, device=device)
        total = total + scale * model(batch).square().mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return total.detach()


def run():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return train(model, optimizer, torch.randn(STEPS, 256, WIDTH, device=device))
