"""What an expert makes of cell_loop.py: the names of the parameters change."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, STEPS, WIDTH = (100, 128, 512) if device.type == "cuda" else (4, 6, 8)
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH)

    def forward(self, frames: torch.Tensor):
        return self.lstm(frames)[0]


encoder = Encoder().to(device)
frames = torch.randn(STEPS, BATCH, WIDTH, device=device)


def run():
    encoder.zero_grad()
    outputs = encoder(frames)
    loss = outputs.square().mean()
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in encoder.parameters()]
