"""Rows end one by one; both results are kept, and the state."""

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
        done = torch.zeros_like(token, dtype=torch.bool)
        tokens, scores = [], []
        # slot start: token h done tokens=rows scores=rows self.bias
        for _ in range(steps):
            # slot step: token! h! done tokens=rows self.bias
            logits, h = self.step(token, h)
            token = torch.where(done, 1, logits.argmax(-1))
            score = logits.max(-1).values
            # slot middle: token h done logits score self.bias
            tokens.append(token)
            scores.append(score)
            done = done | (token == 1)
            # slot tested: token h done score tokens=rows! scores=rows!
            if done.all():
                break
        # slot behind: token! h done tokens=rows! scores=rows!
        return torch.stack(tokens, 1), torch.stack(scores, 1), h, done


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
