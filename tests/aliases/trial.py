"""Fixes a program, runs it as it was and as it is fixed, and compares what both give."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from types import CodeType, ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from perflint.analysis.links import ALONE, Context, Links
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.engine.fix import FixResult, fix_text
from perflint.engine.rule import Safety
from perflint.project.ties import contexts_of
from perflint.runtime import graphs
from tests.aliases.part import FOLDER
from tests.aliases.programs import Case, Template, empty, has_slots, rendered, simpler
from tests.rules.graph_chunks import in_chunks
from tests.rules.graph_doubles import Differentiable, Double

RULES = [rule for rule in all_rules() if rule.name != "optimizer-not-fused"]  # whose fix no alias touches
OPTIONS = {rule.name: {name: option.default for name, option in rule.options.items()} for rule in RULES}
OPTIONS["dataloader-defaults"]["workers"] = 1  # enough to read copies, and quick to start
_GRAPH = re.compile(r"grad_fn=<\w+>")
_BESIDE = FOLDER / "modules"


class Verdict(Enum):
    """What became of a program."""

    RAISES = "the program raises as it is"
    SILENT = "nothing is found"
    REFUSED = "found, and not fixed"
    SAME = "fixed, the same"
    WRONG = "fixed, and wrong"


@dataclass(frozen=True)
class Outcome:
    """The verdict on the fixes called exact or rounding, which they were, and what differs."""

    verdict: Verdict
    applied: tuple[tuple[str, str], ...] = ()
    detail: str = ""


def tried(text: str) -> Outcome:
    """The outcome of a program, which is run only where it is fixed."""
    try:
        result = _fixed(text)
    except Exception as error:
        return Outcome(Verdict.WRONG, detail=f"perflint fails: {_said(error.__cause__ or error)}")
    applied = tuple(sorted({(item.finding.rule, item.fix.safety.value) for item in result.applied}))
    if not applied:
        return Outcome(Verdict.REFUSED if result.remaining else Verdict.SILENT)
    expected = _run(text)
    if isinstance(expected, Exception):
        return Outcome(Verdict.RAISES, detail=_said(expected))
    is_rounded = any(safety != Safety.EXACT.value for _, safety in applied)
    detail = _difference(expected, _run(result.text), is_rounded)
    return Outcome(Verdict.WRONG if detail else Verdict.SAME, applied, detail)


def _fixed(text: str) -> FixResult:
    """The program with all fixes that are called exact or rounding."""
    accept = lambda _, __, fix: "" if fix.safety in (Safety.EXACT, Safety.ROUNDING) else "later"  # noqa: E731
    return fix_text(text, RULES, OPTIONS, unsafe=True, accept=accept, context=_context(text))


def fixed_text(text: str) -> str:
    """The text of the program with all fixes that are called exact or rounding."""
    return _fixed(text).text


@cache
def forced_template(template: Template) -> str:
    """The template as it is fixed, with its slots; empty where the fix doesn't keep them."""
    text = fixed_text(template.text)
    return text if has_slots(template, text) and empty(text) == fixed_text(empty(template.text)) else ""


def would_be_right(case: Case) -> bool | None:
    """Does the fix of the template do no harm to the program, in one run at least? None where that can't be tried."""
    forced = forced_template(case.template)
    if not forced:
        return None
    expected = _run(rendered(case))
    return not isinstance(expected, Exception) and not _difference(expected, _run(rendered(case, forced)), True)


def minimised(case: Case, outcome: Outcome) -> Case:
    """The simplest case like `case` on which the same rules go wrong."""
    while True:
        smaller = [each for each in simpler(case) if _size(each) < _size(case)]
        found = next((each for each in smaller if _is_still_wrong(each, case, outcome)), None)
        if found is None:
            return case
        case = found


def _is_still_wrong(case: Case, before: Case, outcome: Outcome) -> bool:
    if rendered(case) == rendered(before):
        return True
    found = tried(rendered(case))
    is_same = set(found.applied) & set(outcome.applied) if outcome.applied else found.detail == outcome.detail
    return found.verdict is Verdict.WRONG and bool(is_same)


