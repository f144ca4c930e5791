"""Small programs whose loops call functions, modules, or what shares memory with their steps, each with one trap."""

from __future__ import annotations

from tests.rules.lift_stacks import stack

CALL_TRAPS = {
    "slots may be the very memory that the steps are read from": """
def run():
    x = torch.arange(12.0).reshape(2, 6)
    slots = torch.as_tensor(x).to(x.dtype)
    rows, steps = slots.shape
    for t in range(1, 6):
        slots[:, t] = x[:, t - 1] + x[:, t]
    return slots
""",
    "a sum may begin as a view, in another type or not": """
def run():
    x = torch.arange(12.0).reshape(2, 6)
    total = x[:, 5].type(x.dtype)
    for t in range(6):
        total += x[:, t] * x[:, 5]
    return total
""",
    "a sum may begin as the very tensor that is read": """
def run():
    x = torch.arange(12.0).reshape(2, 6)
    total = torch.as_tensor(x[:, 5])
    for t in range(6):
        total += x[:, t] * x[:, 5]
    return total
""",
    "steps that were taken apart stay, whatever happens to the tensor": """
def run():
    x = torch.arange(12.0).reshape(2, 6)
    rows = x.unbind(1)
    x = x * 2
    outs = []
    for t in range(6):
        outs.append(rows[t] + x[:, t])
    return torch.stack(outs, 1)
""",
    "a module that writes to its input writes to the sequence": """
encoder = nn.Sequential(nn.ReLU(inplace=True), nn.Conv1d(2, 3, 2))
@torch.no_grad()
def run():
    x = torch.randn(4, 5, 2, 6)
    outs = []
    for t in range(4):
        outs.append(encoder(x[:, t]) + x[:, t + 1].mean())
    return torch.stack(outs, 1), x
""",
    "a tensor that is given by keyword broadcasts, too, as a bound": """
def run():
    x = torch.randn(2, 6, 3)
    lo = torch.zeros(2, 3)
    B, T, D = x.shape
    outs = []
    for t in range(T):
        outs.append(torch.clamp(x[:, t], min=lo))
    return torch.stack(outs, 1)
""",
    "a tensor that is given by keyword broadcasts, too": """
def run():
    x = torch.randn(2, 6, 3)
    lo = torch.randn(2, 3)
    B, T, D = x.shape
    outs = []
    for t in range(T):
        outs.append(torch.add(x[:, t], other=lo))
    return torch.stack(outs, 1)
""",
    "a local of a called function is no local of the caller": """
def first(v):
    return v + 100
def blend(one):
    first = one * 0.5
    return first + 1
def run():
    x = torch.randn(2, 6, 3)
    B, T, D = x.shape
    outs = []
    for t in range(T):
        outs.append(blend(x[:, t]))
    return first(torch.stack(outs, 1))
""",
    "a module may do more in its call than in its forward": """
class Base(nn.Module):
    def __call__(self, v):
        return super().__call__(v) * 2
class Block(Base):
    def forward(self, v):
        return v + 1
b = Block()
def run():
    x = torch.randn(2, 6, 3)
    B, T, D = x.shape
    outs = []
    for t in range(T):
        outs.append(b(x[:, t]))
    return torch.stack(outs, 1)
""",
    "a method reads the list that the loop fills": """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.outs = []
    def count(self, v):
        return v * len(self.outs)
    def forward(self, x):
        B, T, D = x.shape
        more = []
        for t in range(T):
            self.outs.append(x[:, t])
            more.append(self.count(x[:, t]))
        return torch.stack(more, 1)
def run():
    return M()(torch.randn(2, 6, 3))
""",
    "a function reads the list that the loop fills": """
more = []
def share(v):
    return v * len(more)
def run():
    x = torch.randn(2, 6, 3)
    B, T, D = x.shape
    outs = []
    for t in range(T):
        more.append(x[:, t])
        outs.append(share(x[:, t]))
    return torch.stack(outs, 1)
""",
    "each step has a head of its own": stack(
        """
t = 0
for t in range(seq_len):
    outs.append(self.heads[t](x[:, t]))
""",
        built="self.heads = nn.ModuleList([nn.Linear(4, 5) for _ in range(6)])",
    ),
    "each step has a sequence of modules of its own": stack(
        """
t = 0
for t in range(seq_len):
    outs.append(self.heads[t // 2](x[:, t]).relu())
""",
        built="self.heads = nn.ModuleList([nn.Sequential(nn.Linear(4, 5), nn.Tanh()) for _ in range(3)])",
    ),
    "each step has a Cell of its own": stack(
        """
state, t = torch.zeros(batch, 5), 0
for t in range(seq_len):
    state = self.steps[t](x[:, t], state)
    outs.append(state)
""",
        built="self.steps = nn.ModuleList([nn.GRUCell(4, 5) for _ in range(6)])",
    ),
    "each step has an RNN of its own": stack(
        """
state, t = torch.zeros(1, batch, 5), 0
for t in range(seq_len):
    out, state = self.steps[t](x[:, t : t + 1], state)
    outs.append(out.squeeze(1))
""",
        built="self.steps = nn.ModuleList([nn.GRU(4, 5, batch_first=True) for _ in range(6)])",
    ),
    "the last state is changed by way of another tensor": stack(
        """
state = torch.zeros(batch, 5)
for t in range(seq_len):
    state = self.cells[0](x[:, t], state)
    outs.append(state)
state.detach().add_(1)
""",
        gives="joined, state",
    ),
    "a part of the last state is changed": stack(
        """
state = torch.zeros(batch, 5)
for t in range(seq_len):
    state = self.cells[0](x[:, t], state)
    outs.append(state)
state.data[0] += 1
""",
        gives="joined, state",
    ),
    "two sequences are walked and counted, one of them from an axis of its own": """
def run():
    x = torch.randn(2, 5, 3)
    y = (x * 2).transpose(0, 1)
    outs = []
    for t, (a, b) in enumerate(zip(x.unbind(1), y)):
        outs.append(a - b + x[:, t] * y[t])
    return torch.stack(outs, 1)
""",
}
