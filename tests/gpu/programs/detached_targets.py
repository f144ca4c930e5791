"""Steps of a critic whose targets come of a second network, detached where they are made."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, WIDTH, STEPS = (4096, 1024, 30) if device.type == "cuda" else (4, 8, 2)


def critic():
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)]
    return nn.Sequential(*layers).to(device)


def train(model, target, optimizer, states):
    losses = []
    for state in states:
        wanted = target(state).detach()
        loss = (model(state) - 0.99 * wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def run():
    torch.manual_seed(0)
    model, target = critic(), critic()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    states = torch.randn(STEPS, BATCH, WIDTH, device=device)
    return train(model, target, optimizer, states)
