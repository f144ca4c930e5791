"""The torch modules that a loop's body calls: how each was built, alone or as an item of a list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of
from perflint.transforms.vectorize.paths import parts_of
from perflint.transforms.vectorize.wrapping import may_be_hooked, sets_attributes_by_name

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_SIZED = frozenset({"LSTMCell", "GRUCell", "RNNCell", "Linear"})
_SIZES = frozenset({"input_size", "hidden_size", "in_features", "out_features"})
_RETURN_IT = frozenset({"train", "eval", "requires_grad_", "share_memory"})
_HARMLESS = frozenset({"parameters", "named_parameters", "state_dict", "zero_grad"})
_ADD_ONE = {"append": 0, "insert": 1}
_WALKS = frozenset("len enumerate zip reversed range list tuple".split())
_LIST = "torch.nn.ModuleList"

Values = list[ast.expr | None]  # None is what is not in sight


@dataclass(frozen=True)
class Module:
    """A module of torch: its class, such as "LSTM", and the call that built it."""

    name: str
    built: ast.Call

    def argument(self, name: str, position: int) -> ast.expr | None:
        """What it was given for a parameter of its constructor."""
        for keyword in self.built.keywords:
            if keyword.arg == name:
                return keyword.value
        if self.name == "RNN" and position > 2:
            position += 1  # behind nonlinearity
        return self.built.args[position] if len(self.built.args) > position else None

    @property
    def described(self) -> str:
        """What it is besides the sizes of its input and output."""
        more = self.built.args[2:] if self.name in _SIZED else self.built.args
        named = [each for each in self.built.keywords if each.arg not in _SIZES or self.name not in _SIZED]
        return " ".join([self.name, *map(ast.dump, more), *sorted(map(ast.dump, named))])

    @property
    def is_in_place(self) -> bool:
        """May it write to its input?"""
        keyword = next((each.value for each in self.built.keywords if each.arg == "inplace"), None)
        given = [each for each in self.built.args if isinstance(each, ast.Constant) and each.value is True]
        return bool(given) or (keyword is not None and not (isinstance(keyword, ast.Constant) and not keyword.value))

    @property
    def is_pointwise(self) -> bool:
        """Does it work on each number by itself?"""
        operation = torch_ops.of_forward(f"torch.nn.{self.name}")
        return self.name == "Identity" or (operation is not None and operation.does("pointwise"))

    def reads_last_axis(self, program: Program) -> bool:
        """Does it work on the last axis and leave the others alone?"""
        if self.name not in ("LayerNorm", "RMSNorm"):
            return self.name == "Linear"
        shape = self.argument("normalized_shape", 0)
        return shape is not None and program.value(shape).kind is Kind.NUMBER

    def is_function(self, program: Program) -> bool:
        """Does it give the same each time for the same input, and change nothing?"""
        return (self.is_pointwise and not self.is_in_place) or self.reads_last_axis(program)

    @property
    def is_dropout(self) -> bool:
        """Does it drop single numbers at random while training?"""
        return self.name in ("Dropout", "AlphaDropout")


def module_of(program: Program, function: ast.expr) -> Module | None:
    """The module of torch that `function` surely is; None where it is not known how it was built."""
    value = program.value(function)
    if value.kind is not Kind.MODULE or not value.name.startswith("torch.nn.") or may_be_hooked(program):
        return None
    whole = _list_of(program, function)
    if whole is None:
        return module_built(program, construction(program, function)) if value.sure else None
    modules = [module_built(program, part) for part in _items(program, construction(program, whole), whole)]
    same = {module and module.described for module in modules}  # built alike, but for their sizes
    return modules[0] if len(same) == 1 else None


def module_built(program: Program, node: ast.expr | None) -> Module | None:
    """The module of torch that the call `node` builds, where all of its arguments are in sight."""
    node = _as_built(node)
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        return None
    if any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    name = program.qualified(node.func)
    known = name.startswith("torch.nn.") and torch_ops.class_kind(name) is not None
    return Module(name.rpartition(".")[2], node) if known else None


def _as_built(node: ast.expr | None) -> ast.expr | None:
    """What makes the module, without what moves it to its place or type."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _returns_it(node.func.attr):
        node = node.func.value
    return node


def _returns_it(method: str) -> bool:
    """Does a method of modules give the module itself, moved or cast?"""
    return method in _RETURN_IT or torch_ops.does(method, "cast") or torch_ops.does(method, "move")


