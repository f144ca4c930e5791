"""Each step goes into a slot."""

import torch
from torch import Tensor, nn

kept = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 3)

    def forward(self, x: Tensor):
        batch, seq_len, width = x.shape
        outputs = torch.zeros(batch, seq_len, 3)
        # slot start: x outputs self.proj.weight.data
        for t in range(seq_len):
            # slot step: x outputs! self.proj.weight.data
            outputs[:, t] = self.proj(x[:, t])
            # slot last: x! outputs!
        # slot behind: x outputs
        return outputs


@torch.no_grad()
def run():
    torch.manual_seed(0)
    model = Model()
    x = torch.randn(2, 3, 4)
    results = [model(x), model(x)]
    return {"results": results, "x": x, "state": model.state_dict(), "kept": kept}
