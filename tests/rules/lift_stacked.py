"""How a random program steps through a stack of Cells, and reads a Cell's state before it is replaced."""

from __future__ import annotations

from collections.abc import Callable

from tests.rules.lift_programs import Value, Writer


def stacked(writer: Writer) -> None:
    """One step of a stack, whose states are items of lists, pairs, or new lists in each step."""
    choose, batch = writer.choose, writer.batch
    if not (found := [each for each in writer.floats(2, 2) if each.shape[0] == batch]):
        return
    value, kind, width, count = (
        choose(found),
        choose(["GRUCell", "LSTMCell", "RNNCell"]),
        choose([2, 3]),
        choose([1, 3]),
    )
    size = f"{value.shape[1]} if i == 0 else {width}, {width}"
    name = writer.module(f"nn.ModuleList([nn.{kind}({size}) for i in range({count})])")
    h, c, step, i, cell = (writer.name(each) for each in ("h", "c", "s", "i", "k"))
    head, call = choose([(f"{i}, {cell} in enumerate({name})", cell), (f"{i} in range({count})", f"{name}[{i}]")])
    zeros, is_pair = f"torch.zeros({batch}, {width})", kind == "LSTMCell"
    form = choose(["items", "new", "pairs"] if is_pair else ["items", "new"])
    writer.before.append(f"{h} = [{f'({zeros}, {zeros})' if form == 'pairs' else zeros} for _ in range({count})]")
    if is_pair and form != "pairs":
        writer.before.append(f"{c} = [{zeros}] * {count}")
    state = f"({h}[{i}], {c}[{i}])" if is_pair and form != "pairs" else f"{h}[{i}]"
    front, behind = "", ""
    if form == "pairs":
        layer = choose([
            f"{h}[{i}] = {call}({step}, {state})\n{step} = {h}[{i}][0]",
            f"a, b = {state}\na, b = {call}({step}, (a, b))\n{h}[{i}] = (a, b)\n{step} = a",
        ])  # fmt: skip
    elif form == "items":
        layer = f"{f'{h}[{i}], {c}[{i}]' if is_pair else f'{h}[{i}]'} = {call}({step}, {state})\n{step} = {h}[{i}]"
    else:
        front, behind = ("n, m = [], []\n", f"\n{h}, {c} = n, m") if is_pair else ("n = []\n", f"\n{h} = n")
        kept = "n.append(a)\nm.append(b)" if is_pair else "n.append(a)"
        layer = f"{'a, b' if is_pair else 'a'} = {call}({step}, {state})\n{kept}\n{step} = a"
    layer += choose(["", f"\n{step} = torch.tanh({step})", f"\nif {i} < {count - 1}:\n    {step} = {step} * 2"])
    indented = layer.replace("\n", "\n    ")
    writer.body.append(f"{step} = {value.text}\n{front}for {head}:\n    {indented}{behind}")
    top = f"{h}[-1][0]" if form == "pairs" else f"{h}[-1]"
    writer.values.append(Value(choose([step, top]), (batch, width)))
    if form != "pairs" and choose([True, False]):
        writer.results.append(h)


def late(writer: Writer) -> None:
    """A state that is read before, or beside, the one that takes its place."""
    choose, batch = writer.choose, writer.batch
    if writer.steps < 3 or not (found := [each for each in writer.floats(2, 2) if each.shape[0] == batch]):
        return
    value, kind, width = choose(found), choose(["GRUCell", "LSTMCell"]), choose([2, 3])
    name = writer.module(f"nn.{kind}({value.shape[1]}, {width})")
    h, y, n = writer.name("h"), writer.name("y"), writer.name("n")
    is_pair = kind == "LSTMCell"
    writer.before.append(f"{h} = {writer.argument('h', (batch, width))}")
    writer.before += [f"{h}c = torch.zeros({batch}, {width})"] if is_pair else []
    old, new = (f"({h}, {h}c)", f"{n}, {n}c") if is_pair else (h, n)
    if choose([True, False]):
        writer.body.append(f"{y} = {choose([f'torch.tanh({h})', h])}\n{old} = {name}({value.text}, {old})")
    else:
        writer.body.append(f"{new} = {name}({value.text}, {old})\n{y} = {n} - {h}\n{old} = {new}")
    writer.values += [Value(y, (batch, width)), Value(h, (batch, width))]


STACKED: list[Callable[[Writer], None]] = [stacked, late]
