"""The fix that captures a loop which must stay: the function around it as one CUDA graph, or the loop in chunks."""

from __future__ import annotations

import ast
from contextlib import suppress

from perflint.analysis.heat.scale import Heat
from perflint.analysis.links import Says
from perflint.analysis.program import GradMode, Program
from perflint.analysis.values.device_use import scripting
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import PlainLoop, path_of
from perflint.transforms.aliases import check_aliases
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.captured import COMPILERS, DISTRIBUTION, RUNTIME, handed_over
from perflint.transforms.capture.course import Exit, end_of
from perflint.transforms.capture.obstacles import Obstacles
from perflint.transforms.capture.outlined_loop import outlined
from perflint.transforms.capture.step_function import stepped
from perflint.transforms.imports import importing
from perflint.transforms.operations import Decorate
from perflint.transforms.rewrite import rewrite
from perflint.transforms.shown import shown
from perflint.transforms.template import expression

_NOT_CAPTURED = ("torch.autograd", "torch.jit")


def graphed(program: Program, loop: PlainLoop) -> Fix:
    """The fix that captures `loop`; raises Blocked, which says what stands in the way."""
    _check_scripted(program, loop)
    if (end := end_of(program, loop)) is not None:
        fix = _in_chunks(program, loop, end)
        check_aliases(program, loop)
        return fix
    try:
        fix = _whole(program, loop)
        check_aliases(program, loop)
    except Blocked:
        with suppress(Blocked):
            return _beside_others(program, loop)
        raise
    return fix


def _beside_others(program: Program, loop: PlainLoop) -> Fix:
    if program.grad_mode(loop) is not GradMode.OFF:
        _check_differentiated(program, _function(program, loop))
    if isinstance(function := program.function_of(loop), ast.FunctionDef):
        _check_sites(program, function)
    return outlined(program, loop)


def _in_chunks(program: Program, loop: PlainLoop, end: Exit) -> Fix:
    name, imported = importing(program, RUNTIME, "graphed_loop")
    change = rewrite(program, *imported, *stepped(program, loop, end, name))
    return Fix("run the loop as CUDA graphs of several steps", Safety.EXACT, change, DISTRIBUTION)


def _whole(program: Program, loop: PlainLoop) -> Fix:
    function = _function(program, loop)
    quiet = program.grad_mode(function.body[0], callers=False) is GradMode.OFF
    if not quiet:
        _check_differentiated(program, function)
    Obstacles(program, quiet).check_function(function)
    _check_sites(program, function)
    name, imported = importing(program, RUNTIME, "cuda_graph")
    return Fix(
        f"run `{function.name}` as one CUDA graph",
        Safety.EXACT if quiet else Safety.ROUNDING,  # of gradients that several uses of a parameter add up
        rewrite(program, *imported, Decorate(function, expression(name))),
        DISTRIBUTION,
    )


def _check_differentiated(program: Program, function: ast.FunctionDef) -> None:
    if "create_graph" in program.text:
        raise Blocked("this file takes second derivatives, which go through no graph", function)


def _function(program: Program, loop: PlainLoop) -> ast.FunctionDef:
    """The function around the loop, where a decorator may capture it."""
    function = program.function_of(loop)
    if function is None:
        raise Blocked("it is in no function that could be captured: make it one, of the tensors that differ", loop)
    if not isinstance(function, ast.FunctionDef):
        raise Blocked("what is around it is no plain function: put the loop into a `def`", loop)
    owner = program.parent(function)
    if not isinstance(owner, ast.Module | ast.ClassDef):
        raise Blocked(
            f"`{function.name}` is defined anew each time the code around it runs: define it outside", function
        )
    if function.name == "__init__":
        raise Blocked("it runs once for each object: no graph would be used again", function)
    for base in program.base_names(owner) if isinstance(owner, ast.ClassDef) else ():
        if base.startswith(_NOT_CAPTURED):
            raise Blocked(f"methods of a `{base}` can't be captured: make it a plain function", owner)
    _check_compiled(program, function)
    return function


def _check_sites(program: Program, function: ast.FunctionDef) -> None:
    """Raise Blocked where each call of the function is another one for a graph, or there is but one."""
    sites = program.call_sites(function)
    if len(sites) == 1 and program.function_of(sites[0]) is None and program.heat(sites[0]) is Heat.ONCE:
        raise Blocked(f"`{function.name}` runs once, and a graph is of use from the third time on", sites[0])
    for site in sites:
        loop = program.hot_loop(site)
        for path in map(path_of, site.args):
            if loop is not None and path and program.counts(loop, path):
                raise Blocked(
                    f"`{function.name}` is given another number `{path}` at each call: give it a tensor", site
                )


def _check_compiled(program: Program, function: ast.FunctionDef) -> None:
    """Compiled code would meet the decorator, and compile it instead of what it decorates."""
    compiled = handed_over(program, function, COMPILERS) if "compile" in program.text else None
    if compiled is not None:
        raise Blocked(
            f"{shown(program, compiled)} compiles `{function.name}`, graph and all: choose one of both", compiled
        )


def _check_scripted(program: Program, loop: PlainLoop) -> None:
    """TorchScript takes no function that it can't compile itself, nor any that calls one."""
    if program.is_said(Says.COMPILES):
        raise Blocked("a file that imports this one uses torch.jit: no graph can capture what is scripted", loop)
    compiler = scripting(program)
    if compiler is not None:
        raise Blocked("this file compiles with torch.jit: no graph can capture what is scripted", compiler)
