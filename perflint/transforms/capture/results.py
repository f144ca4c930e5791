"""What the steps of a loop leave behind: the lists that they fill, the tensors that they lengthen."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.program import Program
from perflint.analysis.values.operations import TorchCall, operation
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import COMPREHENSIONS, PlainLoop, elements_of, nodes_of_body, own_nodes, path_of, receiver_of
from perflint.transforms.blocked import Blocked, shown
from perflint.transforms.host_reads import item_of
from perflint.transforms.joined import growth
from perflint.transforms.names import check_alone
from perflint.transforms.operations import Operation, Replace, ReplaceStatements
from perflint.transforms.template import reference
from perflint.transforms.template import statement as statement_of

_NUMBERS = frozenset({"int", "float"})
_BESIDE = "what each step gives into a list, and `torch.stack` it after the loop"


@dataclass(frozen=True)
class Collected:
    """A list, or tensor, `name`, to which `statement` adds `value` in each step.

    `how` is "append"; "cat", by `function`, along the dimension `dim`; or, where the list gets numbers, what reads
    them: "item", "int" or "float".
    """

    name: str
    value: ast.expr
    statement: ast.stmt
    how: str
    function: ast.expr | None = None
    dim: str = ""

    def after_loop(self, results: str, ended: str) -> ast.stmt:
        """The statement that does after the loop what it did in each step. The last step of those is `ended`, if any
        is, and adds nothing then, if a name is given for that."""
        kept = f"{results}[{ended}.logical_not()]" if ended else results
        if self.how == "append":
            return statement_of(f"{self.name}.extend({kept})")
        if self.function is not None:
            return statement_of(f"{self.name} = {{cat}}([{self.name}, *{kept}], dim={self.dim})", cat=self.function)
        numbers = f"{kept}.flatten().tolist()"
        return statement_of(f"{self.name}.extend({numbers if self.how == 'item' else f'map({self.how}, {numbers})'})")


@dataclass(frozen=True)
class Stacks:
    """Lists that are stacked along `dim` after the loop, and nothing else is done with them.

    `empty` are the statements that make the empty lists; `undone` takes the stacking away.
    """

    dim: str
    empty: tuple[ast.stmt, ...]
    undone: tuple[Operation, ...]


def collected(program: Program, loop: PlainLoop, exits: Sequence[ast.If]) -> list[Collected]:
    """All that the steps of `loop` add to, in order; raises Blocked where it is more than added to.

    The tests `exits`, and the loop's own, may ask how much there is.
    """
    found = [each for each in (_collected(program, loop, statement) for statement in loop.body) if each is not None]
    for each in found:
        if [other.name for other in found].count(each.name) > 1:
            raise Blocked(f"`{each.name}` is added to at several places: do that once in each step", each.statement)
        _check_reads(program, loop, each, (loop, *exits))
        kind = program.value(each.value).kind
        if kind is Kind.NUMPY or (each.how in _NUMBERS and kind is not Kind.TENSOR):
            reason = f"is not known to be a tensor: add it to `{each.name}` when the loop is over"
            raise Blocked(f"{shown(program, each.value)} {reason}", each.value)
        if each.how == "append":
            _check_forms(program, loop, each)
        if each.how == "cat" and not (each.dim and _is_one_along(program, each.value, each.dim)):
            reason = f"{shown(program, each.value)} may be longer or shorter in another step: put {_BESIDE}"
            raise Blocked(reason, each.statement)
    return found


def lengthened(program: Program, statement: ast.stmt, dim: str) -> str:
    """The tensor that a statement makes longer by one along the dimension; empty if it does not."""
    found = _grown_by_cat(program, statement)
    return found.name if found is not None and found.dim == dim and _is_one_along(program, found.value, dim) else ""


def _collected(program: Program, loop: PlainLoop, statement: ast.stmt) -> Collected | None:
    if isinstance(statement, ast.Assign):
        return _grown_by_cat(program, statement)
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = receiver_of(call, "append")
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    if not isinstance(name, ast.Name) or not _is_list(program, loop, name):
        return None
    value, how = _number_of(program, call.args[0])
    return Collected(name.id, value, statement, how)


def _number_of(program: Program, value: ast.expr) -> tuple[ast.expr, str]:
    """The tensor, and how its number is read, if one is."""
    if not isinstance(value, ast.Call):
        return value, "append"
    if (read := item_of(value)) is not None:
        return read, "item"
    name = program.qualified(value.func).removeprefix("builtins.")
    is_number = name in _NUMBERS and len(value.args) == 1 and not value.keywords
    return (value.args[0], name) if is_number else (value, "append")


def _grown_by_cat(program: Program, statement: ast.stmt) -> Collected | None:
    found = growth(program, statement)
    if found is None or not found.path.isidentifier():
        return None
    return Collected(found.path, found.part, statement, "cat", found.call.call.func, _dimension(found.call))


def _dimension(found: TorchCall) -> str:
    """The dimension along which tensors are joined, where it is a number, and nothing else is said."""
    is_plain = len(found.arguments) + len(found.call.keywords) <= 1
    return str(found.joined_axis) if is_plain and found.joined_axis is not None else ""


def _bindings(program: Program, name: ast.Name) -> list[Definition] | None:
    """The bindings that the name may have its value of; None where there may be others, or it gets but a part."""
    values = program.get(Flow).graph(name).definitions(name)
    found = [each for each in values if isinstance(each, Definition) and each.source is not None and not each.steps]
    return found if len(found) == len(values) else None


def _is_one_along(program: Program, value: ast.expr, dim: str) -> bool:
    """Has the tensor surely the size 1 along the dimension?"""
    return bool(dim) and program.get(Shapes).shape(value).size(int(dim)) == "1"


def _is_list(program: Program, loop: PlainLoop, name: ast.Name) -> bool:
    """Are all that it may be lists that the function has made before the loop?"""
    graph = program.get(Flow).graph(loop)
    return all(
        isinstance(each.source, ast.List | ast.ListComp) and not graph.is_within(each.node, loop)
        for each in _bindings(program, name) or [Definition(name.id, node=name)]
    )


def _check_reads(program: Program, loop: PlainLoop, each: Collected, tests: Sequence[ast.stmt]) -> None:
    """Steps that read what was collected so far need it to be there."""
    for node in nodes_of_body(loop):
        is_use = isinstance(node, ast.Name) and node.id == each.name
        if is_use and program.statement_of(node) not in (*tests, each.statement):
            grows = "grows from step to step, and is read in the loop"
            raise Blocked(f"`{each.name}` {grows}: give what is read of it a name of its own", node)


def _runs_after(program: Program, call: ast.Call, loop: PlainLoop, name: str) -> bool:
    """Does the call run whenever the loop has, or, if there is a `name`, whenever the list of that name isn't empty?"""
    statement = program.statement_of(call)
    if program.parent(statement) not in list(program.ancestors(loop)) or statement.lineno < loop.lineno:
        return False
    for part in program.ancestors(call):
        if part is statement:
            break
        if isinstance(part, (ast.BoolOp, ast.Lambda, *COMPREHENSIONS)):
            return False
        if isinstance(part, ast.IfExp) and not (name and path_of(part.test) == name and call in own_nodes(part.body)):
            return False
    return isinstance(statement, ast.Return | ast.Assign | ast.AnnAssign | ast.Expr)


