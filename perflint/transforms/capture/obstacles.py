"""Finds in a function, and in those of the file that it calls, what a CUDA graph would not hold."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from perflint import torch_ops
from perflint.analysis.heat.syncs import Sync, syncs
from perflint.analysis.ir.flow import Flow
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.memory.dispatch import may_be_hooked
from perflint.analysis.program import GradMode, Program
from perflint.analysis.values.codes import named_functions
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, TRIES, elements_of, integer, method_of, own_nodes, receiver_of, root_of
from perflint.transforms.aliases import is_own
from perflint.transforms.capture.calls import (
    MODES,
    Body,
    argument_names,
    called,
    check_call,
    entry_of,
    is_tensor,
    works_in_place,
)
from perflint.transforms.operations import derived, new, number
from perflint.transforms.rewrite import Blocked, shown

_OTHER_CODE = {
    **dict.fromkeys(TRIES, "handles errors"),
    ast.Yield: "hands over to the caller",
    ast.YieldFrom: "hands over to the caller",
    ast.Await: "waits for other code",
    ast.AsyncFor: "waits for other code",
    ast.AsyncWith: "waits for other code",
    ast.Global: "assigns a global",
    ast.Nonlocal: "assigns a name of the function around it",
    ast.ClassDef: "defines a class",
    ast.Match: "matches patterns",
}
_OUTSIDE = "do that in a function around this one"
_TRANSPARENT = MODES | {
    "builtins.staticmethod",
    "builtins.classmethod",
    "typing.override",
    "typing_extensions.override",
}
_READ = "is read on the host: keep it on the device until the loop is over"
_USES = {
    "mask": "makes a tensor whose size depends on a mask: use `torch.where`",
    "print": "prints a tensor: print it when the loop is over",
    "index": "needs a tensor's value as an index: use `index_select` or `gather`",
    "if": "tests a tensor: use `torch.where`",
}
_ASKED = ("__bool__", "__len__")
VERDICTS = frozenset({"all", "any"})
_CONVERT = frozenset(
    f"builtins.{name}" for name in "int float bool complex str repr range max min any all sorted".split()
)


@dataclass
class Obstacles:
    """Raises Blocked at the first obstacle.

    `quiet`: no gradients are recorded. `strict`: steps may run whose results are dropped, so nothing but a step's own
    values may change, and no code. `sliced` are indices that are no copies from the host as slices.
    """

    program: Program
    quiet: bool
    strict: bool = False
    sliced: dict[ast.expr, ast.expr] = field(default_factory=dict)
    _seen: set[ast.AST] = field(default_factory=set)

    def check_function(self, function: Body) -> None:
        if function in self._seen:
            return
        self._seen.add(function)
        for decorator in getattr(function, "decorator_list", ()):
            if self.program.qualified(called(decorator)) not in _TRANSPARENT:
                raise Blocked(
                    f"`@{self.program.segment(decorator)}` may do something else than call it: {_OUTSIDE}", decorator
                )
        self.check([function.body] if isinstance(function, ast.Lambda) else function.body, function)

    def check(self, parts: Iterable[ast.AST], region: ast.AST) -> None:
        for part in parts:
            for node in own_nodes(part):
                self._node(node, region)

    def _node(self, node: ast.AST, region: ast.AST) -> None:
        if (does := _OTHER_CODE.get(type(node))) or isinstance(node, FUNCTIONS):
            raise Blocked(f"it {does or 'defines a function'}: {_OUTSIDE}", node)
        around = self.program.parent(node)
        is_named = isinstance(around, ast.Assign) and any(isinstance(each, ast.Name) for each in around.targets)
        if isinstance(node, ast.GeneratorExp) and (is_named or isinstance(around, ast.Return)):
            raise Blocked(f"it makes a generator, which may run at any time: {_OUTSIDE}", node)
        _check_reads(self.program, node)
        if isinstance(node, ast.Call):
            self._call(node, region)
        elif isinstance(node, ast.With):
            self._contexts(node)
        elif isinstance(node, ast.For) and self.program.value(node.iter).kind is Kind.LOADER:
            raise Blocked("it walks a loader: make a function of what is done for one batch", node)
        elif isinstance(node, ast.Subscript):
            self._index(node)
            self._subscript(node, region)
        elif isinstance(node, ast.Attribute):
            self._attribute(node, region)
        elif isinstance(node, ast.AugAssign) and self._is_changed(node.target):
            self._written(node, node.target, region)

    def _call(self, node: ast.Call, region: ast.AST) -> None:
        callees = check_call(self.program, node, region, self.strict)
        for callee in callees:
            owner, name = self.program.class_of(callee), getattr(callee, "name", "")
            if owner is not None and any(True for _ in owner.overriding(name)):
                raise Blocked(f"a subclass has its own `{name}`: decorate the methods of both by hand", node)
            self.check_function(callee)
        if callees:
            return
        if (entry := entry_of(self.program, node)) is not None:
            for base in (each for argument in entry.writes for each in argument.of(node)):
                self._written(node, base, region)
        elif works_in_place(self.program, node):
            for base in node.args:
                self._written(node, base, region)

    def _is_changed(self, target: ast.expr) -> bool:
        """Does `+=` leave it the same object, as it does no number?"""
        return isinstance(target, ast.Name) and self.program.value(target).kind is not Kind.NUMBER

    def _contexts(self, node: ast.With) -> None:
        for item in node.items:
            expression = item.context_expr
            if self.program.qualified(called(expression)) not in MODES:
                raise Blocked(f"{shown(self.program, expression)} may do something else than compute: {_OUTSIDE}", node)

    def _attribute(self, node: ast.Attribute, region: ast.AST) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            raise Blocked(
                f"{shown(self.program, node)} is assigned, which a replay would not do: return it, and let the caller",
                node,
            )
        parent = self.program.parent(node)
        is_method = isinstance(parent, ast.Call) and parent.func is node
        if not is_method and torch_ops.of_attribute(node.attr) is None:
            self._object(node, region)

    def _object(self, node: ast.Attribute | ast.Subscript, region: ast.AST) -> None:
        base = node.value
        if not isinstance(base, ast.Name) or base.id in ("self", "cls"):
            return
        if self.program.value(base).kind is Kind.UNKNOWN and base.id in argument_names(region):
            raise Blocked(
                f"`{base.id}` may be another object in each call: give the function the tensors that it reads", node
            )

    def _index(self, node: ast.Subscript) -> None:
        for part in elements_of(node.slice):
            bounds = [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else []
            if any(bound is not None and is_tensor(self.program, bound) for bound in bounds):
                raise Blocked(f"{shown(self.program, node)} {_USES['index']}", node)
            if isinstance(part, ast.List):
                instead = _as_slice(self.program, node) if not self.strict else None
                if instead is None:
                    raise Blocked(
                        "an index is copied from the host: make it a tensor, once, where the model is made", node
                    )
                self.sliced[node] = instead
            if self.program.value(part).dtype == "bool" and not _is_filled(self.program, node):
                raise Blocked(f"{shown(self.program, node)} {_USES['mask']}", node)

    def _subscript(self, node: ast.Subscript, region: ast.AST) -> None:
        if isinstance(node.ctx, ast.Load):
            if self.program.value(node.slice).kind is Kind.STRING:
                self._object(node, region)
        else:
            self._written(node, node.value, region)

    def _written(self, node: ast.AST, base: ast.expr, region: ast.AST) -> None:
        if is_own(self.program, region, base):
            return
        is_tensor = self.program.value(base).kind is Kind.TENSOR and isinstance(root_of(base), ast.Name)
        quiet = self.quiet or self.program.grad_mode(node, callers=False) is GradMode.OFF
        if self.strict or not is_tensor or not quiet:
            raise Blocked(
                f"{shown(self.program, base)} is changed in place, which others may see: make a new tensor instead",
                node,
            )


def computed(program: Program, functions: Iterable[str]) -> frozenset[str]:
    """Those functions, named as other files do, which only compute, whoever calls them."""
    named = {name: node for name, node in named_functions(program.tree) if name in functions}
    return frozenset(name for name, node in named.items() if _only_computes(program, node))


def _only_computes(program: Program, function: ast.AST) -> bool:
    owner = program.class_of(function) if isinstance(function, ast.FunctionDef) else None
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    if owner is not None:  # a call of a module runs its forward, unless it says itself what calls do
        says = any("__call__" in each.methods for each in owner.lineage())
        bases = [base for each in owner.lineage() for base in each.base_names]
        is_plain = bool(bases) and all(base == "torch.nn.Module" for base in bases)
        if says or not is_plain or may_be_hooked(program):
            return False
    elif [each.node for each in program.get(Flow).graph_of(program.tree).bindings[function.name]] != [function]:
        return False
    try:
        Obstacles(program, quiet=False, strict=True).check_function(function)
    except Blocked:
        return False
    return True


def _check_reads(program: Program, node: ast.AST) -> None:
    if sync := program.get(_syncs).get(node):
        raise Blocked(f"{shown(program, sync.node)} {_USES.get(sync.kind, _READ)}", sync.node)
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        _check_test(program, node.test)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            _check_test(program, test)
    elif (converted := program.call_of(node, *_CONVERT)) is not None:
        if any(is_tensor(program, argument) for argument in converted.args):
            raise Blocked(f"{shown(program, converted)} {_READ}", node)
    elif isinstance(node, ast.Compare) and any(isinstance(each, ast.In | ast.NotIn) for each in node.ops):
        parts = (node.left, *node.comparators)
        if any(is_tensor(program, each) for each in parts):
            raise Blocked(f"{shown(program, node)} {_READ}", node)


def _check_test(program: Program, test: ast.expr) -> None:
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            _check_test(program, part)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        _check_test(program, test.operand)
    elif isinstance(test, ast.Compare) and all(isinstance(each, ast.Is | ast.IsNot) for each in test.ops):
        pass
    elif any(program.value(part).kind is Kind.TENSOR for part in _data(test)):
        raise Blocked(f"{shown(program, test)} {_USES['if']}", test)
    elif isinstance(made := program.value(test).node, ast.ClassDef) and any(method_of(made, each) for each in _ASKED):
        raise Blocked(f"{shown(program, test)} runs code of `{made.name}`, which a replay would not do", test)


def may_read(program: Program, test: ast.expr) -> bool:
    try:
        _check_test(program, test)
    except Blocked:
        return True
    return any(receiver_of(node, *VERDICTS, "item") is not None for node in ast.walk(test))


def _as_slice(program: Program, node: ast.Subscript) -> ast.expr | None:
    """`x[:, [-1]]` as `x[:, -1:]`, where that is only computed with."""
    items = elements_of(node.slice)
    lists = [each for each in items if isinstance(each, ast.List) and len(each.elts) == 1]
    at = integer(lists[0].elts[0]) if len(lists) == 1 else None
    is_plain = all(each in lists or isinstance(each, ast.Slice) for each in items)
    if at not in (0, -1) or not is_plain or not isinstance(program.parent(node), ast.Compare | ast.BinOp):
        return None
    return derived(node, {lists[0]: new(ast.Slice(None, number(1)) if at == 0 else ast.Slice(number(-1), None))})


def _is_filled(program: Program, node: ast.Subscript) -> bool:
    statement = program.statement_of(node)
    is_target = isinstance(statement, ast.Assign) and node in statement.targets
    return is_target and isinstance(statement, ast.Assign) and program.value(statement.value).kind is Kind.NUMBER


def _data(node: ast.AST) -> Iterable[ast.expr]:
    if isinstance(node, ast.expr):
        if is_metadata(node):
            return
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _data(child)


def _syncs(program: Program) -> dict[ast.AST, Sync]:
    return {sync.node: sync for sync in syncs(program)}
