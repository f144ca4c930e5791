"""Training steps in float32 of layers whose matrices are large enough for the tensor cores."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, ROWS, STEPS = (2048, 4096, 20) if device.type == "cuda" else (8, 4, 2)


def run():
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    for batch in torch.randn(STEPS, ROWS, WIDTH, device=device):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


if __name__ == "__main__":
    print(run())
