"""Rules for the tests of the engine, which is to work whatever the rules are."""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import ClassVar

from perflint.analysis.program import Program
from perflint.engine.rule import Edit, Finding, Fix, Option, Options, Rule, Safety


class Eval(Rule):
    """Reports calls of eval, and offers to call literal_eval."""

    group = "compute"
    triggers = ("eval(",)
    replacement: ClassVar[str] = "literal_"
    options: ClassVar[Mapping[str, Option]] = {"message": Option("eval", "what to say")}

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in ast.walk(program.tree):
            if isinstance(call, ast.Call) and program.segment(call.func) == "eval":
                start, end = program.span(call)
                fix = Fix("call literal_eval", Safety.BEHAVIOUR, (Edit(start, start, self.replacement),))
                message = str(options.get("message", "eval"))
                yield self.finding((start, end), message, kind="call", fixes=(fix,), blocked="")


class Crash(Rule):
    """Divides by zero in a file that says so."""

    group = "compute"
    triggers = ("crash = True",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        yield self.finding((0, 1), str(1 // 0), kind="crash")


class Killed(Rule):
    """Dies as a process does when memory runs out."""

    group = "compute"
    triggers = ("killed = True",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        os.kill(os.getpid(), signal.SIGKILL)
        return iter(())


class Bottomless(Rule):
    """Recurses for ever, as a walk does over nesting that is too deep for it."""

    group = "compute"
    triggers = ("bottomless = True",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        yield from self.check(program, options)


class Endless(Rule):
    """Never comes to an end, and lets no ordinary exception end it."""

    group = "compute"
    triggers = ("endless = True",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        while True:
            with suppress(Exception):
                sum(range(1000))


class Misspelt(Rule):
    """Writes code that is none, and trips over it."""

    group = "compute"
    triggers = ("misspelt = True",)

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        compile("a b", "<fix>", "exec")
        return iter(())


for _rule in (Eval, Crash, Killed, Bottomless, Endless, Misspelt):
    _rule.name = _rule.__name__.lower()
EVAL, CRASH, KILLED, BOTTOMLESS = Eval(), Crash(), Killed(), Bottomless()
ENDLESS, MISSPELT = Endless(), Misspelt()
