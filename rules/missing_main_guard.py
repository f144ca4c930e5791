"""Processes are started while the module is being imported, with no main guard around it.

## What it does

Reports the first statement at module level that iterates over a `DataLoader` which has workers, or may have, or
starts processes in another way (`multiprocessing`, `torch.multiprocessing.spawn`, a process pool), itself or through
the functions that it calls, in other files of the run too, and is not under `if __name__ == "__main__":`, or another
test of `__name__`. It is reported once a file. Building a loader starts nothing; iterating over it does.

*certain*: the program contains the number of workers. *possible*: it comes from the command line, from a
configuration or from a caller; or the script passes its loaders, or a number of workers, to a function called
`train...` or `fit...` in another file.

Left alone: loaders without workers, `subprocess`, notebooks, modules that import their siblings relatively (they
cannot be run as scripts), and programs that ask for the start method `fork`.

## Why it is slow

It is not slow, it breaks. On Windows and macOS, and on Linux from Python 3.14, a worker is a fresh interpreter that
first imports the script again. Without a guard it runs the same statement there, and the program ends with
`RuntimeError: An attempt has been made to start a new process before the current process has finished its
bootstrapping phase`. Scripts like that stay at `num_workers=0`, where the GPU waits for every batch.

## Example

```python
loader = DataLoader(Photos("train"), batch_size=64, num_workers=8)

for images, labels in loader:
    train_step(images, labels)
```

## Use instead

```python
if __name__ == "__main__":
    loader = DataLoader(Photos("train"), batch_size=64, num_workers=8)

    for images, labels in loader:
        train_step(images, labels)
```

## Fix safety

`exact`. From the reported statement on, what runs moves under the guard, in the same order and as it is written, not
into a function, so that globals stay globals. So does what is made or printed above it, up to the last definition,
import, parsed argument or setting of a library, unless a definition uses it: a spawned worker would load the data and
make the model again, and hold memory of the device for it. Functions and classes stay at module level, with the imports
that they use and the constants that code in workers uses; one that stands in the midst of moved statements divides the
guard into two. There is no fix where a definition, or code that may run in workers, uses what would move. It assumes
that no other file imports results from a script: what moves is no longer there for it.

## Measured

Not a matter of speed. The tests run programs before and after the fix under the start method `spawn`, with real
workers.
"""

from __future__ import annotations

from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Fix, Likelihood, Options, Program, Rule, Safety, Severity


class MissingMainGuard(Rule):
    group = "data"
    severity = Severity.ERROR

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        if api.is_notebook(program):
            return
        start = api.first_process_start(program)
        if start is None:
            return
        guarding = api.add_guard(program, start.top)
        kind = "certain" if start.likelihood is Likelihood.CERTAIN else "possible"
        message = (
            f"{start.what} while the module is imported: without a main guard, a spawned worker does it again and fails"
        )
        change = api.rewrite(program, *guarding.operations)
        fix = Fix("move what runs under a main guard", Safety.EXACT, change)
        yield self.finding(
            api.head_span(program, start.statement),
            message,
            kind=kind,
            fixes=() if guarding.blocked else (fix,),
            blocked=guarding.blocked,
        )
