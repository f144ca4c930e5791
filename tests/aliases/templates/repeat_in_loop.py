"""A copy is made in each round of a loop."""

import torch

kept = []


def rounds(s, y, b):
    outs = []
    s = s.view(1, 4)
    # slot start: s y
    for _ in range(3):
        # slot before: s y
        r = s.repeat(b, 1)
        # slot between: s! r! y
        outs.append(y - r)
        # slot behind: s r! y
    # slot after: s y
    return outs


def run():
    torch.manual_seed(0)
    s, y = torch.randn(4), torch.randn(3, 4)
    outs = rounds(s, y, 3)
    # slot end: s y
    return {"outs": outs, "s": s, "y": y, "kept": kept}
