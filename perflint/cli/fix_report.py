"""Prints the result of `perflint fix`: what was fixed, rule by rule, and what was not, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from perflint.report.places import place
from perflint.report.style import Style, printable
from perflint.report.words import count

if TYPE_CHECKING:
    from perflint.project.patch import Patch

_LINE = re.compile(r"\bline \d+(?: of cell \d+)?: ")  # where an obstacle is
_PLACES = 3  # shown of those that were left for the same reason, unless verbose


def fix_report(patches: Sequence[Patch], style: Style, *, applied: bool, errors: Iterable[str] = ()) -> str:
    """Lines for the terminal; `applied` says whether the patches were written, `errors` why some could not be."""
    lines = [*_problems(patches, style), *(f"{style.paint('bold red', 'error')}: {printable(e)}" for e in errors)]
    failed = bool(lines)
    if not style.quiet:
        if style.verbose:
            lines += [style.paint("dim", f"{p.path}: {printable(p.skipped)}") for p in patches if p.skipped]
        lines += [
            *_fixed(patches, style, applied, failed=failed),
            *_left(patches, style, applied),
            *map(printable, style.notes),
        ]
    return "".join(f"{line}\n" for line in lines)


def colored(diff: str, style: Style) -> str:
    """A unified diff for a terminal."""
    looks = {"+": "green", "-": "red", "@": "cyan"}
    painted = []
    for line in diff.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        look = "bold" if line.startswith(("+++ ", "--- ")) else looks.get(line[:1], "")
        painted.append((style.paint(look, body) if look else body) + line[len(body) :])
    return "".join(painted)


def _problems(patches: Iterable[Patch], style: Style) -> Iterator[str]:
    error = style.paint("bold red", "error")
    for patch in patches:
        if patch.problem:
            where = f"{patch.path}:{patch.problem.line}" if patch.problem.line else patch.path
            yield f"{error}: {printable(where)}: {printable(patch.problem.message)}"


def _fixed(patches: Sequence[Patch], style: Style, applied: bool, *, failed: bool) -> Iterator[str]:
    fixed = Counter((item.finding.rule, item.fix.title) for patch in patches for item in patch.applied)
    changed = sum(patch.changed for patch in patches)
    if not fixed:
        sound = sum(not patch.skipped and (not patch.problem or bool(patch.remaining)) for patch in patches)
        where = count(sound, "other file" if failed else "file")
        yield style.paint("bold", f"Nothing to fix in {where}." if sound else "No file was fixed.")
        return
    head = f"{count(fixed.total(), 'finding')} in {count(changed, 'file')}"
    yield style.paint("bold green", f"Fixed {head}:") if applied else style.paint("bold", f"Would fix {head}:")
    yield from _table([(rule, number, printable(title)) for (rule, title), number in sorted(fixed.items())])
    if not applied:
        yield "The same command with `--apply` writes these changes."


def _left(patches: Sequence[Patch], style: Style, applied: bool) -> Iterator[str]:
    left: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for patch in patches:
        for item in patch.remaining if applied else patch.left:  # as they are on the disk now
            same = _LINE.sub("", item.reason)  # which many files may share
            left.setdefault((item.rule, same), []).append((item.reason, place(patch.path, item.start)))
    if left:
        yield style.paint("bold", f"Left {count(sum(map(len, left.values())), 'finding')}:")
        rows = [(rule, found[0][0] if len(found) == 1 else same, found) for (rule, same), found in left.items()]
        yield from _table(
            [
                (rule, len(found), f"{printable(reason)} ({_some([where for _, where in found], style.verbose)})")
                for rule, reason, found in sorted(rows)
            ]
        )


def _table(rows: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    longest = max(len(rule) for rule, _, _ in rows)
    widest = max(len(str(number)) for _, number, _ in rows)
    for rule, number, text in rows:
        yield f"  {rule:<{longest}}  {number:>{widest}}  {text}"


def _some(places: Sequence[str], every: bool) -> str:
    shown = places if every else places[:_PLACES]
    more = len(places) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
