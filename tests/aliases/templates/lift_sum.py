"""Steps are summed up."""

import torch
from torch import Tensor, nn

kept = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 2)

    def forward(self, x: Tensor):
        batch, seq_len, width = x.shape
        total = torch.zeros(batch, 2)
        # slot start: x total self.score.weight.data
        for t in range(seq_len):
            # slot step: x total! self.score.weight.data
            score = self.score(x[:, t])
            # slot middle: x! total! score
            total = total + score
            # slot last: x! total! score!
        # slot behind: x total
        return total / seq_len


@torch.no_grad()
def run():
    torch.manual_seed(0)
    model = Model()
    x = torch.randn(2, 3, 4)
    results = [model(x), model(x)]
    return {"results": results, "x": x, "state": model.state_dict(), "kept": kept}
