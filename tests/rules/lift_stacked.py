"""How a random program steps through a stack of Cells."""

from __future__ import annotations

from collections.abc import Callable

from tests.rules.lift_programs import Value, Writer


def stacked(writer: Writer) -> None:
    """One step of a stack, whose states are items of lists, or pairs."""
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
    form = choose(["items", "pairs"] if is_pair else ["items"])
    writer.before.append(f"{h} = [{f'({zeros}, {zeros})' if form == 'pairs' else zeros} for _ in range({count})]")
    if is_pair and form != "pairs":
        writer.before.append(f"{c} = [{zeros}] * {count}")
    state = f"({h}[{i}], {c}[{i}])" if is_pair and form != "pairs" else f"{h}[{i}]"
    if form == "pairs":
        layer = choose([
            f"{h}[{i}] = {call}({step}, {state})\n{step} = {h}[{i}][0]",
            f"a, b = {state}\na, b = {call}({step}, (a, b))\n{h}[{i}] = (a, b)\n{step} = a",
        ])  # fmt: skip
    else:
        layer = f"{f'{h}[{i}], {c}[{i}]' if is_pair else f'{h}[{i}]'} = {call}({step}, {state})\n{step} = {h}[{i}]"
    layer += choose(["", f"\n{step} = torch.tanh({step})"])
    indented = layer.replace("\n", "\n    ")
    writer.body.append(f"{step} = {value.text}\nfor {head}:\n    {indented}")
    writer.values.append(Value(step, (batch, width)))
    if form != "pairs" and choose([True, False]):
        writer.results.append(h)


STACKED: list[Callable[[Writer], None]] = [stacked]
