"""The training of a GAN without the prints of its losses, as no fix can make them cheaper than that."""

import contextlib
import io

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, WIDTH, STEPS = (1024, 1024, 60) if device.type == "cuda" else (4, 8, 3)


def network(before: int, after: int):
    return nn.Sequential(
        nn.Linear(before, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, after)
    )


def train(generator, critic, real):
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    judge = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1, device=device), torch.zeros(BATCH, 1, device=device)
    for _ in range(STEPS):
        made = generator(torch.randn(BATCH, 64, device=device))
        of_generator.zero_grad()
        g_loss = judge(critic(made), ones)
        g_loss.backward()
        of_generator.step()
        of_critic.zero_grad()
        d_loss = (judge(critic(real), ones) + judge(critic(made.detach()), zeros)) / 2
        d_loss.backward()
        of_critic.step()


def run():
    torch.manual_seed(0)
    generator, critic = network(64, WIDTH).to(device), network(WIDTH, 1).to(device)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        train(generator, critic, torch.randn(BATCH, WIDTH, device=device))
        return printed.getvalue()
