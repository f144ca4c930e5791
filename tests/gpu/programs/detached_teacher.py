"""A small network learns from a large one, whose results are detached where they are made."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, WIDTH, STEPS = (4096, 1024, 30) if device.type == "cuda" else (4, 8, 2)


def network(depth: int):
    layers = [part for _ in range(depth) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10)).to(device)


def train(model, teacher, optimizer, inputs):
    losses = []
    for batch in inputs:
        wanted = teacher(batch).detach()
        loss = nn.functional.mse_loss(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def run():
    torch.manual_seed(0)
    model, teacher = network(1), network(12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return train(model, teacher, optimizer, torch.randn(STEPS, BATCH, WIDTH, device=device))
