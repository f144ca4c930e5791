"""Small programs with loops that look like maps over their steps, each with one trap."""

from __future__ import annotations

IMPORTS = """import torch
import torch.nn.functional as F
from torch import nn
"""

TRAPS = {
    "the first part of an LSTM's state is no layer of it": """
rnn = nn.LSTM(3, 4, batch_first=True)
def run():
    x = torch.randn(2, 5, 3)
    state = None
    outs = []
    for t in range(5):
        out, state = rnn(x[:, t:t+1], state)
        outs.append(state[0])
    return torch.cat(outs, 0)
""",
    "the last part of an LSTM's state is its cell state": """
rnn = nn.LSTM(3, 4, batch_first=True)
def run():
    x = torch.randn(2, 5, 3)
    state = None
    total = 0
    for t in range(5):
        out, state = rnn(x[:, t:t+1], state)
        total = total + state[-1].sum()
    return total
""",
    "squeezing the batch axis of a state changes nothing": """
rnn = nn.GRU(3, 4, batch_first=True)
def run():
    x = torch.randn(2, 5, 3)
    h = None
    outs = []
    for t in range(5):
        out, h = rnn(x[:, t:t+1], h)
        outs.append(h.squeeze(1))
    return torch.cat(outs, 0)
""",
    "squeezing every axis of a state drops a batch of one, too": """
rnn = nn.GRU(3, 4, batch_first=True)
def run():
    x = torch.randn(1, 5, 3)
    h = None
    outs = []
    for t in range(5):
        out, h = rnn(x[:, t:t+1], h)
        outs.append(h.squeeze())
    return torch.stack(outs, 0)
""",
    "a bound that is drawn is drawn once": """
import random
def run():
    random.seed(3)
    x = torch.randn(2, 9, 3)
    y = torch.randn(2, 9, 3)
    outs = []
    for t in range(random.randint(2, 9)):
        outs.append(x[:, t] * y[:, t])
    return torch.stack(outs, 1)
""",
    "slots of the sequence itself are read by the next step": """
def run():
    x = torch.randn(2, 6, 3)
    out = x
    for t in range(1, 6):
        out[:, t] = x[:, t - 1] * 2
    return out
""",
    "slots of a view of the sequence are read by the next step": """
def run():
    x = torch.randn(2, 6, 3)
    out = x.view(2, 6, 3)
    for t in range(1, 6):
        out[:, t] = x[:, t - 1] * 2
    return out
""",
    "an activation in place changes what the step before reads": """
act = nn.ReLU(True)
def run():
    x = torch.randn(2, 6, 3)
    outs = []
    for t in range(5):
        a = act(x[:, t])
        outs.append(a + x[:, t + 1])
    return torch.stack(outs, 1)
""",
    "gradients scaled by frequency count the tokens of one step": """
emb = nn.Embedding(5, 3, scale_grad_by_freq=True)
def run():
    tokens = torch.randint(0, 5, (2, 7))
    w = torch.randn(3)
    outs = []
    for t in range(7):
        outs.append(emb(tokens[:, t]) * w)
    y = torch.stack(outs, 1)
    y.sum().backward()
    return y, emb.weight.grad
""",
    "a loss without a reduction has many numbers a step": """
crit = nn.MSELoss(reduction="none")
def run():
    x = torch.randn(2, 7)
    y = torch.randn(2, 7)
    loss = 0
    for t in range(7):
        loss = loss + crit(x[:, t], y[:, t])
    return loss
""",
    "a sum that is walked keeps its parentheses before an operator": """
def run():
    x = torch.randn(2, 7, 5)
    y = torch.randn(2, 7, 5)
    outs = []
    for v in (x + y).unbind(1):
        outs.append(v * 3)
    return torch.stack(outs, 1)
""",
    "a sum that is walked keeps its parentheses before a method": """
def run():
    x = torch.randn(7, 2, 5)
    y = torch.randn(7, 2, 5)
    outs = []
    for v in x + y:
        outs.append(v.mul(3))
    return torch.stack(outs)
""",
    "an expression over lines at the depth of the body stays one": """
def run():
    x = torch.randn(2, 7, 5)
    b = torch.ones(5)
    outs = []
    for t in range(7):
        y = (x[:, t]
        - b)
        outs.append(y)
    return torch.stack(outs, 1)
""",
    "an expression over lines that are indented stays one": """
def run():
    x = torch.randn(2, 7, 5)
    b = torch.ones(5)
    outs = []
    for t in range(7):
        y = (
            x[:, t]
            - b
        )
        outs.append(y)
    return torch.stack(outs, 1)
""",
    "the transpose of an operand is not the sum's": """
def run():
    x = torch.randn(4, 4, 5)
    y = torch.randn(4, 4, 5)
    outs = []
    for t in range(4):
        z = (x[:, t] + y[t]).sum(0)
        outs.append(z)
    return torch.stack(outs)
""",
    "the state of a Cell goes on in an outer loop": """
cell = nn.LSTMCell(3, 4)
def run():
    chunks = torch.randn(3, 2, 5, 3)
    h = torch.zeros(2, 4)
    c = torch.zeros(2, 4)
    outs = []
    for k in range(3):
        chunk = chunks[k]
        for t in range(5):
            h, c = cell(chunk[:, t], (h, c))
            outs.append(h)
    return torch.stack(outs, 1)
""",
    "the state of a Cell goes on where only a loss is kept": """
cell = nn.GRUCell(3, 4)
def run():
    chunks = torch.randn(3, 2, 5, 3)
    h = torch.zeros(2, 4)
    loss = 0
    for k in range(3):
        chunk = chunks[k]
        for t in range(5):
            h = cell(chunk[:, t], h)
            loss = loss + h.sum()
    return loss
""",
    "a sum keeps the type that it is given": """
def run():
    x = torch.randn(2, 7, 5)
    total = 0
    outs = []
    for t in range(7):
        outs.append(x[:, t].sum(dtype=torch.float32))
    return torch.stack(outs)
""",
    "a pruned Cell makes its weight anew in each call": """
from torch.nn.utils import prune
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        prune.random_unstructured(self.cell, "weight_hh", 0.5)
    def forward(self, x):
        h = torch.zeros(x.size(0), 4)
        outs = []
        for x_t in x.unbind(1):
            h = self.cell(x_t, h)
            outs.append(h)
        return torch.stack(outs, 1)
def run():
    m = M()
    x = torch.randn(2, 5, 3)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for _ in range(3):
        opt.zero_grad()
        l = m(x).pow(2).sum()
        l.backward()
        opt.step()
    return l, [p.grad for p in m.parameters()]
""",
    "a shape under a name is no size": """
def run():
    x = torch.randn(2, 7, 6)
    shape = torch.Size([2, 2, 3])
    outs = []
    for t in range(7):
        outs.append(x[:, t].reshape(shape))
    return torch.stack(outs)
""",
    "a trailing comma is no argument": """
def run():
    x = torch.randn(2, 7, 6)
    outs = []
    for t in range(7):
        outs.append(torch.cat((x[:, t], x[:, t]),))
    return torch.stack(outs)
""",
    "a sum in place may write to the sequence": """
def run():
    x = torch.randn(2, 7, 6)
    total = x[:, 2]
    for t in range(7):
        total += x[:, t]
    return total
""",
    "an underscore may be a variable": """
def run():
    _ = 7
    cell = nn.LSTMCell(3, 4)
    x = torch.randn(2, 5, 3)
    h, c = torch.zeros(2, 4), torch.zeros(2, 4)
    outs = []
    for t in range(5):
        h, c = cell(x[:, t], (h, c))
        outs.append(h)
    return torch.stack(outs), _
""",
    "one of two lists that begin on a line is read as a list": """
def run():
    x = torch.randn(2, 5, 3)
    rows, columns = [], []
    for t in range(5):
        rows.append(x[:, t].exp())
        columns.append(x[:, t].sin())
    return torch.cat(rows, dim=0), columns
""",
    "two lists keep the tensors that one of them changes": """
fc = nn.Linear(4, 4)
def run():
    x = torch.randn(2, 5, 4)
    batch, steps, width = x.shape
    outs, scores = [], []
    for t in range(steps):
        h = fc(x[:, t])
        outs.append(h)
        scores.append(h)
    with torch.no_grad():
        outs[0] += 1
    return outs, scores
""",
    "a list may have two names": """
def run():
    x = torch.randn(2, 5, 3)
    rows = columns = []
    for t in range(5):
        rows.append(x[:, t].exp())
    return torch.cat(rows, dim=0), len(columns)
""",
    "stacking copies": """
def frames(x):
    outs = []
    for t in range(5):
        outs.append(x[:, t])
    return torch.stack(outs, dim=1)
def run():
    x = torch.randn(2, 5, 3)
    y = frames(x)
    y.zero_()
    return x, y
""",
    "weights and label smoothing are more than vmap can take": """
crit = nn.CrossEntropyLoss(weight=torch.arange(1., 6.), label_smoothing=0.1)
def run():
    x = torch.randn(2, 7, 5)
    y = torch.randint(0, 5, (2, 7))
    loss = 0
    for t in range(7):
        loss = loss + crit(x[:, t], y[:, t])
    return loss
""",
    "what is passed on is read again in the step itself": """
def run():
    x = torch.randn(2, 6, 3)
    B, T, D = x.shape
    inp = torch.zeros(B, D)
    a = []
    b = []
    for t in range(T):
        a.append(inp * 2)
        inp = x[:, t]
        b.append(inp + 1)
    return torch.stack(a, 1), torch.stack(b, 1)
""",
    "autocast gives the steps of a cell another type than a sequence": """
def run():
    cell = torch.nn.LSTMCell(3, 4)
    x = torch.randn(2, 6, 3)
    state = (torch.zeros(2, 4), torch.zeros(2, 4))
    hidden = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for t in range(x.size(1)):
            state = cell(x[:, t], state)
            hidden.append(state[0])
    return torch.stack(hidden, 1).sum(), hidden[0].dtype == torch.float32
""",
    "what the first step is passed broadcasts": """
def run():
    x = torch.randn(2, 6, 3)
    w = torch.randn(2, 3)
    B, T, D = x.shape
    inp = torch.zeros(1, 3)
    a = []
    for t in range(T):
        a.append(inp * w)
        inp = x[:, t]
    return torch.stack(a, 1)
""",
    "a called function may give its parameters other values": """
def block(v, ctx):
    ctx = torch.tanh(ctx) * 2
    return v + ctx
def run():
    x = torch.randn(2, 6, 3)
    ctx = torch.randn(3)
    B, T, D = x.shape
    a = []
    for t in range(T):
        a.append(block(x[:, t], ctx + 1))
    return torch.stack(a, 1), ctx
""",
    "a function may be called in the arguments of its own call": """
def block(v, w):
    z = v * w
    return z + 1
def run():
    x = torch.randn(2, 6, 3)
    B, T, D = x.shape
    w1 = torch.randn(3)
    w2 = torch.randn(3)
    a = []
    for t in range(T):
        a.append(block(block(x[:, t], w1), w2) * block(x[:, t], w2))
    return torch.stack(a, 1)
""",
    "a counter that is not begun anew stays where it is": """
def run():
    x = torch.randn(2, 6, 3)
    a = []
    t = 0
    for k in range(2):
        while t < 6:
            a.append(x[:, t] * k)
            t += 1
    return torch.stack(a, 1)
""",
}
