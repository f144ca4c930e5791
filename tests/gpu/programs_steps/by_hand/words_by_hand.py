"""words' step as one CUDA graph, which hands its state on in place, and one launch for all parameters."""

import torch
import torch.nn.functional as F
from recorded import begun, epochs, recorded
from torch import nn
from words import BATCH, LAYERS, LENGTH, WIDTH, RNNModel, text

args, device = begun()
model = RNNModel().to(device)
source = text(device, args.steps)
hidden = tuple(torch.zeros(LAYERS, BATCH, WIDTH, device=device) for _ in range(2))


def step(data, targets):
    model.zero_grad()
    output, after = model(data, hidden)
    loss = F.nll_loss(output, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    with torch.no_grad():
        torch._foreach_add_(list(model.parameters()), [p.grad for p in model.parameters()], alpha=-20)
        torch._foreach_copy_(hidden, after)
    return loss


replay = recorded(step, source[:LENGTH], source[1 : 1 + LENGTH].view(-1))


def epoch():
    torch._foreach_zero_(hidden)
    for i in range(0, source.size(0) - 1, LENGTH):
        loss = replay(source[i : i + LENGTH], source[i + 1 : i + 1 + LENGTH].view(-1))
    return loss


epochs(args, epoch)
