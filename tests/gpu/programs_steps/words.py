"""An LSTM over a text on the device, in the sizes of pytorch/examples' word_language_model."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, LAYERS, BATCH, LENGTH = 33278, 200, 2, 20, 35


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(WORDS, WIDTH)
        self.rnn, self.decoder = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=0.2), nn.Linear(WIDTH, WORDS)

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return F.log_softmax(self.decoder(self.drop(output)).view(-1, WORDS), dim=1), hidden


def text(device, steps):
    return torch.randint(WORDS, (steps * LENGTH + 1, BATCH)).to(device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = RNNModel().to(device)
    source = text(device, args.steps)
    lr = 20
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        hidden = tuple(torch.zeros(LAYERS, BATCH, WIDTH, device=device) for _ in range(2))
        for i in range(0, source.size(0) - 1, LENGTH):
            data, targets = source[i : i + LENGTH], source[i + 1 : i + 1 + LENGTH].view(-1)
            model.zero_grad()
            hidden = tuple(each.detach() for each in hidden)
            output, hidden = model(data, hidden)
            loss = F.nll_loss(output, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
        print(f"epoch {epoch} loss {loss.item():.4f}", end=" ")
        print(f"took {(time.perf_counter() - begin) / args.steps * 1e3:.4f} ms a step", flush=True)


if __name__ == "__main__":
    main()
