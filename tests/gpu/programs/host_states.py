"""64 small training steps of an LSTM whose states, mask and positions are made on the host in every forward."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
BATCH, STEPS, SIZE = (128, 32, 512) if device.type == "cuda" else (4, 4, 8)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(SIZE, SIZE, num_layers=2, batch_first=True)
        self.positions = nn.Embedding(STEPS, SIZE)
        self.head = nn.Linear(SIZE, 10)

    def forward(self, x, lengths):
        h = torch.zeros(2, x.size(0), SIZE).to(x.device)
        c = torch.zeros(2, x.size(0), SIZE).to(x.device)
        positions = torch.arange(x.size(1)).to(x.device)
        mask = torch.arange(x.size(1)).unsqueeze(0).to(x.device) < lengths.unsqueeze(1)
        states, _ = self.rnn(x + self.positions(positions), (h, c))
        return self.head(states * mask.unsqueeze(2))


start = Tagger().to(device).state_dict()
x = torch.randn(BATCH, STEPS, SIZE, device=device)
lengths = torch.randint(1, STEPS, (BATCH,), device=device)
targets = torch.randint(10, (BATCH, STEPS), device=device)


def run():
    model = Tagger().to(device)
    model.load_state_dict(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(64):
        loss = nn.functional.cross_entropy(model(x, lengths).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach(), model.head.weight.detach()
