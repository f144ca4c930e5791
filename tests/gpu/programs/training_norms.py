"""Training that logs the loss, the accuracy and every parameter's gradient norm at every step."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(256, 10)).to(device)
initial = {name: value.clone() for name, value in model.state_dict().items()}
batches = [(torch.randn(64, 256, device=device), torch.randint(10, (64,), device=device)) for _ in range(64)]


def train(model, loader, optimizer):
    losses, accuracies, norms = [], [], []
    for data, target in loader:
        optimizer.zero_grad()
        output = model(data)
        loss = F.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        accuracies.append(output.argmax(dim=1).eq(target).float().mean().item())
        for parameter in model.parameters():
            norms.append(parameter.grad.norm().item())
    return losses, accuracies, norms


def run():
    model.load_state_dict(initial)
    return train(model, batches, torch.optim.SGD(model.parameters(), lr=0.01))