def _joining_calls(program: Program, loop: PlainLoop, each: Collected) -> Iterator[TorchCall]:
    """The calls after the loop that put all of the list together, whenever the list isn't empty."""
    graph = program.get(Flow).graph(loop)
    for use in (use for made in _lists_made(program, each) for use in made.uses if not graph.is_within(use, loop)):
        found = operation(program, program.parent(use) or use)
        if found is not None and found.tensor is use and _runs_after(program, found.call, loop, each.name):
            yield found


def _lists_made(program: Program, each: Collected) -> Sequence[Definition]:
    """What makes the list that is added to."""
    call = each.statement.value if isinstance(each.statement, ast.Expr) else None
    name = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    return _bindings(program, name) or () if isinstance(name, ast.Name) else ()


def _check_forms(program: Program, loop: PlainLoop, each: Collected) -> None:
    """Tensors of a list that is stacked have one form; else a step might give more than another."""
    for found in _joining_calls(program, loop, each):
        dim = _dimension(found)
        if found.name == "stack" or (found.name == "cat" and _is_one_along(program, each.value, dim)):
            return
    reason = "and what steps append to it may differ in shape: stack it, or append `.item()`"
    raise Blocked(f"`{each.name}` is not stacked after the loop, {reason}", each.statement)


def stacks_of(program: Program, loop: PlainLoop, found: Sequence[Collected]) -> Stacks | None:
    """How the lists are stacked, if all are in one way, and nothing else is done with any of them."""
    names = {each.name for each in found}
    empty, undone, dims = dict[ast.stmt, None](), list[Operation](), set[str]()
    for each in found:
        made = _lists_made(program, each) if each.how == "append" else ()
        stack = _stack(program, loop, each, made[0]) if len(made) == 1 else None
        block = program.block_of(loop)
        statement = program.statement_of(made[0].node) if stack is not None else None
        if stack is None or statement not in block[: block.index(loop)] or not _only_makes_lists(statement, names):
            return None
        empty[statement] = None
        undone.append(stack[0])
        dims.add(stack[1])
    return Stacks(min(dims, default="0"), tuple(empty), tuple(undone)) if len(dims) < 2 else None


def _only_makes_lists(statement: ast.stmt, names: set[str]) -> bool:
    """Does the statement give new empty lists to variables of these names, and do nothing else?"""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    else:
        return False
    targets, values = elements_of(target), elements_of(value)
    are_new = all(isinstance(each, ast.List) and not each.elts for each in values)
    return are_new and len(targets) == len(values) and {path_of(each) for each in targets} <= names


def _stack(program: Program, loop: PlainLoop, each: Collected, made: Definition) -> tuple[Operation, str] | None:
    """Puts the name in the place of the call that stacks the list after the loop, and says along which dimension."""
    graph = program.get(Flow).graph(loop)
    uses = [use for use in made.uses if program.statement_of(use) is not each.statement]
    is_joined = any(made in phi.operands.values() for phis in graph.phis.values() for phi in phis)
    found = next(_joining_calls(program, loop, each), None)
    if found is None or found.name != "stack" or uses != [found.tensor] or is_joined or each.name in graph.captured:
        return None
    dim = _dimension(found)
    if not dim or not _runs_after(program, found.call, loop, ""):
        return None
    statement = program.statement_of(found.call)
    targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is found.call else []
    if [path_of(target) for target in targets] == [each.name]:
        check_alone(program, statement)
        return ReplaceStatements((statement,), ()), dim
    return Replace(found.call, reference(each.name)), dim
