"""Small programs whose loops move, drop or join axes of a step, or ask tests, each with one trap."""

from __future__ import annotations

LAYOUT_TRAPS = {
    "an axis of another size is not squeezed": """
def run():
    x = torch.randn(2, 5, 3, 4)
    outs = []
    for t in range(5):
        outs.append(x[:, t].squeeze(1) * 2)
    return torch.stack(outs, 1)
""",
    "an axis of another size is not squeezed, from after": """
def run():
    x = torch.randn(5, 3, 1, 4)
    y = torch.randn(5, 4)
    outs = []
    for t in range(5):
        v = x[t].squeeze(-2)
        outs.append(v + v.squeeze(0))
    return torch.stack(outs, 1)
""",
    "a new axis at the end stands where the result counts it": """
def run():
    x = torch.randn(2, 5, 3)
    a, b = [], []
    for t in range(5):
        a.append(x[:, t].unsqueeze(-1) * torch.ones(3, 4))
        b.append(x[:, t].unsqueeze(-3) * 2)
    return torch.stack(a, 1), torch.stack(b, 0)
""",
    "an axis that is left out is the first of a step": """
def run():
    x = torch.randn(2, 5, 4)
    a, b, c = [], [], []
    for t in range(5):
        one, other = x[:, t].chunk(2)
        a.append(one - other)
        b.append(x[:, t].flatten())
        c.append(F.normalize(x[:, t]))
    return torch.stack(a, 1), torch.stack(b), torch.stack(c, 1)
""",
    "a roll without an axis goes over all numbers": """
def run():
    x = torch.randn(2, 5, 4)
    outs = []
    for t in range(5):
        outs.append(x[:, t].roll(1))
    return torch.stack(outs, 1)
""",
    "the largest of a step is not the largest of all": """
def run():
    x = torch.randn(2, 5, 4)
    total = 0
    for t in range(5):
        total = total + x[:, t].max() + x[:, t].std() + x[:, t].norm()
    return total
""",
    "a row of numbers is picked by a mask of another number each time": """
def run():
    x = torch.randn(2, 5, 4)
    keep = torch.rand(2, 5) > 0.5
    total = 0
    for t in range(5):
        total = total + x[:, t][keep[:, t]].sum()
    return total
""",
    "parts of a state are taken where there are none": """
rnn = nn.LSTM(3, 4, 2, batch_first=True)
def run():
    x = torch.randn(2, 5, 3)
    state = None
    outs = []
    for t in range(5):
        out, state = rnn(x[:, t:t+1], state)
        outs.append(state[0][-1] + state[0][0] + state[1][-1])
    return torch.stack(outs, 0)
""",
    "the states of a Cell pass through a method": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)
    def step(self, v, one, other):
        one, other = self.cell(v, (one, other))
        return one * 2, one, other
    def forward(self, x: torch.Tensor):
        batch, steps, width = x.shape
        h = torch.zeros(batch, 4)
        c = torch.ones(batch, 4)
        outs = []
        for t in range(steps):
            out, h, c = self.step(x[:, t], h, c)
            outs.append(out)
        return torch.stack(outs, 1), h, c
def run():
    return Model()(torch.randn(2, 5, 3))
""",
    "the states of a Cell come back in another order": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)
    def step(self, v, one, other):
        one, other = self.cell(v, (one, other))
        return one * 2, other, one
    def forward(self, x: torch.Tensor):
        batch, steps, width = x.shape
        h = torch.zeros(batch, 4)
        c = torch.ones(batch, 4)
        outs = []
        for t in range(steps):
            out, h, c = self.step(x[:, t], h, c)
            outs.append(out)
        return torch.stack(outs, 1), h, c
def run():
    return Model()(torch.randn(2, 5, 3))
""",
    "a test is answered by what a step changes": """
def run():
    x = torch.randn(2, 5, 3)
    low = True
    outs = []
    for t in range(5):
        if low:
            outs.append(x[:, t] * 2)
        else:
            outs.append(x[:, t] * 3)
        low = not low
    return torch.stack(outs, 1)
""",
    "a test is answered by an attribute that a method changes": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.low = True
    def turn(self, v):
        self.low = not self.low
        return v * 2
    def forward(self, x: torch.Tensor):
        outs = []
        for t in range(5):
            if self.low:
                outs.append(x[:, t] * 2)
            else:
                outs.append(self.turn(x[:, t]))
        return torch.stack(outs, 1)
def run():
    return Model()(torch.randn(2, 5, 3))
""",
    "a sum is read between what is added to it": """
def run():
    x = torch.randn(2, 5, 4)
    total, outs = 0, []
    for t in range(5):
        total = total + x[:, t].mean()
        outs.append(total)
        total = total + x[:, t].pow(2).mean()
    return torch.stack(outs)
""",
    "a sum is added to, and takes part in what is added": """
def run():
    x = torch.randn(2, 5, 4)
    total, other = 1, 0
    for t in range(5):
        total = total + x[:, t].mean()
        total = total + total * x[:, t].pow(2).mean()
        other += x[:, t].mean()
        other -= x[:, t].pow(2).mean()
    return total, other
""",
    "an answer leaves nothing to do": """
def collect(x: torch.Tensor, wanted):
    outs = [x[:, 0]]
    for t in range(5):
        if wanted:  # or none
            outs.append(x[:, t] * 2)
    return torch.stack(outs)
def run():
    x = torch.randn(2, 5, 4)
    return collect(x, True), collect(x, False)
""",
    "a test that is asked in two places": """
def run(answer=True):
    x = torch.randn(2, 5, 3)
    B, T, D = x.shape
    outs = []
    for answer in (True, False):
        for t in range(T):
            v = x[:, t] * 2 if answer else x[:, t]
            if answer:
                v = v + 1
            outs.append(v if answer else v * 3)
    return torch.stack(outs, 1)
""",
}
