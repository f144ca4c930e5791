"""All that the author of a rule imports; the guide `api.md`, beside it in a checkout, lists it by question.

Positions are characters of the program's text, `[start, end)`. What isn't known is None, empty, or of `Kind.UNKNOWN`;
what is only likely says so (`Value.sure`). A rule imports nothing else of perflint, and these names stay.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import ModuleType
from typing import ParamSpec

from perflint.analysis.autograd.effects import steps_optimizer
from perflint.analysis.autograd.evaluations import evaluated, evaluations
from perflint.analysis.autograd.unused import UnusedGraph, unused_graphs
from perflint.analysis.call_graph import callers, handlers, loops_around
from perflint.analysis.data.batches import (
    Batch,
    Batches,
    Sample,
    is_hf_dataset,
    is_hf_tokenizer,
    samples,
    walks_examples,
)
from perflint.analysis.data.datasets import Datasets, Source, order_changed
from perflint.analysis.data.iteration import Restarts, is_only_peeked, restarts
from perflint.analysis.data.loaders import OPTION as MEASURED
from perflint.analysis.data.loaders import LoaderCall, Loaders, Setting, State, measured_workers
from perflint.analysis.data.origins import Origins
from perflint.analysis.data.starts import Start, Starts
from perflint.analysis.heat.freshness import steps_an_environment
from perflint.analysis.heat.heat import (
    acts_beside,
    computes_for_callers,
    is_part_of_step,
    made_before_steps,
    runs_model_beside,
    runs_often,
    steps_beside,
)
from perflint.analysis.heat.rarity import asks_for_setting, makes_rare
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.occurrences import (
    carrying_loop,
    dependents,
    occurrences,
    other_reads,
    reads,
    seen_elsewhere,
    variable_of,
)
from perflint.analysis.links import Likelihood, Says, Summary
from perflint.analysis.loops.parameters import parameter_update
from perflint.analysis.loops.repeats import filled_mask, walked_batch
from perflint.analysis.made import Made, made_on_host, moved_made
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.consumers import reading
from perflint.analysis.memory.locations import Write
from perflint.analysis.memory.roles import WRAPPERS, Consumer, Reading, Role, converts, is_view, joins
from perflint.analysis.memory.view_writes import asks_for_layout, shown_writes
from perflint.analysis.modules import Optimized, Placed, Placement, optimized
from perflint.analysis.program import Effect, Fate, GradMode, GraphUse, Heat, Kind, LoopKind, Place, Program, Value
from perflint.analysis.values.attention import Attention, attentions
from perflint.analysis.values.dtypes import is_integer
from perflint.analysis.values.numbers import Numbers, is_number, numbers
from perflint.analysis.values.operations import Move, TorchCall, move, operation
from perflint.analysis.values.shape import Shape
from perflint.analysis.values.shapes import Shapes
from perflint.engine.fix import comments as _comments
from perflint.engine.rule import Finding, Option, Options, Rule, Severity
from perflint.syntax.scopes import Bound, arguments_of, bind, keyword_of
from perflint.syntax.source import Edit, Fix, Safety, is_main_guard
from perflint.syntax.walk import (
    FUNCTIONS,
    LOOPS,
    Function,
    Loop,
    PlainLoop,
    bindings_of,
    integer,
    own_nodes,
    path_of,
    returned_values,
    root_of,
    variables_in,
)
from perflint.torch_ops import Operation, Trait
from perflint.torch_ops import canonical as torch_name
from perflint.torch_ops import does as torch_does
from perflint.torch_ops import of_function as torch_function
from perflint.torch_ops import of_method as torch_method
from perflint.transforms.filled import filled_on_device, moved_at_once, moved_later
from perflint.transforms.gradients import all_quiet, dead_detach, together, told_quiet, under_no_grad, without_gradients
from perflint.transforms.guard import Guarding, add_guard, is_notebook
from perflint.transforms.operations import (
    AddKeywords,
    AddName,
    Decorate,
    InsertAfter,
    InsertBefore,
    Replace,
    ReplaceStatements,
    apart,
    expression,
    number,
    statement,
    statements,
    takes_keywords,
)
from perflint.transforms.operations import Operation as CodeChange
from perflint.transforms.remedy import HostRead, Remedy, TrainingStep, remedies
from perflint.transforms.rewrite import Blocked, Codemod, Taken, of_torch, rewrite, taken_around

__all__ = [
    "FUNCTIONS", "LOOPS", "MEASURED", "WRAPPERS", "AddKeywords", "AddName", "Attention", "Batch", "Blocked",
    "Bound", "CodeChange", "Codemod", "Consumer", "Decorate", "Edit", "Effect", "Fate", "Finding", "Fix", "Flow",
    "Function", "GradMode", "GraphUse", "Guarding", "Heat", "InsertAfter", "InsertBefore", "Kind", "Likelihood",
    "LoaderCall", "Loop", "LoopKind", "Made", "Move", "Numbers", "Operation", "Optimized", "Option", "Options",
    "Place", "Placed", "PlainLoop", "Program", "Reading", "Remedy", "Replace", "ReplaceStatements", "Restarts",
    "Role", "Rule", "Safety", "Sample", "Says", "Setting", "Severity", "Shape", "Shapes", "Source", "Start",
    "State", "Summary", "Sync", "TorchCall", "TrainingStep", "Trait", "UnusedGraph", "Value", "Write",
    "acting_steps", "acts_beside", "add_guard", "all_quiet", "apart", "arguments_of", "asks_for_layout",
    "asks_for_setting", "assigned", "attentions", "batch", "bind", "bindings_of", "call_span", "callers",
    "carrying_loop", "changing", "comments", "computes_for_callers", "converts", "dataset", "dead_detach", "dependents",
    "derived_loaders", "evaluated", "evaluations", "expression", "filled_mask", "filled_on_device",
    "first_process_start", "flow", "fresh_name", "fused_attention", "handlers", "hands_out_own_items", "head_span",
    "host_reads", "integer", "is_hf_dataset", "is_hf_tokenizer", "is_integer", "is_main_guard", "is_notebook",
    "is_number", "is_only_peeked", "is_part_of_step", "is_view", "joined_behind", "joins", "keyword_of", "loaders",
    "loops_around", "made_before_steps", "made_on_host", "makes_rare", "matchers", "measured_workers", "move",
    "moved_at_once", "moved_later", "moved_made", "number", "numbers", "occurrences", "of_torch", "on_lists",
    "operation", "optimized", "order_changed", "origins", "other_reads", "own_nodes", "parameter_update", "path_of",
    "placed", "reading", "reads", "restarts", "returned_values", "rewrite", "root_of", "runs_model_beside",
    "runs_often", "samples", "seen_elsewhere", "shapes", "shown_writes", "statement", "statements",
    "steps_an_environment", "steps_beside", "takes_keywords", "time_loop_remedy", "together", "told_quiet",
    "torch_does", "torch_function", "torch_method", "torch_name", "training_steps", "tried", "under_no_grad",
    "unused_graphs", "variable_of", "variables_in", "walked_batch", "walks_examples", "without_gradients",
    "written_after",
]  # fmt: skip

Given = ParamSpec("Given")


# -- where a value comes from, and where it goes


def flow(program: Program) -> Flow:
    """Which assignments reach which uses of a name: definitions and uses, scope by scope."""
    return program.get(Flow)


def assigned(program: Program, name: ast.Name) -> list[ast.expr]:
    """The expressions whose values the variable may have there; none where it may have others, or parts of some."""
    return flow(program).assigned(name)


def origins(program: Program, node: ast.expr) -> list[ast.AST]:
    """The nodes that a value may come from, through names, attributes of self, branches, functions and their callers.

    A loop stands for what it walks, and a parameter, or a name of which nothing is known, for itself.
    """
    return program.get(Origins).of(node)


def written_after(program: Program, node: ast.expr, point: ast.AST) -> list[Write]:
    """The writes that may run after `point`, in the same function, and change what `node` holds there, by any alias."""
    return list(program.get(Memory).writes_after(node, point))


def changing(program: Program, node: ast.expr, point: ast.AST) -> list[ast.AST]:
    """What may change the tensor `node`, which no optimizer steps, after `point`: in its function, and in callers."""
    memory = program.get(Memory)
    writes = (*memory.writes_after(node, point), *memory.writes_of_callers(node, point))
    nodes = {write.node for write in writes if not steps_optimizer(program, write.node)}
    return sorted(nodes, key=lambda each: (getattr(each, "lineno", 0), getattr(each, "col_offset", 0)))


# -- modules


def placed(program: Program, module: ast.expr, point: ast.AST) -> Placed:
    """Where the parameters of `module` are when `point` runs, a node of the function in which `module` stands."""
    return program.get(Placement).of(module, point)


# -- sizes


def shapes(program: Program) -> Shapes:
    """What is known of the sizes of tensors: numbers, and the expressions that sizes are the same as."""
    return program.get(Shapes)


# -- loaders and processes


def loaders(program: Program) -> list[LoaderCall]:
    """The calls that build loaders, in source order."""
    return program.get(Loaders).calls


def derived_loaders(program: Program) -> list[LoaderCall]:
    """The calls that build loaders of other classes with workers: their keywords are torch's."""
    return program.get(Loaders).derived


