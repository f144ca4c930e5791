"""A profile in words: the sentence that sums it up, what to do first, and the summary on the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import wrap

from perflint.documents.lines import at_line
from perflint.engine import count
from perflint.engine.catalogue import rules_by_name
from perflint.engine.results import Diagnostic, RunResult, figure
from perflint.engine.rule import Severity
from perflint.profile.result import Code, LineCost, Profile
from perflint.profile.roofline import Regime
from perflint.report.text import Style, printable

_BAR = 12
_LINES, _FINDINGS, _COSTS = 5, 4, 3
_WORTH = 0.05  # of a step is worth a line
_LEAST = 0.02  # of a step is worth a fix
_STALL, _LEAST_STALL = 0.2, 1.0  # of a step, and milliseconds
_STRAGGLES = 0.05  # of a step that the others wait
_WIDTH = 80
_DOES = {
    Regime.OVERHEAD: ("the GPU idles while the host works", "Python and torch's dispatch"),
    Regime.INPUT: ("the GPU waits for loaders and copies of batches", "waiting for loaders"),
    Regime.READS: ("the GPU idles because the host waited for it", "reading results"),
    Regime.COMPUTE: ("matrix products and convolutions", "matrix products and convolutions"),
    Regime.MEMORY: ("pointwise operations, reductions, copies", "pointwise operations, reductions, copies"),
    Regime.COMMUNICATION: ("collectives, while nothing else runs", "collectives, while nothing else runs"),
}


@dataclass(frozen=True)
class Advice:
    command: str
    why: str


@dataclass(frozen=True)
class Report:
    """A profile with the findings in loaded files; `where` holds their statements by real paths."""

    profile: Profile
    result: RunResult
    where: dict[str, Code]

    @cached_property
    def measured(self) -> Sequence[Diagnostic]:
        known = [each for each in self.result.diagnostics if each.cost]
        return sorted(known, key=lambda each: -(each.cost.ms if each.cost else 0.0))

    @cached_property
    def unmeasured(self) -> Sequence[Diagnostic]:
        return [each for each in self.result.diagnostics if not each.cost]

    @cached_property
    def unexplained(self) -> Sequence[LineCost]:
        covered = {
            (path, line)
            for each in self.measured
            if (path := os.path.realpath(each.path)) in self.where
            for line in self.where[path].region(each)
        }
        of_loaders = any(map(_is_about_input, self.measured))
        worth = _WORTH * self.profile.step_ms
        return [
            each
            for each in self.profile.lines
            if each.own_ms - of_loaders * each.own.get(Regime.INPUT.value, 0.0) >= worth
            and (each.path, each.line) not in covered
        ]

    def seen(self, diagnostic: Diagnostic) -> Sequence[str]:
        """What variables in a finding's code held: for a blocked one, maybe the missing fact."""
        path = os.path.realpath(diagnostic.path)
        if path not in self.where:
            return []
        region = self.where[path].region(diagnostic)
        names = {name for line in region for name in self.where[path].names.get(line, ())}
        functions = {each.function for each in self.profile.lines if each.path == path and each.line in region}
        facts = (each for each in self.profile.facts if each.path == path and each.function in functions)
        return [f"{each.name}: {' or '.join(each.seen)}" for each in facts if each.name in names]

    @property
    def sentence(self) -> str:
        profile = self.profile
        if not profile.shares:
            return "Can't tell where the time goes: nothing but lines could be traced."
        regime = Regime(profile.regime)
        share = f"{100 * profile.shares[regime.value]:.0f} % of a step of {figure(profile.step_ms)} ms"
        top = max(profile.lines, key=lambda each: each.own.get(regime.value, 0.0), default=None)
        ms = top.own.get(regime.value, 0.0) if top else 0.0
        at = f", {figure(ms)} ms of it at {place(top)}" if top and ms else ""
        says = _DOES[regime][not profile.is_gpu]
        return f"{regime.value.capitalize()}: {says}, {share}{at}{self._achieved(regime)}."

    def _achieved(self, regime: Regime) -> str:
        roofline = self.profile.roofline
        if regime is Regime.COMPUTE and roofline.achieved:
            rates = ", ".join(f"{figure(value / 1e12)} TFLOP/s in {name}" for name, value in roofline.achieved.items())
            share = f", {100 * roofline.peak_share:.0f} % of the peak" if roofline.peak_share else ""
            return f"; it does {rates}{share}"
        if regime is Regime.MEMORY and roofline.bandwidth:
            peak = roofline.peak.bandwidth * 1e12 if roofline.peak else 0.0
            share = f", {100 * roofline.bandwidth / peak:.0f} % of the peak" if peak else ""
            return f"; it moves {figure(roofline.bandwidth / 1e9)} GB/s{share}"
        return ""

    @property
    def first(self) -> Advice:
        profile, program = self.profile, self.profile.program
        least = _LEAST * profile.step_ms
        regime = Regime(profile.regime) if profile.shares else None
        is_bound = profile.regime if profile.is_gpu else ""
        bound = {name for name, rule in rules_by_name().items() if is_bound in rule.regimes}
        fixable = [
            each
            for each in self.measured
            if each.fixes and each.cost and each.cost.ms >= least
            if each.severity is not Severity.ADVICE or each.rule in bound  # which else only those try who select it
        ]
        if fixable:
            if fixable[0].rule in bound:
                return Advice(f"perflint tune {program}", f"{fixable[0].rule} may gain where steps are bound so")
            options = "--tune-loader " if _is_about_input(fixable[0]) else ""
            tried = (each for each in fixable if each.severity is not Severity.ADVICE)
            places = {(each.path, each.start.cell, each.start.line): each.cost.ms for each in tried if each.cost}
            most = min(sum(places.values()), profile.step_ms)  # costs of one line overlap
            return Advice(f"perflint verify {options}{program}", f"fixes save at most {figure(most)} ms of a step")
        if not regime:
            return Advice("have the program not use torch.profiler itself", "only its lines could be traced")
        if regime is Regime.INPUT:
            return Advice(f"perflint run --tune-loader {program}", "measures how many workers its loaders need")
        if self.unexplained and regime in (Regime.OVERHEAD, Regime.READS) and self._is_stall(self.unexplained[0]):
            return Advice(f"look at {place(self.unexplained[0])}", "no finding is about it")
        if not profile.is_gpu:
            return Advice("profile it where its GPU is", "on a CPU, other things cost")
        if regime in (Regime.OVERHEAD, Regime.MEMORY):
            return Advice(f"perflint verify --compile {program}", "no finding explains it; compiling may")
        if regime is Regime.COMPUTE and "fp32" in profile.roofline.achieved:
            return Advice("torch.set_float32_matmul_precision('high')", "TF32: faster products, other rounding")
        return Advice("nothing", f"no finding costs {100 * _LEAST:.0f} % of a step")

    def _is_stall(self, line: LineCost) -> bool:
        return line.launches <= 1 and line.host_ms >= max(_STALL * self.profile.step_ms, _LEAST_STALL)

    @property
    def straggler(self) -> str:
        ranks = self.profile.ranks
        if not ranks:
            return ""
        waits = {each.rank: each.communication_ms for each in ranks}
        last, longest = min(waits, key=lambda rank: waits[rank]), max(waits.values())
        if longest - waits[last] < _STRAGGLES * self.profile.step_ms:
            return f"{len(ranks)} ranks, none of which the others wait for"
        return f"rank {last} comes last: the others wait for it, up to {figure(longest - waits[last])} ms of a step"


