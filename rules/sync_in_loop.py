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
from perflint.program.hot_syncs import hot_syncs
from perflint.rule import Finding, Options, Rule
if TYPE_CHECKING:
    from perflint.program import Program


class SyncInLoop(Rule):
    group = "sync"
    triggers = ("torch",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for sync in hot_syncs(program):
            if sync.kind != "item":
                yield self.finding((sync.start, sync.end), "x", kind=sync.kind, blocked="x")