def batch(program: Program, node: ast.expr) -> Batch | None:
    """The batch of loaders that `node` is, or is a part or a view of; None where it may be anything else."""
    return program.get(Batches).of(node)


def dataset(program: Program, loader: LoaderCall) -> Source:
    """What `loader` reads: whether workers could, would draw the same, and where the items lie."""
    return program.get(Datasets).of(loader)


def hands_out_own_items(program: Program, loader: LoaderCall) -> bool:
    """Does `loader` hand out, uncollated, objects that its dataset keeps, so that writes to them are kept as well?"""
    return program.get(Datasets).hands_out_own_items(loader)


def first_process_start(program: Program, *loaders: LoaderCall) -> Start | None:
    """The first statement of the module, outside of a main guard, that starts processes, if `loaders` had workers."""
    if not loaders:
        return program.get(Starts).first()
    return Starts(program, frozenset(loader.call for loader in loaders)).first()


# -- fixes


def tried(make: Callable[Given, Fix], *given: Given.args, **named: Given.kwargs) -> tuple[tuple[Fix, ...], str]:
    """The fix that `make(...)` gives, and nothing that blocks it; or none, and what does, if it raises Blocked."""
    try:
        return (make(*given, **named),), ""
    except Blocked as reason:
        return (), str(reason)


