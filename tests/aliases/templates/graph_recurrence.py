"""A recurrence that is no RNN of torch's."""

import torch
from torch import Tensor, nn

kept = []


class Model(nn.Module):
    def __init__(self, words=5, width=8):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, words)
        self.register_buffer("bias", torch.zeros(words))

    def step(self, token, h):
        h = self.cell(self.embed(token), h)
        return self.head(h) + self.bias, h

    @torch.no_grad()
    def decode(self, token: Tensor, h: Tensor, steps: int):
        x = self.embed(token).unsqueeze(1).repeat(1, steps, 1)
        return self.scan(torch.sigmoid(h), x), x

    def scan(self, decay: Tensor, x: Tensor):
        state, states = torch.zeros_like(x[:, 0]), []
        # slot start: decay x state states=rows self.bias
        for t in range(x.size(1)):
            # slot step: decay x state states=rows self.bias
            state = decay * state + x[:, t]
            # slot middle: decay x state states=rows
            states.append(state)
            # slot last: decay x state states=rows
        # slot behind: decay x state states=rows
        return torch.stack(states, dim=1)


@torch.no_grad()
def run():
    torch.manual_seed(3)
    model = Model()
    token, h, results = torch.tensor([1, 2, 3]), torch.randn(3, 8), []
    # slot caller: token h
    for steps in (6, 6, 6, 2):
        results.append(model.decode(token, h, steps))
        # slot called: token h
    return {
        "results": results,
        "token": token,
        "h": h,
        "state": model.state_dict(),
        "kept": kept,
        "dice": torch.rand(1),
    }
