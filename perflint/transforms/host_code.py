"""Tells what host code does: how it reads a number, whether it only writes output, whether it may raise."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from perflint.analysis.autograd.effects import runs_backward
from perflint.analysis.data.origins import Origins
from perflint.analysis.heat.syncs import Sync, syncs
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.program import Program
from perflint.analysis.values.codes import named_functions
from perflint.analysis.values.dtypes import INTEGER, number_kind
from perflint.analysis.values.numbers import is_number
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import own_nodes, path_of, receiver_of
from perflint.transforms.operations import Replace, expression

_LINKS = frozenset({"detach", "cpu", "item", "numpy"})
_CONVERSIONS = ("float", "int")
_READS = frozenset({"item", "cpu", "numpy", *_CONVERSIONS})


@dataclass(frozen=True)
class Read:
    """`top` is the value of the tensor `base` on the host; `converts_to`: by float() or int(), or neither."""

    top: ast.expr
    base: ast.expr
    is_scalar: bool
    converts_to: str

    def replaced(self, suffix: str) -> Replace:
        return Replace(self.top, expression(f"{{base}}{suffix}", base=self.base))


def read_of(program: Program, sync: Sync) -> Read:
    top: ast.expr = sync.node
    while (above := _above(program, top)) is not None:
        top = above
    base, links = top, list[str]()
    while (link := link_of(program, base)) is not None:
        links.append(link[0])
        base = link[1]
    converts_to = next((name for name in ("int", "float") if name in links), "")  # float(int(x)) cuts, too
    return Read(top, base, "item" in links or bool(converts_to), converts_to)


def item_of(node: ast.AST) -> ast.expr | None:
    return receiver_of(node, "item")


def link_of(program: Program, node: ast.AST | None) -> tuple[str, ast.expr] | None:
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return node.attr, node.value
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _LINKS and not node.args:
        return node.func.attr, node.func.value
    name = program.qualified(node.func).removeprefix("builtins.")
    return (name, node.args[0]) if name in _CONVERSIONS and len(node.args) == 1 and not node.keywords else None


def _above(program: Program, node: ast.expr) -> ast.expr | None:
    parent = program.parent(node)
    call = program.parent(parent) if isinstance(parent, ast.Attribute) else parent
    link = link_of(program, call)
    return call if isinstance(call, ast.Call) and link is not None and link[1] is node else None


def way_to(program: Program, start: ast.expr, end: ast.expr) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The expressions from `start` up to `end`, each with the part that leads down to `start`."""
    child: ast.AST = start
    while child is not end:
        parent = program.parent(child)
        assert parent is not None
        yield parent, child
        child = parent


def reads_device(program: Program, node: ast.AST) -> bool:
    implicit = program.get(implicit_reads)
    return any(
        isinstance(each, ast.expr) and (each in implicit or tensor_read(program, each) is not None)
        for each in ast.walk(node)
    )


def tensor_read(program: Program, node: ast.expr) -> ast.expr | None:
    base, reads = node, False
    while True:
        func = base.func if isinstance(base, ast.Call) and not base.args else None
        if isinstance(func, ast.Attribute) and func.attr == "tolist":
            base, reads = func.value, True
            continue
        link = link_of(program, base)
        if link is None or (link[0] in _CONVERSIONS and program.value(link[1]).kind is not Kind.TENSOR):
            return base if reads else None
        base, reads = link[1], reads or link[0] in _READS


def _reads_of(program: Program) -> list[Sync]:
    return list(syncs(program))


def implicit_reads(program: Program) -> set[ast.expr]:
    return {sync.tensor for sync in program.get(_reads_of) if not sync.explicit}


def waiting_reads(program: Program) -> set[ast.expr]:
    return {sync.node for sync in program.get(_reads_of)}


STREAMS = frozenset({"sys.stdout", "sys.stderr"})
_LEVELS = frozenset("debug info warning warn error critical log".split())
_BARS = frozenset("set_postfix set_postfix_str set_description set_description_str".split())
_WRITERS = frozenset({"add_scalar", "add_scalars"})
_PACKAGES = {  # of the objects that have these methods
    **dict.fromkeys(_LEVELS, ("logging",)),
    **dict.fromkeys(_BARS, ("tqdm",)),
    **dict.fromkeys(_WRITERS, ("torch.utils.tensorboard", "tensorboardX")),
}
_OF_CALL = frozenset({"exc_info", "stack_info", "stacklevel"})  # what a log is told of the place where it is called


