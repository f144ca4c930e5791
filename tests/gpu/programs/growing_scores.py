"""An evaluation that puts the scores of 400 batches together as they come."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
BATCHES, BATCH, SIZE, CLASSES = (400, 256, 512, 1000) if device.type == "cuda" else (4, 8, 16, 10)
model = nn.Linear(SIZE, CLASSES).to(device)
batches = [torch.randn(BATCH, SIZE, device=device) for _ in range(BATCHES)]


@torch.no_grad()
def run():
    scores = torch.empty(0, CLASSES, device=device)
    for batch in batches:
        score = torch.softmax(model(batch), dim=1)
        scores = torch.cat([scores, score])
    return scores.sum(dim=0), scores[-1]
