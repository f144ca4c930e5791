"""Applies fixes to a text, in passes, until nothing changes, and checks that it compiles: a pure function."""

from __future__ import annotations

import ast
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from perflint.analysis.links import ALONE, Context
from perflint.engine.check import find
from perflint.engine.edits import apply_fixes, collide, fitted, malformed
from perflint.engine.rule import Finding, Fix, Options, Rule, Safety, Unrenderable
from perflint.syntax.source import Source

_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Comment:
    start: int
    end: int
    text: str


@lru_cache(maxsize=4)
def comments(text: str) -> tuple[Comment, ...]:
    """The comments of `text` in order; raises SyntaxError where it cannot be split into tokens."""
    if "#" not in text:
        return ()
    source = Source(text)
    try:
        return tuple(_comments(source))
    except tokenize.TokenError as error:
        raise SyntaxError(str(error)) from error


def _comments(source: Source) -> Iterator[Comment]:
    # Every line break becomes \n, which moves no column: tokenize would take a lone \r for a blank.
    lines = (_NEWLINE.sub("\n", source.line_text(line)) for line in range(1, source.line_count + 1))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.COMMENT:
            start = source.line_start(token.start[0]) + token.start[1]
            yield Comment(start, start + len(token.string), token.string.rstrip())


def _flaw(before: str, after: str, dropped: Iterable[Comment] = ()) -> str:
    """What `after` lost of what `before` was, but for the comments `dropped` on purpose; empty if nothing."""
    sound, message = _soundness(after)
    if sound < _soundness(before)[0]:
        return f"the result is not valid Python: {message}"
    try:
        kept = Counter(comment.text for comment in comments(after))
    except SyntaxError as error:
        return f"the result is not valid Python: {error}"
    due = Counter(comment.text for comment in comments(before)) - Counter(comment.text for comment in dropped)
    lost = next(iter(due - kept), "")
    return f"the result lacks the comment {lost!r}" if lost else ""