def fresh_name(program: Program, name: str, *nodes: ast.AST) -> str:
    """A name like `name` that stands for nothing in the functions around these nodes."""
    return Taken(set[str]().union(*(taken_around(program, each).names for each in nodes))).fresh(name)


def joined_behind(program: Program, growing: TorchCall) -> Fix:
    """The fix for a tensor that grows by `name = torch.cat([name, part])` in a loop: a list, joined after the loop.

    Raises Blocked where the loop needs the tensor as it grows, others may look at it, or a part may change meanwhile.
    """
    from perflint.transforms.joined import joined_behind  # here: few files have such a loop

    return joined_behind(program, growing)


def fused_attention(program: Program, found: Attention) -> Fix:
    """The fix for attention that is computed step by step: torch's fused kernels.

    Raises Blocked where it isn't proved that they compute the same, but for rounding and what dropout draws.
    """
    from perflint.transforms.attention import fused_attention  # here: few files have attention

    return fused_attention(program, found)


def on_lists(program: Program, loop: ast.For) -> Fix:
    """The fix for a loop that updates the tensors it walks: each operation once, on lists of all, torch._foreach_*.

    Raises Blocked where iterations may depend on each other, or do what has no counterpart for lists.
    """
    from perflint.transforms.foreach import on_lists  # here: few files have such a loop

    return on_lists(program, loop)


def time_loop_remedy(program: Program, loop: PlainLoop) -> Remedy | None:
    """What may be done about a loop over time: all of its steps at once, or captured as a graph, or why neither can be.

    None for other loops, and for what is captured already.
    """
    found = program.time_loop(loop)
    if found is None:
        return None
    from perflint.transforms.capture.captured import is_captured  # here: most files have no such loop
    from perflint.transforms.vectorize.rewrite import remedy

    return None if is_captured(program, loop) else remedy(program, loop, found.kind, found.because)


def training_steps(program: Program) -> list[TrainingStep]:
    """The hot training steps of a program, each with the fix that runs it as a CUDA graph, or what is in its way.

    What is captured already is left out.
    """
    from perflint.transforms.capture.candidate import training_steps  # here: few ask for it

    return training_steps(program)


def acting_steps(program: Program) -> list[tuple[ast.Call, Fix]]:
    """The calls of policies that act for an environment, each with the fix that runs it as a CUDA graph."""
    from perflint.transforms.capture.candidate import acting_steps  # here: few ask for it

    return acting_steps(program)


def host_reads(program: Program) -> list[HostRead]:
    """The reads of device tensors at hot places, each with its fixes, or with what stands in the way of one."""
    return program.get(remedies)


# -- text


def head_span(program: Program, node: ast.stmt) -> tuple[int, int]:
    """A statement up to its block: of a loop, `for` or `while` to what it walks or tests; of others, the first line."""
    start, end = program.span(node)
    if isinstance(node, LOOPS):
        return start, program.span(node.test if isinstance(node, ast.While) else node.iter)[1]
    return start, start + len(program.text[start:end].splitlines()[0])


def call_span(program: Program, call: ast.Call) -> tuple[int, int]:
    """A call from its function's name, which in a chain may be lines after the beginning, to its end."""
    end = program.span(call)[1]
    if isinstance(call.func, ast.Attribute) and not program.qualified(call.func):
        return program.span(call.func)[1] - len(call.func.attr), end
    return program.span(call)[0], end


def comments(program: Program, start: int, end: int) -> list[str]:
    """The comments between two places of the text, which a fix must not lose."""
    return [each.text for each in _comments(program.text) if start <= each.start < end]


def matchers() -> ModuleType:
    """`libcst.matchers`, for the function of a Codemod, which asks for it in its body: checks do without libcst."""
    import libcst.matchers

    return libcst.matchers
