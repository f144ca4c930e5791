"""A function returns its last state twice, once as a view, and a view of what it is given."""

import torch
from torch import Tensor

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
kept = []


def scan(decay: Tensor, x: Tensor, state: Tensor):
    states = []
    # slot start: decay x state states=rows
    for t in range(x.size(0)):
        # slot step: decay x state states=rows
        state = torch.tanh(decay * state + x[t])
        # slot middle: decay x state states=rows
        states.append(state)
        # slot last: decay x state states=rows
    # slot behind: decay x state states=rows
    return states, state.unsqueeze(0), x[-1]


@torch.no_grad()
def run():
    torch.manual_seed(3)
    decay, results = torch.rand(4, device=device), []
    for _ in range(3):
        x, state = torch.randn(5, 3, 4, device=device), torch.zeros(3, 4, device=device)
        # slot caller: decay x state
        states, last, given = scan(decay, x, state)
        # slot called: decay x state last given states=rows
        results += [torch.stack(states), last, given, x, state]
        # slot end: last given states=rows
    return {"results": results, "decay": decay, "kept": kept}
