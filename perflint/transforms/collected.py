"""Collects on the device what a loop adds up, appends to a list or writes to a tensor's slots, and reads it later."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint import torch_ops
from perflint.analysis.autograd.effects import steps_optimizer
from perflint.analysis.data.origins import Origins
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.ir.occurrences import is_empty_list, occurrences, seen_elsewhere
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.locations import ANYWHERE, Write
from perflint.analysis.memory.roles import scaler_of
from perflint.analysis.program import GradMode, Program
from perflint.analysis.values.dtypes import FLOAT, INTEGER, assigned, has_no_axes, may_be_complex, number_kind
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import local_names
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import FUNCTIONS, LOOPS, Loop, own_nodes, path_of, receiver_of
from perflint.transforms.aliases import is_own
from perflint.transforms.host_code import Read, read_of
from perflint.transforms.operations import InsertAfter, InsertBefore, ReplaceStatements, statement
from perflint.transforms.operations import statement as statement_of
from perflint.transforms.rewrite import Blocked, name_of_torch, of_torch, rewrite, taken_around

ANY_SHAPE = ", whatever its shape is"  # which is right, but nothing to write unasked

_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await)


def collection(program: Program, read: Read, statement: ast.stmt, name: ast.expr) -> Fix:
    path = path_of(name)
    if not read.is_scalar:
        raise Blocked(
            "a whole tensor is collected in every iteration: copy all after the loop, if the device's memory allows"
        )
    if not read.converts_to and differs(program, read.base):
        raise Blocked("its type or shape may differ between iterations")
    if read.converts_to:
        wanted = FLOAT if read.converts_to == "float" else INTEGER
        if number_kind(program, read.base) != wanted:
            raise Blocked(f"{read.converts_to}() may change the type of the value")
    torch = name_of_torch(program)
    if not torch:
        raise Blocked("`torch` is not imported by that name")
    if not isinstance(name, ast.Name):
        raise Blocked(f"`{path}` may be read elsewhere")
    found = accumulator_of(program, read, statement, path)
    _check_list(program, found, name)
    stacked = f"{{torch}}.stack({{path}}){flattened(program, read.base)}.tolist()"
    behind = statement_of(f"{{path}} = {stacked} if {{path}} else []", path=path, torch=torch)
    kept = kept_until(program, read.base, statement, found.loop)
    change = rewrite(program, read.replaced(kept), InsertAfter(last_conversion(program, found), (behind,)))
    title = f"collect `{path}` on the device and read it once, after the loop"
    if shape_of_one(program, read.base):
        return Fix(f"{title}{ANY_SHAPE}", Safety.BEHAVIOUR, change)
    return Fix(title, Safety.EXACT, change)


def last_conversion(program: Program, found: Accumulator) -> ast.stmt:
    """The loop, or the last of the conversions of other sums and lists that stand behind it already."""
    last: ast.stmt = found.loop
    block = program.block_of(last)
    for each in block[block.index(last) + 1 :]:
        path, value = (path_of(each.targets[0]), each.value) if isinstance(each, ast.Assign) else ("", None)
        if not isinstance(value, ast.IfExp) and program.call_of(value, "builtins.float", "builtins.int") is None:
            break
        names = [node for node in ast.walk(each) if isinstance(node, ast.Name)]
        of_others = [node for node in names if program.value(node).kind is not Kind.LIBRARY]
        if path == found.path or any(node.id != path for node in of_others):
            break
        last = each
    return last


def kept_until(program: Program, node: ast.expr, statement: ast.stmt, loop: ast.AST) -> str:
    is_kept = is_new(program, node) or _is_left_alone(program, node, loop) or stays(program, node, statement, loop)
    has_graph = number_kind(program, node) != INTEGER and program.grad_mode(node, callers=False) is not GradMode.OFF
    quiet = ".detach()" if has_graph else ""
    return quiet + ("" if is_kept else ".clone()") + shape_of_one(program, node)


def shape_of_one(program: Program, node: ast.expr) -> str:
    """What gives a tensor of one number the shape (); empty where all iterations have the same shape."""
    return ".reshape(())" if _has_several(program, node) and not has_no_axes(program, node) else ""


def differs(program: Program, node: ast.expr) -> bool:
    values = (assigned(program, node) if isinstance(node, ast.Name) else None) or [node]
    varies = _has_several(program, node) or isinstance(values[0], ast.IfExp)
    return varies and number_kind(program, node) not in (FLOAT, INTEGER)


def _has_several(program: Program, node: ast.expr) -> bool:
    function = program.function_of(node)
    found = program.get(Flow).graph(node).definitions(node) if isinstance(node, ast.Name) else frozenset()
    is_local = isinstance(node, ast.Name) and function is not None and node.id in local_names(function)
    return sum(isinstance(each, Definition) or not is_local for each in found) > 1


def flattened(program: Program, node: ast.expr) -> str:
    return "" if has_no_axes(program, node) else ".flatten()"


def _is_left_alone(program: Program, node: ast.expr, loop: ast.AST) -> bool:
    graph = program.get(Flow).graph(node)
    made = graph.only_definition(node)
    is_plain = made is not None and not made.steps and made.updates is None and graph.is_within(made.node, loop)
    if made is None or made.source is None or not is_plain:
        return False
    scope = program.function_of(node) or program.tree
    uses = (each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == path_of(node))
    return is_new(program, made.source) and all(_only_computes(program, each) for each in uses)


def _only_computes(program: Program, use: ast.Name) -> bool:
    around = program.parent(use)
    if isinstance(use.ctx, ast.Store):
        return not isinstance(around, ast.AugAssign)  # which writes in place
    if isinstance(around, ast.Attribute):
        return around.attr in ("backward", "item") and isinstance(program.parent(around), ast.Call)
    scaler = scaler_of(around, "scale") if around is not None else None
    made = program.get(Origins).calls(scaler) if scaler is not None else []
    names = [program.qualified(each.func) for each in made]
    is_scaled = bool(names) and all(each.startswith("torch.") and each.endswith(".GradScaler") for each in names)
    return is_scaled or isinstance(around, ast.BinOp | ast.FormattedValue)


def is_new(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) or (isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd)):
        return program.value(node).kind is Kind.TENSOR
    if not isinstance(node, ast.Call) or any(keyword.arg == "out" for keyword in node.keywords):
        return False
    callee = program.value(node.func)
    if callee.kind is Kind.MODULE:
        return has_no_axes(program, node)  # a loss of torch's, which is the mean or sum of others
    is_method = callee.kind is Kind.METHOD and callee.owner is not None and callee.owner.kind is Kind.TENSOR
    entry = torch_ops.of_method(callee.name) if is_method else torch_ops.of_function(program.qualified(node.func))
    return entry is not None and not entry.shares


def stays(program: Program, node: ast.expr, statement: ast.stmt, loop: ast.AST) -> bool:
    memory = program.get(Memory)
    is_known = memory.points_to(node).is_known and is_own(program, loop, node)
    return is_known and all(_only_steps(program, each) for each in memory.writes_after(node, statement))


def _only_steps(program: Program, write: Write) -> bool:
    if write.to != ANYWHERE:  # of an optimizer that may hold it
        return False
    callee = program.callee(write.node) if isinstance(write.node, ast.Call) else None
    if callee is None:
        return steps_optimizer(program, write.node)
    inner = program.get(Memory).points_of(callee)
    unknown = [each for each in inner.writes if each.to == ANYWHERE]
    return inner.is_known and bool(unknown) and all(steps_optimizer(program, each.node) for each in unknown)


def _check_list(program: Program, found: Accumulator, name: ast.Name) -> None:
    graph = program.get(Flow).graph(name)
    made = graph.only_definition(name)
    source = made.source if made is not None and not made.steps else None
    is_new = source is not None and not isinstance(source, ast.Name | ast.Attribute)
    is_inside = made is not None and graph.is_within(made.node, found.loop)
    if made is None or source is None or is_inside or not (is_new and is_empty_list(program.value(source))):
        raise Blocked(f"`{found.path}` is not known to be empty when the loop starts")
    statement = program.statement_of(made.node)
    if isinstance(statement, ast.Assign) and len(statement.targets) > 1:
        raise Blocked(f"`{found.path}` is known by another name, too")
    if len(found.additions) > 1:
        raise Blocked(f"several lines append to `{found.path}`")
    for use in made.uses:
        if not graph.is_within(use, found.loop):
            if graph.reaches(use, found.loop, avoiding=made.node):
                raise Blocked(f"`{found.path}` is not known to be empty when the loop starts")
        elif program.statement_of(use) not in found.additions and not program.call_of(
            program.parent(use), "builtins.len"
        ):
            raise Blocked(f"line {use.lineno} reads `{found.path}` in the loop")


def slot_store(program: Program, sync: Sync) -> Fix | None:
    """The fix of `sums[k] = loss.item()` for each k of `range(n)`; None of other code; raises Blocked."""
    read = read_of(program, sync)
    store = program.statement_of(read.top)
    target = store.targets[0] if isinstance(store, ast.Assign) and len(store.targets) == 1 else None
    if not isinstance(store, ast.Assign) or store.value is not read.top or not isinstance(target, ast.Subscript):
        return None
    loop, kept, index = program.hot_loop(read.top), target.value, target.slice
    if not isinstance(kept, ast.Name) or not isinstance(index, ast.Name) or not isinstance(loop, ast.For):
        return None
    made = _made(program, kept)
    if made is None or not _counts(program, loop, index) or store not in loop.body or not read.is_scalar:
        return None
    _check(program, loop, read, kept, made)
    values = taken_around(program, loop).fresh(f"{kept.id}_list")
    suffix = kept_until(program, read.base, store, loop)
    put = statement(f"{{values}}.append({{base}}{suffix})", values=values, base=read.base)
    slots = ":" if _is_as_long(program, made, loop) else ":len({values})"
    behind = statement(
        f"if {{values}}:\n    {{kept}}[{slots}] = {{stack}}({{values}}){flattened(program, read.base)}",
        values=values,
        kept=kept.id,
        stack=of_torch(program, "stack", loop),
    )
    change = rewrite(
        program,
        InsertBefore(loop, (statement("{values} = []", values=values),)),
        ReplaceStatements((store,), (put,)),
        InsertAfter(loop, (behind,)),
    )
    title = f"collect the values on the device and copy them to `{kept.id}` after the loop"
    if shape_of_one(program, read.base):
        return Fix(f"{title}{ANY_SHAPE}", Safety.BEHAVIOUR, change)
    return Fix(title, Safety.EXACT, change)


def _is_as_long(program: Program, made: Definition, loop: ast.For) -> bool:
    """Has what is made just the slots that the loop counts?"""
    given = [each.args for each in (made.source, loop.iter) if isinstance(each, ast.Call)]
    if [*map(len, given)] != [1, 1]:
        return False
    (size,), (count,) = given
    if isinstance(size, ast.Name) and isinstance(count, ast.Name) and size.id == count.id:
        return program.get(Flow).graph(size).definitions(size) == program.get(Flow).graph(count).definitions(count)
    return isinstance(size, ast.Constant) and isinstance(count, ast.Constant) and size.value == count.value


def _made(program: Program, kept: ast.Name) -> Definition | None:
    made = program.get(Flow).graph(kept).only_definition(kept)
    source = made.source if made is not None and not made.steps else None
    call = operation(program, source) if source is not None else None
    if call is None or "factory" not in call.traits or call.traits.isdisjoint({"taking_sizes", "filling"}):
        return None
    return made if {each.arg for each in call.call.keywords} <= {"dtype"} else None


def _counts(program: Program, loop: ast.For, index: ast.Name) -> bool:
    walked = program.call_of(loop.iter, "builtins.range")
    if walked is None or len(walked.args) != 1:
        return False
    stores = [each for each in occurrences(loop, index.id) if isinstance(each.ctx, ast.Store)]
    is_index = isinstance(loop.target, ast.Name) and loop.target.id == index.id and stores == [loop.target]
    return is_index and not loop.orelse and not any(isinstance(each, _LEAVING) for each in own_nodes(loop))


def _check(program: Program, loop: ast.For, read: Read, kept: ast.Name, made: Definition) -> None:
    if read.converts_to == "int":
        raise Blocked("int() cuts the value off in every iteration")
    if differs(program, read.base) or may_be_complex(program, read.base):
        raise Blocked("its type or shape may differ between iterations")
    graph = program.get(Flow).graph(kept)
    for use in made.uses:
        if use is not kept and (graph.is_within(use, loop) or graph.reaches(use, loop, avoiding=made.node)):
            raise Blocked(f"line {use.lineno} reads `{kept.id}` before the loop is over")
    alone_in(program, loop, program.function_of(loop) or program.tree, kept.id)


@dataclass(frozen=True)
class Accumulator:
    """A variable to which `additions` add in each iteration of `loop`."""

    path: str
    loop: Loop
    scope: ast.AST
    additions: tuple[ast.stmt, ...]


def accumulator_of(program: Program, read: Read, statement: ast.stmt, path: str) -> Accumulator:
    scope = program.function_of(statement) or program.tree
    loop = program.hot_loop(read.top)
    if not isinstance(loop, LOOPS):
        raise Blocked(f"the loop that makes it hot is elsewhere, and `{path}` lives longer than one call")
    loop = alone_in(program, loop, scope, path)
    additions = tuple(
        {program.statement_of(node): None for node in occurrences(loop, path) if _is_addition(program, node, path)}
    )
    return Accumulator(path, loop, scope, additions)


def alone_in(program: Program, loop: Loop, scope: ast.AST, path: str) -> Loop:
    """The outermost loop around `loop` that adds no other uses of the variable.

    Raises Blocked where anything else, in `scope` or elsewhere, may read the variable before that loop is over.
    """
    loop = _outermost(program, loop, path)
    if reason := seen_elsewhere(program, scope, path, loop):
        raise Blocked(reason)
    if any(occurrences(each, path) for each in loop.orelse):
        raise Blocked(f"the loop's else reads `{path}`")
    _check_exits(program, loop, scope, path)
    return loop


def _is_addition(program: Program, node: ast.Name | ast.Attribute | ast.Subscript, path: str) -> bool:
    statement = program.statement_of(node)
    if isinstance(statement, ast.AugAssign):
        return statement.target is node and isinstance(statement.op, ast.Add | ast.Sub)
    if isinstance(statement, ast.Assign):
        value = statement.value
        return (
            len(statement.targets) == 1
            and path_of(statement.targets[0]) == path
            and isinstance(value, ast.BinOp)
            and (path_of(value.left) == path or (isinstance(value.op, ast.Add) and path_of(value.right) == path))
        )
    return isinstance(statement, ast.Expr) and receiver_of(statement.value, "append") is node


def _outermost(program: Program, loop: Loop, path: str) -> Loop:
    uses = len(occurrences(loop, path))
    for parent in program.ancestors(loop):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            break
        if isinstance(parent, LOOPS):
            if len(occurrences(parent, path)) != uses:
                break
            loop = parent
    return loop


def _check_exits(program: Program, loop: Loop, scope: ast.AST, path: str) -> None:
    for node in own_nodes(loop):
        if isinstance(node, ast.Return) and occurrences(node, path):
            raise Blocked(f"line {node.lineno} leaves the loop with `{path}` unread")
        if isinstance(node, ast.Delete) and occurrences(node, path):
            raise Blocked(f"line {node.lineno} deletes `{path}`")
    graph = program.get(Flow).graph(loop)
    left = graph.raises_to(loop)
    read = (graph.places[node][0] in left for node in occurrences(scope, path) if node in graph.places)
    if any(read):
        raise Blocked(f"an exception may leave the loop, and `{path}` is read after it")
