"""Tensors of numbers are made on the host in every step, and moved."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.scale = [0.5, 0.25]

    def forward(self, x):
        # slot start: x self.scale=list!
        h = torch.zeros(x.size(0), 4).to(x.device)
        # slot made: x h!
        scale = torch.tensor(self.scale).to(x.device)
        # slot scaled: h scale! self.scale=list
        rows = torch.arange(x.size(0))
        # slot moved: rows!
        rows = rows.to(x.device)
        # slot before: rows! scale! h!
        limit = torch.tensor(0.5, device=x.device)
        # slot last: h scale rows limit! self.proj.weight.data
        return self.proj(x + h) * scale.sum() + rows[:, None] - limit


@torch.no_grad()
def run():
    torch.manual_seed(0)
    model = Model().to(device)
    x, results = torch.randn(2, 4), []
    for _ in range(3):
        results.append(model(x.to(device)))
        # slot called: x model.scale=list
    return {"results": results, "x": x, "state": model.state_dict(), "kept": kept}
