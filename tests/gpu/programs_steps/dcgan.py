"""A generator and a discriminator on pictures that lie on the device, in the sizes of PyTorch-GAN's dcgan."""

import argparse
import time

import torch
from torch import nn


def block(inputs, outputs, norm=True):
    layers = [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.LeakyReLU(0.2), nn.Dropout2d(0.25)]
    return [*layers, nn.BatchNorm2d(outputs, 0.8)] if norm else layers


def generator():
    return nn.Sequential(
        *(nn.Linear(100, 128 * 64), nn.Unflatten(1, (128, 8, 8)), nn.BatchNorm2d(128), nn.Upsample(scale_factor=2)),
        *(nn.Conv2d(128, 128, 3, 1, 1), nn.BatchNorm2d(128, 0.8), nn.LeakyReLU(0.2), nn.Upsample(scale_factor=2)),
        *(nn.Conv2d(128, 64, 3, 1, 1), nn.BatchNorm2d(64, 0.8), nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 3, 1, 1)),
        nn.Tanh(),
    )


def discriminator():
    blocks = [*block(1, 16, norm=False), *block(16, 32), *block(32, 64), *block(64, 128)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(128 * 4, 1), nn.Sigmoid())


def batches(device, steps):
    return list(torch.randn(steps, 64, 1, 32, 32).to(device))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    g, d = generator().to(device), discriminator().to(device)
    criterion = nn.BCELoss()
    optimizer_g = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    data = batches(device, args.steps)
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        for real in data:
            valid = torch.ones(real.size(0), 1, device=device)
            fake = torch.zeros(real.size(0), 1, device=device)

            optimizer_g.zero_grad()
            z = torch.randn(real.size(0), 100, device=device)
            made = g(z)
            loss_g = criterion(d(made), valid)
            loss_g.backward()
            optimizer_g.step()

            optimizer_d.zero_grad()
            loss_d = (criterion(d(real), valid) + criterion(d(made.detach()), fake)) / 2
            loss_d.backward()
            optimizer_d.step()
        print(f"epoch {epoch} losses {loss_g.item():.4f} {loss_d.item():.4f}", end=" ")
        print(f"took {(time.perf_counter() - begin) / args.steps * 1e3:.4f} ms a step", flush=True)


if __name__ == "__main__":
    main()
