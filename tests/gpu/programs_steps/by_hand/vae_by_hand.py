"""vae's step as one CUDA graph, with a fused optimizer."""

import torch
from recorded import begun, epochs, recorded
from vae import VAE, batches, loss_function

args, device = begun()
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
