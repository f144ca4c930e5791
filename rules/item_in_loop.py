"""`.item()` at a place that runs every step makes the host wait for the device.

## What it does

Draft.

## Why it is slow

Draft.

## Example

Draft.

## Use instead

Draft.

## Fix safety

Draft.

## Measured

not measured yet
"""
from __future__ import annotations
from collections.abc import Iterator
from typing import TYPE_CHECKING
from perflint.remedy import remedies
from perflint.rule import Finding, Options, Rule
if TYPE_CHECKING:
    from perflint.program import Program

_MESSAGE = "the host waits here for the device, every step"


class ItemInLoop(Rule):
    group = "sync"
    triggers = (".item",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for sync, fixes, blocked in remedies(program):
            if sync.kind == "item":
                yield self.finding((sync.start, sync.end), _MESSAGE, kind=sync.kind, fixes=fixes, blocked=blocked)