def place(line: LineCost) -> str:
    return at_line(line.path, line.line, shown(line.path))


def finding_place(finding: Diagnostic) -> str:
    return at_line(finding.path, finding.start.program_line, shown(finding.path))


def shown(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def summary(report: Report, style: Style) -> str:
    width = min(style.width or _WIDTH, 120)
    return "".join(f"{_cut(line, width, style)}\n" for line in _summary(report, style))


def _cut(line: str, width: int, style: Style) -> str:
    return line if style.color or len(line) <= width else f"{line[: width - 4]} ..."


def _summary(report: Report, style: Style) -> Iterator[str]:
    profile = report.profile
    for line in wrap(printable(report.sentence), min(style.width or _WIDTH, 120)):
        yield style.paint("bold", line)
    yield f"{printable(profile.device)}; {count(profile.steps, 'step')} ({profile.unit}), {_slowdown(profile)}"
    if not profile.is_gpu:
        yield "No GPU is in use: this is where the time of the CPU goes."
    for text in filter(None, (report.straggler, *profile.notes)):
        yield printable(text)
    if profile.shares:
        yield ""
    for regime in Regime if profile.shares else ():
        share = profile.shares[regime.value]
        bar = "█" * round(_BAR * share)
        says = _DOES[regime][not profile.is_gpu]
        yield f"{regime.value:<13} {100 * share:5.1f} % {figure(profile.ms(regime.value)):>6} ms {bar:<{_BAR}} {says}"
    yield ""
    work = " launches   GPU ms " if profile.is_gpu else ""
    yield style.paint("bold", f"ms a step {work} host ms  line")
    for each in [each for each in profile.lines if each.own_ms >= 0.01 * profile.step_ms][:_LINES]:
        work = f"{each.launches:>9.0f} {figure(each.device_ms):>8} " if profile.is_gpu else ""
        yield f"{figure(each.own_ms):>9} {work}{figure(each.host_ms):>8}  {printable(place(each))} in {each.function}"
    yield from _worker_lines(profile)
    yield from _findings(report, style)
    yield style.paint("bold", f"First: {printable(report.first.command)}")
    yield f"       {printable(report.first.why)}"


def _slowdown(profile: Profile) -> str:
    percent = 100 * (profile.slowdown - 1)
    return f"{percent:.0f} % slower while traced, and scaled" if percent >= 1 else "not slowed by the trace"


def _worker_lines(profile: Profile) -> Iterator[str]:
    if profile.worker_lines and profile.shares.get(Regime.INPUT.value, 0.0) >= _WORTH:
        found = ", ".join(f"{place(each)} {figure(each.own_ms)} ms" for each in profile.worker_lines[:3])
        yield printable(f"in {profile.workers} workers a batch takes {figure(profile.batch_ms)} ms: {found}")


def _findings(report: Report, style: Style) -> Iterator[str]:
    if report.measured:
        yield style.paint("bold", "Findings by what they cost at most:")
    for each in report.measured[:_FINDINGS]:
        ms = figure(each.cost.ms) if each.cost else ""
        yield printable(f"{ms:>9} ms  {finding_place(each)} {each.rule}{'' if each.fixes else ' (no fix)'}")
    more = len(report.measured) - _FINDINGS
    rest = [f"{more} cheaper ones"] if more > 0 else []
    if report.unmeasured:
        rest.append(f"{len(report.unmeasured)} in code that did not run in these steps")
    if rest:
        yield f"{'':>9}     and {', '.join(rest)}"
    if report.unexplained:
        found = ", ".join(f"{place(each)} {figure(each.own_ms)} ms" for each in report.unexplained[:_COSTS])
        yield printable(f"No finding is about: {found}")


def _is_about_input(diagnostic: Diagnostic) -> bool:
    rule = rules_by_name().get(diagnostic.rule)
    return rule is not None and rule.group == "data"
