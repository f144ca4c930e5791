"""Training steps on large batches that a loader has pinned."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, WIDTH, STEPS = (2048, 2048, 20) if device.type == "cuda" else (4, 8, 2)
torch.manual_seed(0)
rows = TensorDataset(torch.randn(BATCH * STEPS, WIDTH), torch.randint(10, (BATCH * STEPS,)))


def train(model, optimizer, loader):
    criterion = nn.CrossEntropyLoss()
    for inputs, labels in loader:
        inputs = inputs.to(device)
        labels = labels.to(device)
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


def run():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(rows, batch_size=BATCH, num_workers=4, pin_memory=True, persistent_workers=True)
    return train(model, optimizer, loader)
