"""Checks one program: a pure function from text to findings, and from a document to what is reported of it."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from perflint.analysis.links import ALONE, NONE, Context, HotCall, HotPlace, Likelihood, Links, ParameterEffect, Summary
from perflint.analysis.program import Heat, Program
from perflint.analysis.values.codes import named_functions, receives_tensors
from perflint.analysis.values.linking import links_of, links_without_torch, outline_of
from perflint.documents.disk import Unreadable
from perflint.documents.document import Document, decode
from perflint.engine import suppress
from perflint.engine.results import FILE_FAULTS, TOO_LARGE, Diagnostic, FileResult, PlacedFix, RuleCrash, problem_of
from perflint.engine.rule import Finding, Fix, Options, Rule, Unrenderable
from perflint.syntax.source import Source
from perflint.transforms.capture.obstacles import computed
from perflint.transforms.host_code import counted

TORCH_MARKS = (
    # A program that uses torch names it, or a library that wraps it, or does what is done to its modules and tensors.
    *("torch", "lightning", "accelerate", "transformers", "diffusers", "timm", "ignite", "fastai", "monai", "cuda"),
    *("backward", "zero_grad", "no_grad", "state_dict", "DataLoader", "dataloader", "num_workers", "detach", "nn."),
    *("train(", ".parameters()"),
)


_OTHERS = re.compile(r"^\s*(import|from) (chainer|jax|jittor|keras|mindspore|mxnet|oneflow|paddle|tensorflow)\b", re.M)


def _may_use_torch(text: str) -> bool:
    is_dataset = "__getitem__" in text and "def __len__(" in text  # which torch's loaders take as it is
    return (is_dataset or any(mark in text for mark in TORCH_MARKS)) and not _is_of_others(text)


def _is_of_others(text: str) -> bool:
    """Is it a program of another framework, whose tensors have methods of the same names?"""
    return "torch" not in text and bool(_OTHERS.search(text))


def can_fire(rules: Sequence[Rule], text: str) -> tuple[Rule, ...]:
    if not _may_use_torch(text):
        return ()
    return tuple(rule for rule in rules if not rule.triggers or any(word in text for word in rule.triggers))


_TOO_OLD = "`volatile=` is of torch before 0.4, which may not know what the fix needs: take it out"
_HARMLESS = (ParameterEffect("*"),)  # to whatever a function is given
_GIVEN = ("-", "D", "{D}")  # whatever it is, a tensor on the device, and a batch of them


def _worst_contexts(program: Program, links: Links) -> Iterator[Context]:
    for code in _GIVEN:
        called = _context(program, links, code)
        yield _context(program, links_of(program.in_context(called), called), code)  # hot code asks for more


def _context(program: Program, links: Links, code: str) -> Context:
    calls = tuple(
        HotCall(name, Heat.TIME, code * len(node.args.args), tuple((each.arg, code) for each in node.args.kwonlyargs))
        for name, node in named_functions(program.tree)
        if name in links.functions
    )
    sure = Likelihood.CERTAIN
    summaries = (
        Summary(target, code, trains=True, starts=sure, loads=sure, memory=_HARMLESS)
        for target in sorted(links.queries)
    )
    return Context(calls, tuple(summaries), on_host=False)


FRAME_CONTEXT = 2  # lines shown above and below a finding
FRAME_LIMIT = 12  # lines of a finding that are shown: a loop may be hundreds of lines long


Parse = Callable[[str, Context], Program]


@dataclass(frozen=True)
class Found:
    """What was found in a program, less what its comments ignore."""

    findings: tuple[Finding, ...]
    program: Program
    context: Context

    @property
    def links(self) -> Links:
        return _links(self.program, self.context)


def find(
    text: str, rules: Sequence[Rule], options: Mapping[str, Options], context: Context = ALONE, parse: Parse = Program
) -> Found:
    """What `check_text` finds, less what comments in the text ignore; raises what `check_text` does."""
    findings, program = _examine(text, rules, options, context, parse)

    def possible() -> Iterator[Finding]:
        for worst in _worst_contexts(program, _links(program, context)):
            yield from _examine(text, rules, options, worst, lambda _, given: program.in_context(given))[0]

    return Found(suppress.apply(text, findings, rules, possible), program, context)


def _links(program: Program, context: Context) -> Links:
    counting = counted(program, context.asked)  # asks other files itself
    links = links_of(program, context) if _concerns(program.text, context) else links_without_torch(program)
    computing = computed(program, context.asked) if context.asked else frozenset[str]()
    if counting | computing:
        told = (
            replace(each, computes=each.target in computing, counts=each.target in counting) for each in links.summaries
        )
        links = replace(links, summaries=tuple(told))
    return links


def check_text(
    text: str, rules: Sequence[Rule], options: Mapping[str, Options], context: Context = ALONE
) -> tuple[Finding, ...]:
    """The findings of `rules` in the program `text`, sorted, none twice; `options` holds those of each rule by name.

    `context` is what the other files of a run tell of it.
    Raises SyntaxError, RecursionError, MemoryError or UnicodeError where `text` is no program that can be analysed,
    whatever the rules, and RuleCrash where we are at fault. `problem_of` words them all.
    """
    return tuple(each for each in _examine(text, rules, options, context)[0] if not each.is_part)


def _examine(
    text: str, rules: Sequence[Rule], options: Mapping[str, Options], context: Context, parse: Parse = Program
) -> tuple[tuple[Finding, ...], Program]:
    """The findings, and the program, of which nothing is computed where the screen finds nothing to do."""
    if "\0" in text:
        raise SyntaxError("source code cannot contain null bytes")  # some Pythons raise ValueError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the compiler says of escapes is none of our business
        with _blamed("", FILE_FAULTS):
            program = parse(text, context)
        findings: set[Finding] = set()
        is_given = receives_tensors(context.calls) and not _is_of_others(text)
        for rule in rules if is_given else can_fire(rules, text):
            with _blamed(rule.name, TOO_LARGE):
                findings.update(rule.check(program, options.get(rule.name, {})))
    if "volatile=" in text:
        findings = {replace(each, fixes=(), blocked=_TOO_OLD) if each.fixes else each for each in findings}
    return tuple(sorted(findings, key=lambda each: (each.start, each.end, each.rule, each.kind))), program


def _concerns(text: str, context: Context) -> bool:
    return _may_use_torch(text) or receives_tensors(context.calls) or bool(context.asked or context.drawing)


@contextmanager
def _blamed(rule: str, faults: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn what is raised inside into a RuleCrash, but for what is the file's fault."""
    try:
        yield
    except faults:
        raise
    except Exception as error:
        raise RuleCrash(rule) from error


