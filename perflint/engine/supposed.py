"""Supposes of a file the most that others could tell of it: that its functions are hot, and given tensors by all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.analysis.links import Answer, Context, HotCall, Likelihood, Links
from perflint.analysis.program import Heat
from perflint.analysis.values.linking import links_of
from perflint.analysis.values.outside import named_functions

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_GIVEN = ("-", "D", "{D}")  # whatever it is, a tensor on the device, and a batch of them


def supposed_contexts(program: Program, links: Links) -> Iterator[Context]:
    """Contexts of `program` in which all is found that other files could bring about, whatever is in them."""
    for code in _GIVEN:
        called = _context(program, links, code)
        yield _context(program, links_of(program.told(called), called), code)  # what is hot asks more


def _context(program: Program, links: Links, code: str) -> Context:
    calls = tuple(
        HotCall(name, Heat.TIME, code * len(node.args.args), tuple((each.arg, code) for each in node.args.kwonlyargs))
        for name, node in named_functions(program.tree)
        if name in links.functions
    )
    asked = sorted({*links.questions, *links.doubts, *links.steps, *links.starts})
    sure = Likelihood.CERTAIN
    answers = (Answer(target, code, trains=True, starts=sure, loads=sure) for target in asked)
    return Context(calls, tuple(answers), on_host=False)
