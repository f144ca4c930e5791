"""Copies are carried in a list before they are read."""

import torch

kept = []


def levels(style, x):
    # slot start: style x
    s = style[:, :, None]
    # slot before: s style x
    wide = s.repeat(1, 1, x.size(2))
    # slot between: s! style! x
    rows = [wide, x]
    # slot late: s! style! rows[0]!
    out = torch.cat([row * 2 for row in rows], dim=1)
    # slot behind: s style out
    return out


def run():
    torch.manual_seed(0)
    style, x = torch.randn(2, 3), torch.randn(2, 3, 4)
    out = levels(style, x)
    # slot end: style out
    return {"out": out, "style": style, "x": x, "kept": kept}
