"""Recognises loops that do the same to one sample of a batch after the other."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.ir.occurrences import dependents, reads
from perflint.analysis.loops.flow import LoopKind
from perflint.analysis.loops.header import is_next
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.walk import elements_of, path_of, receiver_of, root_of, text_of, variables_in

_DIFFERING = frozenset("tolist split nms checkpoint isinstance".split())
_BRANCHING = (ast.IfExp, ast.For, ast.While, ast.Try, ast.Break, ast.Continue, ast.Return, ast.Yield)
_OF_TEXTS = (ast.JoinedStr, ast.Lambda, ast.Dict)
_INTEGRAL = frozenset({"builtins.int", "builtins.len"})


def walked_batch(program: Program, loop: ast.For | ast.ListComp) -> ast.expr | None:
    """The tensor that `loop` walks sample by sample, doing the same to each, whatever it holds; None for others.

    A comprehension is one where `torch.stack` joins what it makes of each sample.
    """
    walk = _Walk(program, loop)
    return walk.batch if walk.batch is not None and walk.is_uniform() else None


class _Walk:
    def __init__(self, program: Program, loop: ast.For | ast.ListComp) -> None:
        self._program, self._loop = program, loop
        self._index, self.batch = "", None
        walk = loop if isinstance(loop, ast.For) else loop.generators[0]
        self._target, walked = walk.target, walk.iter
        index, self._repeated = self._looked_into(loop, walk.target)
        if not isinstance(walked, ast.Call):
            return
        targets = elements_of(walk.target)
        if index and (count := self._count(walked)) is not None:
            self._index = index
            batch = self._indexed(count)
        elif self._called(walked) == "enumerate" and isinstance(targets[0], ast.Name) and len(walked.args) == 1:
            self._index, batch = targets[0].id, walked.args[0] if self._is_surely_tensor(walked.args[0]) else None
        elif self._called(walked) == "zip" and not walked.keywords:
            are_tensors = [self._is_surely_tensor(each) for each in walked.args]  # lists of tensors are zipped more
            batch = walked.args[0] if are_tensors and all(are_tensors) else None
        else:
            return
        self.batch = batch if batch is not None and self._may_walk_samples(loop) else None

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        return [each for part in self._repeated for each in ast.walk(part)]

    @cached_property
    def _own(self) -> frozenset[str]:
        return dependents(self._loop, variables_in(self._target))

    def _looked_into(self, loop: ast.For | ast.ListComp, target: ast.expr) -> tuple[str, Sequence[ast.AST]]:
        index = target.id if isinstance(target, ast.Name) else ""
        call = loop.elt if isinstance(loop, ast.ListComp) and isinstance(loop.elt, ast.Call) else None
        callee = self._program.callee(call) if call is not None else None
        if call is not None and isinstance(callee, ast.Lambda):
            for given in call.args:
                parameter = self._program.receiver(given, call, callee)
                if parameter is not None and isinstance(given, ast.Name) and given.id == index:
                    return parameter.arg, [callee.body]
        return index, _repeated(loop)

    def _count(self, walked: ast.Call) -> ast.expr | None:
        while isinstance(walked.func, ast.Attribute) and torch_ops.does(walked.func.attr, "cast"):
            if not isinstance(walked.func.value, ast.Call):
                return None
            walked = walked.func.value
        is_range = self._called(walked) in ("range", "torch.arange")
        return walked.args[0] if is_range and len(walked.args) == 1 else None

    def _may_walk_samples(self, loop: ast.For | ast.ListComp) -> bool:
        if isinstance(loop, ast.For):
            return self._program.loop_kind(loop) not in (LoopKind.TIME, LoopKind.STEP)
        return self._is_stacked and len(loop.generators) == 1 and not loop.generators[0].ifs

    @property
    def _is_stacked(self) -> bool:
        around = self._program.parent(self._loop)
        return (
            isinstance(self._loop, ast.ListComp)
            and isinstance(around, ast.Call)
            and self._called(around) == "torch.stack"
        )

    def is_uniform(self) -> bool:
        branching = [each for each in self._nodes if isinstance(each, (*_BRANCHING, *_OF_TEXTS))]
        if not all(isinstance(each, ast.For) and self._only_fills(each) for each in branching):
            return False
        is_same = all(self._is_same(each) for each in self._nodes)
        kinds = {self._program.value(each).kind for each in self._nodes if isinstance(each, ast.Call | ast.BinOp)}
        parts = [each for each in self._nodes if isinstance(each, ast.Subscript)]
        stores = [each for each in parts if isinstance(each.ctx, ast.Store)]
        places = {(path_of(root_of(each)), ast.dump(elements_of(each.slice)[0])) for each in stores}
        roots = {root for root, _ in places}
        looked_up = {(path_of(root_of(each)), ast.dump(elements_of(each.slice)[0])) for each in parts}
        if any(root in roots for root, _ in looked_up - places):
            return False  # what another sample has left
        computes = (
            self._is_stacked
            or Kind.TENSOR in kinds
            or any(self._is_sample(each) and self._is_of_tensor(each) for each in stores)
        )
        return is_same and computes and Kind.NUMPY not in kinds

    def _called(self, node: ast.Call) -> str:
        return self._program.qualified(node.func).removeprefix("builtins.")

    def _indexed(self, count: ast.expr) -> ast.expr | None:
        samples = [each for each in self._nodes if isinstance(each, ast.Subscript) and self._is_sample(each)]
        if not samples or self._counts_items(count):
            return None
        shapes = self._program.get(Shapes)
        measured, size = shapes.measured(count), shapes.size(count)
        kind = self._program.value(measured[0]).kind if measured is not None else Kind.TENSOR
        if (measured is not None and measured[1] != 0) or kind not in (Kind.TENSOR, Kind.UNKNOWN):
            return None
        for part in samples:
            is_of_size = measured is not None or (size and shapes.shape(part.value).size(0) == size)
            if is_of_size and self._is_of_tensor(part):
                return part.value
        return None

    def _counts_items(self, count: ast.expr) -> bool:
        graph = self._program.get(Flow).graph(count)
        values = graph.definitions(count) if isinstance(count, ast.Name) else ()
        sources = [count, *(each.source for each in values if isinstance(each, Definition))]
        calls = [each for each in sources if isinstance(each, ast.Call) and self._called(each) == "len" and each.args]
        return not all(self._is_surely_tensor(each.args[0]) for each in calls)

    def _is_surely_tensor(self, node: ast.expr) -> bool:
        value = self._program.value(node)
        return value.kind is Kind.TENSOR and value.sure

    def _is_sample(self, part: ast.Subscript) -> bool:
        """Is it `x[i]`, `x[i, ...]` or `x[i:i + 1]`?"""
        first = (elements_of(part.slice) or [part.slice])[0]
        if isinstance(first, ast.Slice):
            is_one = first.lower is not None and first.upper is not None and is_next(first.lower, first.upper)
            return is_one and isinstance(first.lower, ast.Name) and first.lower.id == self._index
        return isinstance(first, ast.Name) and first.id == self._index

    def _is_same(self, node: ast.AST) -> bool:
        if isinstance(node, ast.If):
            return self._only_chooses(node)
        if isinstance(node, ast.Subscript):
            return self._is_same_part(node)
        if isinstance(node, ast.Call):
            body = ast.walk(self._program.callee(node) or node.func)
            name = path_of(node.func).rpartition(".")[2]
            is_other = name in _DIFFERING or torch_ops.does(name, "counting") or self._is_of_own(node.func)
            is_other = is_other or self._is_fed(node)
            return not is_other and not any(isinstance(each, (ast.If, *_BRANCHING[:4])) for each in body)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            return not self._is_carried(node) and (node.id != self._index or self._is_in_index(node))
        return True

    def _only_fills(self, loop: ast.For) -> bool:
        """Does it only fill parts of the sample, one after the other, as many of them in each?"""
        is_counted = isinstance(loop.iter, ast.Call) and self._called(loop.iter) == "enumerate" and loop.iter.args
        walked = loop.iter.args[0] if is_counted and isinstance(loop.iter, ast.Call) else loop.iter
        is_even = not reads(loop.iter, self._own) or self._is_surely_tensor(walked)
        targets = [getattr(each, "targets", [None])[0] for each in loop.body]
        parts = [each for each in targets if isinstance(each, ast.Subscript) and self._is_sample(each)]
        return is_even and len(parts) == len(targets) and all(map(self._is_of_tensor, parts))

    def _is_fed(self, call: ast.Call) -> bool:
        """Is it a module whose result nobody wants, but the state that it keeps?"""
        is_module = self._program.value(call.func).kind is Kind.MODULE
        return is_module and isinstance(self._program.parent(call), ast.Expr)

    def _is_of_own(self, function: ast.expr) -> bool:
        """Is it an object of each sample's own, `heads[i]`, or a method that no tensor has, of it or of a new one?"""
        is_method = isinstance(function, ast.Attribute) and torch_ops.of_method(function.attr) is None
        owner = function.value if is_method and isinstance(function, ast.Attribute) else function
        is_made = is_method and isinstance(owner, ast.Call) and self._program.value(owner).kind is Kind.UNKNOWN
        return is_made or (isinstance(owner, ast.Subscript) and self._is_sample(owner))

    def _only_chooses(self, choice: ast.If) -> bool:
        """Does it only choose what is written to parts of the sample, as `torch.where` does?"""
        written = [statement for statement in (*choice.body, *choice.orelse) if not isinstance(statement, ast.If)]
        targets = [
            each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None) for each in written
        ]
        parts = [each for each in targets if isinstance(each, ast.Subscript) and self._is_sample(each)]
        return len(parts) == len(targets) and all(map(self._is_of_tensor, parts))

    def _is_of_tensor(self, part: ast.Subscript) -> bool:
        kind = self._program.value(part.value).kind
        return kind is Kind.TENSOR or (self._is_stacked and kind is Kind.UNKNOWN)

    def _is_same_part(self, part: ast.Subscript) -> bool:
        if text_of(part.slice):
            return False
        indices = elements_of(part.slice) or [part.slice]
        if self._index and self._is_sample(part):
            kinds = (Kind.TENSOR, Kind.UNKNOWN, Kind.NUMBER)  # an argument that is a tensor or, by default, a number
            return self._program.value(part.value).kind in kinds and all(
                self._is_same_size(each, part) for each in indices[1:]
            )
        return all(self._is_same_size(each, part) for each in indices)

    def _is_same_size(self, index: ast.expr, part: ast.Subscript) -> bool:
        if not reads(index, self._own) or self._is_stacked:
            return True
        if isinstance(index, ast.Slice):
            return index.lower is not None and index.upper is not None and self._is_apart(index.lower, index.upper)
        if isinstance(part.ctx, ast.Store) or self._is_written(part):
            return True
        given = index if isinstance(index, ast.Call) else None
        is_number = self._program.value(index).kind is Kind.NUMBER
        return is_number or (given is not None and self._program.qualified(given.func) in _INTEGRAL)

    def _is_written(self, part: ast.Subscript) -> bool:
        """Is it as large for each sample as the part of it to which it is assigned?"""
        around = self._program.parent(part)
        target = around.targets[0] if isinstance(around, ast.Assign) else None
        return isinstance(target, ast.Subscript) and self._is_sample(target) and self._is_of_tensor(target)

    def _is_apart(self, lower: ast.expr, upper: ast.expr) -> bool:
        """Is `upper` as much above `lower` for each sample: `start + size`?"""
        sources: Sequence[ast.expr | None] = [upper]
        if isinstance(upper, ast.Name):
            definitions = self._program.get(Flow).graph(upper).definitions(upper)
            sources = [each.source if isinstance(each, Definition) else None for each in definitions]
        sums = [each for each in sources if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add)]
        return len(sums) == len(sources) == 1 and any(
            ast.dump(start) == ast.dump(lower) and not reads(size, self._own)
            for start, size in itertools.permutations((sums[0].left, sums[0].right))
        )

    def _is_in_index(self, name: ast.Name) -> bool:
        around = itertools.takewhile(lambda each: not isinstance(each, ast.stmt), self._program.ancestors(name))
        pairs = itertools.pairwise([name, *around])
        return any(isinstance(each, ast.Subscript) and each.slice is inner for inner, each in pairs)

    def _is_carried(self, name: ast.Name) -> bool:
        """Does it read what the sample before has left, other than to add to it?"""
        graph, statement = self._program.get(Flow).graph(name), self._program.statement_of(name)
        if isinstance(self._loop, ast.ListComp) or graph.value(name) not in graph.carried(self._loop):
            return False
        adds = isinstance(statement, ast.Assign) and isinstance(getattr(statement.value, "op", None), ast.Add)
        adds = adds and self._program.parent(name) is getattr(statement, "value", None)
        return not (adds and path_of(getattr(statement, "targets", [name])[0]) == name.id)


