"""An index is spread over the columns that are gathered."""

import torch

kept = []


def pick(x, index):
    # slot start: index x
    s = index.unsqueeze(-1)
    # slot before: s index x
    r = s.repeat(1, 1, x.shape[-1])
    # slot between: s! index! r! x
    out = torch.gather(x, 1, r)
    # slot behind: s r! out
    return out


def run():
    torch.manual_seed(0)
    x, index = torch.randn(2, 3, 4), torch.randint(0, 2, (2, 2))
    out = pick(x, index)
    # slot end: index out
    return {"out": out, "index": index, "kept": kept}
