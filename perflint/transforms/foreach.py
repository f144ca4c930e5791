"""Updates the tensors that a loop walks all at once: by torch._foreach_* on lists, or by clip_grad_value_."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TypeGuard

from perflint.analysis.call_graph import handlers
from perflint.analysis.data.origins import Origins
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.modules import filled
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import bind, bound_names
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import path_of, receiver_of, variables_in
from perflint.transforms.averages import Lerp, lerp_of
from perflint.transforms.operations import (
    FIT,
    ReplaceStatements,
    expression,
    in_rows,
    is_new,
    negated,
    new,
    same_code,
    standing_for,
    statement,
)
from perflint.transforms.rewrite import Blocked, of_torch, rewrite, taken_around

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_METHODS = {  # and their arguments
    "mul": ("other",),
    "div": ("other",),
    "add": ("other", "alpha"),
    "sub": ("other", "alpha"),
    "lerp": ("end", "weight"),
    "copy": ("src",),
    "zero": (),
}
_PARAMETERS = frozenset({"parameters", "named_parameters"})
_EXTENDING = frozenset({"append", "extend", "insert"})
_SETTINGS = re.compile(r"args|cfg|conf|config|opts?|hparams|params|FLAGS")  # whose attributes are no tensors
_MIXED = re.compile(  # types that `lerp_` doesn't mix
    r"\.(half|bfloat16|double)\(|\.to\([^)\n]*(float16|float64|half|double)|set_default_dtype"
)
_SHARDED = re.compile(r"DTensor|fully_shard|deepspeed|is_sparse")


def on_lists(program: Program, loop: ast.For) -> Fix:
    """The fix for a loop that updates the tensors it walks, each by itself, with numbers; raises Blocked.

    Operations keep their order, so results are bitwise the same, but for quotients, which CUDA computes as products for
    single tensors.
    """
    if loop.orelse or _SHARDED.search(program.text):
        raise Blocked("the tensors may be sharded or sparse, or the loop has an `else`")
    block, conditions = _updating_block(loop)
    if read := sorted(program.get(Flow).graph(loop).live_out(loop)):
        raise Blocked(f"`{read[0]}` is read behind the loop", loop)
    if (fix := _clipped(program, loop, block, conditions)) is not None:
        return fix
    lists = _Lists(program, loop)
    statements = _inlined(block)
    lerp = lerp_of(statements, lists.is_leaf) if not _MIXED.search(program.text) else None
    if lerp is not None:
        lists.lerp(lerp)
    for each in statements if lerp is None else ():
        lists.add(each)
    if not all(map(lists.is_distinct, lists.written)):
        raise Blocked("it isn't known that each of the tensors is walked but once")
    change = rewrite(program, ReplaceStatements((loop,), tuple(_gathered(lists, conditions))))
    title = "launch each operation once for all parameters: torch._foreach_*"
    reason = "there are such tensors, and no two share memory"
    if len({ast.unparse(_root(leaf)) for leaf in lists.lists.values()}) > 1:
        reason = "the lists share no memory, are as long, not empty, and of the same types"
    if any(handlers(program, loop)):  # which leaves some tensors updated, and raises another error
        reason = "no exception is caught half-way"
    if lists.unsure:
        reason = f"`{lists.unsure}` is a number"
    return Fix(f"{title}, if {reason}", Safety.BEHAVIOUR, change)


def _updating_block(loop: ast.For) -> tuple[list[ast.stmt], list[ast.expr]]:
    block, conditions = loop.body, list[ast.expr]()
    while True:
        guards = [each for each in block if _is_guard(each)]
        rest = [each for each in block if each not in guards]
        conditions += [negated(each.test) for each in guards]
        if len(rest) == 1 and isinstance(rest[0], ast.If):
            if rest[0].orelse:
                raise Blocked("some of the tensors are updated otherwise", rest[0].orelse[0])
            conditions.append(rest[0].test)
            block = rest[0].body
        elif rest == block[len(block) - len(rest) :]:
            return rest, conditions
        else:
            raise Blocked("guards stand between the updates")


def _inlined(block: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    made, call = block[-2:] if len(block) > 1 else (None, None)
    value = call.value if isinstance(call, ast.Expr) else None
    name = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    if not isinstance(made, ast.Assign) or not isinstance(value, ast.Call) or not isinstance(name, ast.Name):
        return block
    named = [node for each in block for node in ast.walk(each) if isinstance(node, ast.Name) and node.id == name.id]
    if named != [name, *value.args]:
        return block
    return [*block[:-2], new(ast.Expr(new(ast.Call(value.func, [made.value], value.keywords))))]


def _is_guard(each: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(each, ast.If) and [type(inner) for inner in each.body] == [ast.Continue] and not each.orelse


def _clipped(program: Program, loop: ast.For, block: Sequence[ast.stmt], conditions: Sequence[ast.expr]) -> Fix | None:
    """One call for a loop whose `block` only clamps gradients to [-x, x]; None for other loops.

    The call skips parameters without a gradient; it has no room for other `conditions`.
    """
    only = block[0] if len(block) == 1 else None
    call = only.value if isinstance(only, ast.Expr) and isinstance(only.value, ast.Call) else None
    if call is None or not _clamps_gradient(call, loop.target):
        return None
    given = bind(call, ("min", "max"))
    low, high = given.get("min"), given.get("max")
    is_even = isinstance(low, ast.UnaryOp) and isinstance(low.op, ast.USub)
    if high is None or not is_even or not same_code(low.operand, high):  # type: ignore[union-attr]
        return None
    is_free = isinstance(high, ast.Constant) or (
        path_of(high) and path_of(high).partition(".")[0] not in bound_names(loop)
    )
    there = expression("{param}.grad is not None", param=path_of(loop.target))
    is_whole = all(ast.unparse(each) == ast.unparse(there) for each in conditions)
    if not is_free or not is_whole or program.value(high).kind is Kind.TENSOR:
        return None
    function = of_torch(program, "nn.utils.clip_grad_value_", loop)
    made = statement("{function}({walked}, {high})", function=function, walked=loop.iter, high=high)
    change = rewrite(program, ReplaceStatements((loop,), (standing_for(made, loop),)))
    title, doubt = "clip all gradients at once: torch.nn.utils.clip_grad_value_", _doubt(program, loop, high)
    return Fix(f"{title}, if {doubt}", Safety.BEHAVIOUR, change) if doubt else Fix(title, Safety.EXACT, change)


def _clamps_gradient(call: ast.Call, param: ast.expr) -> bool:
    method = call.func if isinstance(call.func, ast.Attribute) else None
    names = (f"{path_of(param)}.grad", f"{path_of(param)}.grad.data")
    return method is not None and method.attr in ("clamp_", "clip_") and path_of(method.value) in names


def _doubt(program: Program, loop: ast.For, high: ast.expr) -> str:
    if any(handlers(program, loop)):  # which leaves some gradients clamped, and raises another error
        return "no exception is caught half-way"
    if program.value(high).kind is not Kind.NUMBER:
        return f"`{program.segment(high)}` is a number"
    module = receiver_of(loop.iter, "parameters")
    return "" if module is not None and filled(program, module) else "there are parameters: torch clips no empty list"


def _gathered(lists: _Lists, conditions: Sequence[ast.expr]) -> list[ast.stmt]:
    """The updates, of lists of what the loop walks where `conditions` hold.

    What is walked in part, or more than once without being a module's parameters, is kept first. Of a part, nothing may
    remain, and torch._foreach_* takes no empty lists.
    """
    loop, columns = lists.loop, {name: lists.column(leaf) for name, leaf in lists.lists.items()}
    others = [each for _, each in columns.values() if not (isinstance(each, ast.Call) and lists.is_of_module(each))]
    kept, first = "", list[ast.stmt]()
    if conditions or len({*map(ast.unparse, others)}) < len(others):
        whole = ast.unparse(loop.target)
        kept = next((name for name, leaf in lists.lists.items() if ast.unparse(leaf) == whole), "")
        kept = kept or lists.taken.fresh("params" if isinstance(loop.target, ast.Name) else "pairs")
        made = _listed(expression(f"({whole})"), loop.target, loop.iter, conditions)
        first = [standing_for(statement("{name} = {made}", name=kept, made=made), loop)]
        columns = dict.fromkeys(columns, (loop.target, expression(kept)))
    made_of = {name: _listed(leaf, *columns[name]) for name, leaf in lists.lists.items() if name != kept}
    uses = [each.id for call in lists.code for each in ast.walk(call) if isinstance(each, ast.Name)]
    code = list[ast.stmt]()
    for call in lists.code:
        given = [each.id for each in call.args if isinstance(each, ast.Name) and each.id in made_of]
        once = {name: made_of.pop(name) for name in given if uses.count(name) == 1}
        call.args = [once.get(path_of(each), each) for each in call.args]
        code.append(statement("{call}", call=call))
    code[:0] = [statement("{name} = {made}", name=name, made=made) for name, made in made_of.items()]
    if conditions:
        code = [statement("if {kept}:\n    {*code}", kept=kept, code=code)]
    return [*first, *code] if first else [standing_for(code[0], loop), *code[1:]]


def _listed(leaf: ast.expr, target: ast.expr, walked: ast.expr, conditions: Sequence[ast.expr] = ()) -> ast.expr:
    if ast.unparse(leaf) == ast.unparse(target) and not conditions:
        return expression("list({walked})", walked=walked)
    return in_rows(new(ast.ListComp(leaf, [new(ast.comprehension(target, walked, [*conditions], 0))])), FIT)


class _Lists:
    def __init__(self, program: Program, loop: ast.For) -> None:
        self.program, self.loop = program, loop
        self.lists: dict[str, ast.expr] = {}
        self.code: list[ast.Call] = []
        self.unsure = ""
        self._own = variables_in(loop.target)
        self.written: list[ast.expr] = []
        self.taken = taken_around(program, loop)

    def add(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AugAssign) and type(node.op) in _BINARY and self.is_leaf(node.target):
            self._update(_BINARY[type(node.op)], node.target, [node.value])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value)
        elif isinstance(node, ast.Assign):
            raise Blocked("each tensor gets memory of its own anew: write into it with `copy_`", node)
        else:
            raise Blocked("it isn't known what the statement does to the tensor", node)

    def lerp(self, found: Lerp) -> None:
        self.written.append(found.target)
        own, end = (self._several(each) for each in (found.target, found.end))
        for each in ast.walk(found.weight):
            if isinstance(each, ast.expr) and not is_new(each):
                self._scalar(each)
        self._emit("lerp_", own, [end, found.weight])

    def _call(self, call: ast.Call) -> ast.expr:
        method = call.func if isinstance(call.func, ast.Attribute) else None
        if method is None or not method.attr.endswith("_"):
            raise Blocked("it isn't known what the call does to the tensor", call)
        receiver = method.value
        target = self._call(receiver) if isinstance(receiver, ast.Call) and not self.is_leaf(receiver) else receiver
        if not self.is_leaf(target):
            raise Blocked("it isn't known what the call changes", call)
        name = method.attr[:-1]
        if name in ("clamp", "clip"):
            bounds = bind(call, ("min", "max"))
            for bound in ("min", "max"):
                if (limit := bounds.get(bound)) is not None:
                    self._update(f"clamp_{bound}", target, [limit])
        elif name in _METHODS:
            bound_to = bind(call, _METHODS[name])
            given = [bound_to.get(each) for each in _METHODS[name]]
            if name == "add" and len(call.args) == 2 and self._mentions_own(call.args[1]):
                given = [*reversed(call.args)]  # as the first versions of torch had them
            if len(call.args) + len(call.keywords) != sum(each is not None for each in given):
                raise Blocked("the arguments aren't those of today's torch", call)
            self._update(name, target, [each for each in given if each is not None])
        else:
            raise Blocked(f"`{method.attr}` has no counterpart for lists", call)
        return target

    def _update(self, name: str, target: ast.expr, given: Sequence[ast.expr]) -> None:
        own = self._several(target)
        self.written.append(target)
        if len(given) == 2 and name in ("add", "sub"):
            alpha = ast.keyword("alpha", self._scalar(given[1]))
            call = self._foreach(f"{name}_", [own, self._several(given[0])])
            call.keywords = [alpha]
            self.code.append(call)
            return
        self._emit(f"{name}_", own, [self._either(each) for each in given])

    def _emit(self, name: str, own: ast.expr, given: Sequence[ast.expr]) -> None:
        self.code.append(self._foreach(name, [own, *given]))

    def _foreach(self, name: str, given: Sequence[ast.expr]) -> ast.Call:
        function = of_torch(self.program, f"_foreach_{name}", self.loop)
        return in_rows(new(ast.Call(function, [*given], [])), FIT)

    def _either(self, node: ast.expr) -> ast.expr:
        return self._several(node) if self._mentions_own(node) else self._scalar(node)

    def _several(self, node: ast.expr) -> ast.expr:
        if self.is_leaf(node):
            known = (name for name, leaf in self.lists.items() if ast.unparse(leaf) == ast.unparse(node))
            name = next(known, "") or self._fresh(node)
            self.lists.setdefault(name, node)
            return expression(name)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right, name = node.left, node.right, _BINARY[type(node.op)]
            if not self._mentions_own(left) and name in ("add", "mul"):
                left, right = right, left
            if self._mentions_own(left):
                return self._foreach(name, [self._either(left), self._either(right)])
        raise Blocked(f"`{self.program.segment(node)}` has no counterpart for lists", node)

    def _scalar(self, node: ast.expr) -> ast.expr:
        if self.program.call_of(node, "builtins.len"):
            return node
        for each in ast.walk(node):
            if isinstance(each, ast.Call) and not self.program.qualified(each.func).startswith(("math.", "builtins.")):
                raise Blocked(f"`{self.program.segment(each)}` may differ between the tensors", each)
            around = self.program.parent(each)
            is_whole = not isinstance(around, ast.Attribute) and getattr(around, "func", None) is not each
            if isinstance(each, ast.Name | ast.Attribute) and is_whole:
                self._check_number(each)
        return node

    def _check_number(self, node: ast.expr) -> None:
        kind, root = self.program.value(node).kind, path_of(node).partition(".")
        if kind is Kind.TENSOR or self._mentions_own(node):
            raise Blocked(f"`{self.program.segment(node)}` may be a tensor, or differ between them", node)
        if kind is not Kind.NUMBER and not (root[2] and _SETTINGS.fullmatch(root[0])):
            self.unsure = self.unsure or self.program.segment(node)

    def _mentions_own(self, node: ast.expr) -> bool:
        return not variables_in(node).isdisjoint(self._own)

    def is_leaf(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._own
        if isinstance(node, ast.Attribute):
            return node.attr in ("data", "grad") and self.is_leaf(node.value)
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Name) and node.slice.id in self._own and bool(path_of(node.value))
        method = node.func if isinstance(node, ast.Call) and not node.args and not node.keywords else None
        return isinstance(method, ast.Attribute) and method.attr == "detach" and self.is_leaf(method.value)

    def _fresh(self, leaf: ast.expr) -> str:
        root, walked = _root(leaf), self.column(leaf)[1]
        what = "grads" if _is_gradient(leaf) else "params"
        if isinstance(root, ast.Subscript):
            return self.taken.fresh(path_of(root.value).rpartition(".")[2] + "_list")
        method = walked.func if isinstance(walked, ast.Call) else None
        is_method = isinstance(method, ast.Attribute) and method.attr in _PARAMETERS
        owner = path_of(method.value).rpartition(".")[2] if isinstance(method, ast.Attribute) and is_method else ""
        if owner in ("", "self") or f"{owner}_{what}" in self.lists:
            return self.taken.fresh(what if root.id == "p" or what == "grads" else f"{root.id}_list")
        return self.taken.fresh(f"{owner}_{what}")

    def column(self, leaf: ast.expr) -> tuple[ast.expr, ast.expr]:
        """The target that holds the leaf, and what is walked for it."""
        loop, root = self.loop, _root(leaf)
        targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
        if (walked := self.program.call_of(loop.iter, "builtins.zip")) is not None:
            for target, each in zip(targets, walked.args, strict=False):
                if isinstance(each, ast.Starred):
                    break
                if isinstance(root, ast.Name) and root.id in variables_in(target):
                    return new(ast.Tuple(target.elts)) if isinstance(target, ast.Tuple) else target, each
        return loop.target, loop.iter

    def is_distinct(self, leaf: ast.expr) -> bool:
        root = _root(leaf)
        if isinstance(root, ast.Subscript):
            return self.is_of_module(root.value) and self.is_of_module(self.loop.iter)
        return self.is_of_module(self.column(leaf)[1])

    def is_of_module(self, walked: ast.expr, depth: int = 4) -> bool:
        """Are they parameters of one module or optimizer group, which hold each but once?"""
        if not depth:
            return False
        if isinstance(walked, ast.Subscript):
            return isinstance(walked.slice, ast.Constant) and walked.slice.value == "params"
        if isinstance(walked, ast.Name | ast.Attribute):
            origins = self.program.get(Origins).of(walked)
            known = [each for each in origins if isinstance(each, ast.expr) and each is not walked]
            is_known = bool(known) and len(known) == len(origins) and not any(map(self._is_extended, known))
            return is_known and all(self.is_of_module(each, depth - 1) for each in known)
        if not isinstance(walked, ast.Call):
            return False
        name = self.program.qualified(walked.func)
        if name in ("builtins.list", "builtins.tuple", "builtins.dict", "collections.OrderedDict") and walked.args:
            return self.is_of_module(walked.args[0], depth - 1)
        if isinstance(walked.func, ast.Attribute) and walked.func.attr in ("items", "keys", "values"):
            return self.is_of_module(walked.func.value, depth - 1)
        is_plain = isinstance(walked.func, ast.Attribute) and walked.func.attr in _PARAMETERS
        return is_plain and not walked.keywords and self.program.callee(walked) is None

    def _is_extended(self, made: ast.expr) -> bool:
        writes = (each for each in self.program.get(Memory).writes_after(made, made) if each.is_in_sight)
        nodes = {each.node for each in writes} - set(ast.walk(self.loop))
        methods = {getattr(each.func, "attr", "") for each in nodes if isinstance(each, ast.Call)}
        return not _EXTENDING.isdisjoint(methods) or any(isinstance(each, ast.stmt) for each in nodes)


def _root(leaf: ast.expr) -> ast.Subscript | ast.Name:
    return next(each for each in ast.walk(leaf) if isinstance(each, ast.Subscript | ast.Name))


def _is_gradient(leaf: ast.expr) -> bool:
    return any(getattr(each, "attr", "") == "grad" for each in ast.walk(leaf))
