"""An expansion is made real although a view would do."""

import torch

kept = []


def mixed(real, fake, alpha):
    # slot start: alpha real
    s = alpha.view(-1, 1)
    # slot before: s alpha real
    r = s.expand(real.size()).contiguous()
    # slot between: s! alpha! r! real
    out = r * real + (1 - r) * fake
    # slot behind: s r! out
    return out


def run():
    torch.manual_seed(0)
    real, fake, alpha = torch.randn(3, 4), torch.randn(3, 4), torch.rand(3)
    out = mixed(real, fake, alpha)
    # slot end: alpha out
    return {"out": out, "alpha": alpha, "real": real, "kept": kept}
