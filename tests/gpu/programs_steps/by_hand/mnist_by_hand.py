"""mnist's step as one CUDA graph."""

import torch
import torch.nn.functional as F
from mnist import Net, batches
from recorded import begun, epochs, recorded

args, device = begun()
model = Net().to(device)
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, capturable=True)
data = batches(device, args.steps)


def step(images, labels):
    optimizer.zero_grad()
    loss = F.nll_loss(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


replay = recorded(step, *data[0])


def epoch():
    for images, labels in data:
        loss = replay(images, labels)
    return loss


epochs(args, epoch)
