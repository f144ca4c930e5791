"""A tensor is joined with itself, as often as there are steps."""

import torch

kept = []


def tiled(context, states):
    # slot start: context states
    context = context.unsqueeze(1)
    # slot before: context states
    repeated = torch.cat([context] * states.size(1), dim=1)
    # slot between: context! repeated! states
    out = states + repeated
    # slot behind: context repeated! out
    return out


def run():
    torch.manual_seed(0)
    context, states = torch.randn(2, 4), torch.randn(2, 3, 4)
    out = tiled(context, states)
    # slot end: context out
    return {"out": out, "context": context, "states": states, "kept": kept}
