"""Programs that step through a stack of Cells, of which only the body of `forward` differs."""

from __future__ import annotations

from textwrap import indent

_FIRST = {
    "lists": """
h = [torch.zeros(batch, self.hidden) for _ in range(self.num_layers)]
c = [torch.zeros(batch, self.hidden) for _ in range(self.num_layers)]
""",
    "one": """
h = torch.zeros(batch, self.hidden)
c = torch.zeros(batch, self.hidden)
""",
}
_RUN = """
def run():
    model = Stack()
    x = torch.randn(3, 6, model.width, requires_grad=True)
    found = model(x)
    parts = [*found] if isinstance(found, tuple) else [found]
    leaves = [each for part in parts for each in (part if isinstance(part, list) else [part])]
    tensors = [each for part in leaves for each in (part if isinstance(part, tuple) else [part])]
    sum((each * torch.arange(each.numel()).reshape(each.shape)).sum() for each in tensors).backward()
    return [len(leaves), *tensors, x.grad, *(each.grad for each in model.parameters())]
"""


def stack(
    body: str,
    *,
    cell: str = "GRUCell",
    width: int = 4,
    layers: int = 3,
    first: str = "lists",
    built: str = "",
    gives: str = "joined",
) -> str:
    """A program whose model is built with more than Cells, and gives back more than the stacked `outs`."""
    lines = [*_FIRST[first].strip().splitlines(), "outs = []", *body.strip().splitlines()]
    if "joined" in gives:
        lines.append("joined = torch.stack(outs, 1)")
    return f"""
class Stack(nn.Module):
    def __init__(self, width={width}, hidden=5, num_layers={layers}):
        super().__init__()
        self.width = width
        self.hidden = hidden
        self.num_layers = num_layers
        self.cells = nn.ModuleList([nn.{cell}(width if i == 0 else hidden, hidden) for i in range(num_layers)])
        self.drop = nn.Dropout(0.0)
{indent(built.strip(), " " * 8)}

    def forward(self, x):
        batch, seq_len, width = x.shape
{indent(chr(10).join(lines), " " * 8)}
        return {gives}

{_RUN}"""
