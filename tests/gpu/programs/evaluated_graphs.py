"""An evaluation of a network for pictures, which records a graph that nobody differentiates."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, SIZE, BATCHES = (128, 64, 30) if device.type == "cuda" else (2, 8, 2)
torch.manual_seed(0)


def block(before: int, after: int):
    return [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]


model = nn.Sequential(*block(3, 64), *block(64, 128), *block(128, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten())
model.append(nn.Linear(256, 10)).to(device)
pictures = TensorDataset(torch.randn(BATCH * BATCHES, 3, SIZE, SIZE), torch.randint(10, (BATCH * BATCHES,)))
loader = DataLoader(pictures, batch_size=BATCH, pin_memory=True)


def evaluate(model, loader):
    model.eval()
    hits = torch.zeros((), device=device)
    for images, labels in loader:
        scores = model(images.to(device, non_blocking=True))
        hits += (scores.argmax(dim=1) == labels.to(device, non_blocking=True)).sum()
    return hits


def run():
    return evaluate(model, loader)
