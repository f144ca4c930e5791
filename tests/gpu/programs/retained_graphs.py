"""20 training steps with large activations, which each step keeps for a second backward pass that never comes."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, WIDTH, LAYERS, STEPS = (8192, 2048, 8, 20) if device.type == "cuda" else (4, 8, 2, 2)


def run():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    for batch in torch.randn(STEPS, BATCH, WIDTH, device=device):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
    return loss.detach(), model[0][0].weight.detach()
