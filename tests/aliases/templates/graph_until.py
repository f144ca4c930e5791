"""A greedy decoder ends by a test of its tokens, which is read once in several steps."""

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
        tokens = []
        # slot start: token h tokens=rows self.bias
        for _ in range(steps):
            # slot step: token! h! tokens=rows self.bias
            logits, h = self.step(token, h)
            # slot middle: token! h logits tokens=rows self.bias
            token = logits.argmax(-1)
            tokens.append(token)
            # slot tested: token h logits tokens=rows! self.bias
            if (token == 1).all():
                break
            # slot last: token! h logits tokens=rows!
        # slot behind: token! h! tokens=rows!
        return torch.stack(tokens, dim=1)


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