def check_bytes(
    path: str,
    data: bytes,
    rules: Sequence[Rule],
    options: Mapping[str, Options],
    context: Context = ALONE,
    *,
    edits: bool = False,
    linked: bool = True,
    parse: Parse = Program,
) -> tuple[FileResult, Links]:
    """What is to report of a file at `path` that holds `data`, and its links; any error becomes the file's problem."""
    try:
        return check_document(decode(path, data), rules, options, context, edits=edits, linked=linked, parse=parse)
    except Unreadable as error:
        return FileResult(path, problem=error.problem), NONE
    except Exception as error:
        return FileResult(path, problem=problem_of(error)), NONE


def links_in(
    document: Document, context: Context = ALONE, *, outline: bool = False, parse: Parse = Program
) -> tuple[FileResult, Links]:
    """The links of `document` to other files, or but an `outline` of them, without values.

    None where it can't be checked: the result says so where that is a fault of ours.
    """
    if document.skipped or "\0" in document.text:
        return FileResult(document.path), NONE
    try:
        with warnings.catch_warnings(), _blamed("", FILE_FAULTS):
            warnings.simplefilter("ignore")
            program = parse(document.text, context)
            links = outline_of(program) if outline else _links(program, context)
    except FILE_FAULTS:
        return FileResult(document.path), NONE
    except RuleCrash as error:
        return FileResult(document.path, problem=problem_of(error)), NONE
    return FileResult(document.path), _located_links(document, links)


