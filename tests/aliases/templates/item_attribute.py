"""A trainer keeps its sum in an attribute."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.total = 0.0

    def epoch(self, loader):
        self.total = 0.0
        # slot start: self.total=number self.model.weight.data
        for x, y in loader:
            loss = self.step(x.to(device), y.to(device))
            # slot before: loss self.total=number! self.model.weight.data
            self.total += loss.item() / 2
            # slot after: loss! self.total=number!
        # slot behind: loss self.total=number
        return self.total

    def step(self, x, y):
        # slot step: x self.total=number!
        loss = F.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        # slot stepped: x self.total=number!
        return loss


def train(model, loader, optimizer):
    return Trainer(model, optimizer).epoch(loader)


def run():
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [(torch.randn(3, 4), torch.randn(3, 3)) for _ in range(4)]
    results = [train(model, loader, optimizer), train(model, loader[:1], optimizer)]
    try:
        results.append(train(model, [], optimizer))
    except Exception as error:
        results.append(type(error).__name__)
    return {"results": results, "weight": model.weight, "kept": kept}
