"""A `# perflint: ignore` comment that ignores nothing.

## What it does
Reports a suppression comment, or a name in one, that no finding of this run needed; and one that names a rule which
does not exist, or that perflint cannot read. Rules that are not selected in the run are not counted; and a comment is
left alone where other files could bring about what it ignores, as by calling its function in their training loop.

## Why it is slow
It is not. But a comment that outlives its reason hides the next defect on that line, and a misspelt one hides nothing.

## Example
```python
loss = criterion(output, target)  # perflint: ignore[sync] logged every step
```

## Use instead
```python
loss = criterion(output, target)
```

## Fix safety
`exact`: only a comment changes. A name that is unknown is left for its author to correct.

## Measured
Nothing to measure: comments cost nothing at run time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.engine.rule import Finding, Options, Rule

if TYPE_CHECKING:
    from perflint.analysis.program import Program


class UnusedIgnore(Rule):
    """Finds nothing by itself: whether a comment is used is known once the other rules are done (see `suppress`)."""

    group = "measure"
    triggers = ("perflint:",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        return iter(())
