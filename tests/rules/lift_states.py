"""How a random program carries state from step to step, and how it keeps the results of its steps."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.rules.lift_programs import Value, Writer


def rnn(writer: Writer) -> None:
    """One step of an RNN."""
    choose, batch = writer.choose, writer.batch
    first = choose([True, False])
    value = _rnn_input(writer, first=first)
    if value is None:
        return
    kind, layers, width = choose(["LSTM", "GRU", "RNN"]), choose([1, 1, 2]), choose([2, 3])
    name = writer.module(f"nn.{kind}({value.shape[2]}, {width}, {layers}{', batch_first=True' if first else ''})")
    out, state = writer.name("o"), writer.name("h")
    apart = kind == "LSTM" and choose([True, False])
    target = f"({state}, {state}c)" if apart else state
    if apart:
        writer.before += [f"{each} = torch.zeros({layers}, {batch}, {width})" for each in (state, f"{state}c")]
    elif choose([True, False]):
        writer.before.append(f"{state} = None")
    else:
        start = writer.argument("h", (layers, batch, width))
        writer.before.append(f"{state} = ({start}, {start})" if kind == "LSTM" else f"{state} = {start}")
    writer.body.append(f"{out}, {target} = {name}({value.text}, {target})")
    writer.values.append(Value(out, (batch, 1, width) if first else (1, batch, width)))
    if choose([False, True]):
        return
    last = Value(f"{state}[{choose([0, -1])}]", (batch, width))
    if kind == "LSTM" and not apart:
        last = Value(f"{state}[{choose([0, 1, -1])}]", (layers, batch, width))
        if layers == 1 and choose([True, False]):
            last = Value(choose([f"{state}[0][-1]", f"{state}[0].squeeze(0)", f"{state}[1][0]"]), (batch, width))
    elif layers == 1:
        last = choose([last, Value(f"{state}.squeeze(0)", (batch, width)), Value(state, (1, batch, width))])
    writer.keep(last)


def _rnn_input(writer: Writer, *, first: bool) -> Value | None:
    """A batch of sequences of one step."""
    time, batch = (1, 0) if first else (0, 1)
    found = [each for each in writer.floats(3, 3) if each.shape[time] == 1 and each.shape[batch] == writer.batch]
    if found:
        return found[writer.choose([0, -1])]
    flat = [each for each in writer.floats(2, 2) if each.shape[0] == writer.batch]
    if not flat:
        return None
    value = writer.choose(flat)
    shape = (writer.batch, 1, value.shape[1]) if first else (1, *value.shape)
    return Value(f"{value.text}.unsqueeze({time})", shape)


def cell(writer: Writer) -> None:
    """One step of a Cell."""
    choose, batch = writer.choose, writer.batch
    if not (found := [each for each in writer.floats(2, 2) if each.shape[0] == batch]):
        return
    value, kind, width = choose(found), choose(["LSTMCell", "GRUCell", "RNNCell"]), choose([2, 3])
    name = writer.module(f"nn.{kind}({value.shape[1]}, {width}{choose(['', '', ', bias=False'])})")
    state = writer.name("h")
    states = [state, f"{state}c"] if kind == "LSTMCell" else [state]
    for each in states:
        start = choose([f"torch.zeros({batch}, {width})", "given"])
        writer.before.append(f"{each} = {writer.argument('h', (batch, width)) if start == 'given' else start}")
    target = ", ".join(states)
    writer.body.append(f"{target} = {name}({value.text}, {f'({target})' if len(states) > 1 else target})")
    writer.values.append(Value(choose([state, state, states[-1]]), (batch, width)))


_IN_PLACE = ["{0} *= 2", "{0}.relu_()", "F.relu({0}, inplace=True)", "{0}[:1] = 0"]


def listed(writer: Writer) -> None:
    """A list, which is joined after the loop, or read as it is."""
    choose, value, name = writer.choose, writer.choose(writer.values), writer.name("r")
    writer.before.append(f"{name} = []")
    writer.body.append(choose([f"{name}.append({value.text})", f"{name} += [{value.text}]"]))
    rank = len(value.shape)
    if value.whole or choose([True, False, False, False]):
        writer.results.append(name)
        return
    ways = [f"torch.stack({name}, {axis})" for axis in range(rank + 1)] + [f"torch.stack({name}, dim=-1)"]
    ways += [f"torch.cat({name}, dim={axis})" for axis in range(rank)]
    joined = writer.name("j")
    writer.behind.append(f"{joined} = {choose(ways)}")
    if choose([False, False, False, True]):
        writer.behind.append(f"{joined} = {joined} * {joined}")
    writer.behind += choose([[], [], *([form.format(joined)] for form in _IN_PLACE)])
    writer.results.append(joined)


def summed(writer: Writer) -> None:
    """A sum over the steps."""
    if not (found := writer.floats()):
        listed(writer)
        return
    value, name = writer.choose(found), writer.name("r")
    writer.before.append(f"{name} = {writer.choose(['0', '0.0', f'torch.zeros({value.shape})'])}")
    forms = ["{0} += {1}", "{0} = {0} + {1}", "{0} = {0} - {1}", "{0} += {1}\n{0} += {1} * 2"]
    writer.body.append(writer.choose(forms).format(name, value.text))
    writer.results.append(name)


def slotted(writer: Writer) -> None:
    """The slots of a tensor."""
    found = writer.floats()
    if not found or not any(re.search(r"\bt\b", each) for each in writer.body):
        listed(writer)
        return
    value, name = writer.choose(found), writer.name("r")
    axis = writer.choose([*range(len(value.shape) + 1)])
    shape = (*value.shape[:axis], writer.steps, *value.shape[axis:])
    writer.before.append(f"{name} = torch.zeros({shape})")
    writer.body.append(f"{name}[{':, ' * axis}t] = {value.text}")
    writer.results.append(name)


def growing(writer: Writer) -> None:
    """A tensor that grows."""
    if not (found := writer.floats()):
        listed(writer)
        return
    value, name = writer.choose(found), writer.name("r")
    axis = writer.choose([*range(len(value.shape))] or [0])
    shape, text = value.shape, value.text
    if not shape or writer.choose([True, True, False]):
        shape, text = (*shape[:axis], 1, *shape[axis:]), f"{text}.unsqueeze({axis})"
    writer.before.append(f"{name} = torch.zeros({(*shape[:axis], 0, *shape[axis + 1 :])})")
    writer.body.append(f"{name} = torch.cat([{name}, {text}], dim={axis})")
    writer.results.append(name)


def live_out(writer: Writer) -> None:
    """A name that is read after the loop."""
    if found := [each for each in writer.floats() if each.text.isidentifier()]:
        writer.results.append(writer.choose(found).text)
    else:
        listed(writer)


STATES: list[Callable[[Writer], None]] = [rnn, cell]
RESULTS: list[Callable[[Writer], None]] = [listed, listed, listed, summed, slotted, growing, live_out]
