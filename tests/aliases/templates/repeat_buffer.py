"""A buffer of the module is repeated for the batch, call after call."""

import torch
from torch import nn

kept = []


class Queries(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("table", torch.randn(1, width))
        # slot made: self.table

    def forward(self, x):
        # slot start: self.table x
        table = self.table.repeat(x.size(0), 1)
        # slot between: self.table! table! x
        x = x + table
        # slot behind: self.table table!
        return x


@torch.no_grad()
def run():
    torch.manual_seed(0)
    queries = Queries(4)
    x, outs = torch.randn(3, 4), []
    for _ in range(3):
        out = queries(x)
        # slot end: queries.table
        outs.append(out)
    return {"outs": outs, "table": queries.table, "x": x, "kept": kept}
