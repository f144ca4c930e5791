"""The list is read otherwise, too."""

import torch
from torch import Tensor, nn

kept = []


class Model(nn.Module):
    def forward(self, x: Tensor):
        batch, seq_len, width = x.shape
        outputs = []
        # slot start: x outputs=rows
        for t in range(seq_len):
            # slot step: x outputs=rows
            outputs.append(x[:, t] * 2)
            # slot last: x! outputs=rows!
        # slot behind: x outputs=rows outputs[0]
        return outputs[0], outputs[-1], torch.stack(outputs, dim=1), sum(outputs[1:])


@torch.no_grad()
def run():
    torch.manual_seed(0)
    model = Model()
    x = torch.randn(2, 3, 4)
    results = [model(x), model(x)]
    return {"results": results, "x": x, "state": model.state_dict(), "kept": kept}
