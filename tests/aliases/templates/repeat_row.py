"""A row is repeated for each step, and broadcasts by itself."""

import torch

kept = []


def scaled(s, y, b):
    # slot start: s y
    s = s.unsqueeze(0)
    # slot before: s y
    r = s.repeat(b, 1)
    # slot between: s! r! y
    out = y * r
    # slot behind: s r! out
    return out


def run():
    torch.manual_seed(0)
    s, y = torch.randn(4), torch.randn(3, 4)
    # slot caller: s y
    out = scaled(s, y, 3)
    # slot end: s out
    return {"out": out, "s": s, "y": y, "kept": kept}
