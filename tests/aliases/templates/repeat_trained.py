"""A row is repeated for a batch, and read again by the backward pass."""

import torch

kept = []


class Scale:
    def __init__(self, row):
        self.row = row

    def loss(self, x):
        r = self.row.repeat(x.size(0), 1)
        # slot inside: self.row! x
        return (x * r).sum()


def step(scale, x, weight):
    # slot start: scale.row
    loss = scale.loss(x)
    # slot forward: scale.row!
    loss.backward()
    # slot backward: scale.row
    old = weight.grad.repeat(3, 1)
    # slot between: weight.grad!
    (weight * 2).sum().backward()
    return old + weight


def run():
    torch.manual_seed(0)
    row, x = torch.randn(1, 4), torch.randn(3, 4, requires_grad=True)
    weight = torch.ones(1, 4, requires_grad=True)
    weight.sum().backward()
    outs = [step(Scale(row), x, weight)]
    return {"outs": outs, "row": row, "grad": x.grad, "kept": kept}
