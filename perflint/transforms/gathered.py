"""Writes the lists of what a loop walks, as briefly as is right for it, and the code on them, in place of the loop."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perflint.analysis.modules import filled
from perflint.analysis.parameter_loops import alike
from perflint.analysis.program import Program
from perflint.syntax.walk import path_of, variables_in
from perflint.transforms.operations import (
    FIT,
    derived,
    expression,
    in_rows,
    new,
    standing_for,
    statement,
    tuple_of,
)
from perflint.transforms.rewrite import Taken


@dataclass(frozen=True)
class Gathering:
    """What the lists of a loop are to hold, by name, and the `code` on them, reached where the `conditions` hold."""

    program: Program
    loop: ast.For
    conditions: Sequence[ast.expr]
    lists: Mapping[str, ast.expr]
    code: Sequence[ast.stmt]
    taken: Taken

    def written(self) -> list[ast.stmt]:
        made = self._alone() or self._in_step() or self._in_pairs()
        return [standing_for(made[0], self.loop), *made[1:]]

    def _alone(self) -> list[ast.stmt]:
        """Every list is made of one that is walked, or of those of its parts for which the conditions hold."""
        target, walked = self.loop.target, self.loop.iter
        if len(self.lists) == 1:
            return self._guarded([], {name: self._listed(leaf, target, walked) for name, leaf in self.lists.items()})
        if not isinstance(target, ast.Name):
            return []
        base, guard = list[ast.stmt](), ""
        if self.conditions or not isinstance(walked, ast.Call):
            guard = self.taken.fresh(f"{target.id}s" if len(target.id) > 1 else "params")
            base = [_assigned(guard, self._listed(target, target, walked))]
            walked = expression(guard)
        lists = {name: _listed(leaf, target, walked) for name, leaf in self.lists.items()}
        return self._guarded(base, lists, guard)

    def _in_step(self) -> list[ast.stmt]:
        """Every list is made of one of those that are zipped, if these are as long."""
        sources = {name: self._source(leaf) for name, leaf in self.lists.items()}
        found = {name: source for name, source in sources.items() if source is not None}
        if self.conditions or len(found) < len(sources) or not self._modules():
            return []
        return self._guarded([], {name: _listed(self.lists[name], *source) for name, source in found.items()})

    def _modules(self) -> list[ast.expr]:
        """The modules whose parameters the loop walks side by side, if these are as many; none else."""
        walked = self.loop.iter
        is_zip = isinstance(walked, ast.Call) and self.program.qualified(walked.func) == "builtins.zip"
        parts = walked.args if isinstance(walked, ast.Call) and is_zip and not walked.keywords else [walked]
        modules = [module for each in parts if (module := _module(each)) is not None]
        is_whole = len(modules) == len(parts) and bool(modules)
        return modules if is_whole and all(alike(self.program, each, modules[0]) for each in modules[1:]) else []

    def _source(self, leaf: ast.expr) -> tuple[ast.Name, ast.Call] | None:
        """The variable, and the call of a module's `parameters`, of which the loop walks the parts, that it is for."""
        walked, target = self.loop.iter, self.loop.target
        if not isinstance(walked, ast.Call) or not isinstance(target, ast.Tuple):
            return None
        found = [
            (each, part)
            for each, part in zip(target.elts, walked.args, strict=False)
            if isinstance(each, ast.Name) and each.id in variables_in(leaf) and isinstance(part, ast.Call)
        ]
        is_one = len(found) == 1 and variables_in(leaf) & variables_in(target) == {found[0][0].id}
        return found[0] if is_one else None

    def _in_pairs(self) -> list[ast.stmt]:
        pairs = self.taken.fresh("pairs")
        parts = tuple_of([*self.lists.values()])
        base = _assigned(pairs, self._listed(parts, self.loop.target, self.loop.iter))
        call = _only_call(self.code)
        first = [path_of(each) for each in call.args[: len(self.lists)]] if call is not None else []
        names = {name: self._uses(name) for name in self.lists}
        if call is not None and first == [*names] and set(names.values()) == {1}:
            args = [expression("f(*zip(*{pairs}))", pairs=pairs).args[0], *call.args[len(first) :]]  # type: ignore[attr-defined]
            code = [_expression(new(ast.Call(call.func, args, call.keywords)))]
        else:
            unzipped = new(ast.Assign([tuple_of([*names], ast.Store())], expression("zip(*{pairs})", pairs=pairs)))
            code = [unzipped, *self.code]
        return [base, *self._if(pairs, code)]

    def _guarded(self, base: Sequence[ast.stmt], lists: Mapping[str, ast.expr], guard: str = "") -> list[ast.stmt]:
        """The code, with the lists that it uses once in it, under a test whether there is any."""
        guard = "" if self._is_filled() else guard or next(iter(lists))
        inside = {name: made for name, made in lists.items() if self._uses(name) == 1 and name != guard}
        named = {name: _assigned(name, made) for name, made in lists.items() if name not in inside}
        head = [*base, *(made for name, made in named.items() if name == guard)]
        rest = [made for name, made in named.items() if name != guard]
        return [*head, *self._if(guard, [*rest, *(_filled_in(each, inside) for each in self.code)])]

    def _if(self, guard: str, code: Sequence[ast.stmt]) -> list[ast.stmt]:
        is_needed = guard and not self._is_filled()
        return [statement("if {guard}:\n    {*code}", guard=guard, code=code)] if is_needed else [*code]

    def _is_filled(self) -> bool:
        """Is there one of each, for sure? torch._foreach_* takes no empty lists."""
        return not self.conditions and any(filled(self.program, each) for each in self._modules())

    def _uses(self, name: str) -> int:
        nodes = (node for each in self.code for node in ast.walk(each))
        return sum(isinstance(node, ast.Name) and node.id == name for node in nodes)

    def _listed(self, leaf: ast.expr, target: ast.expr, walked: ast.expr) -> ast.expr:
        return _listed(leaf, target, walked, self.conditions)


