"""100 small training steps on all nodes of a graph, the losses of which masks select."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NODES, WIDTH, STEPS = (4096, 128, 100) if device.type == "cuda" else (32, 8, 3)


def train(model, x, y, splits):
    train_mask = splits == 0
    extra_mask = splits == 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    for _ in range(STEPS):
        out = model(x)
        loss = nn.functional.cross_entropy(out[train_mask], y[train_mask]) - 0.1 * out[extra_mask].logsumexp(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


def run():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4))).to(device)
    x = torch.randn(NODES, WIDTH, device=device)
    y = torch.randint(WIDTH, (NODES,), device=device)
    return train(model, x, y, torch.randint(3, (NODES,), device=device)), model[0][0].weight.detach()
