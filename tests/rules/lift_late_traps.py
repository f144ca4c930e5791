"""Loops whose steps read what the step before left, or hand it on under other names."""

from __future__ import annotations

from tests.rules.lift_stacks import stack

LATE_TRAPS = {
    "zoneout": stack("""
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = 0.5 * h[i] + 0.5 * cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
"""),
    "exchange of names": stack("""
a, b = torch.zeros(batch, 5), torch.zeros(batch, 5)
for t in range(seq_len):
    na = self.cells[0](x[:, t], a)
    nb = self.cells[1](na, b)
    a, b = nb, na
    outs.append(nb)
"""),
    "names passed on": stack(
        """
a, b = torch.zeros(batch, 5), torch.zeros(batch, 5)
for t in range(seq_len):
    na = self.cells[0](x[:, t], a)
    nb = self.cells[1](na, b)
    a, b = na, nb
    outs.append(nb + na)
""",
        gives="joined, a, b, na, nb",
    ),
    "c passed on, read after": stack(
        """
a, b = torch.zeros(batch, 5), torch.zeros(batch, 5)
for t in range(seq_len):
    na, nb = self.cells[0](x[:, t], (a, b))
    a, b = na, nb
    outs.append(na)
""",
        cell="LSTMCell",
        gives="joined, na, nb",
    ),
    "one unpacked": stack(
        """
s = (torch.zeros(batch, 5), torch.zeros(batch, 5))
for t in range(seq_len):
    h, c = s
    s = self.cells[0](x[:, t], (h, c))
    outs.append(s[0])
""",
        cell="LSTMCell",
        gives="joined, s",
    ),
    "pair swapped": stack(
        """
s = (torch.zeros(batch, 5), torch.zeros(batch, 5))
for t in range(seq_len):
    h, c = self.cells[0](x[:, t], s)
    s = c, h
    outs.append(h)
""",
        cell="LSTMCell",
        gives="joined, s",
    ),
    "name in the loop": stack(
        """
g = h[0]
for t in range(seq_len):
    for k in range(2):
        g = self.same[0](x[:, t], g)
    outs.append(g)
""",
        width=5,
        built="self.same = nn.ModuleList([nn.GRUCell(5, 5) for _ in range(num_layers)])",
    ),
    "alias in the loop": stack(
        """
g = h[0]
for t in range(seq_len):
    for k in range(2):
        new = self.same[0](x[:, t], g)
    g = new
    outs.append(g)
""",
        width=5,
        built="self.same = nn.ModuleList([nn.GRUCell(5, 5) for _ in range(num_layers)])",
    ),
    "append before, embedding": stack(
        """
for t in range(seq_len):
    outs.append(h)
    inp = self.emb(x[:, t])
    h = self.cell(inp, h)
""",
        first="one",
        gives="joined, h",
        built="""
self.cell = nn.GRUCell(4, 5)
self.emb = nn.Linear(4, 4)
""",
    ),
    "predict, then update, lstm": stack(
        """
loss = 0
for t in range(seq_len):
    guess = self.head(h)
    loss = loss + F.mse_loss(guess, x[:, t])
    h, c = self.lcell(x[:, t], (h, c))
""",
        first="one",
        gives="loss, h, c",
        built="""
self.lcell = nn.LSTMCell(4, 5)
self.head = nn.Linear(5, 4)
""",
    ),
    "attention": stack(
        """
for t in range(seq_len):
    inp = x[:, t] * torch.softmax(self.q(h[-1]), 1)
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        built="self.q = nn.Linear(5, 4)",
    ),
    "both": stack(
        """
for t in range(seq_len):
    old = h
    h = self.cell(x[:, t], h)
    outs.append(h - old)
""",
        first="one",
        gives="joined, h",
        built="self.cell = nn.GRUCell(4, 5)",
    ),
    "read twice before": stack(
        """
for t in range(seq_len):
    outs.append(h * torch.tanh(h))
    h = self.cell(x[:, t], h)
""",
        first="one",
        gives="joined, h",
        built="self.cell = nn.GRUCell(4, 5)",
    ),
    "name in between is given anew": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    outs.append(h[:, :4] + inp)
    inp = inp * 2
    h = self.cell(inp, h)
""",
        first="one",
        gives="joined, h",
        built="self.cell = nn.GRUCell(4, 5)",
    ),
    "passed on, read before": stack(
        """
for t in range(seq_len):
    outs.append(h)
    new = self.cell(x[:, t], h)
    h = new
""",
        first="one",
        gives="joined, h",
        built="self.cell = nn.GRUCell(4, 5)",
    ),
    "passed on, gate": stack(
        """
for t in range(seq_len):
    new = self.cell(x[:, t], h)
    g = torch.sigmoid(new)
    outs.append(g * new + (1 - g) * h)
    h = new
""",
        first="one",
        gives="joined, h",
        built="self.cell = nn.GRUCell(4, 5)",
    ),
    "cell state before": stack(
        """
for t in range(seq_len):
    outs.append(c)
    h, c = self.lcell(x[:, t], (h, c))
""",
        first="one",
        gives="joined, h",
        built="self.lcell = nn.LSTMCell(4, 5)",
    ),
    "two updates": stack(
        """
for t in range(seq_len):
    outs.append(h)
    h = self.cell(x[:, t], h)
    h = h * 2
""",
        first="one",
        gives="joined, h",
        built="self.cell = nn.GRUCell(4, 5)",
    ),
    "two cells": stack(
        """
g = torch.zeros(batch, 5)
for t in range(seq_len):
    outs.append(torch.cat((h, g), 1))
    h = self.cell(x[:, t], h)
    g = self.cell2(h, g)
""",
        first="one",
        gives="joined, h, g",
        built="""
self.cell = nn.GRUCell(4, 5)
self.cell2 = nn.GRUCell(5, 5)
""",
    ),
    "lower gets the upper of before": stack(
        """
g = torch.zeros(batch, 5)
for t in range(seq_len):
    h = self.cell(x[:, t] + g[:, :4], h)
    g = self.cell2(h, g)
    outs.append(g)
""",
        first="one",
        gives="joined, h, g",
        built="""
self.cell = nn.GRUCell(4, 5)
self.cell2 = nn.GRUCell(5, 5)
""",
    ),
    "pair": stack(
        """
s = (h, c)
for t in range(seq_len):
    outs.append(s[0])
    s = self.lcell(x[:, t], s)
""",
        first="one",
        gives="joined, s",
        built="self.lcell = nn.LSTMCell(4, 5)",
    ),
    "inner loop reads it": stack(
        """
for t in range(seq_len):
    y = h
    for lin in self.lins:
        y = torch.tanh(lin(y))
    outs.append(y)
    h = self.cell(x[:, t], h)
""",
        first="one",
        gives="joined, h",
        built="""
self.cell = nn.GRUCell(4, 5)
self.lins = nn.ModuleList([nn.Linear(5, 5) for _ in range(2)])
""",
    ),
    "both branches of a loop in it": stack(
        """
for t in range(seq_len):
    new = self.cell(x[:, t], h)
    y = new
    for k in range(2):
        if k == 0:
            y = y + h
        else:
            y = y - torch.tanh(h)
    h = new
    outs.append(y)
""",
        first="one",
        built="self.cell = nn.GRUCell(4, 5)",
        gives="joined, h",
    ),
}