def _is_harmless(method: str) -> bool:
    return method in _HARMLESS or _returns_it(method)


def is_changed(program: Program, function: ast.expr) -> bool:
    """Does the program do more with the module that `function` is than build, call, move and save it?"""
    parents = map(program.parent, _mentions(program, path_of(function).rpartition(".")[2]))
    return any(
        isinstance(each, ast.Subscript) or (isinstance(each, ast.Attribute) and not _is_harmless(each.attr))
        for each in parents
    )


def _mentions(program: Program, name: str) -> list[ast.Name | ast.Attribute]:
    """Where the program has a variable, or an attribute of anything, of that name."""
    found = (node for node in program.of_type(ast.Attribute) if node.attr == name)
    return [*found, *(node for node in program.of_type(ast.Name) if node.id == name)]


# -- what the program gives a variable or an attribute


def construction(program: Program, function: ast.expr) -> ast.Call | None:
    """The one call that builds what `function` is: the only value which the program gives that attribute or name."""
    path = path_of(function)
    known = values_of(program, function)
    values = [value for value in known if value is None or path_of(_as_built(value) or value) != path]
    return values[0] if len(values) == 1 and isinstance(values[0], ast.Call) else None


def values_of(program: Program, node: ast.expr) -> Values:
    """What the program gives an attribute of its object, or a variable; empty where that is not in sight."""
    path = path_of(node)
    root, _, attribute = path.partition(".")
    if not path or "." in attribute or sets_attributes_by_name(program):
        return []
    if isinstance(node, ast.Name):
        return _values_of_name(program, node)
    if root != "self" or home_of(program, node) is None:
        return []
    found = [(target, value) for target, value in program.get(_assignments) if getattr(target, "attr", "") == attribute]
    if any(path_of(target) not in ("", path) for target, _ in found):
        return []  # of another object, which may be this one
    return [value for target, value in found if path_of(target) and are_kin(program, node, target)]


def _values_of_name(program: Program, name: ast.Name) -> Values:
    """What a variable may hold where it is read: all that it is ever given, where other functions share it."""
    found = [(target, value) for target, value in program.get(_assignments) if path_of(target) == name.id]
    flow, around = program.get(Flow), program.function_of(name)
    if name.id not in flow.bindings(name).shared:
        reaching = _reaching(flow, name, dict(found))
        here = [value for target, value in found if target in reaching]
        if len(here) == len(reaching) > 0:
            return here
    own = [value for target, value in found if program.function_of(target) is around]
    return own or [value for _, value in found]


def _reaching(flow: Flow, name: ast.Name, values: dict[ast.expr, ast.expr | None]) -> set[ast.AST]:
    """Where a variable gets what it holds where it is read, and what it was moved from."""
    reaching: set[ast.AST] = set()
    pending = [*flow.definitions(name)]
    while pending:
        target = pending.pop()
        reaching.add(target)
        source = _as_built(values.get(target)) if isinstance(target, ast.expr) else None
        if isinstance(source, ast.Name) and source.id == name.id:
            pending += flow.definitions(source) - reaching
    return reaching


def _assignments(program: Program) -> list[tuple[ast.expr, ast.expr | None]]:
    """What the program assigns to, and the value, None where that is only a part of an expression."""
    found: list[tuple[ast.expr, ast.expr | None]] = []
    for node in program.of_type(ast.Assign):
        for target in node.targets:
            known = dict(parts_of(target, node.value))
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            found += [(part, known.get(part)) for part in parts]
    found += [(node.target, node.value) for node in program.of_type(ast.AnnAssign) if node.value is not None]
    found += [(node.target, None) for node in program.of_type(ast.AugAssign)]
    return found + [(node.target, None) for node in program.of_type(ast.For)]


def home_of(program: Program, node: ast.AST) -> ast.ClassDef | None:
    """The class around `node`."""
    return next((each for each in program.ancestors(node) if isinstance(each, ast.ClassDef)), None)


def are_kin(program: Program, one: ast.AST, other: ast.AST) -> bool:
    """Do both stand in the same class, or the second in a base or a subclass of the first's?"""
    home = home_of(program, one)
    others = [each for each in program.ancestors(other) if isinstance(each, ast.ClassDef)]
    return home is not None and any(
        home is each or f"@{home.name}" in program.base_names(each) or f"@{each.name}" in program.base_names(home)
        for each in others
    )


# -- lists of modules


