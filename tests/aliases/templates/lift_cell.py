"""A cell of torch's goes over the steps."""

import torch
from torch import Tensor, nn

kept = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x: Tensor):
        batch, seq_len, width = x.shape
        h = torch.zeros(batch, 4)
        outputs = []
        # slot start: x h outputs=rows self.cell.weight_hh.data
        for t in range(seq_len):
            # slot step: x h! outputs=rows self.cell.weight_hh.data
            h = self.cell(x[:, t], h)
            # slot middle: x! h! outputs=rows
            outputs.append(h)
            # slot last: x! h! outputs=rows!
        # slot behind: x h! outputs=rows!
        return torch.stack(outputs, dim=1), h


@torch.no_grad()
def run():
    torch.manual_seed(0)
    model = Model()
    x = torch.randn(2, 3, 4)
    results = [model(x), model(x)]
    return {"results": results, "x": x, "state": model.state_dict(), "kept": kept}
