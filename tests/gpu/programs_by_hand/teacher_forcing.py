"""What an expert makes of teacher_forcing.py."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, STEPS, WIDTH, WORDS = (100, 128, 512, 1000) if device.type == "cuda" else (4, 6, 8, 11)
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor):
        output, _ = self.lstm(self.embedding(tokens))
        return self.head(output)


decoder = Decoder().to(device)
tokens = torch.randint(WORDS, (BATCH, STEPS + 1), device=device)


def run():
    decoder.zero_grad()
    logits = decoder(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in decoder.parameters()]