def _listed(leaf: ast.expr, target: ast.expr, walked: ast.expr, conditions: Sequence[ast.expr] = ()) -> ast.expr:
    if ast.unparse(leaf) == ast.unparse(target) and not conditions:
        return expression("list({walked})", walked=walked)
    each = new(ast.comprehension(target, walked, [*conditions], 0))
    return in_rows(new(ast.ListComp(leaf, [each])), FIT)


def _assigned(name: str, value: ast.expr) -> ast.stmt:
    return statement("{name} = {value}", name=name, value=value)


def _filled_in(code: ast.stmt, lists: Mapping[str, ast.expr]) -> ast.stmt:
    """The statement, an assignment or a call, with lists in it where it names them."""
    assert isinstance(code, ast.Assign | ast.Expr)
    names = (each for each in ast.walk(code.value) if isinstance(each, ast.Name) and each.id in lists)
    value = in_rows(derived(code.value, {each: lists[each.id] for each in names}), FIT)
    return new(ast.Assign(code.targets, value) if isinstance(code, ast.Assign) else ast.Expr(value))


def _expression(call: ast.expr) -> ast.stmt:
    return new(ast.Expr(in_rows(call, FIT)))


def _only_call(code: Sequence[ast.stmt]) -> ast.Call | None:
    call = code[0].value if len(code) == 1 and isinstance(code[0], ast.Expr) else None
    return call if isinstance(call, ast.Call) else None


def _module(walked: ast.expr) -> ast.expr | None:
    """The module whose parameters a call gives, if it is one with nothing else to it."""
    method = walked.func if isinstance(walked, ast.Call) and not (walked.args or walked.keywords) else None
    return method.value if isinstance(method, ast.Attribute) and method.attr == "parameters" else None
