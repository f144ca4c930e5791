"""ppo's update as one CUDA graph, with a fused optimizer, over distributions that don't check their arguments."""

import argparse

import torch
from ppo import Agent, rollout, update_loss
from recorded import epochs, recorded
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda")
torch.distributions.Distribution.set_default_validate_args(False)
agent = Agent().to(device)
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, capturable=True, fused=True)
data = rollout(device, 64 * args.steps)


def step(index):
    loss = update_loss(agent, *(each[index] for each in data))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
    return loss


replay = recorded(step, torch.arange(64, device=device))


def epoch():
    for index in torch.randperm(64 * args.steps, device=device).split(64):
        loss = replay(index)
    return loss


epochs(args, epoch)
