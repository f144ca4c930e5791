"""Random programs with one loop over time: what is walked, what a step computes, and how its results are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Choose = Callable[[Sequence[Any]], Any]
Shape = tuple[int, ...]

CLASSES = 3  # tokens are smaller


@dataclass(frozen=True)
class Value:
    """An expression of the loop's body, and the shape of what it gives; `whole`: whole numbers."""

    text: str
    shape: Shape
    whole: bool = False


@dataclass(frozen=True)
class Given:
    """An argument whose steps stand along `axis`."""

    name: str
    axis: int
    step: Shape
    whole: bool


@dataclass
class Writer:
    """A program in the making; `choose` draws from a list."""

    choose: Choose
    batch: int
    steps: int
    width: int
    arguments: dict[str, tuple[Shape, bool]] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)  # right before the loop, in an outer one too
    body: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)  # the end of the body
    behind: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    raw: list[tuple[Value, str]] = field(default_factory=list)  # steps of what is given, and the first of all
    names: int = 0

    def name(self, stem: str) -> str:
        """A new name."""
        self.names += 1
        return f"{stem}{self.names}"

    def argument(self, stem: str, shape: Shape, *, whole: bool = False) -> str:
        """A new argument of this shape, which the program tells as a rule."""
        name = self.name(stem)
        self.arguments[name] = (shape, whole)
        if shape and self.choose([True, True, True, True, False]):
            self.before.append(f"{''.join(f'{name}_{axis}, ' for axis in range(len(shape)))} = {name}.shape")
        return name

    def module(self, built: str) -> str:
        """How a new module is called."""
        name = self.name("m")
        self.modules.append(f"self.{name} = {built}")
        return f"self.{name}"

    def keep(self, value: Value) -> None:
        """Give the value a name, as a rule; else it is written where it is read."""
        form = self.choose(["name", "name", "name", "expression", "lines", "again"])
        if form == "expression":
            self.values.append(Value(f"({value.text})", value.shape, value.whole))
            return
        name = self.name("v")
        if form == "again" and (old := [each.text for each in self.values if re.fullmatch(r"v\d+", each.text)]):
            name = self.choose(old)
            self.values = [each for each in self.values if not re.search(rf"\b{name}\b", each.text)]
        self.body.append(f"{name} = (\n    {value.text}\n)" if form == "lines" else f"{name} = {value.text}")
        self.values.append(Value(name, value.shape, value.whole))

    def floats(self, least: int = 0, most: int = 9) -> list[Value]:
        """The values so far with so many axes that are no whole numbers."""
        return [each for each in self.values if not each.whole and least <= len(each.shape) <= most]


def program(
    choose: Choose, operations: Sequence[Callable[[Writer], None]], results: Sequence[Callable[[Writer], None]]
) -> str:
    """A program whose `run` gives what the model computes, and every gradient."""
    writer = Writer(choose, choose([2, 3, 1]), choose([3, 2, 4, 1]), choose([3, 2, 4, 1]))
    head = _head(writer)
    for _ in range(choose([1, 2, 3, 4, 5, 6])):
        if writer.values:
            choose(operations)(writer)
    for _ in range(choose([1, 2])):
        choose(results)(writer)
    return _written(writer, head, outer=choose([False, False, False, True]))


def _givens(writer: Writer) -> list[Given]:
    choose, batch, width = writer.choose, writer.batch, writer.width
    found = []
    for _ in range(choose([1, 2, 3])):
        whole = choose([False, False, False, True])
        vectors = [(batch, width), (batch, width), (batch, 2, width), (batch,), (batch, 1), ()]
        step = choose([(batch,), (batch, 1)] if whole else vectors)
        axis = choose([0, 1]) if step else 0
        name = writer.argument("x", (*step[:axis], writer.steps, *step[axis:]), whole=whole)
        found.append(Given(name, axis, step, whole))
    return found


def _head(writer: Writer) -> str:
    """The loop's head; the first values are those that it gives, or that the body reads by number."""
    givens = _givens(writer)
    form = writer.choose(["range", "range", "range", "range", "walk", "walk", "enumerate", "zip"])
    if form == "range":
        return _counted(writer, givens)
    if form == "zip":
        givens = [givens[0], writer.choose([*givens, givens[0]])]
        walked = [_walk(writer, each) for each in givens]
        return f"for {', '.join(name for name, _ in walked)} in zip({', '.join(text for _, text in walked)}):"
    name, text = _walk(writer, givens[0])
    if form == "walk":
        return f"for {name} in {text}:"
    for each in givens[1:]:
        _read(writer, each, "t")
    return f"for t, {name} in enumerate({text}):"