def check_document(
    document: Document,
    rules: Sequence[Rule],
    options: Mapping[str, Options],
    context: Context = ALONE,
    *,
    edits: bool = False,
    linked: bool = True,
    parse: Parse = Program,
) -> tuple[FileResult, Links]:
    """What is to report of `document`, and its links to other files: or why it could not be checked.

    Fixes have their `edits`, which take time to write, only if asked for; so with the links.
    """
    if document.skipped:
        return FileResult(document.path, problem=document.problem, skipped=document.skipped), NONE
    try:
        found = find(document.text, rules, options, context, parse)
        diagnostics = tuple(_diagnostics(document, found.findings, edits))
        links = found.links if linked else NONE
    except (RuleCrash, *FILE_FAULTS) as error:
        return FileResult(document.path, problem=problem_of(error, document.text)), NONE
    return FileResult(document.path, diagnostics, document.problem), _located_links(document, links)


def _located_links(document: Document, links: Links) -> Links:
    if document.notebook is None:
        return links
    return replace(links, calls=tuple(replace(each, by=_located(document, each.by)) for each in links.calls))


def _diagnostics(document: Document, findings: Sequence[Finding], edits: bool) -> Iterator[Diagnostic]:
    seen: Counter[str] = Counter()
    for finding in findings:
        start, end = document.position(finding.start), document.position(finding.end)
        unit = document.unit(start.cell)
        last = end.line if end.cell == start.cell else unit.line_count
        identity = _identity(finding, unit, start.line, last)
        seen[identity] += 1
        first, frame = _frame(unit, start.line, last)
        hot_by = _located(document, finding.hot_by) if finding.hot_by is not None else None
        fixes, withheld = (
            _fixes(document, finding) if edits else (tuple(_titled(document, each) for each in finding.fixes), "")
        )
        yield Diagnostic(
            document.path,
            finding.rule,
            finding.kind,
            finding.severity,
            f"{document.cited(finding.message)}{_why_hot(hot_by)}",
            start,
            end,
            fixes,
            document.cited(finding.blocked or withheld),
            frame,
            first,
            _digest(f"{identity}\0{seen[identity]}"),
            hot_by=hot_by,
        )


def _located(document: Document, by: HotPlace) -> HotPlace:
    """A place of the program as one of the user's file: in a notebook, of a cell."""
    if document.notebook is None or by.file or not by.line:
        return by
    place = document.at_line(by.line)
    return replace(by, cell=place.cell, line=place.line)


def _why_hot(by: HotPlace | None) -> str:
    if by is None or not by.line:
        return ""
    cell = "" if by.cell is None else f" of cell {by.cell}"
    where = f"line {by.line}{cell}{by.file and f' of {by.file}'}"
    return f" (`{by.runs}` in {where} runs in every step)" if by.runs else f" (loop in {where})"


def _titled(document: Document, fix: Fix) -> PlacedFix:
    return PlacedFix(document.cited(fix.title), fix.safety, (), fix.requires, fix.assumes, fix.is_awkward)


def _fixes(document: Document, finding: Finding) -> tuple[tuple[PlacedFix, ...], str]:
    try:
        return tuple(
            replace(_titled(document, fix), edits=tuple(map(document.placed, fix.edits))) for fix in finding.fixes
        ), ""
    except Unrenderable as reason:
        return (), f"its fix cannot be written: {reason}"


def _identity(finding: Finding, unit: Source, first: int, last: int) -> str:
    """What stays the same of a finding when code moves: not blanks and line numbers."""
    text = "\n".join(" ".join(unit.line_text(line).split()) for line in range(first, last + 1))
    return f"{finding.rule}\0{finding.kind}\0{text}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _frame(unit: Source, first: int, last: int) -> tuple[int, tuple[str, ...]]:
    start = max(first - FRAME_CONTEXT, 1)
    stop = min(last, first + FRAME_LIMIT - 1) + FRAME_CONTEXT
    lines = (unit.line_text(line).rstrip("\r\n") for line in range(start, min(stop, unit.line_count) + 1))
    return start, tuple(lines)
