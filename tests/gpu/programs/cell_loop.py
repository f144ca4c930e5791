"""A training step of an LSTMCell that walks a sequence."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, STEPS, WIDTH = (100, 128, 512) if device.type == "cuda" else (4, 6, 8)
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH)

    def forward(self, frames: torch.Tensor):
        h = torch.zeros(frames.size(1), WIDTH, device=frames.device)
        c = torch.zeros(frames.size(1), WIDTH, device=frames.device)
        outputs = []
        for t in range(frames.size(0)):
            h, c = self.cell(frames[t], (h, c))
            outputs.append(h)
        return torch.stack(outputs)


encoder = Encoder().to(device)
frames = torch.randn(STEPS, BATCH, WIDTH, device=device)


def run():
    encoder.zero_grad()
    outputs = encoder(frames)
    loss = outputs.square().mean()
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in encoder.parameters()]
