"""gpt in bfloat16, compiled into CUDA graphs, with TF32 and a fused optimizer."""

import torch
from gpt import GPT, batches
from recorded import begun, epochs
from torch import nn

args, device = begun()
torch.set_float32_matmul_precision("high")
model = GPT().to(device)
compiled = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
data = batches(device, args.steps)


def epoch():
    for tokens, targets in data:
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss


epochs(args, epoch)
