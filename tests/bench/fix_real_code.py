"""Fixes every file below some folders in memory: nothing crashes, what changed compiles, and nothing changes twice.

Run: python -m tests.bench.fix_real_code FOLDER...
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

from perflint.documents.disk import Unreadable
from perflint.documents.document import read
from perflint.engine.catalogue import all_rules
from perflint.engine.fix import fix_text


@dataclass(frozen=True)
class Outcome:
    """What became of one file: the rules whose fixes were applied, and what went wrong."""

    path: str
    applied: tuple[str, ...] = ()
    wrong: str = ""
    skipped: bool = False


def fix_twice(path: Path) -> Outcome:
    """Apply every fix, the unsafe ones included, and look whether the result holds."""
    warnings.simplefilter("ignore")
    rules = all_rules()
    options = {rule.name: {name: option.default for name, option in rule.options.items()} for rule in rules}
    try:
        document = read(path)
        result = fix_text(document.text, rules, options, unsafe=True)
    except (Unreadable, SyntaxError, RecursionError, UnicodeError):
        return Outcome(str(path), skipped=True)
    except Exception as error:
        return Outcome(str(path), wrong=f"{type(error).__name__}: {error}")
    applied = tuple(each.finding.rule for each in result.applied)
    if result.rejected:
        return Outcome(str(path), applied, f"rejected: {result.rejected[0].finding.rule}: {result.rejected[0].reason}")
    if result.text != document.text:
        try:
            compile(result.text, str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            return Outcome(str(path), applied, f"does not compile: {error}")
        if fix_text(result.text, rules, options, unsafe=True).text != result.text:
            return Outcome(str(path), applied, "is changed again by a second fix")
    return Outcome(str(path), applied)


def main() -> None:
    """Print what was done, and fail on the first thing that went wrong."""
    paths = sorted(path for folder in sys.argv[1:] for path in Path(folder).rglob("*.py"))
    with Pool() as pool:
        outcomes = pool.map(fix_twice, paths, chunksize=8)
    applied = Counter(rule for outcome in outcomes for rule in outcome.applied)
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"{len(outcomes)} files, {sum(outcome.skipped for outcome in outcomes)} not readable as programs")
    print(f"{sum(bool(outcome.applied) for outcome in outcomes)} changed: {dict(sorted(applied.items()))}")
    for outcome in wrong:
        print(f"WRONG {outcome.path}: {outcome.wrong}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
