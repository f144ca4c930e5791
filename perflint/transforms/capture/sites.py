"""Whether the calls of a function let a graph of it be used again."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.analysis.heat.scale import Heat
from perflint.syntax.walk import path_of
from perflint.transforms.blocked import Blocked

if TYPE_CHECKING:
    from perflint.analysis.program import Program


def check_sites(program: Program, function: ast.FunctionDef) -> None:
    """Raise Blocked where each call is another one for a graph, or there is but one."""
    sites = program.call_sites(function)
    if len(sites) == 1 and program.function_of(sites[0]) is None and program.heat(sites[0]) is Heat.ONCE:
        raise Blocked(f"`{function.name}` runs once, and a graph is of use from the third time on", sites[0])
    for site in sites:
        loop = program.hot_loop(site)
        if loop is None or not isinstance(site, ast.Call):
            continue
        for argument in site.args:
            path = path_of(argument)
            if path and program.counts(loop, path):
                raise Blocked(
                    f"`{function.name}` is given another number `{path}` at each call: give it a tensor", site
                )
