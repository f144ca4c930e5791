"""The host reads a device tensor at a place that runs every step, and waits for it.

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


class SyncInLoop(Rule):
    group = "sync"
    triggers = ("torch",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for sync, fixes, blocked in remedies(program):
            if sync.kind != "item":
                yield self.finding((sync.start, sync.end), _MESSAGE, kind=sync.kind, fixes=fixes, blocked=blocked)
