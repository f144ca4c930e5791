"""Finds the cases in fixtures/ and runs them: findings, fixes and results before and after.

`python -m tests.fixture_cases RULE` prints what the rule finds in its fixtures, and writes what its fixes make of them
to the files beside them, to be read before they are committed.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType

from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import find
from perflint.engine.fix import FixResult, settle
from perflint.engine.rule import Finding, Rule

FIXTURES = Path(__file__).parent.parent / "fixtures"
_MARK = re.compile(r"# expect: ([a-z-]+)(?: \(([^)]+)\))?")


@dataclass(frozen=True)
class Case:
    """One file `fixtures/<rule>/<stem>.py`; a stem ending in `before` has findings, one ending in `ok` has none."""

    rule: Rule
    path: Path

    @property
    def text(self) -> str:
        """The program."""
        return self.path.read_bytes().decode("utf-8")

    @property
    def expected(self) -> list[tuple[int, str]]:
        """The marked lines, each with the kind that is asked for there, or empty for any."""
        lines = self.text.splitlines()
        return [(number, match[2] or "") for number, line in enumerate(lines, 1) for match in _MARK.finditer(line)]

    def after(self, unsafe: bool) -> Path:
        """The file that the fix must produce, which may be missing: then nothing is fixed."""
        suffix = "after_unsafe" if unsafe else "after"
        return self.path.with_name(f"{self.path.stem.removesuffix('before')}{suffix}.py")

    def findings(self) -> tuple[Finding, ...]:
        """What the rule finds."""
        return _found(self.rule, self.text)

    def fixed(self, unsafe: bool) -> FixResult:
        """What the fixer makes of it."""
        return _fixed(self, unsafe)


@lru_cache(maxsize=16)  # all tests of a case, which stand together, and all passes of its fixes ask
def _found(rule: Rule, text: str) -> tuple[Finding, ...]:
    return find(text, [rule], default_options(rule)).findings


@lru_cache(maxsize=16)
def _fixed(case: Case, unsafe: bool) -> FixResult:
    return settle(case.text, partial(_found, case.rule), unsafe=unsafe)


def default_options(rule: Rule) -> dict[str, dict[str, bool | int | str]]:
    """The rule's options at their defaults, by the rule's name."""
    return {rule.name: {name: option.default for name, option in rule.options.items()}}


def cases(ending: str) -> list[Case]:
    """Every case whose stem ends so."""
    rules = rules_by_name()
    return [
        Case(rules[folder.name.replace("_", "-")], path)
        for folder in sorted(FIXTURES.iterdir())
        if folder.name.replace("_", "-") in rules
        for path in sorted(folder.glob(f"*{ending}.py"))
    ]


def load(path: Path, name: str) -> ModuleType:
    """Import a fixture as a module called `name`, so that what it defines can be pickled."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def write(case: Case) -> None:
    """Print the findings of a case and write the files that its fixes produce."""
    for finding in case.findings():
        line = case.text.count("\n", 0, finding.start) + 1
        titles = "; ".join(f"{fix.safety}: {fix.title}" for fix in finding.fixes)
        print(f"{case.path.name}:{line}: ({finding.kind}) {titles or 'blocked: ' + finding.blocked}")
    before = case.text
    for unsafe in (False, True):
        fixed, after = case.fixed(unsafe).text, case.after(unsafe)
        after.unlink(missing_ok=True)
        if fixed != before:
            after.write_bytes(fixed.encode())
            before = fixed


if __name__ == "__main__":
    for each in [*cases("before"), *cases("ok")]:
        if each.rule.name in sys.argv[1:]:
            write(each)
