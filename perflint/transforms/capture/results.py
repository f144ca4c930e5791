"""What the steps of a loop leave behind: the lists that they fill, the tensors that they lengthen."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.analysis.values.values import Kind
from perflint.syntax.walk import COMPREHENSIONS, PlainLoop, nodes_of_body, own_nodes, path_of, stores
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.ownership import bound_to
from perflint.transforms.shown import shown
from perflint.transforms.template import statement as statement_of

if TYPE_CHECKING:
    from perflint.analysis.program import Program

STACK, CAT = "torch.stack", "torch.cat"
_CATS = frozenset({CAT, "torch.concat", "torch.concatenate"})
_NUMBERS = frozenset({"int", "float"})


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

    def behind(self, results: str, ended: str) -> ast.stmt:
        """The statement that does behind the loop what it did in each step. The last step of those is `ended`, if any
        is, and adds nothing then, if a name is given for that."""
        kept = f"{results}[{ended}.logical_not()]" if ended else results
        if self.how == "append":
            return statement_of(f"{self.name}.extend({kept})")
        if self.function is not None:
            return statement_of(f"{self.name} = {{cat}}([{self.name}, *{kept}], dim={self.dim})", cat=self.function)
        numbers = f"{kept}.flatten().tolist()"
        return statement_of(f"{self.name}.extend({numbers if self.how == 'item' else f'map({self.how}, {numbers})'})")


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


def _collected(program: Program, loop: PlainLoop, statement: ast.stmt) -> Collected | None:
    call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if not isinstance(call, ast.Call):
        return None
    if isinstance(statement, ast.Assign):
        return _grown(program, statement, call)
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "append" or len(call.args) != 1 or call.keywords:
        return None
    if not isinstance(func.value, ast.Name) or not _is_list(program, loop, func.value.id):
        return None
    value, how = _number_of(program, call.args[0])
    return Collected(func.value.id, value, statement, how)


def _number_of(program: Program, value: ast.expr) -> tuple[ast.expr, str]:
    """The tensor, and how its number is read, if one is."""
    if not isinstance(value, ast.Call):
        return value, "append"
    if isinstance(value.func, ast.Attribute) and value.func.attr == "item":
        return value.func.value, "item"
    name = program.qualified(value.func).removeprefix("builtins.")
    is_number = name in _NUMBERS and len(value.args) == 1 and not value.keywords
    return (value.args[0], name) if is_number else (value, "append")


def _grown(program: Program, statement: ast.Assign, call: ast.Call) -> Collected | None:
    """`name = torch.cat([name, value], dim=1)`"""
    target = statement.targets[0]
    given = call.args[0] if call.args else None
    if program.qualified(call.func) not in _CATS or not isinstance(given, ast.List | ast.Tuple):
        return None
    if len(statement.targets) > 1 or not isinstance(target, ast.Name) or len(given.elts) != 2:
        return None
    if path_of(given.elts[0]) != target.id:
        return None
    return Collected(target.id, given.elts[1], statement, "cat", call.func, dimension(program, call))


_BESIDE = "what each step gives into a list, and `torch.stack` it behind the loop"


def dimension(program: Program, call: ast.Call) -> str:
    """The dimension along which tensors are stacked or put together, where it is a number."""
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg in ("dim", "axis"))]
    if len(given) != len(call.args) - 1 + len(call.keywords) or len(given) > 1:
        return ""
    text = program.segment(given[0]) if given else "0"
    return text if text.removeprefix("-").isdigit() else ""


def _is_one_along(program: Program, value: ast.expr, dim: str) -> bool:
    """Has the tensor surely the size 1 along the dimension: was it given that dimension, or kept when reduced?"""
    if isinstance(value, ast.Name):
        loop = next((each for each in program.ancestors(value) if isinstance(each, PlainLoop)), None)
        made = [each for each in (nodes_of_body(loop) if loop is not None else ()) if _binds(each, value.id)]
        statement = program.statement_of(made[0]) if len(made) == 1 else None
        if not isinstance(statement, ast.Assign) or statement.targets != made or isinstance(statement.value, ast.Name):
            return False
        return _is_one_along(program, statement.value, dim)
    if isinstance(value, ast.Subscript):
        parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
        return dim.isdigit() and len(parts) > int(dim) and _adds_axis(parts[: int(dim) + 1])
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    is_function = program.qualified(value.func).startswith("torch.")
    given = [program.segment(each) for each in value.args[1 if is_function else 0 :]]
    named = {each.arg: program.segment(each.value) for each in value.keywords if each.arg}
    name = value.func.attr
    if name == "unsqueeze":
        return (given[0] if given else named.get("dim")) == dim
    if name == "multinomial":  # gives as many rows as it is given, or a vector
        return (given[0] if given else named.get("num_samples")) == "1" and dim in ("1", "-1")
    kept = named.get("keepdim") == "True" or given[1:2] == ["True"]
    return name in ("argmax", "argmin") and kept and (given[0] if given else named.get("dim")) == dim


def _binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _adds_axis(parts: list[ast.expr]) -> bool:
    """Is it a new axis behind others that are kept, as in `x[:, None]`?"""
    *kept, last = parts
    return all(isinstance(each, ast.Slice) for each in kept) and isinstance(last, ast.Constant) and last.value is None


def _is_list(program: Program, loop: PlainLoop, name: str) -> bool:
    """Is the name only ever bound to lists that the function makes, while it is filled?"""
    function = program.function_of(loop)
    made = [bound_to(program, each) for each in stores(function, name) if each.lineno < loop.lineno] if function else []
    return bool(made) and all(isinstance(each, ast.List | ast.ListComp) for each in made)


def _check_reads(program: Program, loop: PlainLoop, each: Collected, tests: Sequence[ast.stmt]) -> None:
    """Steps that read what was collected so far need it to be there."""
    for node in nodes_of_body(loop):
        if (
            not isinstance(node, ast.Name)
            or node.id != each.name
            or program.statement_of(node) in (*tests, each.statement)
        ):
            continue
        grows = "grows from step to step, and is read in the loop"
        raise Blocked(f"`{each.name}` {grows}: give what is read of it a name of its own", node)


def lengthened(program: Program, statement: ast.stmt) -> tuple[str, str]:
    """The tensor that a statement makes longer by one, and along which dimension, if it does."""
    call = statement.value if isinstance(statement, ast.Assign) else None
    found = (
        _grown(program, statement, call) if isinstance(statement, ast.Assign) and isinstance(call, ast.Call) else None
    )
    is_one = found is not None and found.dim and _is_one_along(program, found.value, found.dim)
    return (found.name, found.dim) if found is not None and is_one else ("", "")


def is_always_behind(program: Program, call: ast.Call, loop: PlainLoop, name: str) -> bool:
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


def _check_forms(program: Program, loop: PlainLoop, each: Collected) -> None:
    """Tensors of a list that is stacked have one form; else a step might give more than another."""
    function = program.function_of(loop) or program.tree
    for node in own_nodes(function):
        if not isinstance(node, ast.Call) or node.lineno <= (loop.end_lineno or loop.lineno) or not node.args:
            continue
        name = program.qualified(node.func)
        if path_of(node.args[0]) != each.name or not is_always_behind(program, node, loop, each.name):
            continue
        if name == STACK or (name in _CATS and _is_one_along(program, each.value, dimension(program, node))):
            return
    what = f"`{each.name}` is not stacked after the loop"
    raise Blocked(
        f"{what}, and what steps append to it may differ in shape: stack it, or append `.item()`", each.statement
    )
