"""Records what all rules and fixes make of the files below a folder, and says in what two records differ.

Run: python -m tests.bench.compare_results record FOLDER OUT.jsonl [--jobs N], change perflint, record again, and
python -m tests.bench.compare_results diff OLD.jsonl NEW.jsonl [--only GROUP] [--limit N] [--patches]

Each file is checked and fixed on its own and in memory, with the unsafe fixes too. `record` exits with 1 where
something went wrong: a crash, a rejected fix, a result that does not compile or that a second fix changes again.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from perflint.documents.disk import Unreadable
from perflint.documents.document import Document, read
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.engine.edits import apply_fixes, fitted
from perflint.engine.fix import Find, settle
from perflint.engine.results import FILE_FAULTS, problem_of
from perflint.engine.rule import Finding
from perflint.project.workers import work

Item = TypeVar("Item")

GROUPS = (
    *("fault new", "fault gone", "skipped", "source differs", "finding lost", "finding new", "kind changed"),
    *("column changed", "severity changed", "message changed", "blocked changed", "fix lost", "fix new"),
    *("fix differs", "safety changed", "title changed", "result differs"),
)


@dataclass(frozen=True)
class RecordedFix:
    """A fix: `patch` is what it alone changes, as a unified diff."""

    title: str
    safety: str
    patch: str


@dataclass(frozen=True)
class RecordedFinding:
    """A finding; `line` and `column` count from 1."""

    rule: str
    kind: str
    line: int
    column: int
    severity: str
    message: str
    blocked: str
    fixes: tuple[RecordedFix, ...]


@dataclass(frozen=True)
class Record:
    """What became of one file.

    `source` is the digest of its text, `safe` and `unsafe` are unified diffs of what the safe and all fixes change,
    `faults` are defects of perflint, `skipped` says why the file is no program, `seconds` are of CPU for one check.
    """

    path: str
    source: str = ""
    findings: tuple[RecordedFinding, ...] = ()
    safe: str = ""
    unsafe: str = ""
    faults: tuple[str, ...] = ()
    skipped: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, order=True)
class Difference:
    """How two records of a file differ at a line; `patches` are those before and after, where there are any."""

    group: int
    rule: str
    path: str
    line: int
    before: str = ""
    after: str = ""
    patches: tuple[str, ...] = ()


class _Overtime(BaseException):
    """The time of a file is up; no `except Exception` in a rule stops it."""


def record_file(path: Path, folder: Path, limit_s: float) -> Record:
    """The record of the file at `path`, for which `limit_s` seconds of CPU are allowed."""
    name = path.relative_to(folder).as_posix()
    warnings.simplefilter("ignore")
    try:
        with _time_limit(limit_s):
            return _recorded(name, read(path))
    except Unreadable as error:
        return Record(name, skipped=error.problem.message)
    except FILE_FAULTS as error:
        return Record(name, skipped=problem_of(error).message)
    except _Overtime:
        return Record(name, faults=(f"takes longer than {limit_s:g} s",))
    except Exception as error:
        return Record(name, faults=(problem_of(error).message,))


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _Overtime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _recorded(name: str, document: Document) -> Record:
    rules, text = all_rules(), document.text
    options = {rule.name: {option: each.default for option, each in rule.options.items()} for rule in rules}

    def search(now: str) -> Sequence[Finding]:
        return find(now, rules, options).findings

    started = time.process_time()
    findings = search(text)
    seconds = round(time.process_time() - started, 4)
    source = hashlib.sha1(text.encode("utf-8", "surrogatepass")).hexdigest()
    if not findings:
        return Record(name, source, seconds=seconds)
    known = {text: findings}

    def search_once(now: str) -> Sequence[Finding]:
        if now not in known:
            known[now] = search(now)
        return known[now]

    safe, faults = _fixed(text, search_once, search, unsafe=False)
    unsafe, others = _fixed(text, search_once, search, unsafe=True)
    recorded = tuple(_recorded_finding(document, finding) for finding in findings)
    faults = tuple(dict.fromkeys((*faults, *others)))
    return Record(name, source, recorded, _patch(text, safe), _patch(text, unsafe), faults, seconds=seconds)


def _fixed(text: str, search_once: Find, search: Find, *, unsafe: bool) -> tuple[str, tuple[str, ...]]:
    """`text` after its fixes, and what is wrong with that; `search` remembers nothing of the first time."""
    result = settle(text, search_once, unsafe=unsafe)
    faults = []
    if result.text != text:
        if _compiles(text) and not _compiles(result.text):
            faults.append("does not compile after its fixes")
        if settle(result.text, search, unsafe=unsafe).text != result.text:
            faults.append("is changed again by a second fix")
    return result.text, tuple(faults)


def _compiles(text: str) -> bool:
    try:
        compile(text, "<fixed>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _recorded_finding(document: Document, finding: Finding) -> RecordedFinding:
    text, start = document.text, document.position(finding.start)
    fixes = tuple(
        RecordedFix(fix.title, str(fix.safety), _patch(text, apply_fixes(text, [fitted(text, fix)])))
        for fix in finding.fixes
    )
    return RecordedFinding(
        *(finding.rule, finding.kind, start.line, start.column),
        *(str(finding.severity), finding.message, finding.blocked, fixes),
    )


def _patch(before: str, after: str) -> str:
    if before == after:
        return ""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), n=1)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in list(lines)[2:])


def record_folder(folder: Path, out: Path, jobs: int, limit_s: float) -> bool:
    """Record the Python files below `folder` in the file `out`, one JSON object a line; whether none has a fault."""
    paths = sorted(path for path in folder.rglob("*.py") if path.is_file())
    findings: Counter[str] = Counter()
    files: Counter[str] = Counter()
    function = partial(record_file, folder=folder, limit_s=limit_s)
    with out.open("w", encoding="utf-8") as lines, closing(work(function, paths, jobs)) as results:
        for number, result in results:
            name = paths[number].relative_to(folder).as_posix()
            record = result or Record(name, faults=("the process that worked on it was killed",))
            lines.write(json.dumps(asdict(record)) + "\n")
            findings.update(finding.rule for finding in record.findings)
            files.update(["fixed"] * bool(record.unsafe) + ["skipped"] * bool(record.skipped))
            for fault in record.faults:
                files["at fault"] += 1
                print(f"FAULT {record.path}: {fault}", flush=True)
    print(f"{len(paths)} files: {dict(files)}\n{findings.total()} findings: {dict(sorted(findings.items()))}")
    return not files["at fault"]


def load(path: Path) -> dict[str, Record]:
    """The records in a file that `record_folder` wrote, by path."""
    with path.open(encoding="utf-8") as lines:
        return {record.path: record for record in map(_from_json, lines)}


def _from_json(line: str) -> Record:
    values = json.loads(line)
    for finding in values["findings"]:
        finding["fixes"] = tuple(RecordedFix(**fix) for fix in finding["fixes"])
    values["findings"] = tuple(RecordedFinding(**finding) for finding in values["findings"])
    values["faults"] = tuple(values["faults"])
    return Record(**values)


def differences(old: Record, new: Record) -> Iterator[Difference]:
    """In what the records of one file differ; of files with other text nothing but that is said."""
    tell = partial(_difference, path=old.path)
    if old.source != new.source and old.source and new.source:
        yield tell("source differs")
        return
    if old.skipped != new.skipped:
        yield tell("skipped", old.skipped, new.skipped)
    yield from (tell("fault gone", before=fault) for fault in old.faults if fault not in new.faults)
    yield from (tell("fault new", after=fault) for fault in new.faults if fault not in old.faults)
    if not old.source or not new.source:
        return  # one of them tells of no findings
    told = False
    for before, after in _paired(old.findings, new.findings, _FINDING_KEYS):
        for difference in _between_findings(old.path, before, after):
            told = True
            yield difference
    if not told and (old.safe, old.unsafe) != (new.safe, new.unsafe):
        patches = (old.safe, new.safe) if old.safe != new.safe else (old.unsafe, new.unsafe)
        yield tell("result differs", patches=patches)


_FINDING_KEYS: tuple[Callable[[RecordedFinding], object], ...] = (
    lambda finding: finding,
    lambda finding: (finding.rule, finding.kind, finding.line, finding.column),
    lambda finding: (finding.rule, finding.line, finding.column),
    lambda finding: (finding.line, finding.column),
    lambda finding: (finding.rule, finding.kind, finding.line),
)
_FIX_KEYS: tuple[Callable[[RecordedFix], object], ...] = (
    lambda fix: fix,
    lambda fix: fix.patch,
    lambda fix: fix.title,
    lambda fix: None,
)


def _paired(
    old: Iterable[Item], new: Iterable[Item], keys: Sequence[Callable[[Item], object]]
) -> Iterator[tuple[Item | None, Item | None]]:
    """What is the same by the first of `keys` by which it is, and then what is left on either side."""
    left, right = list(old), list(new)
    for key in keys:
        for before in tuple(left):
            after = next((each for each in right if key(each) == key(before)), None)
            if after is not None:
                left.remove(before)
                right.remove(after)
                yield before, after
    yield from ((before, None) for before in left)
    yield from ((None, after) for after in right)


def _between_findings(path: str, old: RecordedFinding | None, new: RecordedFinding | None) -> Iterator[Difference]:
    if old == new:
        return
    at = old or new
    assert at is not None
    tell = partial(_difference, path=path, line=at.line, rule=at.rule)
    if old is None or new is None:
        patches = tuple(fix.patch for fix in at.fixes[:1])
        yield tell("finding new" if old is None else "finding lost", _worded(old), _worded(new), patches=patches)
        return
    if (old.rule, old.kind) != (new.rule, new.kind):
        yield tell("kind changed", _worded(old), _worded(new))
    elif old.message != new.message:
        yield tell("message changed", old.message, new.message)
    if old.column != new.column:
        yield tell("column changed", f"column {old.column}", f"column {new.column}")
    if old.severity != new.severity:
        yield tell("severity changed", old.severity, new.severity)
    if old.blocked != new.blocked and bool(old.fixes) == bool(new.fixes):
        yield tell("blocked changed", old.blocked, new.blocked)
    for before, after in _paired(old.fixes, new.fixes, _FIX_KEYS):
        if before is None:
            yield tell("fix new", old.blocked, after.title if after else "", patches=(after.patch,) if after else ())
        elif after is None:
            yield tell("fix lost", before.title, new.blocked, patches=(before.patch,))
        else:
            yield from _between_fixes(tell, before, after)


def _between_fixes(tell: Callable[..., Difference], old: RecordedFix, new: RecordedFix) -> Iterator[Difference]:
    if old.patch != new.patch:
        yield tell("fix differs", old.title, new.title, patches=(old.patch, new.patch))
    elif old.title != new.title:
        yield tell("title changed", old.title, new.title)
    if old.safety != new.safety:
        yield tell("safety changed", old.safety, new.safety, patches=(new.patch,))


def _worded(finding: RecordedFinding | None) -> str:
    return f"{finding.rule} ({finding.kind}): {finding.message}" if finding else ""


def _difference(
    group: str,
    before: str = "",
    after: str = "",
    *,
    path: str,
    line: int = 0,
    rule: str = "",
    patches: tuple[str, ...] = (),
) -> Difference:
    return Difference(GROUPS.index(group), rule, path, line, before, after, patches)


def compare(old: Path, new: Path, only: Sequence[str], limit: int | None, patches: bool) -> bool:
    """Print in what two records of the same files differ, by group, rule and file; whether they do."""
    before, after = load(old), load(new)
    both = sorted(before.keys() & after.keys())
    found = sorted(each for path in both for each in differences(before[path], after[path]))
    for group, members in groupby(found, lambda each: each.group):
        each = list(members)
        if only and GROUPS[group] not in only:
            continue
        rules = Counter(one.rule for one in each if one.rule)
        print(f"== {GROUPS[group]}: {len(each)} {dict(rules) or ''}".rstrip())
        for one in each[:limit]:
            print(*_lines(one, patches), sep="\n")
    print(
        f"== {len(both)} files in both, {len(before) - len(both)} only in {old}, {len(after) - len(both)} only in {new}"
    )
    for group, count in sorted(Counter(each.group for each in found).items()):
        print(f"== {GROUPS[group]}: {count}")
    seconds = [sum(records[path].seconds for path in both) for records in (before, after)]
    print("== the checks took {:.1f} s of CPU, then {:.1f} s".format(*seconds))
    return bool(found)


def _lines(difference: Difference, patches: bool) -> Iterator[str]:
    yield f"{difference.path}:{difference.line} {difference.rule}".rstrip()
    if difference.before:
        yield f"    was: {difference.before}"
    if difference.after:
        yield f"    now: {difference.after}"
    for patch in difference.patches if patches else ():
        yield from (f"    | {line}" for line in ("--", *patch.splitlines()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or compare; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record")
    record.add_argument("folder", type=Path)
    record.add_argument("out", type=Path)
    record.add_argument("--jobs", type=int, default=1)
    record.add_argument("--limit", type=float, default=60, help="seconds of CPU for one file")
    diff = commands.add_parser("diff")
    diff.add_argument("old", type=Path)
    diff.add_argument("new", type=Path)
    diff.add_argument("--only", action="append", choices=GROUPS, default=[], help="show this group; may be repeated")
    diff.add_argument("--limit", type=int, help="show so many differences of each group")
    diff.add_argument("--patches", action="store_true", help="show the patches of fixes, before and after")
    given = parser.parse_args(arguments)
    if given.command == "record":
        return 0 if record_folder(given.folder, given.out, given.jobs, given.limit) else 1
    return 1 if compare(given.old, given.new, given.only, given.limit, given.patches) else 0


if __name__ == "__main__":
    sys.exit(main())
