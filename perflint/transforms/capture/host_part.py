"""Tells what of a training step the host does before its graph, and which numbers need not come back to it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from perflint import torch_ops
from perflint.analysis.autograd.effects import runs_backward
from perflint.analysis.heat.syncs import storage_of
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Graph
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import has_no_axes
from perflint.analysis.values.operations import move
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.scopes import keyword_of
from perflint.syntax.walk import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    Loop,
    elements_of,
    integer,
    own_nodes,
    path_of,
    receiver_of,
    root_of,
)
from perflint.transforms.capture.calls import entry_of
from perflint.transforms.capture.late import is_setting
from perflint.transforms.collected import is_new
from perflint.transforms.host_code import is_output, item_of
from perflint.transforms.operations import Replace, expression
from perflint.transforms.rewrite import name_of_torch

_PLAIN = frozenset(f"builtins.{name}" for name in "isinstance tuple list type len zip range".split())
HALF = ("autocast", "half", "float16")  # where a tensor is rounded before it is multiplied, and no number is
_OTHER_FLOATS = (*HALF, "float64", "double")  # to which tensors round numbers in other ways
Around = Loop | ast.FunctionDef  # the loop of a step, or the function that takes one when it is called
_MAKERS = ("torch.", "numpy.", "random.", "builtins.")


def is_within(graph: Graph, node: ast.AST, around: Around) -> bool:
    return isinstance(around, ast.FunctionDef) or graph.is_within(node, around)


def outermost_of(program: Program, around: Around) -> Around:
    if isinstance(around, ast.FunctionDef):
        return around
    found = around
    for each in program.ancestors(around):
        if isinstance(each, FUNCTIONS):
            break
        found = each if isinstance(each, LOOPS) else found
    return found


def detaches(program: Program, statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    calls = [node for node in own_nodes(statement.value) if isinstance(node, ast.Call)]
    others = [each for each in calls if program.qualified(each.func) not in _PLAIN]  # but tuple(), around them
    return bool(others) and all(_detaches(program, each) for each in others)


def _detaches(program: Program, call: ast.Call) -> bool:
    if receiver_of(call, "detach") is not None:
        return True
    callee = program.callee(call)
    inner = [node for node in own_nodes(callee) if isinstance(node, ast.Call)] if callee is not None else []
    others = (each for each in inner if receiver_of(each, "detach") is None and program.callee(each) is not callee)
    plain = all(program.qualified(each.func) in _PLAIN for each in others)
    return plain and any(receiver_of(each, "detach") is not None for each in inner)


def zeroes(program: Program, statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    owner = receiver_of(call, "zero_grad")
    is_known = isinstance(call, ast.Call) and program.callee(call) is not None  # by what this file says of it
    return owner is not None and bool(path_of(owner)) and not is_known


def early(program: Program, statement: ast.stmt) -> bool:
    """May the statement go before the step, as it makes or fetches tensors of what the host has?

    So may one that drops gradients, where nothing before needs them.
    """
    if zeroes(program, statement):
        return True
    if not isinstance(statement, ast.Assign) or not all(map(_names_alone, statement.targets)):
        return False
    for node in own_nodes(statement.value):
        if isinstance(node, ast.Lambda | ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await):
            return False
        if isinstance(node, ast.Name | ast.Attribute) and program.value(node).kind in (Kind.MODULE, Kind.OPTIMIZER):
            return False
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return False
        if isinstance(node, ast.Call):
            if draws(program, node) and keyword_of(node, "device") is not None:
                return False  # in the order of what the step draws there
            func, name = node.func, program.qualified(node.func)
            is_method = isinstance(func, ast.Attribute) and not name and torch_ops.of_method(func.attr) is not None
            owner = program.value(func.value) if isinstance(func, ast.Attribute) else None
            of_tensor = is_method and owner is not None and (owner.kind is Kind.TENSOR or owner.is_blank)
            if _detaches(program, node):
                continue
            if not (name.startswith(_MAKERS) or of_tensor) or name == "builtins.next":
                return False
            if (
                is_method
                and isinstance(func, ast.Attribute)
                and func.attr.endswith("_")
                and not isinstance(func.value, ast.Call)
            ):
                return False
    return True


def draws(program: Program, node: ast.AST) -> bool:
    name = program.qualified(node.func) if isinstance(node, ast.Call) else ""
    return draws_on_device(program, node) or (not name.startswith("torch.") and "random" in name)


def draws_on_device(program: Program, node: ast.AST) -> bool:
    entry = entry_of(program, node) if isinstance(node, ast.Call) else None
    return entry is not None and entry.does("random")


def _names_alone(target: ast.expr) -> bool:
    return all(isinstance(each, ast.Name | ast.Tuple | ast.expr_context) for each in ast.walk(target))


@dataclass(frozen=True)
class Fetched:
    """An expression evaluated before the step, which takes it as an argument `name`.

    A number that `scales` tensors becomes a tensor, as a graph belongs to one number.
    """

    value: ast.expr
    name: str
    scales: bool = False


def fetched(program: Program, statement: ast.stmt, around: Around) -> Iterator[Fetched]:
    """The expressions to evaluate before a statement, which need nothing that the step computes.

    They copy host data to the device, choose rows by what differs between iterations, take a batch apart, or decide by
    a count whether something is due: there is a graph for either answer. Numbers of foreign objects, such as an
    environment's bounds, are read there too: a graph's key would hold all that the object reads.
    """
    graph, inside = program.get(Flow).graph(statement), set[ast.AST]()

    def given(node: ast.AST, loop: Around = around) -> bool:
        return isinstance(node, ast.Name) and any(is_within(graph, each, loop) for each in graph.reaching(node))

    for node in own_nodes(statement):
        if node in inside:
            continue
        name, always = "", is_unconditional(program, node, statement)
        if isinstance(statement, ast.If) and node is statement.test and _may_be_due(program, statement):
            name = "is_due" if any(map(given, own_nodes(node))) else ""
        elif isinstance(node, ast.Call) and always:
            name = _name_of_move(program, node)
        elif isinstance(node, ast.Subscript) and not any(map(given, own_nodes(node.value))):
            others = partial(given, loop=outermost_of(program, around))
            stays = not any(map(others, own_nodes(node.value)))  # where it is, and a graph reads it there
            chosen = [each for each in elements_of(node.slice) if given(each)]
            name = _name_of_choice(
                program, node, [each for each in chosen if not (stays and _is_on_device(program, each))]
            )
            name = name or (_name_of_bound(program, node) if always else "")
        elif isinstance(node, ast.Attribute) and always and given(node.value, outermost_of(program, around)):
            name = "" if _is_of_self(node, around) else _name_of_part(program, node)
        if name and isinstance(node, ast.expr):
            inside |= set(own_nodes(node))
            yield Fetched(node, name)


def _is_of_self(node: ast.Attribute, around: Around) -> bool:
    given = [*around.args.posonlyargs, *around.args.args] if isinstance(around, ast.FunctionDef) else []
    return bool(given) and isinstance(node.value, ast.Name) and node.value.id == given[0].arg


def _may_be_due(program: Program, statement: ast.If) -> bool:
    calls = (node for node in own_nodes(statement) if isinstance(node, ast.Call))
    return _is_condition(program, statement.test) and not any(runs_backward(program, each) for each in calls)


def _is_condition(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.BoolOp):
        return all(_is_condition(program, each) for each in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _is_number(program, node.operand)
    if not isinstance(node, ast.Compare) or any(isinstance(each, ast.In | ast.NotIn) for each in node.ops):
        return False
    return all(_is_number(program, each) for each in (node.left, *node.comparators))


def _is_number(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(program, node.left) and _is_number(program, node.right)
    if isinstance(node, ast.Call):
        return program.qualified(node.func) == "builtins.len" and len(node.args) == 1 and bool(path_of(node.args[0]))
    value = program.value(node)
    if isinstance(node, ast.Attribute):
        return is_setting(program, node) and value.kind is not Kind.STRING
    return value.kind is Kind.NUMBER and isinstance(node, ast.Name | ast.Constant)


def is_unconditional(program: Program, node: ast.AST, statement: ast.stmt) -> bool:
    for each in program.ancestors(node):
        if each is statement:
            return not isinstance(each, ast.If | ast.For | ast.While)
        if isinstance(each, (ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While, ast.Lambda, *COMPREHENSIONS)):
            return False
    return True


def scales(program: Program, name: ast.Name) -> bool:
    is_float = not any(each in program.text for each in _OTHER_FLOATS) and bool(name_of_torch(program))
    return is_float and _is_operand(program, name, _SCALING)


def only_fetches(program: Program, statement: ast.stmt, found: Sequence[Fetched]) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return {unwrapped(program, each) for each in values} <= {each.value for each in found}


def unwrapped(program: Program, node: ast.expr) -> ast.expr:
    wrapper = program.call_of(node, "torch.autograd.Variable")
    return wrapper.args[0] if wrapper is not None and wrapper.args else node


def _name_of_move(program: Program, node: ast.Call) -> str:
    moved = move(program, node)
    if moved is None or program.value(moved.tensor).place is Place.DEVICE:
        return ""
    made: ast.expr | None = moved.tensor
    is_made = program.value(moved.tensor).place is Place.HOST and not any(
        draws(program, each) for each in own_nodes(moved.tensor)
    )
    while is_made and isinstance(made, ast.Call):  # of `torch.Tensor(rows).unsqueeze(0)`
        is_method = isinstance(made.func, ast.Attribute) and not program.qualified(made.func)
        made = made.func.value if isinstance(made.func, ast.Attribute) and is_method else next(iter(made.args), None)
    is_tensor = isinstance(made, ast.Name) and program.value(made).kind is not Kind.NUMBER
    return made.id if isinstance(made, ast.Name) and is_tensor else ""


def _name_of_bound(program: Program, node: ast.Subscript) -> str:
    path, root = path_of(node.value), root_of(node)
    is_foreign = path.count(".") > 1 and isinstance(root, ast.Name) and program.value(root).kind is Kind.UNKNOWN
    is_read = is_foreign and isinstance(node.ctx, ast.Load) and integer(node.slice) is not None
    return path.rpartition(".")[2] if is_read and program.value(node.value).kind is not Kind.TENSOR else ""


def _name_of_choice(program: Program, node: ast.Subscript, given: list[ast.expr]) -> str:
    base, number = node.value, ""
    while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and not (base.args or base.keywords):
        base = base.func.value  # of `rows.long()`
    if isinstance(base, ast.Subscript) and integer(base.slice) is not None:
        number = f"_{integer(base.slice)}".replace("-", "")  # of `states[0]`
        base = base.value
    others = (each for each in elements_of(node.slice) if each not in given)
    if not isinstance(node.ctx, ast.Load) or not isinstance(base, ast.Name) or len(given) != 1:
        return ""
    if not all(isinstance(each, ast.Slice) and not (each.lower or each.upper or each.step) for each in others):
        return ""
    index = given[0]
    if (
        not isinstance(index, ast.Name)
        or program.value(node.value).kind is not Kind.TENSOR
        or program.value(base).kind not in (Kind.TENSOR, Kind.SEQUENCE)
        or program.value(index).kind not in (Kind.NUMPY, Kind.SEQUENCE, Kind.TENSOR)
    ):
        return ""
    first, _, rest = index.id.partition("_")
    short, _, stem = base.id.partition("_")
    return f"{first if rest else 'batch'}_{stem if stem and len(short) == 1 else base.id}{number}".lower()


def _is_on_device(program: Program, index: ast.expr) -> bool:
    """Does it choose on the device, by whole numbers? For a mask, the host has to count first."""
    value = program.value(index)
    return value.place is Place.DEVICE and value.sure and value.dtype == "int"


def _name_of_part(program: Program, node: ast.Attribute) -> str:
    around = program.parent(node)
    is_called = isinstance(around, ast.Call) and around.func is node
    is_object = program.value(node.value).kind in (Kind.UNKNOWN, Kind.METHOD, Kind.INSTANCE)
    is_object = is_object and program.value(node).kind not in (Kind.MODULE, Kind.OPTIMIZER)
    is_read = isinstance(node.ctx, ast.Load) and torch_ops.of_attribute(node.attr) is None
    return node.attr if is_read and is_object and not is_called else ""


_SCALING = (ast.Add, ast.Sub, ast.Mult)


@dataclass(frozen=True)
class Kept:
    """The variable `name`, of the number read by each of `reads`; `is_mixed`: or of a host number.

    The host looks at it where it is `shown`.
    """

    name: str
    reads: tuple[ast.Call, ...]
    shown: tuple[ast.Name, ...]
    is_mixed: bool

    def replaced(self, program: Program) -> Iterable[Replace]:
        for read in self.reads:
            assert isinstance(read.func, ast.Attribute)
            tensor = storage_of(read.func.value)
            copy = "" if is_new(program, tensor) else ".clone()"
            shape = "" if has_no_axes(program, tensor) else ".squeeze()"
            yield Replace(read, expression(f"{{x}}.detach(){copy}{shape}", x=tensor))
        for name in self.shown:
            yield Replace(name, expression(f"float({self.name})" if self.is_mixed else f"{self.name}.item()"))


def kept(program: Program, block: Iterable[ast.stmt], around: Around) -> list[Kept]:
    if ".item()" not in program.text or any(each in program.text for each in HALF):
        return []
    names = {node.id: node for each in block for node in own_nodes(each) if isinstance(node, ast.Name)}
    found = (_kept(program, program.get(Flow).graph(each), each.id, around) for each in names.values())
    return [each for each in found if each is not None]


def _kept(program: Program, graph: Graph, name: str, around: Around) -> Kept | None:
    uses = [each for each in graph.values if isinstance(each, ast.Name) and each.id == name]
    if name in graph.shared or name in graph.captured:
        return None
    reads, shown, is_mixed = list[ast.Call](), list[ast.Name](), False
    for each in uses:
        if isinstance(each.ctx, ast.Load):
            if _is_shown(program, each):
                shown.append(each)
            elif not _is_operand(program, each, (*_SCALING, ast.Div)):
                return None
            continue
        value = graph.value(each)
        given = value.given if isinstance(value, Definition) else None
        if isinstance(given, ast.Call) and _is_read(program, given):
            reads.append(given)
        elif given is None or is_within(graph, each, around) or not _is_fixed(program, given):
            return None
        else:
            is_mixed = True
    is_needed = any(isinstance(each.ctx, ast.Load) and each not in shown for each in uses)
    is_anew = any(is_within(graph, each, around) for each in reads)
    return Kept(name, tuple(reads), tuple(shown), is_mixed) if is_needed and is_anew else None


def _is_read(program: Program, node: ast.expr) -> bool:
    tensor = item_of(node)
    value = program.value(tensor) if tensor is not None else None
    return value is not None and value.kind is Kind.TENSOR and value.place is not Place.HOST


def _is_fixed(program: Program, node: ast.expr) -> bool:
    return program.value(node).kind is Kind.NUMBER or (isinstance(node, ast.Attribute) and is_setting(program, node))


def _is_operand(program: Program, name: ast.Name, operators: tuple[type[ast.operator], ...]) -> bool:
    around = program.parent(name)
    if not isinstance(around, ast.BinOp) or not isinstance(around.op, operators):
        return False
    value = program.value(around.right if around.left is name else around.left)
    return value.kind is Kind.TENSOR and value.place is not Place.HOST


def _is_shown(program: Program, name: ast.Name) -> bool:
    around = program.parent(name)
    while isinstance(around, ast.FormattedValue | ast.JoinedStr | ast.Tuple):
        around = program.parent(around)
    return isinstance(around, ast.Call) and is_output(program, around)
