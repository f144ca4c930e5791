"""One walk over a syntax tree: parents, nodes by type, and the functions and classes with what they hold."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, TypeVar

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
TRIES: tuple[type[ast.stmt], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
PlainLoop = ast.For | ast.While
DEFINITIONS = frozenset({*FUNCTIONS, ast.ClassDef})
_LARGE = DEFINITIONS | {ast.Module, *LOOPS}  # what is worth remembering
BLOCKS = ("body", "orelse", "finalbody")  # the fields of statements that hold statements; others hold handlers, cases
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

Node = TypeVar("Node", bound=ast.AST)
Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value")

place_of = attrgetter("lineno", "col_offset")
_LEAVES = frozenset(
    "ctx op ops id attr arg kind name names module level simple conversion is_async type_comment type_ignores asname"
    " rest kwd_attrs".split()
)


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """Some fields of each node class, filled as classes are met."""

    def __init__(self, pick: Callable[[type[ast.AST]], Sequence[str]], known: Iterable[type[ast.AST]] = ()) -> None:
        super().__init__(dict.fromkeys(known, ()))
        self._pick = pick

    def __missing__(self, cls: type[ast.AST]) -> tuple[str, ...]:
        fields = self[cls] = tuple(self._pick(cls))
        return fields


def _last_first(cls: type[ast.AST]) -> list[str]:
    first = [field for field in _AHEAD.get(cls, ()) if field in cls._fields]
    return [*first, *(field for field in _FIELDS[cls] if field not in first)][::-1]


# Those that may hold further expressions or statements; but the value of a constant is none.
_FIELDS = _Fields(lambda cls: [each for each in cls._fields if each not in _LEAVES], (ast.Constant, ast.MatchSingleton))
_AHEAD: dict[type[ast.AST], tuple[str, ...]] = {  # the fields that stand in front of others in the source, but not here
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), ("decorator_list", "type_params", "args", "returns")),
    ast.ClassDef: ("decorator_list", "type_params"),
    ast.IfExp: ("body",),
}
_MIXED = frozenset({ast.Dict, ast.arguments, ast.Call, ast.MatchMapping})  # whose fields may interleave
_LAST_FIRST = _Fields(_last_first)  # from the last in the source to the first, as a stack takes them
_OWN_LAST_FIRST = _Fields(lambda cls: _FIELDS[cls][::-1], DEFINITIONS)  # a function's or class's own nodes, so
_BLOCKS = _Fields(lambda cls: [each for each in (*BLOCKS, "handlers", "cases") if each in cls._fields])


class Walk:
    """What stands around each node of `tree`, and its nodes by type, in source order."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._sorted: dict[tuple[type[ast.AST], ...], list[ast.AST]] = {}

    @cached_property
    def _walked(self) -> tuple[dict[ast.AST, ast.AST], defaultdict[type[ast.AST], list[ast.AST]]]:
        """The parents of all nodes, and the nodes by type, in source order."""
        parents: dict[ast.AST, ast.AST] = {}
        of_type: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        fields = _LAST_FIRST
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            cls = node.__class__
            of_type[cls].append(node)
            if not (names := fields[cls]):
                continue  # more than half of them
            if cls in _MIXED and _is_mixed(node):
                below = sorted(children(node), key=place_of, reverse=True)
                parents.update(dict.fromkeys(below, node))
                stack += below
                continue
            for field in names:
                child = getattr(node, field)
                if child.__class__ is list:
                    if child:
                        for each in child:
                            parents[each] = node
                        stack += child[::-1]
                elif child is not None:
                    parents[child] = node
                    stack.append(child)
        return parents, of_type

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return self._walked[0]

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def of_type(self, *classes: type[Node]) -> Sequence[Node]:
        if classes not in self._sorted:
            found = [node for cls in classes for node in self._walked[1].get(cls, ())]
            self._sorted[classes] = sorted(found, key=place_of) if len(classes) > 1 else found
        return self._sorted[classes]  # type: ignore[return-value]

    def plain_loops(self) -> Sequence[PlainLoop]:
        return self.of_type(ast.For, ast.While)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        parent = self._parents.get(node)
        while parent is not None:
            yield parent
            parent = self._parents.get(parent)

    def function_of(self, node: ast.AST) -> Function | None:
        """The function or lambda that holds `node`, or None at module level."""
        around = self.definition_around(node)
        while around.__class__ is ast.ClassDef:
            around = self.definition_around(around)
        return around  # type: ignore[return-value]

    def scope_of(self, node: ast.AST) -> Function | ast.Module:
        return self.function_of(node) or self.tree

    def definition_around(self, node: ast.AST) -> ast.AST | None:
        """The innermost function, lambda or class that holds `node`, or None at module level."""
        parents, parent = self._parents, self._parents.get(node)
        while parent is not None and parent.__class__ not in DEFINITIONS:
            parent = parents.get(parent)
        return parent

    @cached_property
    def called(self) -> Mapping[ast.Call, str]:
        """The calls, each with the path of what it calls."""
        return {call: path_of(call.func) for call in self.of_type(ast.Call)}

    @cached_property
    def names(self) -> Mapping[str, Sequence[ast.Name]]:
        """The variables wherever they stand, by what they are called."""
        return grouped((each.id, each) for each in self.of_type(ast.Name))

    @cached_property
    def attributes(self) -> Mapping[str, Sequence[ast.Attribute]]:
        """The attributes wherever they stand, by what they are called."""
        return grouped((each.attr, each) for each in self.of_type(ast.Attribute))

    @cached_property
    def _calls(self) -> Mapping[ast.AST | None, Sequence[ast.Call]]:
        return grouped((self.definition_around(each), each) for each in self.of_type(ast.Call))

    def calls_in(self, function: ast.AST) -> Sequence[ast.Call]:
        """The calls among the own nodes of a function, in source order."""
        return self._calls.get(function, ())

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return next((each for each in self.ancestors(node) if isinstance(each, ast.ClassDef)), None)

    def statement_of(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self._parents[node]
        return node

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        parent = self._parents[statement]
        for field in BLOCKS:
            block = getattr(parent, field, None)
            if isinstance(block, list) and statement in block:
                return block
        return [statement]


def grouped(pairs: Iterable[tuple[Item, Value]]) -> dict[Item, list[Value]]:
    """The values by their keys, in order."""
    found: defaultdict[Item, list[Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def _is_mixed(node: Any) -> bool:
    """Do the parts of `node`, of a class that allows it, stand in another order than by its fields?"""
    if node.__class__ is ast.Call:
        return bool(node.keywords and node.args) and node.args[-1].__class__ is ast.Starred
    return node.__class__ is not ast.arguments or bool(node.defaults or node.kwonlyargs or node.kwarg)


def own_nodes(root: ast.AST) -> Sequence[ast.AST]:
    """`root` and the nodes below it, in source order, without those in nested functions and classes."""
    return _remembered(root) if root.__class__ in _LARGE else _own_nodes(root)


def _own_nodes(root: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = [root]
    stack = children(root)[::-1]
    while stack:
        node = stack.pop()
        if node is None:
            continue
        found.append(node)
        for field in _OWN_LAST_FIRST[node.__class__]:
            child = getattr(node, field)
            if child.__class__ is list:
                if child:
                    stack += child[::-1]
            elif child is not None:
                stack.append(child)
    return found


def nodes_below(root: ast.AST) -> list[ast.AST]:
    """`root` and all below it, the nearest first: in a third of the time of `ast.walk`."""
    found = [root]
    for node in found:
        if _FIELDS[node.__class__]:
            found += children(node)
    return found


def statements_of(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements in `node` in any order, also in functions and classes inside."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in _BLOCKS[node.__class__]:
            block = getattr(node, name)
            if block.__class__ is list:  # a lambda's is an expression
                pending += block


def nodes_of_body(loop: Loop) -> Iterator[ast.AST]:
    """The nodes in the body of `loop`, not in its head or an `else`."""
    return (node for statement in loop.body for node in own_nodes(statement))


def body_of(function: Function) -> Sequence[ast.stmt | ast.expr]:
    return [function.body] if isinstance(function, ast.Lambda) else function.body


def method_of(node: ast.AST | None, name: str) -> ast.FunctionDef | None:
    body = node.body if isinstance(node, ast.ClassDef) else []
    return next((each for each in body if isinstance(each, ast.FunctionDef) and each.name == name), None)


def returned_values(function: ast.AST | None) -> list[ast.expr]:
    """The values that a call of `function` may return, but for a None that isn't written out."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    returns = (each for each in own_nodes(function) if isinstance(each, ast.Return)) if function is not None else ()
    return [each.value for each in returns if each.value is not None]


@lru_cache(maxsize=1024)  # of a file or two: those of more would keep their trees alive
def _remembered(root: ast.AST) -> Sequence[ast.AST]:
    return _own_nodes(root)


@lru_cache(maxsize=256)
def _stores(scope: ast.AST) -> Mapping[str, Sequence[ast.Name]]:
    names = (node for node in own_nodes(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return grouped((node.id, node) for node in names)


def stores(scope: ast.AST, name: str) -> Sequence[ast.Name]:
    """The names in `scope` by which it binds `name`, in source order."""
    return _stores(scope).get(name, ())


def variables_in(node: ast.AST) -> set[str]:
    """The names of the variables that stand in `node`."""
    return {each.id for each in nodes_below(node) if isinstance(each, ast.Name)}


def bindings_of(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """The targets to which `node` itself assigns, each with what gives its value, or its parts' values."""
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        return [(node.target, node.value)] if node.value is not None else []
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        return [(node.target, node.iter)]
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return [(node.optional_vars, node.context_expr)]
    return []


def assigned_values(scope: ast.AST, path: str) -> Iterator[ast.expr]:
    """What `scope` itself assigns to the variable or attribute called `path`, in source order."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and any(path_of(target) == path for target in node.targets):
            yield node.value


def reachable(first: Iterable[Item], following: Callable[[Item], Iterable[Item]]) -> Iterator[Item]:
    """`first`, and all that `following` leads to from there, each once and the nearest first."""
    seen = dict.fromkeys(first)
    pending = [*seen]
    for each in pending:
        yield each
        new = dict.fromkeys(one for one in following(each) if one not in seen)
        seen |= new
        pending += new


def children(node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for field in _FIELDS[node.__class__]:
        child = getattr(node, field)
        if child.__class__ is list:
            found += child
        elif child is not None:
            found.append(child)
    return [each for each in found if each is not None] if node.__class__ in _MIXED else found


def path_of(node: ast.AST) -> str:
    """The dotted path of a name or a chain of attributes, such as `self.net.rnn`; else empty."""
    if node.__class__ is not ast.Attribute:
        return node.id if node.__class__ is ast.Name else ""
    path, node = node.attr, node.value
    while node.__class__ is ast.Attribute:
        path, node = f"{node.attr}.{path}", node.value
    return f"{node.id}.{path}" if node.__class__ is ast.Name else ""


def whole_of(node: ast.expr) -> str:
    """The path of the variable or attribute that `node` is a part of: of `self.x.data[0][t]`, self.x."""
    while isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Attribute) and (node.attr == "data" or not path_of(node))
    ):
        node = node.value
    return path_of(node)


def integer(node: ast.AST | None) -> int | None:
    """The value of an integer written out."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = integer(node.operand)
        return None if value is None else -value
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def text_of(node: ast.AST | None) -> str:
    """The string that is written out as `node`; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_false(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def elements_of(node: ast.expr) -> list[ast.expr]:
    """The elements of a tuple that is written out, such as indices for each axis; else `node` alone."""
    return node.elts if isinstance(node, ast.Tuple) else [node]


def spans_an_axis(index: ast.expr) -> bool:
    """Is it an index such as `:, t`, which no list takes?"""
    return isinstance(index, ast.Tuple) and any(isinstance(part, ast.Slice) for part in index.elts)


def last_name(node: ast.AST) -> str:
    """What a variable, parameter or attribute, or what `node` calls or is a part of, is called."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.arg if isinstance(node, ast.arg) else str(getattr(node, "attr", getattr(node, "id", "")))


def name_called(node: ast.AST | None) -> str:
    """The last part of the name of what `node` calls; empty if it is no call."""
    return last_name(node) if isinstance(node, ast.Call) else ""


def operands(test: ast.expr, operator: type[ast.boolop]) -> list[ast.expr]:
    """What `and`, or `or`, joins in a test; the test itself where it does not."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, operator) else [test]


def receiver_of(node: ast.AST | None, *methods: str) -> ast.expr | None:
    """The object of which `node` calls a method, one of `methods` if there are any; else None."""
    func = node.func if isinstance(node, ast.Call) else None
    is_method = isinstance(func, ast.Attribute) and (not methods or func.attr in methods)
    return func.value if is_method and isinstance(func, ast.Attribute) else None


def root_of(node: ast.AST) -> ast.AST:
    """What the parts of `x[0].data[t]` belong to: x."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node
