"""Copies are carried in a list and a mapping before they are read."""

import torch

kept = []


def levels(style, x):
    # slot start: style x
    s = style[:, :, None]
    # slot before: s style x
    named = {"style": torch.tile(s, (1, 1, x.size(2))), "noise": x * 0.1}
    # slot between: s! style! x
    rows = [named["style"], x]
    # slot late: s! style! rows[0]!
    out = torch.cat([row * scale for scale, row in enumerate(rows, 1)], dim=1)
    # slot behind: s style out
    return out


def run():
    torch.manual_seed(0)
    style, x = torch.randn(2, 3), torch.randn(2, 3, 4)
    out = levels(style, x)
    # slot end: style out
    return {"out": out, "style": style, "x": x, "kept": kept}
