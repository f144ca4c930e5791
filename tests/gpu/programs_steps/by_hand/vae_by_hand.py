"""vae's step as one CUDA graph, with a fused optimizer."""

import argparse

import torch
from recorded import epochs, recorded
from vae import VAE, batches, loss_function

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda")
model = VAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True, fused=True)
data = batches(device, args.steps)


def step(x):
    optimizer.zero_grad()
    recon, mu, logvar = model(x)
    loss = loss_function(recon, x, mu, logvar)
    loss.backward()
    optimizer.step()
    return loss


replay = recorded(step, data[0])


def epoch():
    for x in data:
        loss = replay(x)
    return loss


epochs(args, epoch)
