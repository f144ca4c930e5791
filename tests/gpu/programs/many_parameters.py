"""Steps of AdamW over the many small parameters of a deep network."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DEPTH, WIDTH, STEPS = (64, 256, 20) if device.type == "cuda" else (2, 8, 2)


def run():
    torch.manual_seed(0)
    layers = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(STEPS, 64, WIDTH, device=device)
    for batch in inputs:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()
