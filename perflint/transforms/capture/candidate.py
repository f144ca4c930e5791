"""The fixes that capture: a function as one CUDA graph, a loop in chunks or outlined, training steps, policies."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice, starmap

from perflint.analysis.autograd.effects import runs_backward
from perflint.analysis.heat.freshness import steps_an_environment
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Value, sources_of
from perflint.analysis.links import Heat, Says
from perflint.analysis.program import Effect, GradMode, Program
from perflint.analysis.values.hints import scripting
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import FUNCTIONS, LOOPS, PlainLoop, integer, own_nodes, path_of, reachable, receiver_of
from perflint.transforms.aliases import check_aliases
from perflint.transforms.capture.calls import MODES, called
from perflint.transforms.capture.captured import COMPILERS, DISTRIBUTION, RUNTIME, handed_over, is_captured
from perflint.transforms.capture.chunks import end_of, stepped
from perflint.transforms.capture.host_part import Around
from perflint.transforms.capture.obstacles import Obstacles
from perflint.transforms.capture.outline import Outline
from perflint.transforms.capture.parts import steps
from perflint.transforms.capture.region import Region, regions, regions_with, shortened
from perflint.transforms.capture.results import check_returned
from perflint.transforms.capture.step_obstacles import is_model
from perflint.transforms.operations import Decorate, Replace, expression
from perflint.transforms.remedy import TrainingStep
from perflint.transforms.rewrite import Blocked, first_of, importing, rewrite, shown, taken_around

_NOT_CAPTURED = ("torch.autograd", "torch.jit")


def graphed(program: Program, loop: PlainLoop) -> Fix:
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
        _check_loop(program, loop)  # whatever is around it, what is in it is in the way of both
        raise
    return fix


def _check_loop(program: Program, loop: PlainLoop) -> None:
    if (function := program.function_of(loop)) is not None:
        Obstacles(program, program.grad_mode(loop, callers=False) is GradMode.OFF).check([loop], function)


def _beside_others(program: Program, loop: PlainLoop) -> Fix:
    if program.grad_mode(loop) is not GradMode.OFF:
        _check_differentiated(program, _function(program, loop))
    if isinstance(function := program.function_of(loop), ast.FunctionDef):
        _check_sites(program, function)
    return _outlined(program, loop)


def _in_chunks(program: Program, loop: PlainLoop, end: ast.If) -> Fix:
    name, imported = importing(program, RUNTIME, "graphed_loop")
    change = rewrite(program, *imported, *stepped(program, loop, end, name))
    return Fix("run the loop as CUDA graphs of several steps", Safety.EXACT, change, DISTRIBUTION)


def _whole(program: Program, loop: PlainLoop) -> Fix:
    function = _function(program, loop)
    quiet = program.grad_mode(function.body[0], callers=False) is GradMode.OFF
    if not quiet:
        _check_differentiated(program, function)
    obstacles = Obstacles(program, quiet)
    obstacles.check_function(function)
    check_returned(program, loop, function)
    _check_sites(program, function)
    name, imported = importing(program, RUNTIME, "cuda_graph")
    return Fix(
        f"run `{function.name}` as one CUDA graph",
        Safety.EXACT if quiet else Safety.ROUNDING,  # of gradients that several uses of a parameter add up
        rewrite(program, *imported, Decorate(function, expression(name)), *starmap(Replace, obstacles.sliced.items())),
        DISTRIBUTION,
    )


def _check_differentiated(program: Program, function: ast.FunctionDef) -> None:
    if "create_graph" in program.text:
        raise Blocked("this file takes second derivatives, which go through no graph", function)


def _function(program: Program, loop: PlainLoop) -> ast.FunctionDef:
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
    sites = program.call_sites(function)
    is_once = len(sites) == 1 and program.function_of(sites[0]) is None and program.heat(sites[0]) is Heat.ONCE
    if is_once and not _is_often_run(program, sites[0]):
        raise Blocked(f"`{function.name}` runs once, and a graph is of use from the third time on", sites[0])
    for site in sites:
        loop = program.hot_loop(site)
        for path in map(path_of, site.args):
            if loop is not None and path and program.counts(loop, path):
                raise Blocked(
                    f"`{function.name}` is given another number `{path}` at each call: give it a tensor", site
                )


def _check_compiled(program: Program, function: ast.FunctionDef) -> None:
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


def _outlined(program: Program, loop: PlainLoop) -> Fix:
    return first_of(partial(_outlined_at, program, inner) for inner in _statements(program, loop))


def _statements(program: Program, loop: PlainLoop) -> Iterator[ast.stmt]:
    yield loop
    for each in program.ancestors(loop):
        if isinstance(each, FUNCTIONS):
            break
        if isinstance(each, ast.stmt):
            yield each


def _outlined_at(program: Program, inner: ast.stmt, what: str = "loop", *, acts: bool = False) -> Fix:
    around = _around_of(program, program.block_of(inner))
    if isinstance(around, LOOPS) and not _is_often_run(program, inner):
        raise Blocked("it runs once, and a graph is of use from the third time on", inner)
    found = regions_with(program, inner, around, acts=acts)
    return first_of(partial(_fixed, program, region, what) for region in found)


def _fixed(program: Program, region: Region, what: str) -> Fix:
    if region.recorded and isinstance(region.around, LOOPS):
        reason = "gradients may be recorded, and a replay would record none: put it under `torch.no_grad()`"
        raise Blocked(reason, region.scope)
    name, imported = importing(program, RUNTIME, "cuda_graph" if region.recorded else "graphed_step")
    operations = Outline(program, region, taken_around(program, region.scope)).operations(name)
    safety = Safety.ROUNDING if region.recorded else Safety.EXACT  # of gradients that several uses add up
    return Fix(f"run the {what} as one CUDA graph", safety, rewrite(program, *imported, *operations), DISTRIBUTION)


def acting_steps(program: Program) -> list[tuple[ast.Call, Fix]]:
    """The calls of policies that act for an environment in a hot loop, each with its fix.

    What blocks others isn't told: they belong to no step of training.
    """
    found: dict[ast.Call, Fix] = {}
    for step in program.of_type(ast.Call):
        if steps_an_environment(program, step) and _is_often_run(program, step):
            for call in decisions(program, step):
                if call not in found and not is_captured(program, call):
                    with suppress(Blocked):
                        found[call] = _outlined_at(program, program.statement_of(call), "policy", acts=True)
    return [*found.items()]


_DECORATOR = "graphed_step"
_EXACT = frozenset({"torch.optim.SGD", "torch.optim.sgd.SGD"})


def training_steps(program: Program) -> list[TrainingStep]:
    found = []
    for block, backward in _training_blocks(program):
        if is_captured(program, backward):
            continue
        try:
            found.append(TrainingStep(backward, (_fix(program, block, backward),), ""))
        except Blocked as reason:
            found.append(TrainingStep(backward, (), str(reason)))
    return found


def _fix(program: Program, block: list[ast.stmt], backward: ast.Call) -> Fix:
    _check_order(program, block, backward)
    _check_given(program, backward)
    found = regions(program, block, _around_of(program, block))
    name, imported = importing(program, RUNTIME, _DECORATOR)
    outlines = _outlines(program, found)
    found = [each.region for each in outlines]
    changes = [each for outline in outlines for each in outline.operations(name)]
    optimizers = {program.value(each).name for region in found for each in region.stepped}
    is_exact = optimizers <= _EXACT and not any(region.kept for region in found)
    safety = Safety.EXACT if is_exact else Safety.ROUNDING  # of an optimizer in its capturable form, say
    if any(each.scales for region in found for each in region.fetched):
        safety = Safety.PRECISION  # the numbers have the bits of torch's default type
    title = "run the training step as one CUDA graph"
    if eager := found[0].eager:
        title = f"run the forward and backward passes as one CUDA graph, but not the optimizer's step ({eager})"
    return Fix(title, safety, rewrite(program, *imported, *changes), DISTRIBUTION)


def _around_of(program: Program, block: list[ast.stmt]) -> Around:
    around = next(each for each in program.ancestors(block[0]) if isinstance(each, (*LOOPS, *FUNCTIONS, ast.Module)))
    if isinstance(around, LOOPS):
        return around
    if not isinstance(around, ast.FunctionDef):
        raise Blocked("the step isn't in a loop, and in no function of its own", block[0])
    for each in around.decorator_list:
        if program.qualified(called(each)) not in MODES:
            raise Blocked("what decorates the function may do more than call it: decorate its step by hand", each)
    return around


def _outlines(program: Program, found: list[Region]) -> list[Outline]:
    outlines, reasons = [], []
    taken = taken_around(program, found[0].scope)  # by the functions of one block, too
    for region in found:
        for part in shortened(program, region):
            try:
                outlines.append(Outline(program, part, taken))
                break
            except Blocked as reason:
                reasons.append(reason)
    if not outlines:
        raise reasons[0]
    return outlines


def _check_given(program: Program, backward: ast.Call) -> None:
    loss = receiver_of(backward)
    if isinstance(loss, ast.Name):
        given = program.get(Flow).graph(loss).definitions(loss)
        if given and all(isinstance(each, Definition) and isinstance(each.node, ast.arg) for each in given):
            reason = (
                "is computed by callers, and a step begins with a forward pass: compute it in the function that steps"
            )
            raise Blocked(f"`{loss.id}` {reason}", backward)


def _check_order(program: Program, block: list[ast.stmt], backward: ast.Call) -> None:
    nodes = [backward, *program.ancestors(backward)]
    at = next(each for each in block if each in nodes)
    if isinstance(at, LOOPS) and not any(steps(program, each) for each in block[block.index(at) + 1 :]):
        raise Blocked("the optimizer steps in front of it, for the next time: step behind it, in its block", backward)


_OFTEN = 20  # steps: fewer are over before a graph is of use


def _training_blocks(program: Program) -> Iterator[tuple[list[ast.stmt], ast.Call]]:
    seen: set[ast.stmt] = set()
    for call in sorted(program.of_type(ast.Call), key=lambda each: (each.lineno, each.col_offset)):
        if runs_backward(program, call) and (program.hot_by(call) is not None or _is_often_run(program, call)):
            block = _block_of(program, call)
            if block and block[0] not in seen:
                seen.add(block[0])
                yield block, call


def _is_often_run(program: Program, node: ast.AST) -> bool:
    loop = next((each for each in program.ancestors(node) if isinstance(each, (*LOOPS, *FUNCTIONS))), None)
    if not isinstance(loop, LOOPS) or program.is_tried_out(node):
        return False
    counted = program.call_of(getattr(loop, "iter", None), "builtins.range")
    steps = integer(counted.args[-1]) if counted is not None and counted.args else None
    return steps is None or steps >= _OFTEN


def _block_of(program: Program, call: ast.Call) -> list[ast.stmt]:
    statement: ast.AST | None = program.statement_of(call)
    while statement is not None and not isinstance(statement, (*FUNCTIONS, ast.Module)):
        if isinstance(statement, ast.stmt):
            block = program.block_of(statement)
            if any(steps(program, each) for each in block[block.index(statement) :]):
                return block
        statement = program.parent(statement)
    return []


def decisions(program: Program, step: ast.Call) -> Iterator[ast.Call]:
    graph = program.get(Flow).graph(step)
    loop = next((each for each in program.ancestors(step) if isinstance(each, LOOPS)), None)

    def computed_of(node: ast.AST) -> list[Value]:
        names = (each for each in own_nodes(node) if isinstance(each, ast.Name))
        return [value for name in names for value in graph.definitions(name)]

    def before(value: Value) -> list[Value]:
        if not isinstance(value, Definition):
            return []
        given = computed_of(value.source) if value.source is not None else []
        return [*given, *(sources_of(value.updates) if value.updates is not None else ())]

    values = reachable([each for given in step.args for each in computed_of(given)], before)
    names = [each.node for each in values if isinstance(each, Definition) and isinstance(each.node, ast.Name)]
    for inner in dict.fromkeys(map(program.statement_of, names)):
        if loop is None or not _is_in(program, inner, loop) or program.grad_mode(inner) is not GradMode.OFF:
            continue
        calls = (each for each in own_nodes(inner) if isinstance(each, ast.Call))
        runs = (each for each in calls if program.effects(each, Effect.RUNS_MODULE) or is_model(program, each.func))
        yield from islice(runs, 1)


def _is_in(program: Program, statement: ast.stmt, loop: ast.AST) -> bool:
    return next((each for each in program.ancestors(statement) if isinstance(each, LOOPS)), None) is loop