def is_output(program: Program, call: ast.Call) -> bool:
    if writes_streams(program, call):
        return receiver_of(call, "flush") is None
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in _PACKAGES or program.qualified(func):
        return False
    is_here = any(each.name == func.attr for each in program.of_type(ast.FunctionDef))
    if is_here or program.callee(call) is not None or any(keyword.arg in _OF_CALL for keyword in call.keywords):
        return False
    made = _makers(program, func.value)
    packages = _PACKAGES[func.attr]
    if func.attr in _LEVELS:
        return made == {"logging.getLogger"}
    return all(each.startswith(packages) for each in made)


def writes_streams(program: Program, call: ast.Call) -> bool:
    owner, _, name = name_of_library(program, call).rpartition(".")
    if (owner, name) == ("builtins", "print"):
        files = (keyword.value for keyword in call.keywords if keyword.arg in ("file", None))
        return all(program.qualified(each) in STREAMS for each in files)
    if owner in STREAMS:
        return name in ("write", "flush")
    if owner == "logging":
        return name in _LEVELS and not any(keyword.arg in _OF_CALL for keyword in call.keywords)
    return owner.partition(".")[0] == "tqdm" and name == "write"


def name_of_library(program: Program, call: ast.Call) -> str:
    path = path_of(call.func)
    is_given = path.startswith("sys.") and not any(
        each.id == "sys" and not isinstance(each.ctx, ast.Load) for each in program.of_type(ast.Name)
    )
    stars = (alias.name == "*" for each in program.of_type(ast.ImportFrom) for alias in each.names)
    return program.qualified(call.func) or (path if is_given and any(stars) else "")


def is_leveled(call: ast.Call) -> bool:
    """Is it a call of a logger, whose first argument is a template for the others?"""
    return receiver_of(call, *_LEVELS) is not None


def is_log(program: Program, node: ast.expr) -> bool:
    bindings = program.get(Flow).graph_of(program.tree).bindings
    is_global = isinstance(node, ast.Name) and len(bindings.get(node.id, ())) == 1
    return is_global and _makers(program, node) == {"logging.getLogger"}


def _makers(program: Program, node: ast.expr) -> set[str]:
    found = set[str]()
    for source in program.get(Origins).of(node):
        is_none = isinstance(source, ast.Constant) and source.value is None
        if not is_none and not isinstance(source, ast.arg | ast.Attribute):  # those are set by other files
            found.add((program.qualified(source.func) if isinstance(source, ast.Call) else "") or "?")
    return found


PURE = frozenset(f"builtins.{name}" for name in "len int float str round max min abs sum bool tuple list".split())
_PLAIN = (Kind.NUMBER, Kind.STRING, Kind.NONE)


def is_meters(program: Program, call: ast.Call) -> bool:
    callee = program.callee(call)
    if callee is not None:
        return _is_meter(program, callee)
    return isinstance(program.parent(call), ast.Expr) and program.counts_elsewhere(call)


def is_differentiated_once(program: Program) -> bool:
    """Is the step's the only backward pass, so that nothing differentiates what a meter holds?"""
    return sum(runs_backward(program, each) for each in program.of_type(ast.Call)) == 1


def counted(program: Program, functions: Collection[str]) -> frozenset[str]:
    """Those methods of the program, named as other files do, that only add up numbers in attributes."""
    named = named_functions(program.tree) if functions else ()
    return frozenset(
        name for name, node in named
        if name in functions and "." in name and not node.decorator_list and _is_meter(program, node)
    )  # fmt: skip


def _is_meter(program: Program, function: ast.AST) -> bool:
    if not isinstance(function, ast.FunctionDef):
        return False
    nodes = list(own_nodes(function))
    own = {each.arg for each in nodes if isinstance(each, ast.arg)}
    own |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    added = {path_of(each.target) for each in nodes if isinstance(each, ast.AugAssign)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and {*map(path_of, node.targets)} & added:
            return False  # what it is given may be a tensor
        if isinstance(node, ast.Global | ast.Nonlocal | ast.Subscript | ast.Lambda):
            return False
        if isinstance(node, ast.Call) and program.qualified(node.func) not in PURE:
            return False
        is_foreign = isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id not in own)
        if is_foreign and not (program.qualified(node) or _counts_itself(program, node, function)):
            return False
    return True


