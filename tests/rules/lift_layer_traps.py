"""Loops over layers in a step, each with one trap."""

from __future__ import annotations

from tests.rules.lift_stacks import stack

LAYER_TRAPS = {
    "inp not reset": stack("""
inp = torch.zeros(batch, 4)
for t in range(seq_len):
    inp = inp[:, :4] + x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
"""),
    "inp wholly from before": stack(
        """
inp = x[:, 0]
for t in range(seq_len):
    for i in range(1, self.num_layers):
        h[i] = self.cells[i](inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        width=5,
    ),
    "shared cell": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.twice):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        width=5,
        built="""
one = nn.GRUCell(5, 5)
self.twice = nn.ModuleList([one, one])
""",
    ),
    "shared cell by product": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.twice):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        width=5,
        built="self.twice = nn.ModuleList([nn.GRUCell(5, 5)] * 2)",
    ),
    "no layers": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        layers=0,
    ),
    "norms": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, (cell, norm) in enumerate(zip(self.cells, self.norms)):
        h[i] = cell(inp, h[i])
        inp = norm(h[i])
    outs.append(inp)
""",
        built="self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(num_layers)])",
    ),
    "mlp of modules": stack(
        """
for t in range(seq_len):
    y = x[:, t]
    for layer in self.lins:
        y = torch.relu(layer(y))
    outs.append(y)
""",
        built="self.lins = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])",
    ),
    "inner loop over time too": stack("""
for t in range(seq_len):
    y = x[:, t]
    for k in range(t):
        y = y + x[:, k]
    outs.append(y)
"""),
    "cell renamed in the loop": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        cell = self.other if i else cell
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        built="self.other = nn.RNNCell(hidden, hidden)",
    ),
    "a cell without bias": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.mixed):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        built="self.mixed = nn.ModuleList([nn.GRUCell(4, 5), nn.GRUCell(5, 5, bias=False)])",
    ),
    "a cell exchanged": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        built="self.cells[1] = nn.RNNCell(hidden, hidden)",
    ),
    "skip to the input": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.wide):
        h[i] = cell(inp, h[i])
        inp = torch.cat((h[i], x[:, t]), 1)
    outs.append(inp)
""",
        built="self.wide = nn.ModuleList([nn.GRUCell(4 if i == 0 else 9, 5) for i in range(num_layers)])",
    ),
    "fib": stack("""
for t in range(seq_len):
    a = x[:, t]
    b = x[:, t] * 2
    for i in range(3):
        new = a + b
        a = b
        b = new
    outs.append(a - b)
"""),
    "number set in layers 2": stack("""
for t in range(seq_len):
    y = x[:, t]
    for k in range(2):
        s = 0.5 ** k
        y = y * s
    outs.append(y * s)
"""),
    "inner assigns a name used before": stack("""
last = torch.zeros(batch, 5)
for t in range(seq_len):
    inp = x[:, t] + last.sum()
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
        last = inp
    outs.append(inp)
"""),
    "set in layers, read after with a start": stack(
        """
last = torch.zeros(batch, 5)
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
        last = inp * 2
""",
        gives="last, inp",
    ),
    "losses": stack(
        """
loss = 0
for t in range(seq_len - 1):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    loss = loss + F.mse_loss(self.head(inp), x[:, t + 1])
""",
        gives="loss",
        built="self.head = nn.Linear(5, 4)",
    ),
    "attribute in the loop": stack(
        """
self.g = None
for t in range(seq_len):
    for k in range(2):
        out, self.g = self.gru(x[:, t:t+1], self.g)
    outs.append(out)
""",
        width=5,
        built="self.gru = nn.GRU(5, 5, batch_first=True)",
    ),
    "index changed": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i in range(self.num_layers - 1):
        i = i + 1
        h[i] = self.same[i](inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        width=5,
        built="self.same = nn.ModuleList([nn.GRUCell(5, 5) for _ in range(num_layers)])",
    ),
    "layers change their input alone": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i in range(self.num_layers):
        h[i] = self.same[i](inp, h[i])
        inp = inp * 2
    outs.append(h[-1])
""",
        width=5,
        built="self.same = nn.ModuleList([nn.GRUCell(5, 5) for _ in range(num_layers)])",
    ),
}
