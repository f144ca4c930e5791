"""What a step of a random program may compute."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.rules.lift_programs import CLASSES, Shape, Value, Writer

_POINTWISE = [
    "torch.tanh({})", "{}.sigmoid()", "F.relu({})", "{} * 2", "1 - {}", "-{}", "{}.clamp(-1, 1)", "{} / 2 + 1",
    "{}.pow(2)", "{} ** 2", "F.gelu({})", "{}.clone()", "({} > 0).to(torch.get_default_dtype())", "{} - 0.5",
    "squashed({})", "{}.contiguous()",
]  # fmt: skip
_ALONG = [
    "softmax({})", "log_softmax(dim={})", "cumsum({})", "sum({})", "mean(dim={})", "logsumexp({})", "amax({})",
    "sum({}, keepdim=True)", "mean({}, True)",
]  # fmt: skip


def pointwise(writer: Writer) -> None:
    """An activation, or an operation with a constant."""
    if found := writer.floats():
        value = writer.choose(found)
        writer.keep(Value(writer.choose(_POINTWISE).format(value.text), value.shape))


def module(writer: Writer) -> None:
    """A module that works on the last axis, or on each number."""
    if not (found := writer.floats(1)):
        return
    value = writer.choose(found)
    size = value.shape[-1]
    out = writer.choose([3, 2, size])
    kinds = [(f"nn.Linear({size}, {out})", out), (f"nn.Linear({size}, {out}, bias=False)", out)]
    kinds += [(f"nn.LayerNorm({size})", size), ("nn.Tanh()", size), ("nn.ELU()", size), ("nn.Softmax(dim=-1)", size)]
    kinds += [(f"Block({size})", size), (f"nn.Sequential(nn.Linear({size}, {out}), nn.Tanh())", out)]
    built, last = writer.choose(kinds)
    writer.keep(Value(f"{writer.module(built)}({value.text})", (*value.shape[:-1], last)))


def embedding(writer: Writer) -> None:
    """Tokens become vectors."""
    if found := [each for each in writer.values if each.whole]:
        value, width = writer.choose(found), writer.choose([3, 2])
        name = writer.module(f"nn.Embedding({CLASSES}, {width})")
        writer.keep(Value(f"{name}({value.text})", (*value.shape, width)))


def along(writer: Writer) -> None:
    """A softmax, or a reduction, of an axis."""
    if not (found := writer.floats(1)):
        return
    value, form = writer.choose(found), writer.choose(_ALONG)
    rank, shape = len(value.shape), value.shape
    axis = writer.choose([*range(-rank, rank)])
    text = f"{value.text}.{form.format(axis)}"
    if form.startswith("sum") and writer.choose([True, False]):
        text = f"torch.{form.format(axis).replace('(', f'({value.text}, ', 1)}"
    axis %= rank
    kept = (1,) if "True" in form else ()
    if not any(word in form for word in ("softmax", "cumsum")):
        shape = (*shape[:axis], *kept, *shape[axis + 1 :])
    writer.keep(Value(text, shape))


def whole_reduction(writer: Writer) -> None:
    """One number of a step."""
    if found := writer.floats():
        writer.keep(Value(f"{writer.choose(found).text}.{writer.choose(['sum', 'mean'])}()", ()))


def with_invariant(writer: Writer) -> None:
    """Something that is the same in every step joins in."""
    if not (found := writer.floats()):
        return
    value = writer.choose(found)
    start = writer.choose([*range(len(value.shape) + 1)])
    shape = tuple(writer.choose([size, size, 1]) for size in value.shape[start:])
    if start == 0 and writer.choose([False, False, False, True]):
        shape = (2, *shape)
    name = writer.argument("w", shape)
    form = writer.choose(["{} * {}", "{} + {}", "torch.mul({}, {})", "{}.sub({})", "torch.maximum({}, {})"])
    texts = (value.text, name) if writer.choose([True, False]) else (name, value.text)
    if writer.choose([False, False, False, True]):
        form, texts = "scaled({}, {})", (value.text, name)
    writer.keep(Value(form.format(*texts), broadcast(value.shape, shape)))


def with_other(writer: Writer) -> None:
    """Two values of a step meet."""
    if not (found := writer.floats()):
        return
    one, other = writer.choose(found), writer.choose(found)
    if all(a == b or 1 in (a, b) for a, b in zip(reversed(one.shape), reversed(other.shape), strict=False)):
        form = writer.choose(["{} * {}", "{} + {}", "{} - {}", "torch.minimum({}, {})", "{}.add({})"])
        writer.keep(Value(form.format(one.text, other.text), broadcast(one.shape, other.shape)))


def product(writer: Writer) -> None:
    """A product with a matrix, or a batch of them, that is the same in every step."""
    if not (found := writer.floats(1)):
        return
    value = writer.choose(found)
    size, out = value.shape[-1], writer.choose([2, 3])
    if len(value.shape) == 1 and writer.choose([True, False]):
        other = writer.choose([writer.argument("w", (size,)), f"({value.text} + 1)"])
        writer.keep(Value(writer.choose(["torch.dot({}, {})", "{}.dot({})"]).format(value.text, other), ()))
        return
    batches = writer.choose([(), value.shape[:-2]])
    name = writer.argument("w", (*batches, size, out))
    forms = ["{} @ {}", "torch.matmul({}, {})", "{}.matmul({})"]
    forms += ["torch.bmm({}, {})", "{}.bmm({})"] if len(value.shape) == 3 and batches else []
    writer.keep(Value(writer.choose(forms).format(value.text, name), (*value.shape[:-1], out)))


def cat(writer: Writer) -> None:
    """Two values side by side."""
    if not (found := writer.floats(1)):
        return
    one, other = writer.choose(found), writer.choose(found)
    rank, shape = len(one.shape), one.shape
    axis = writer.choose([*range(-rank, rank)])
    at = axis % rank
    if writer.choose([False, False, True]):
        other = Value(writer.argument("w", shape), shape)
    if len(other.shape) != rank or other.shape[:at] != shape[:at] or other.shape[at + 1 :] != shape[at + 1 :]:
        return
    shape = (*shape[:at], shape[at] + other.shape[at], *shape[at + 1 :])
    listed = f"[{one.text}, {other.text}]" if writer.choose([True, False]) else f"({one.text}, {other.text})"
    where = writer.choose([f", {axis}", f", dim={axis}"]) if axis or writer.choose([True, False]) else ""
    writer.keep(Value(f"torch.cat({listed}{where})", shape))


def axes(writer: Writer) -> None:
    """An axis comes, goes, or is indexed."""
    value = writer.choose(writer.values)
    rank, shape, text = len(value.shape), value.shape, value.text
    new = writer.choose([*range(-rank - 1, rank + 1)])
    at = new % (rank + 1)
    options: list[tuple[str, Shape]] = [(f".unsqueeze({new})", (*shape[:at], 1, *shape[at:]))] * (rank + 1)
    for axis, size in enumerate(shape):
        front, others = ":, " * axis, (*shape[:axis], *shape[axis + 1 :])
        options.append((f"[{front}0]", others))
        options.append((f"[{front}-1:]", (*shape[:axis], 1, *shape[axis + 1 :])))
        if size == 1:
            options.append((f".squeeze({writer.choose([axis, axis - rank])})", others))
    if rank > 1:
        one, other = sorted(writer.choose([(one, two) for one in range(rank) for two in range(rank) if one != two]))
        swapped = [*shape]
        swapped[one], swapped[other] = shape[other], shape[one]
        options += [(f".transpose({one}, {other})", tuple(swapped)), (f".transpose({other}, {one})", tuple(swapped))]
    if rank:
        first, rest = shape[0], math.prod(shape[1:])
        options += [(f".reshape({first}, -1)", (first, rest)), (".reshape(-1)", (math.prod(shape),))]
        options += [(f".reshape(1, {first}, -1)", (1, first, rest)), (f".reshape({first}, 1, -1)", (first, 1, rest))]
    what, made = writer.choose(options)
    writer.keep(Value(f"{text}{what}", made, value.whole))


def late(writer: Writer) -> None:
    """What the step before was given: teacher forcing."""
    (value, first), name = writer.choose(writer.raw), writer.name("p")
    if value.text.isidentifier() and value not in writer.values:
        return  # the name stands for something else by now
    zeros = f"torch.zeros({value.shape}{', dtype=torch.long' if value.whole else ''})"
    writer.before.append(f"{name} = {writer.choose([first, first, f'{first} * 1', zeros])}")
    writer.values.append(Value(name, value.shape, value.whole))
    if writer.choose([True, True, False]):
        writer.last.insert(0, f"{name} = {value.text}")
    else:
        writer.keep(Value(f"{name} * 1", value.shape, value.whole))
        writer.body.append(f"{name} = {value.text}")


def loss(writer: Writer) -> None:
    """A loss of each step."""
    choose = writer.choose
    tokens = [each for each in writer.values if each.whole and each.shape == (writer.batch,)]
    logits = [each for each in writer.floats(2, 2) if each.shape[1] >= CLASSES and each.shape[0] == writer.batch]
    if tokens and logits and choose([True, True, False]):
        options = choose(["", ", ignore_index=0", ", reduction='sum'"])
        writer.keep(Value(f"F.cross_entropy({choose(logits).text}, {choose(tokens).text}{options})", ()))
        return
    if found := writer.floats():
        one = choose(found)
        others = [each for each in found if each.shape == one.shape]
        crit = choose(["F.mse_loss", "F.smooth_l1_loss", writer.module("nn.MSELoss()")])
        writer.keep(Value(f"{crit}({one.text}, {choose(others).text})", ()))


def broadcast(one: Shape, other: Shape) -> Shape:
    """The shape of what two shapes broadcast to."""
    rank = max(len(one), len(other))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    return tuple(b if a == 1 else a for a, b in pairs)


OPERATIONS: list[Callable[[Writer], None]] = [
    pointwise, module, module, embedding, along, whole_reduction, with_invariant, with_other, product, cat, axes, axes,
    late, loss,
]  # fmt: skip
