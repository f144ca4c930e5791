"""resnet in bfloat16 and channels_last, compiled into CUDA graphs, with TF32 and a fused optimizer."""

import torch
import torch.nn.functional as F
from recorded import begun, epochs
from resnet import batches
from torchvision.models import resnet18

args, device = begun()
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.benchmark = True
model = resnet18().to(device, memory_format=torch.channels_last)
compiled = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
data = [(images.to(memory_format=torch.channels_last), labels) for images, labels in batches(device, args.steps)]


def epoch():
    for images, labels in data:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


epochs(args, epoch)
