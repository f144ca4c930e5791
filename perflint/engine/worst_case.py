"""The worst case for a file: every function that others may call is hot, and every summary is that of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.analysis.links import Context, HotCall, Likelihood, Links, ParameterEffect, Summary
from perflint.analysis.program import Heat
from perflint.analysis.values.call_targets import named_functions
from perflint.analysis.values.linking import links_of

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_HARMLESS = (ParameterEffect("*"),)  # to whatever a function is given
_GIVEN = ("-", "D", "{D}")  # whatever it is, a tensor on the device, and a batch of them


def worst_contexts(program: Program, links: Links) -> Iterator[Context]:
    """Contexts of `program` in which every finding appears that some other file could cause."""
    for code in _GIVEN:
        called = _context(program, links, code)
        yield _context(program, links_of(program.with_context(called), called), code)  # hot code has more queries


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
