"""torchvision's ResNet-18 on batches of 256 pictures that lie on the device."""

import argparse
import time

import torch
import torch.nn.functional as F
from torchvision.models import resnet18


def batches(device, steps):
    return [(torch.randn(256, 3, 224, 224).to(device), torch.randint(1000, (256,)).to(device)) for _ in range(steps)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = resnet18().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = batches(device, args.steps)
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        for images, labels in data:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", end=" ")
        print(f"took {(time.perf_counter() - begin) / args.steps * 1e3:.4f} ms a step", flush=True)


if __name__ == "__main__":
    main()