def _list_of(program: Program, function: ast.expr) -> ast.expr | None:
    """What `function` is an item of: `cells[i]`, or a name that a loop gives one item of a list after the other."""
    if isinstance(function, ast.Subscript):
        return None if isinstance(function.slice, ast.Slice) else function.value
    name = path_of(function)
    for loop in program.ancestors(function) if isinstance(function, ast.Name) else ():
        if isinstance(loop, ast.For) and name in _bound(loop.target):
            is_rebound = any(name in _bound(each) for each in loop.body)
            return None if is_rebound else _walked(loop.target, loop.iter, name)
    return None


def _bound(node: ast.AST) -> set[str]:
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in names if not isinstance(each.ctx, ast.Load)}


def _walked(target: ast.expr, walked: ast.expr, name: str) -> ast.expr | None:
    """The list of which a loop's target `name` is one item after the other."""
    if isinstance(target, ast.Name):
        return walked if target.id == name and not isinstance(walked, ast.Call) else None
    if not isinstance(target, ast.Tuple) or not isinstance(walked, ast.Call) or not isinstance(walked.func, ast.Name):
        return None
    if walked.func.id == "enumerate" and len(target.elts) == 2 and walked.args:
        return _walked(target.elts[1], walked.args[0], name)
    if walked.func.id == "zip" and len(target.elts) == len(walked.args):
        found = (_walked(part, each, name) for part, each in zip(target.elts, walked.args, strict=True))
        return next((each for each in found if each is not None), None)
    return None


def _items(program: Program, built: ast.Call | None, whole: ast.expr) -> Values:
    """What the list `whole`, which `built` made, ever holds."""
    if built is None or program.qualified(built.func) != _LIST or built.keywords or len(built.args) > 1:
        return [None]
    first = _displayed(program, built.args[0]) if built.args else ()
    return [*first, *added(program, whole)]


def _displayed(program: Program, node: ast.expr) -> Iterator[ast.expr | None]:
    """The items of a list, as they are written."""
    if isinstance(node, ast.List | ast.Tuple):
        yield from (None if isinstance(each, ast.Starred) else each for each in node.elts)
    elif isinstance(node, ast.ListComp | ast.GeneratorExp):
        yield from _choices(node.elt)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (*_displayed(program, node.left), *_displayed(program, node.right))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
        yield from _displayed(program, node.left)
    elif isinstance(node, ast.Name):
        yield from _collected(program, node)
    else:
        yield None


def _choices(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from (*_choices(node.body), *_choices(node.orelse))
    else:
        yield node


def _collected(program: Program, name: ast.Name) -> Iterator[ast.expr | None]:
    """The items of a local list that is filled where it is made."""
    for node in ast.walk(program.function_of(name) or program.tree):
        parent = program.parent(node)
        if not isinstance(node, ast.Name) or node.id != name.id or node is name:
            continue
        if isinstance(parent, ast.Call) and program.qualified(parent.func) == _LIST:
            continue  # only handed to a list of modules
        if isinstance(parent, ast.Assign) and parent.targets == [node] and not isinstance(parent.value, ast.Name):
            yield from _displayed(program, parent.value)
        else:
            yield from _grown(program, node)


def added(program: Program, whole: ast.expr) -> Iterator[ast.expr | None]:
    """What is added to the list `whole` after it was made."""
    owner, _, name = path_of(whole).rpartition(".")
    for node in _mentions(program, name):
        if isinstance(node, ast.Attribute) is not bool(owner) or not isinstance(node.ctx, ast.Load):
            continue
        if not isinstance(node, ast.Attribute) or path_of(node.value) != "self" or are_kin(program, whole, node):
            yield from _grown(program, node)


def _grown(program: Program, node: ast.expr) -> Iterator[ast.expr | None]:
    """What a mention of a list adds to it."""
    parent = program.parent(node)
    if isinstance(parent, ast.Attribute) and not _is_harmless(parent.attr):
        call = program.parent(parent)
        position = _ADD_ONE.get(parent.attr)
        if isinstance(call, ast.Call) and position is not None and len(call.args) == position + 1:
            yield from _choices(call.args[position])
        elif isinstance(call, ast.Call) and parent.attr == "extend" and len(call.args) == 1:
            yield from _displayed(program, call.args[0])
        else:
            yield None
    elif (isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load)) or (
        isinstance(parent, ast.Call) and node in parent.args and getattr(parent.func, "id", "") not in _WALKS
    ):
        yield None
