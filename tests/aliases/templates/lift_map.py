"""Each step is computed by itself."""

import torch
from torch import Tensor, nn

kept = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        batch, seq_len, width = x.shape
        outputs = []
        # slot start: x outputs=rows self.proj.weight.data
        for t in range(seq_len):
            # slot step: x outputs=rows self.proj.weight.data
            projected = self.proj(x[:, t])
            # slot middle: x! projected outputs=rows self.proj.weight.data!
            outputs.append(projected)
            # slot last: x! projected! outputs=rows!
        # slot behind: x outputs=rows!
        return torch.stack(outputs, dim=1)


@torch.no_grad()
def run():
    torch.manual_seed(0)
    model = Model()
    x = torch.randn(2, 3, 4)
    results = [model(x), model(x)]
    return {"results": results, "x": x, "state": model.state_dict(), "kept": kept}
