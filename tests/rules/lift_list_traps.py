"""Stacks of Cells whose states are kept in lists, each with one trap."""

from __future__ import annotations

from tests.rules.lift_stacks import stack

LIST_TRAPS = {
    "aliased lists": stack(
        """
h = c = [torch.zeros(batch, self.hidden) for _ in range(self.num_layers)]
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i], c[i] = cell(inp, (h[i], c[i]))
        inp = h[i]
    outs.append(inp)
""",
        cell="LSTMCell",
    ),
    "aliased elements": stack(
        """
z = torch.zeros(batch, self.hidden)
h = [z] * self.num_layers
c = [z] * self.num_layers
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i], c[i] = cell(inp, (h[i], c[i]))
        inp = h[i]
    outs.append(h[-1])
""",
        cell="LSTMCell",
        gives="joined, h, c",
    ),
    "twice over one list": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    for i, cell in enumerate(self.more):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        built="self.more = nn.ModuleList([nn.GRUCell(hidden, hidden) for i in range(num_layers)])",
    ),
    "two stacks": stack(
        """
g = [torch.zeros(batch, self.hidden) for _ in self.more]
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    for i, cell in enumerate(self.more):
        g[i] = cell(inp, g[i])
        inp = g[i]
    outs.append(inp + h[-1])
""",
        built="self.more = nn.ModuleList([nn.GRUCell(hidden, hidden) for i in range(num_layers)])",
    ),
    "none for some": stack("""
h = [torch.zeros(batch, self.hidden), None, None]
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
"""),
    "swapped": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        c[i], h[i] = cell(inp, (h[i], c[i]))
        inp = h[i]
    outs.append(inp)
""",
        cell="LSTMCell",
    ),
    "longer list": stack("""
h = [torch.zeros(batch, self.hidden) for _ in range(self.num_layers + 1)]
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(h[-1] + inp)
"""),
    "captured list": stack(
        """
show = lambda: h
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        gives="joined, show()",
    ),
    "enumerate from one": stack("""
h = [torch.zeros(batch, self.hidden) for _ in range(self.num_layers + 1)]
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells, 1):
        h[i] = cell(inp, h[i])
        inp = h[i]
    outs.append(inp + h[0])
"""),
    "appended sometimes": stack("""
for t in range(seq_len):
    inp = x[:, t]
    new = []
    for i, cell in enumerate(self.cells):
        inp = cell(inp, h[i])
        if i > 0:
            new.append(inp)
        else:
            new.append(h[i])
    h = new
    outs.append(inp)
"""),
    "pairs unpacked": stack(
        """
states = [(torch.zeros(batch, self.hidden), torch.zeros(batch, self.hidden)) for _ in self.cells]
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h, c = states[i]
        h, c = cell(inp, (h, c))
        states[i] = (h, c)
        inp = h
    outs.append(inp)
""",
        cell="LSTMCell",
        gives="joined, states",
    ),
    "pairs as lists, all one": stack(
        """
states = [[torch.zeros(batch, self.hidden), torch.zeros(batch, self.hidden)]] * self.num_layers
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        states[i][0], states[i][1] = cell(inp, (states[i][0], states[i][1]))
        inp = states[i][0]
    outs.append(inp)
""",
        cell="LSTMCell",
        gives="joined, states",
    ),
    "pairs, state": stack(
        """
states = [(torch.zeros(batch, self.hidden), torch.zeros(batch, self.hidden)) for _ in self.cells]
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        states[i] = cell(inp, states[i])
        inp, _ = states[i]
    outs.append(states[-1][0])
""",
        cell="LSTMCell",
        gives="joined, states",
    ),
    "tensor of layers": stack(
        """
h = torch.zeros(self.num_layers, batch, self.hidden)
for t in range(seq_len):
    inp = x[:, t]
    new = []
    for i, cell in enumerate(self.cells):
        inp = cell(inp, h[i])
        new.append(inp)
    h = torch.stack(new)
    outs.append(inp)
""",
        gives="joined, h",
    ),
    "last layer read after": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i] = cell(inp, h[i])
        inp = h[i]
""",
        gives="inp, h[-1], h[0]",
    ),
    "list by append": stack(
        """
h = []
c = []
for _ in range(self.num_layers):
    h.append(torch.zeros(batch, self.hidden))
    c.append(torch.zeros(batch, self.hidden))
for t in range(seq_len):
    inp = x[:, t]
    for i, cell in enumerate(self.cells):
        h[i], c[i] = cell(inp, (h[i], c[i]))
        inp = h[i]
    outs.append(inp)
""",
        cell="LSTMCell",
    ),
    "slot 0 twice": stack(
        """
for t in range(seq_len):
    h[0] = self.cells[0](x[:, t], h[0])
    inp = h[0]
    for i in range(self.num_layers):
        h[i] = self.same[i](inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        width=5,
        built="self.same = nn.ModuleList([nn.GRUCell(5, 5) for _ in range(num_layers)])",
    ),
    "constant slot in the loop": stack(
        """
for t in range(seq_len):
    for k in range(2):
        h[0] = self.same[0](x[:, t], h[0])
    outs.append(h[0])
""",
        width=5,
        built="self.same = nn.ModuleList([nn.GRUCell(5, 5) for _ in range(num_layers)])",
    ),
    "two cells of a layer": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i in range(self.num_layers):
        h[i] = self.same[i](inp, h[i])
        h[i] = self.same[i](inp, h[i])
        inp = h[i]
    outs.append(inp)
""",
        width=5,
        built="self.same = nn.ModuleList([nn.GRUCell(5, 5) for _ in range(num_layers)])",
    ),
    "other slot of a layer": stack(
        """
for t in range(seq_len):
    inp = x[:, t]
    for i in range(self.num_layers):
        h[i] = self.same[i](inp, h[self.num_layers - 1 - i])
        inp = h[i]
    outs.append(inp)
""",
        width=5,
        built="self.same = nn.ModuleList([nn.GRUCell(5, 5) for _ in range(num_layers)])",
    ),
}
