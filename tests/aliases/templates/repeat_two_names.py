"""Rows are repeated that others know by other names: parameters, attributes, arrays, variables of the module."""

import numpy as np
import torch

kept = []
COUNTS = np.ones((1, 4), dtype=np.float32)
RATES = torch.from_numpy(COUNTS)


class Holder:
    def __init__(self, rows):
        self.rows = rows
        self.again = self.rows.view(1, 4)

    def joined(self, y, other):
        # slot held: other.rows self.again
        r = self.rows.repeat(3, 1)
        # slot within: other.rows! self.again! y
        return torch.cat([y, r], 1)


def paired(s, t, y):
    # slot given: t y
    r = s.unsqueeze(0).repeat(3, 1)
    # slot paired: t! y
    return y * r


def scaled(y):
    # slot before: torch.from_numpy(COUNTS)
    r = RATES.repeat(3, 1)
    # slot between: torch.from_numpy(COUNTS)! y
    return y + r


def shifted(y, array):
    def rows(given):
        r = given.unsqueeze(0).repeat(3, 1)
        # slot inner: torch.from_numpy(array)! y
        return y + r

    return rows(torch.from_numpy(array))


@torch.no_grad()
def run():
    torch.manual_seed(0)
    s, y = torch.randn(4), torch.randn(3, 4)
    array = np.ones(4, dtype=np.float32)
    outs = [Holder(RATES).joined(y, Holder(RATES)), paired(s, s, y), scaled(y), shifted(y, array)]
    return {"outs": outs, "s": s, "y": y, "kept": kept}