def _repeated(loop: ast.For | ast.ListComp) -> Sequence[ast.AST]:
    return loop.body if isinstance(loop, ast.For) else [loop.elt]


def filled_mask(program: Program, loop: ast.For) -> ast.expr | None:
    """The tensor of which `loop` fills a part of each row with a constant, up to or from a length of the row's own."""
    counted = _enumerated(program, loop)
    own = dependents(loop, variables_in(loop.target))
    filled = [each for statement in loop.body for each in _fills(statement)]
    roots = [root_of(receiver_of(each, "narrow") or each) for each in filled if counted]
    root = roots[0] if roots else None
    if not isinstance(root, ast.expr) or len(set(map(path_of, roots))) > 1:
        return None
    is_filled = all(_is_measured_row(each, counted, own) for each in filled)
    is_all = all(any(_fills(each)) or _only_measures(program, each, own) for each in loop.body)
    mask = program.value(root)  # on the host, filling rows launches nothing
    return root if is_filled and is_all and mask.kind is Kind.TENSOR and mask.place is not Place.HOST else None


def _enumerated(program: Program, loop: ast.For) -> str:
    called = program.qualified(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""
    targets = elements_of(loop.target)
    is_counting = called == "builtins.range" if len(targets) == 1 else called == "builtins.enumerate"
    return targets[0].id if is_counting and isinstance(targets[0], ast.Name) else ""


def _fills(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement, or each under a test, fills with a constant."""
    if isinstance(statement, ast.If) and not statement.orelse:
        found = [list(_fills(each)) for each in statement.body]
        yield from (each for parts in found for each in parts) if all(found) else ()
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
        yield from (each for each in statement.targets if isinstance(each, ast.Subscript))
    elif isinstance(statement, ast.Expr) and (filled := receiver_of(statement.value, "fill_")) is not None:
        yield filled


def _is_measured_row(part: ast.expr, index: str, own: frozenset[str]) -> bool:
    """Is it `m[i, n:]`, `m[i][:n]` or `m[i].narrow(dim, n, size)`, with a length that depends on the row?"""
    if isinstance(narrowed := receiver_of(part, "narrow"), ast.Subscript):
        return path_of(narrowed.slice) == index and reads(part, own - {index})
    if not isinstance(part, ast.Subscript):
        return False
    inner = part.value
    rows = [*(elements_of(inner.slice) if isinstance(inner, ast.Subscript) else ()), *elements_of(part.slice)]
    slices = [each for each in rows[1:] if isinstance(each, ast.Slice)]
    bounds = [each for one in slices for each in (one.lower, one.upper) if each is not None and reads(each, own)]
    is_measured = [any(isinstance(e, ast.Subscript) for e in ast.walk(b)) or reads(b, own - {index}) for b in bounds]
    return path_of(rows[0]) == index and len(slices) == len(rows) - 1 and is_measured == [True]


def _only_measures(program: Program, statement: ast.stmt, own: frozenset[str]) -> bool:
    """Does it only name a number of the row: its length, by `int(n)` or `n.item()`?"""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    calls = [each for each in ast.walk(statement.value) if isinstance(each, ast.Call)]
    is_plain = all(receiver_of(each, "item", "size") is not None or _is_count(program, each) for each in calls)
    return is_plain and reads(statement.value, own)


def _is_count(program: Program, call: ast.Call) -> bool:
    return program.qualified(call.func) in _INTEGRAL