def _size(case: Case) -> tuple[int, ...]:
    """How much there is to read in a case: the fewer parts that are not the plainest, the less."""
    names = [alias.name != "name" for alias in case.aliases]
    effect = case.effect.name not in ("DST.zero_()", "DST.append(DST[-1])", "kept.append(DST)")
    return (
        len(case.aliases) + sum(names) + effect + (case.place.name != "here") + (case.alias_at != case.effect_at),
        not case.is_inside,
    )


@cache
def _beside(name: str) -> tuple[str, CodeType]:
    path = _BESIDE / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    return text, compile(text, str(path), "exec")


def _context(text: str) -> Context:
    """What the other file of the project tells of the program, where that imports it."""
    if "shared" not in text:
        return ALONE
    return contexts({"program.py": text, "shared.py": _beside("shared")[0]}).get("program.py", ALONE)


@lru_cache(maxsize=100)  # of the other file above all, which many programs tell the same
def _links(text: str, context: Context) -> Links:
    return find(text, RULES, OPTIONS, context).links


def contexts(files: Mapping[str, str]) -> dict[str, Context]:
    """What the files of a project tell each other, by path, once nobody has anything new to tell."""
    known: dict[str, Context] = {}
    while True:
        links = {path: _links(text, known.get(path, ALONE)) for path, text in files.items()}
        news = contexts_of(links)
        if news == known:
            return known
        known = news


def _run(text: str) -> Any:
    """What the program gives; the exception that it raises."""
    try:
        with _modules() as program, warnings.catch_warnings(), _silence():
            warnings.simplefilter("ignore")
            with patch.multiple(graphs, graphed_loop=in_chunks, graphed_step=Double, cuda_graph=Differentiable):
                exec(compile(text, "program", "exec"), program.__dict__)
            return program.__dict__["run"]()
    except Exception as error:
        return error


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


@contextlib.contextmanager
def _modules() -> Iterator[ModuleType]:
    """A new module for a program, with new modules beside it that it may import."""
    program = ModuleType("program")
    modules = {"program": program}
    for name in ("shared", "elsewhere"):
        modules[name] = ModuleType(name)
        exec(_beside(name)[1], modules[name].__dict__)
    sys.modules.update(modules)
    try:
        yield program
    finally:
        for name in modules:
            sys.modules.pop(name, None)


def _difference(expected: Any, found: Any, is_rounded: bool) -> str:
    """What differs in `found`; empty where nothing does."""
    if isinstance(found, Exception):
        return f"raises {_said(found)}"
    return next(_differences(expected, found, "", is_rounded), "")


def _differences(one: Any, other: Any, place: str, is_rounded: bool) -> Iterator[str]:
    if type(one) is not type(other):
        yield f"{place} is {type(other).__name__}, not {type(one).__name__}"
    elif isinstance(one, Mapping):
        yield from _differences(list(one), list(other), f"{place} keys", is_rounded)
        for key, first, second in zip(one, one.values(), other.values(), strict=False):
            yield from _differences(first, second, f"{place}.{key}", is_rounded)
    elif isinstance(one, set):
        yield from _differences(sorted(one, key=repr), sorted(other, key=repr), place, is_rounded)
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            yield f"{place} has {len(other)} elements, not {len(one)}"
        for index, (first, second) in enumerate(zip(one, other, strict=False)):
            yield from _differences(first, second, f"{place}[{index}]", is_rounded)
    elif not _equal(one, other, is_rounded):
        yield f"{place} has another value"


def _equal(one: Any, other: Any, is_rounded: bool) -> bool:
    if isinstance(one, str):  # the backward pass of a captured step has another name
        one, other = (_GRAPH.sub("", each) for each in (one, other))
    if isinstance(one, np.ndarray | np.generic):
        if one.dtype != other.dtype:
            return False
        one, other = torch.as_tensor(np.array(one)), torch.as_tensor(np.array(other))
    if isinstance(one, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype or one.requires_grad != other.requires_grad:
            return False
        one, other = one.detach(), other.detach()
        if one.is_floating_point():
            precision = 1e-4 if is_rounded else 0.0
            return torch.allclose(one, other, rtol=precision, atol=precision, equal_nan=True)
        return torch.equal(one, other)
    if isinstance(one, float):
        return one == other or one != one != other or (is_rounded and abs(one - other) < 1e-4 * (1 + abs(one)))
    return one is other or bool(torch.as_tensor(one == other).all())


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
