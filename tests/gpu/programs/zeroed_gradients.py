"""50 steps of gradient descent on many parameters, the gradients of which are filled with zeros before each."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, LAYERS, STEPS = (1024, 48, 50) if device.type == "cuda" else (8, 3, 3)


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    for batch in batches:
        loss = model(batch).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()


def run():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS))).to(device)
    train(model, torch.randn(STEPS, 32, WIDTH, device=device))
    return [each.detach() for each in model.parameters()]
