"""A tensor is written out several times although what reads it would broadcast, or would take a view.

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

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.program.consumers import Flow
from perflint.program.shapes import Shapes
from perflint.rule import Finding, Options, Rule
from perflint.rules.repeat_not_broadcast.copies import recognise
from perflint.rules.repeat_not_broadcast.patch import Patch, patch
from perflint.rules.repeat_not_broadcast.proof import proved
from perflint.rules.repeat_not_broadcast.verdict import is_one_time, is_worth_it, kind_of, source_changes

if TYPE_CHECKING:
    from perflint.program import Program


class RepeatNotBroadcast(Rule):
    """See the module's page."""

    group = "memory"
    triggers = (".repeat", "repeat_interleave", "tile(", ".expand", ".cat(", ".stack(", "concat")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield the copies that nothing needs."""
        flow = Flow(program)
        shapes = Shapes(program, flow)
        for call in program.of_type(ast.Call):
            copy = recognise(program, flow, call)
            if copy is None or is_one_time(program, call):
                continue
            reading = flow.reading(call)
            if reading is None or not reading.consumers:
                continue
            repeated = proved(program, shapes, copy, reading)
            if repeated is None or not is_worth_it(program, shapes, copy, reading) or source_changes(program, flow, copy, reading):
                continue
            kind = kind_of(program, reading)
            result: Patch = patch(program, shapes, flow, copy, reading, repeated)
            yield self.finding(_span(program, call), _MESSAGES[kind], kind=kind, fixes=result.fixes, blocked=result.blocked)


_MESSAGES = {
    "broadcast": "a copy is made for operations that broadcast by themselves",
    "expand": "a copy is made although everything that reads it takes a view",
}


def _span(program: Program, call: ast.Call) -> tuple[int, int]:
    """From the method's name, or the function's, to the end of the call."""
    end = program.span(call)[1]
    if isinstance(call.func, ast.Attribute) and not program.qualified(call.func):
        return program.span(call.func)[1] - len(call.func.attr), end
    return program.span(call)[0], end
