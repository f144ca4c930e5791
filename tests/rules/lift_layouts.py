"""Operations of a random program that move, join or drop the axes of a step."""

from __future__ import annotations

from collections.abc import Callable

from tests.rules.lift_programs import Shape, Value, Writer


def moved(writer: Writer) -> None:
    """Axes change places."""
    value = writer.choose(writer.values)
    rank, shape, text = len(value.shape), value.shape, value.text
    if not rank:
        return
    one, other = writer.choose([*range(-rank, rank)]), writer.choose([*range(-rank, rank)])
    swapped = [*shape]
    swapped[one], swapped[other] = shape[other], shape[one]
    options: list[tuple[str, Shape]] = [
        (f"{text}.transpose({one}, {other})", tuple(swapped)),
        (f"torch.transpose({text}, {one}, dim1={other})", tuple(swapped)),
    ]
    made, new = writer.choose(options)
    writer.keep(Value(made, new, value.whole))


def picked(writer: Writer) -> None:
    """A part of an axis, or its numbers in another order."""
    if not (found := writer.floats(1)):
        return
    value = writer.choose(found)
    shape, text = value.shape, value.text
    axis = writer.choose([*range(-len(shape), len(shape))])
    at = axis % len(shape)
    front, size, back = shape[:at], shape[at], shape[at + 1 :]
    options: list[tuple[str, Shape]] = [
        (f"{text}.flip({axis})", shape),
        (f"torch.flip({text}, dims=[{axis}])", shape),
        (f"{text}.roll(1, {axis})", shape),
        (f"{text}.narrow({axis}, {size - 1}, 1)", (*front, 1, *back)),
        (f"{text}.select({axis}, {size - 1})", (*front, *back)),
        (f"{text}.max({axis})[0]", (*front, *back)),
        (f"torch.max({text}, dim={axis}, keepdim=True).values", (*front, 1, *back)),
        (f"{text}.topk(1, {axis})[0]", (*front, 1, *back)),
        (f"{text}.sort({axis}, True)[0]", shape),
        (f"{text}.squeeze({axis})", (*front, *back) if size == 1 else shape),
        (f"({text} + 1).norm(dim={axis})", (*front, *back)),
        (f"F.normalize({text} + 1, dim={axis})", shape),
        (f"{text}.sum(({axis},))", (*front, *back)),
        (f"{text}[..., -1]", shape[:-1]),
        (f"{text}[..., None]", (*shape, 1)),
        (f"{text}[:, None]", (shape[0], 1, *shape[1:])),
    ]
    made, new = writer.choose(options)
    writer.keep(Value(made, new))


def stacked(writer: Writer) -> None:
    """Values of one shape in a new axis."""
    if not (found := writer.floats()):
        return
    one = writer.choose(found)
    other = writer.choose([each for each in found if each.shape == one.shape])
    rank = len(one.shape)
    axis = writer.choose([*range(-rank - 1, rank + 1)])
    at = axis % (rank + 1)
    third = writer.argument("w", one.shape) if writer.choose([False, False, True]) else f"torch.zeros_like({one.text})"
    parts = [one.text, other.text, third][: writer.choose([2, 3])]
    shape = (*one.shape[:at], len(parts), *one.shape[at:])
    writer.keep(Value(f"torch.stack([{', '.join(parts)}], dim={axis})", shape))


def attended(writer: Writer) -> None:
    """Attention to a memory that is the same in every step."""
    if not (found := [each for each in writer.floats(2, 2) if each.shape[0] == writer.batch]):
        return
    query = writer.choose(found)
    memory = writer.argument("m", (writer.batch, 3, query.shape[1]))
    if writer.choose([True, False, False]):
        memory = f"{writer.module(f'nn.Linear({query.shape[1]}, {query.shape[1]})')}({memory})"
    scores, context = writer.name("a"), writer.name("a")
    forms = [
        f"torch.bmm({memory}, {query.text}.unsqueeze(2)).squeeze(2)",
        f"({query.text}.unsqueeze(1) @ {memory}.transpose(1, 2)).squeeze(1)",
        f"({query.text}.unsqueeze(1) * {memory}).sum(dim=2)",
    ]
    writer.body.append(f"{scores} = F.softmax({writer.choose(forms)}, dim=1)")
    writer.body.append(f"{context} = torch.bmm({scores}.unsqueeze(1), {memory}).squeeze(1)")
    writer.values += [Value(scores, (writer.batch, 3)), Value(context, query.shape)]


def chosen(writer: Writer) -> None:
    """One of two values, number by number."""
    if not (found := writer.floats()):
        return
    one = writer.choose(found)
    other = writer.choose([each for each in found if each.shape == one.shape])
    forms = ["torch.where({0} > {1}, {0}, {1})", "torch.where({0} > 0.5, {0}, {1} * 2)", "torch.lerp({0}, {1}, 0.3)"]
    writer.keep(Value(writer.choose(forms).format(one.text, other.text), one.shape))


def masked_loss(writer: Writer) -> None:
    """A loss of each number by itself, of which a mask leaves out some."""
    if not (found := writer.floats(1)):
        return
    one = writer.choose(found)
    others = [each for each in found if each.shape == one.shape]
    crit = writer.module('nn.MSELoss(reduction="none")')
    losses = ['F.mse_loss({}, {}, reduction="none")', crit + "({}, {})"]
    text = writer.choose(losses).format(one.text, writer.choose(others).text)
    mask = writer.choose(others).text
    writer.keep(Value(f"({text} * ({mask} > 0)).sum()", ()))


def asked(writer: Writer) -> None:
    """One of two values, by a test that each step asks."""
    if not (found := writer.floats()):
        return
    one = writer.choose(found)
    other = writer.choose([each for each in found if each.shape == one.shape])
    test, name = writer.name("f"), writer.name("v")
    writer.before.append(f"{test} = {writer.choose([True, False])}")
    forms = [
        "{0} = {1} * 2 if {3} else {2}",
        "if {3}:\n    {0} = {1} * 2\nelse:\n    {0} = {2}",
        "{0} = {2}\nif {3}:  # once\n    # more\n    {0} = {0} + 1",
    ]
    writer.body.append(writer.choose(forms).format(name, one.text, other.text, test))
    writer.values.append(Value(name, one.shape))


LAYOUTS: list[Callable[[Writer], None]] = [
    moved,
    picked,
    stacked,
    attended,
    chosen,
    asked,
    masked_loss,
]