@lru_cache(maxsize=4)
def _soundness(text: str) -> tuple[int, str]:
    """2 for text that compiles, 1 if it only parses, 0 if neither; and the reason for less than 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        message = _compile_error(text, 0)
        if not message:
            return 2, ""
        return int(not _compile_error(text, ast.PyCF_ONLY_AST)), message


def _compile_error(text: str, flags: int) -> str:
    try:
        compile(text, "<fixed>", "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


Find = Callable[[str], Sequence[Finding]]
Accept = Callable[[str, Finding, Fix], str]


class DefectError(Exception):
    """Fixes that break the program, or undo or repeat each other: a defect of a rule."""


@dataclass(frozen=True)
class Applied:
    """A finding, in the `text` as it was then, and that of its fixes which was applied."""

    finding: Finding
    fix: Fix
    text: str = field(repr=False)
    others: tuple[Finding, ...] = ()  # whose fixes make the same edits


@dataclass(frozen=True)
class Left:
    """A finding in the final text, and why none of its fixes was applied."""

    finding: Finding
    reason: str


@dataclass(frozen=True)
class FixResult:
    """The fixed text and what became of the findings on the way to it."""

    text: str
    applied: tuple[Applied, ...] = ()
    remaining: tuple[Left, ...] = ()


def fix_text(
    text: str,
    rules: Sequence[Rule],
    options: Mapping[str, Options],
    *,
    unsafe: bool = False,
    unread: bool = False,
    accept: Accept | None = None,
    context: Context = ALONE,
) -> FixResult:
    """`text` with the findings of `rules` fixed, those that comments ignore left alone.

    Only exact and rounding fixes that add no dependency are applied unless `unsafe`, and awkward ones where the result
    is `unread`. `accept(text, finding, fix)` says why a fix is not welcome, or "". Raises what `check_text` does where
    the text is no program, and DefectError.
    """

    def found(now: str) -> Sequence[Finding]:
        return find(now, rules, options, context).findings

    return settle(text, found, unsafe=unsafe, unread=unread, accept=accept)


def settle(
    text: str, find: Find, *, unsafe: bool = False, unread: bool = False, accept: Accept | None = None
) -> FixResult:
    """`text` with the fixes of what `find` finds in it applied until no more can be; raises DefectError."""
    applied: list[Applied] = []
    seen = {text}
    findings = find(text)
    limit = 4 * len(findings) + 40  # of fixes, for each may bring others to light
    while True:
        chosen = _Pass(text, unsafe, unread, accept)
        for finding in findings:
            chosen.consider(finding)
        if not chosen.wanted:
            return FixResult(text, tuple(applied), tuple(chosen.left))
        taken = _sound(text, chosen.batch())
        applied += taken
        text = apply_fixes(text, [item.fix for item in taken])
        if text in seen or len(applied) > limit:
            names = sorted({item.finding.rule for item in taken})
            raise DefectError(f"the fixes of {', '.join(names)} do not come to an end")
        seen.add(text)
        findings = find(text)


@dataclass
class _Pass:
    """Chooses the fixes of one pass over `text`: of each finding the first that may be applied."""

    text: str
    unsafe: bool
    unread: bool
    accept: Accept | None
    wanted: list[Applied] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def consider(self, finding: Finding) -> None:
        """Choose a fix of `finding`, or note why there is none."""
        reasons: list[str] = []
        for fix in finding.fixes:
            reason = self._obstacle(finding, fix)
            if not reason:
                self.wanted.append(Applied(finding, fitted(self.text, fix), self.text))
                return
            reasons.append(reason)
        self.left.append(Left(finding, reasons[0] if reasons else finding.blocked or "there is no fix for it"))

    def batch(self) -> list[Applied]:
        """The chosen fixes that go together: of two rules' that collide that with the larger edit; the others wait.

        A small fix may still be due within what a large one rewrites; in the way of the large one it would stay.
        """
        taken: list[Applied] = []
        sized = [(item, _size(item.fix)) for item in self.wanted]
        for item, size in sized:
            same = next((each for each in taken if each.fix.edits == item.fix.edits), None)
            if same is not None:
                taken[taken.index(same)] = replace(same, others=(*same.others, item.finding))
                continue
            larger = (each for each, other in sized if other > size and each.finding.rule != item.finding.rule)
            if not any(collide(self.text, item.fix, each.fix) for each in (*taken, *larger)):
                taken.append(item)
        return taken

    def _obstacle(self, finding: Finding, fix: Fix) -> str:
        if not (self.unsafe or fix.is_safe or (self.unread and replace(fix, is_awkward=False).is_safe)):
            lesser = fix.safety in (Safety.PRECISION, Safety.BEHAVIOUR)
            return f"its fix {f'changes {fix.safety}' if lesser else fix.proviso}: --unsafe applies it"
        try:
            fix.edits  # noqa: B018  # written now, and kept
        except Unrenderable as reason:
            return f"its fix cannot be written: {reason}"
        if fault := malformed(self.text, fix):
            raise DefectError(f"a fix of {finding.rule} fails: {fault}")
        if lost := _lost_comment(self.text, finding, fix):
            return f"its fix would lose the comment {lost!r}"
        return self.accept(self.text, finding, fitted(self.text, fix)) if self.accept else ""


def _size(fix: Fix) -> int:
    return max(edit.end - edit.start + len(edit.text) for edit in fix.edits)


def _sound(text: str, batch: Sequence[Applied]) -> list[Applied]:
    """As much of `batch` as leaves `text` sound together, at least the first; raises DefectError for what breaks it."""
    taken: list[Applied] = []
    for item in batch if _flaw_of(text, batch) else ():
        if reason := _flaw_of(text, [item]):
            raise DefectError(f"a fix of {item.finding.rule} fails: {reason}")
        if not _flaw_of(text, [*taken, item]):
            taken.append(item)
    return taken or list(batch)


def _flaw_of(text: str, batch: Sequence[Applied]) -> str:
    dropped = [
        comment for item in batch if _is_about_comment(text, item.finding) for comment in _touched(text, item.fix)
    ]
    return _flaw(text, apply_fixes(text, [item.fix for item in batch]), dropped)


def _touched(text: str, fix: Fix) -> list[Comment]:
    return [
        comment
        for comment in comments(text)
        if any(edit.start < comment.end and comment.start < edit.end for edit in fix.edits if edit.start < edit.end)
    ]


def _lost_comment(text: str, finding: Finding, fix: Fix) -> str:
    """A comment that `fix` would replace and not bring back; a fix of a finding about a comment may."""
    if _is_about_comment(text, finding):
        return ""
    brought = "\n".join(edit.text for edit in fix.edits)
    lost = Counter(comment.text for comment in _touched(text, fix))
    return next((comment for comment, count in lost.items() if brought.count(comment) < count), "")


def _is_about_comment(text: str, finding: Finding) -> bool:
    return any(comment.start <= finding.start and finding.end <= comment.end for comment in comments(text))
