"""dcgan's joint step as one CUDA graph, with fused optimizers."""

import torch
from dcgan import batches, discriminator, generator
from recorded import begun, epochs, recorded
from torch import nn

args, device = begun()
g, d = generator().to(device), discriminator().to(device)
criterion = nn.BCELoss()
optimizer_g, optimizer_d = (
    torch.optim.Adam(each.parameters(), lr=2e-4, betas=(0.5, 0.999), capturable=True, fused=True) for each in (g, d)
)
data = batches(device, args.steps)
valid, fake = torch.ones(64, 1, device=device), torch.zeros(64, 1, device=device)


def step(real):
    optimizer_g.zero_grad()
    made = g(torch.randn(64, 100, device=device))
    loss = criterion(d(made), valid)
    loss.backward()
    optimizer_g.step()
    optimizer_d.zero_grad()
    ((criterion(d(real), valid) + criterion(d(made.detach()), fake)) / 2).backward()
    optimizer_d.step()
    return loss


replay = recorded(step, data[0])


def epoch():
    for real in data:
        loss = replay(real)
    return loss


epochs(args, epoch)
