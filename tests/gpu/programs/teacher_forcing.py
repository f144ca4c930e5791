"""A training step of an LSTM decoder that is given the true tokens, one step of the loop at a time."""

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
        state = None
        logits = torch.zeros(tokens.size(0), 0, WORDS, device=tokens.device)
        for t in range(tokens.size(1)):
            output, state = self.lstm(self.embedding(tokens[:, t : t + 1]), state)
            logits = torch.cat([logits, self.head(output)], dim=1)
        return logits


decoder = Decoder().to(device)
tokens = torch.randint(WORDS, (BATCH, STEPS + 1), device=device)


def run():
    decoder.zero_grad()
    logits = decoder(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in decoder.parameters()]
