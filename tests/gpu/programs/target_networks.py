"""50 steps of gradient descent by hand, with clamped gradients, a target network and a moving average."""

import copy

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, LAYERS = (128, 60) if device.type == "cuda" else (8, 3)
TAU, LR, DECAY = 0.005, 0.01, 0.999


def update_ema(ema, model):
    with torch.no_grad():
        for ema_param, param in zip(ema.parameters(), model.parameters(), strict=True):
            ema_param.mul_(DECAY).add_(param, alpha=1 - DECAY)


def train(model, target, ema, batches):
    for batch in batches:
        loss = (model(batch) - target(batch).detach()).square().mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.grad.data.clamp_(-1, 1)
        for p in model.parameters():
            p.data.add_(p.grad.data, alpha=-LR)
        for param, target_param in zip(model.parameters(), target.parameters(), strict=True):
            target_param.data.copy_(TAU * param.data + (1 - TAU) * target_param.data)
        update_ema(ema, model)


def run():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)) for _ in range(LAYERS))).to(
        device
    )
    target, ema = copy.deepcopy(model), copy.deepcopy(model)
    with torch.no_grad():
        target[0][0].weight.normal_()
    train(model, target, ema, torch.randn(50, 32, WIDTH, device=device))
    return [p.detach() for module in (model, target, ema) for p in module.parameters()]
