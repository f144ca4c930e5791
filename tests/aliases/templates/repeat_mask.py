"""A mask is repeated for the heads of attention."""

import torch

kept = []


def attend(scores, mask, heads):
    # slot start: mask scores
    s = mask.unsqueeze(1)
    # slot before: s mask scores
    r = s.repeat(1, heads, 1)
    # slot between: s! mask! r! scores
    scores = scores.masked_fill(r, -9.0)
    # slot behind: s mask r! scores
    return torch.softmax(scores, -1)


def run():
    torch.manual_seed(0)
    mask, scores = torch.rand(2, 4) > 0.5, torch.randn(2, 3, 4)
    out = attend(scores, mask, 3)
    # slot end: mask out
    return {"out": out, "mask": mask, "scores": scores, "kept": kept}