def _counts_itself(program: Program, node: ast.AST, method: ast.FunctionDef) -> bool:
    if not isinstance(node, ast.Attribute):
        return program.value(node).is_literal
    if program.is_edited_elsewhere(node.attr):
        return False
    named = (each for each in program.of_type(ast.Attribute) if each.attr == node.attr)
    stores = [each for each in named if not isinstance(each.ctx, ast.Load) and _may_be_of(program, each, method)]
    others = (each for each in stores if program.function_of(each) is not method)
    are_numbers = all(program.value(each).kind in _PLAIN or is_number(program, each) for each in others)
    return path_of(node.value) == "self" and bool(stores) and are_numbers


def _may_be_of(program: Program, node: ast.Attribute, method: ast.FunctionDef) -> bool:
    one, other = program.class_around(node), program.class_around(method)
    is_related = one in program.lineage(other) or other in program.lineage(one)
    return is_related or path_of(node.value) != "self"


_WHOLE = re.compile(r"%[-+ #0-9.*]*[diouxXc]")  # which takes no NaN
_DIVIDING = (ast.Div, ast.FloorDiv, ast.Mod)


def raising(program: Program, nodes: Iterable[ast.AST]) -> ast.AST | None:
    return next((each for each in nodes if _raises(program, each)), None)


def _raises(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    if isinstance(node, ast.BinOp):
        return _computes(program, node, node.left, node.op, node.right)
    if isinstance(node, ast.AugAssign):
        return _computes(program, node, node.target, node.op, node.value)
    if isinstance(node, ast.Subscript):
        is_plain = isinstance(node.slice, ast.Constant | ast.Slice) or program.value(node.value).kind is Kind.TENSOR
        return isinstance(node.ctx, ast.Load) and not is_plain
    return isinstance(node, ast.Call) and _fails(program, node)


def _computes(program: Program, node: ast.AST, left: ast.expr, op: ast.operator, right: ast.expr) -> bool:
    values = [program.value(each) for each in (left, right)]
    if any(each.kind is Kind.TENSOR for each in values):
        return False
    if isinstance(op, ast.Mod) and values[0].kind is Kind.STRING:
        given = right.elts if isinstance(right, ast.Tuple) else [right]
        is_whole = not isinstance(left, ast.Constant) or bool(_WHOLE.search(str(left.value)))
        return is_whole and not all(_is_whole(program, each) for each in given)
    if isinstance(op, ast.Pow):
        return not all(each.is_literal for each in values)
    return isinstance(op, _DIVIDING) and not _never_zero(program, right)


def _never_zero(program: Program, node: ast.expr) -> bool:
    values = program.get(Flow).graph(node).definitions(node) if isinstance(node, ast.Name) else ()
    given = [each.given if isinstance(each, Definition) else node for each in values] or [node]
    return all(each is not None and _is_nonzero(program, each) for each in given)


def _is_nonzero(program: Program, node: ast.expr) -> bool:
    literal = program.value(node).literal
    if isinstance(literal, int | float):
        return literal != 0
    is_length = program.call_of(node, "builtins.len") is not None
    return is_length or is_metadata(node) or (isinstance(node, ast.Subscript) and is_metadata(node.value))


def _is_whole(program: Program, node: ast.expr) -> bool:
    return number_kind(program, node) == INTEGER or program.value(node).kind is Kind.STRING


def _fails(program: Program, call: ast.Call) -> bool:
    head, _, name = program.qualified(call.func).rpartition(".")
    if head == "math":
        return not all(program.value(each).is_literal for each in call.args)
    if head == "builtins" and name in ("int", "round"):
        return len(call.args) == 1 and not _is_whole(program, call.args[0])
    if head == "builtins" and name in ("max", "min"):
        return len(call.args) == 1
    callee = program.callee(call)
    return callee is not None and raising(program, own_nodes(callee)) is not None