def _walk(writer: Writer, given: Given) -> tuple[str, str]:
    """The name of a step, and what is walked."""
    choose, name, axis = writer.choose, writer.name("s"), given.axis
    forms = [f"{{}}.unbind({axis})", f"{{}}.split(1, dim={axis})", f"torch.split({{}}, 1, {axis})"]
    forms += [f"{{}}.unbind(dim={axis})", "{}" if axis == 0 else "{}.transpose(0, 1)"]
    form = choose(forms)
    base = given.name if given.whole else choose([given.name, given.name, f"({given.name} + 1)"])
    step = (*given.step[:axis], 1, *given.step[axis:]) if "split" in form else given.step
    writer.values.append(Value(name, step, given.whole))
    writer.raw.append((writer.values[-1], f"{given.name}[{':, ' * axis}{':1' if 'split' in form else '0'}]"))
    return name, form.format(base)


def _counted(writer: Writer, givens: list[Given]) -> str:
    choose, first, steps = writer.choose, givens[0], writer.steps
    size = choose([f"{first.name}.size({first.axis})", f"{first.name}.shape[{first.axis}]", str(steps), "steps"])
    if size == "steps":
        writer.before.append(f"steps = {first.name}.size({first.axis})")
    way = choose(["all", "all", "from one", "early"]) if steps > 1 else "all"
    counters = {"all": ["t"], "from one": ["t", "t - 1"], "early": ["t", "t + 1"]}[way]
    for each in [*givens, *choose([[], [], [first]])]:
        _read(writer, each, choose(counters))
    end = f"{size} - 1" if way == "early" else size
    return f"for t in range({'1, ' if way == 'from one' else ''}{end}):"


def _read(writer: Writer, given: Given, counter: str) -> None:
    """A step by number."""
    axis, step, front = given.axis, given.step, ":, " * given.axis
    stop = {"t": "t + 1", "t - 1": "t", "t + 1": "t + 2"}[counter]
    forms = [(f"{front}{counter}", step)] * 3
    forms.append((f"{front}{counter} : {stop}", (*step[:axis], 1, *step[axis:])))
    if len(step) > axis:
        forms.append((f"{front}{counter}, 0", (*step[:axis], *step[axis + 1 :])))
        forms.append((f"{front}{counter}, :1", (*step[:axis], 1, *step[axis + 1 :])))
    text, shape = writer.choose(forms)
    read = f"{given.name}[{text}]"
    if text == f"{front}{counter}" and writer.choose([True, False, False, False]):
        read = f"{given.name}.select({axis}, {counter})"
    value = Value(read, shape, given.whole)
    first = re.sub(r"\bt( [-+] 1)?", "0", text) if " : " not in text else f"{front}:1"
    writer.raw.append((value, f"{given.name}[{first}]"))
    writer.keep(value)


def _written(writer: Writer, head: str, *, outer: bool) -> str:
    body = "\n".join([*writer.body, *writer.last] or ["pass"])
    loop = "\n".join([*writer.start, f"{head}\n{_indented(body)}"])
    if outer:
        loop = f"for again in range(2):\n{_indented(loop)}"
    forward = "\n".join([*writer.before, loop, *writer.behind, f"return {', '.join(writer.results)},"])
    arguments = ", ".join(f"{name}: torch.Tensor" for name in writer.arguments)
    init = "\n".join(["super().__init__()", *writer.modules])
    return _PROGRAM.format(
        init=_indented(init, 8), arguments=arguments, forward=_indented(forward, 8), shapes=repr(writer.arguments)
    )


def _indented(text: str, blanks: int = 4) -> str:
    return "\n".join(" " * blanks + line for line in text.split("\n"))


_PROGRAM = """import torch
import torch.nn.functional as F
from torch import nn


def squashed(v):
    v = torch.tanh(v)
    twice = v * 2
    return twice - v * v


def scaled(v, w1):
    w1 = torch.sigmoid(w1)
    return v * w1


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = nn.Linear(size, size)

    def forward(self, v):
        inner = self.inner(v)
        return inner + torch.relu(v)


class Model(nn.Module):
    def __init__(self):
{init}

    def forward(self, {arguments}):
{forward}


SHAPES = {shapes}


def run():
    torch.manual_seed(0)
    model = Model()
    given = [
        torch.randint(0, 3, shape) if whole else torch.randn(shape, requires_grad=True)
        for shape, whole in SHAPES.values()
    ]
    leaves = [each for each in given if each.is_floating_point()] + list(model.parameters())
    results = [part for each in model(*given) for part in (each if isinstance(each, list) else [each])]
    loss = sum((each * torch.randn(each.shape)).sum() for each in results)
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        loss.backward()
    return [*results, *(each.grad for each in leaves)]
"""
