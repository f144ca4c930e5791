"""Tokens go into slots of a tensor."""

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
        tokens = torch.full((token.size(0), steps), 1, device=token.device)
        # slot start: token h tokens self.bias
        for t in range(steps):
            # slot step: token! h! tokens self.bias
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            # slot middle: token h tokens logits self.bias
            tokens[:, t] = token
            # slot tested: token h tokens logits
            if (token == 1).all():
                break
        # slot behind: token h tokens
        return tokens


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
