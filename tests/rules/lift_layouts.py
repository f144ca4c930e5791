"""Tests and masks in a step of a random program."""

from __future__ import annotations

from collections.abc import Callable

from tests.rules.lift_programs import Value, Writer


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


LAYOUTS: list[Callable[[Writer], None]] = [asked, masked_loss]
