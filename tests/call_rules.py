"""Rules about calls of functions by name, and a command line that knows no others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result

from perflint.analysis.program import Program
from perflint.cli.commands import cli
from perflint.engine import catalogue, unused_ignore
from perflint.engine.rule import Edit, Finding, Fix, Option, Options, Rule, Safety, Severity
from perflint.engine.unused_ignore import UnusedIgnore


class SlowCall(Rule):
    """`slow()` becomes `fast()`; `risky()` becomes `bold()`, which is unsafe; nothing can be done about `stuck()`."""

    page = "Finds slow calls.\n"
    group = "sync"
    options: ClassVar = {"replacement": Option("fast", "What to call instead of slow.")}

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        better = {"slow": (str(options["replacement"]), Safety.EXACT), "risky": ("bold", Safety.BEHAVIOUR)}
        for call in program.of_type(ast.Call):
            name = program.segment(call.func)
            if name in better:
                replacement, safety = better[name]
                edit = Edit(*program.span(call.func), replacement)
                fix = Fix(f"call {replacement} instead", safety, (edit,))
                yield self.finding(program.span(call), f"{name} is slow", kind=name, fixes=(fix,))
            elif name == "stuck":
                yield self.finding(program.span(call), "stuck is slow", kind=name, blocked="it is stuck")


class PerhapsCall(Rule):
    """`perhaps()` is advice; `crash()` is a defect of the rule."""

    page = "Finds calls that are slow, perhaps.\n"
    group = "memory"
    severity = Severity.ADVICE

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in program.of_type(ast.Call):
            if program.segment(call.func) == "crash":
                raise LookupError("nothing here")
            if program.segment(call.func) == "perhaps":
                yield self.finding(program.span(call), "perhaps it is slow", kind="call", blocked="nobody knows")


SlowCall.name = "slow-call"
PerhapsCall.name = "perhaps-call"


@dataclass(frozen=True)
class Project:
    """A folder in which the command line is run, with these rules alone."""

    root: Path

    def write(self, path: str, text: str) -> Path:
        """Make a file that mentions torch, so that its rules are run."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def program(self, path: str, *calls: str) -> Path:
        """Make a program of calls, a line each from the second line on."""
        return self.write(path, "import torch\n" + "".join(f"{call}\n" for call in calls))

    def read(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def run(self, *arguments: str, stdin: str | bytes = "") -> Result:
        """Run a command; an exception that is not the user's mistake fails the test."""
        return CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(UnusedIgnore, "page", unused_ignore.__doc__, raising=False)
    monkeypatch.setattr(catalogue, "all_rules", lambda: (PerhapsCall(), SlowCall(), UnusedIgnore()))
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)
