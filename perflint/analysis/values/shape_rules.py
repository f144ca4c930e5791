"""Shapes of the results of operations, and how many axes the statements around a tensor say that it has."""

from __future__ import annotations

import ast
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.operations import WRAPPERS, TorchCall, operation
from perflint.analysis.values.shape import NOTHING, Shape, broadcast, known, product
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.walk import integer, operands, own_nodes, path_of, receiver_of

_KEEP_RANK = re.compile(
    r"torch\.nn\.(Lazy)?(Conv(Transpose)?[123]d|BatchNorm[123]d|InstanceNorm[123]d|LayerNorm|GroupNorm|SyncBatchNorm"
    r"|\w*Dropout[123]?d?|(Adaptive)?(Max|Avg)Pool[123]d|Linear|Identity|Upsample|(Leaky|P|R)?ReLU6?|[CGS]?ELU|GELU|SiLU"
    r"|Mish|Tanh|Sigmoid|Hard\w+|Soft(max|plus|sign)|LogSoftmax)"
)


class ShapeRules(ABC):
    """The shapes of calls, of operators and of what sizes ask for; `Shapes` knows those of names."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._is_reshaped = program.get(_reshapes_in_place)

    @abstractmethod
    def shape(self, node: ast.expr) -> Shape:
        """What is known of the shape of a tensor."""

    @abstractmethod
    def size(self, node: ast.expr) -> str:
        """The symbol of a number."""

    @abstractmethod
    def elements(self, node: ast.expr) -> list[ast.expr]:
        """Tensors of a list, of one shape as far as a concatenation or stack wants it: those that are known."""

    def of_call(self, node: ast.Call) -> Shape:
        """The shape of the result of torch's functions, tensors' methods and modules."""
        call = operation(self.program, node)
        if call is None:
            return self._of_class(node)
        if call.does.does("joining"):
            return self._joined(call)
        if call.tensor is None:
            return self._made(call)
        shape = self.shape(call.tensor)
        rule = _RULES.get(call.name)
        if call.does.does("same_shape"):
            return shape
        if rule is None and (call.does.does("reduction") or call.name == "median"):
            return _reduced(shape, call)
        if rule is None and (call.does.does("pointwise") or call.name == "where"):
            others = [self.shape(each) for each in call.arguments if self.program.value(each).kind is Kind.TENSOR]
            return shape if call.does.in_place else reduce(broadcast, others, shape)
        return rule(self, shape, call) if rule is not None else NOTHING

    def is_pair(self, node: ast.expr) -> bool:
        """Is it `x.max(dim)` or `x.topk(k)`, values and indices, each of the call's shape?"""
        call = operation(self.program, node)
        if call is None or call.tensor is None or not call.does.does("pairing"):
            return False
        return call.name in ("sort", "topk") or bool(call.arguments or call.call.keywords)

    def _made(self, call: TorchCall) -> Shape:
        name, given = call.name, list(call.arguments)
        if call.does.does("line"):
            return known((self.size(given[0]) if name == "arange" and len(given) == 1 else "",))
        if name == "full" or call.does.does("sized"):
            return self.from_sizes(given[:1] if name == "full" else given, made=True)
        if name == "randint":  # of which `low` may be left out and `size` be named
            sizes = call.bound("low", "high", "size").get("size") or next(iter(given[1:][-1:]), None)
            return self.expand(sizes.elts) if isinstance(sizes, ast.Tuple | ast.List) else NOTHING
        if name == "eye" and given:
            return known((self.size(given[0]), self.size(given[min(1, len(given) - 1)])))
        return NOTHING

    def _joined(self, call: TorchCall) -> Shape:
        """The shape of a concatenation or stack: but for the joined axis it is that of any part."""
        bound = call.bound("dim", "axis")
        dim = bound.get("dim", "axis")
        axis = 0 if dim is None else integer(dim)
        parts = [self.shape(each) for each in self.elements(call.tensor)] if call.tensor is not None else []
        ranks = {part.rank for part in parts if part.rank is not None}
        new = call.name == "stack"
        if len(ranks) != 1 or call.name not in ("cat", "stack"):
            return known(("",) * ranks.pop()) if len(ranks) == 1 else NOTHING
        rank = ranks.pop()
        same = [max({part.size(i) for part in parts if part.rank}, key=_worth) for i in range(rank)]
        if axis is None or not -rank - new <= axis < rank + new:
            return known(("",) * (rank + new))
        if new:
            same.insert(axis if axis >= 0 else axis + rank + 1, "")
        else:
            same[axis] = ""
        return known(tuple(same))

    def _of_class(self, node: ast.Call) -> Shape:
        name = self.program.qualified(node.func)
        if name in WRAPPERS and node.args:
            return self.shape(node.args[0])
        if torch_ops.class_kind(name) == "tensor-type":
            return self.from_sizes(node.args, made=True) if len(node.args) > 1 else NOTHING
        module = self.program.value(node.func)
        if module.kind is not Kind.MODULE or not module.sure or len(node.args) != 1:
            return NOTHING
        shape = self.shape(node.args[0])
        if module.name == "torch.nn.Linear":
            return known((*shape.first[:-1], "")) if shape.rank else Shape(None, shape.first[:2], (), shape.least)
        if module.name == "torch.nn.Embedding" and shape.rank is not None:
            return known((*shape.first, ""))
        return known(("",) * shape.rank) if shape.rank is not None and _keeps_rank(module) else NOTHING

    def broadcast(self, left: ast.expr, right: ast.expr) -> Shape:
        for number, other in ((right, left), (left, right)):
            if self.program.value(number).kind is Kind.NUMBER or isinstance(number, ast.Constant):
                return self.shape(other)
        return broadcast(self.shape(left), self.shape(right))

    def from_sizes(self, arguments: list[ast.expr], *, made: bool = False) -> Shape:
        """The shape that sizes ask for: one by one, in a tuple or list, or all those of another tensor.

        A single unknown argument is one size where a tensor is `made`.
        """
        if len(arguments) != 1 or isinstance(arguments[0], ast.Tuple | ast.List | ast.Starred):
            return self.expand(_listed(arguments)) if arguments else NOTHING
        like = sized(arguments[0])
        if like is not None:
            return self.shape(like)
        return self.expand(arguments) if self._is_size(arguments[0], likely=made) else NOTHING

    def _is_size(self, node: ast.expr, *, likely: bool) -> bool:
        """Is it a number, or, where `likely` is enough, something unknown not called like several?"""
        kind = self.program.value(node).kind
        if kind is not Kind.UNKNOWN or not likely:
            return kind is Kind.NUMBER or integer(node) is not None
        if isinstance(node, ast.BinOp):
            return self._is_size(node.left, likely=True) and self._is_size(node.right, likely=True)
        word = path_of(node).rpartition(".")[2]
        return word not in ("", "size", "sizes", "dims") and "shape" not in word

    def expand(self, sizes: Sequence[ast.expr]) -> Shape:
        """The shape that a list of sizes asks for; -1 and what follows a star are unknown."""
        stars = [index for index, each in enumerate(sizes) if isinstance(each, ast.Starred)]
        if not stars:
            is_open = [isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.USub) for each in sizes]
            return known(tuple("" if free else self.size(each) for each, free in zip(sizes, is_open, strict=True)))
        front, behind = sizes[: stars[0]], sizes[stars[0] + 1 :] if len(stars) == 1 else []
        return Shape(None, tuple(map(self.size, front)), tuple(map(self.size, behind)), len(sizes) - len(stars))

    def repeated(self, shape: Shape, counts: list[ast.expr]) -> Shape:
        """An axis of size 1 gets its count as size; any other the count with a cross in front: an unknown multiple."""
        given = _listed(counts)
        if any(isinstance(each, ast.Starred) for each in given) or (
            len(given) == 1 and given is counts and integer(given[0]) is None
        ):
            return NOTHING
        full = shape.rank is None or shape.rank == len(given)
        sizes = []
        for position, count in enumerate(given):
            size = shape.size(position - len(given)) or (shape.size(position) if full else "")
            multiple = self.size(count) if size == "1" else f"x{self.size(count)}"
            sizes.append(size if integer(count) == 1 else multiple)
        return known(tuple(sizes))


def sized(node: ast.expr) -> ast.expr | None:
    """`x` of `x.shape` or `x.size()`."""
    if isinstance(node, ast.Call):
        return receiver_of(node, "size") if not node.args else None
    return node.value if isinstance(node, ast.Attribute) and node.attr == "shape" else None


def _keeps_rank(module: Value) -> bool:
    if module.name == "torch.nn.Sequential":
        return bool(module.items) and all(each.sure and _keeps_rank(each) for each in module.items or ())
    return bool(_KEEP_RANK.fullmatch(module.name))


def _listed(arguments: list[ast.expr]) -> list[ast.expr]:
    """Sizes given as arguments, or as one tuple or list of them."""
    if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List):
        return arguments[0].elts
    return arguments


def _worth(size: str) -> tuple[bool, bool, str]:
    return size == "1", bool(size), size


def _reduced(shape: Shape, call: TorchCall) -> Shape:
    axis, kept = integer(call.dim), call.keepdim
    if axis is None or not (kept is None or (isinstance(kept, ast.Constant) and isinstance(kept.value, bool))):
        return NOTHING
    return shape.replaced(axis, ("1",) if isinstance(kept, ast.Constant) and kept.value else ())


def _unsqueezed(shapes: ShapeRules, shape: Shape, call: TorchCall) -> Shape:
    axis = integer(call.dim)
    return NOTHING if axis is None else shape.unsqueezed(axis)


def _squeezed(shapes: ShapeRules, shape: Shape, call: TorchCall) -> Shape:
    axis = integer(call.dim)
    return NOTHING if axis is None or shape.size(axis) != "1" else shape.replaced(axis, ())


def _transposed(shapes: ShapeRules, shape: Shape, call: TorchCall) -> Shape:
    one, other = map(integer, call.arguments) if len(call.arguments) == 2 else (None, None)
    return NOTHING if one is None or other is None else shape.swapped(one, other)


def _permuted(shapes: ShapeRules, shape: Shape, call: TorchCall) -> Shape:
    axes = [axis for each in _listed([*call.arguments]) if (axis := integer(each)) is not None]
    return known(tuple(map(shape.size, axes))) if len(axes) == len(_listed([*call.arguments])) else NOTHING


def _topped(shapes: ShapeRules, shape: Shape, call: TorchCall) -> Shape:
    given = call.bound("k", "dim").given
    axis = integer(given.get("dim", ast.Constant(-1)))
    return NOTHING if axis is None or "k" not in given else shape.replaced(axis, (shapes.size(given["k"]),))


def _with(position: int, rule: Callable[[Shape, Shape], Shape]) -> _Rule:
    """The rule for an operation on the tensor and the argument at `position` after it."""

    def of(shapes: ShapeRules, shape: Shape, call: TorchCall) -> Shape:
        return rule(shape, shapes.shape(call.arguments[position])) if len(call.arguments) > position else NOTHING

    return of


def _viewed(shapes: ShapeRules, shape: Shape, call: TorchCall) -> Shape:
    return shapes.from_sizes([*call.arguments])


_Rule = Callable[[ShapeRules, Shape, TorchCall], Shape]
_RULES: dict[str, _Rule] = {
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "transpose": _transposed,
    "t": lambda shapes, shape, call: shape.swapped(0, 1) if shape.rank == 2 else NOTHING,
    "permute": _permuted,
    "view": _viewed,
    "reshape": _viewed,
    "expand": lambda shapes, shape, call: _viewed(shapes, shape, call).at_least(shape.least),
    "expand_as": _with(0, lambda shape, other: other),
    "repeat": lambda shapes, shape, call: shapes.repeated(shape, [*call.arguments]),
    "flatten": lambda shapes, shape, call: NOTHING if call.arguments else known(("",)),
    "sort": lambda shapes, shape, call: shape,
    "topk": _topped,
    "bmm": _with(0, lambda shape, other: known((shape.size(0), shape.size(1), other.size(2)))),
    "mm": _with(0, lambda shape, other: known((shape.size(0), other.size(1)))),
    "matmul": _with(0, product),
    "gather": _with(1, lambda shape, index: index),
    "new_zeros": _viewed,
    "new_ones": _viewed,
    "new_empty": _viewed,
    "new_full": lambda shapes, shape, call: shapes.from_sizes([*call.arguments[:1]], made=True),
}


_RESHAPES = frozenset({"restriding", "strided"})
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def unpacked_rank(program: Program, node: ast.expr, uses: Sequence[ast.expr]) -> int | None:
    """The number of names that take the sizes at one of `uses` whenever `node` is read; None where none do."""
    found: dict[ast.stmt, int] = {}
    for use in uses if not program.get(_reshapes_in_place) else ():
        unpacking = _unpacking(program, use)
        if unpacking is not None and isinstance(names := unpacking.targets[0], ast.Tuple):
            if _runs_with(program, unpacking, node):
                return len(names.elts)
            found[unpacking] = len(names.elts)
    return next((rank for each, rank in found.items() if _either_way(program, each, rank, found, node)), None)


def _either_way(program: Program, one: ast.stmt, rank: int, found: dict[ast.stmt, int], node: ast.expr) -> bool:
    """Has a test run before `node`, on both branches of which as many sizes are unpacked as `one` of them does?"""
    test = program.parent(one)
    if not isinstance(test, ast.If) or one not in test.body or not _runs_with(program, test, node):
        return False
    return any(found.get(each) == rank for each in test.orelse)


def tested_rank(program: Program, node: ast.expr, uses: Sequence[ast.expr]) -> int | None:
    """The rank by a test at one of `uses` that has passed where `node` is read: `if x.dim() == 3:`."""
    child: ast.AST = node
    for around in program.ancestors(node) if uses and not program.get(_reshapes_in_place) else ():
        if isinstance(around, ast.If) and child in around.body:
            for test in operands(around.test, ast.And):
                asked = ranked(test)
                if asked is not None and asked[0] in uses:
                    return asked[1]
        child = around
    for use in uses:
        statement = program.statement_of(use)
        if isinstance(statement, ast.Assert) and _runs_with(program, statement, node):
            asked = next(
                (each for each in map(ranked, operands(statement.test, ast.And)) if each and each[0] is use), None
            )
            if asked is not None:
                return asked[1]
    return None


def as_many_axes(program: Program, use: ast.expr, node: ast.expr) -> ast.expr | None:
    """What has the rank of `use`, or code that runs whenever `node` is read would fail; None where none shows.

    It is another side of `assert x.shape == y.shape`, or the index by which `torch.gather` picks.
    """
    given = given_to_torch(program, use, node)
    if given is not None:
        return given.bound("dim", "index").get("index") if given.name == "gather" else None
    statement, sizes = program.statement_of(use), next(program.ancestors(use))
    for test in operands(statement.test, ast.And) if isinstance(statement, ast.Assert) else ():
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            sides = [sized(test.left), sized(test.comparators[0])]
            if use in sides and sizes in (test.left, test.comparators[0]) and _runs_with(program, statement, node):
                return sides[1 - sides.index(use)]
    return None


def given_to_torch(program: Program, use: ast.expr, node: ast.expr) -> TorchCall | None:
    """The call of a function of torch to which `use` is given as a tensor whenever `node` is read."""
    around = list(itertools.takewhile(lambda each: not isinstance(each, ast.stmt), program.ancestors(use)))
    call = around[0] if around else None
    found = operation(program, call) if isinstance(call, ast.Call) and use in call.args else None
    is_sure = all(isinstance(each, ast.Call | ast.BinOp | ast.Attribute | ast.Subscript) for each in around)
    is_given = found is not None and found.tensor is use and is_sure
    return found if is_given and _runs_with(program, program.statement_of(use), node) else None


def _reshapes_in_place(program: Program) -> bool:
    """Does the program give a tensor that it has another number of axes: `x.unsqueeze_(0)`, `x.data = y`?"""
    methods = (each.func for each in program.of_type(ast.Call) if isinstance(each.func, ast.Attribute))
    named = {each.attr for each in methods if each.attr.endswith("_") and not isinstance(each.value, ast.Call)}
    does = [each for each in map(torch_ops.of_method, named) if each is not None and each.traits & _RESHAPES]
    if not all(each.does("permuting") or each.does("same_shape") for each in does):
        return True
    return any(each.attr == "data" and isinstance(each.ctx, ast.Store) for each in program.of_type(ast.Attribute))


def ranked(test: ast.expr) -> tuple[ast.expr, int] | None:
    """The tensor, and the number of its axes, of `x.dim() == 3`; None of another test."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    tested, rank = receiver_of(test.left, "dim"), integer(test.comparators[0])
    return (tested, rank) if tested is not None and rank is not None else None


def _unpacking(program: Program, tensor: ast.AST) -> ast.Assign | None:
    around = program.ancestors(tensor)
    sizes = next(around)
    if isinstance(sizes, ast.Attribute) and sizes.attr == "size":
        sizes = next(around)
    parent = next(around, None)
    if not isinstance(parent, ast.Assign) or not isinstance(sizes, ast.expr) or sized(sizes) is not tensor:
        return None
    names = parent.targets[0]
    is_plain = isinstance(names, ast.Tuple) and not any(isinstance(name, ast.Starred) for name in names.elts)
    return parent if is_plain else None


def _runs_with(program: Program, unpacking: ast.stmt, node: ast.expr) -> bool:
    """Has `unpacking` run whenever `node` does, or will it in any case?"""
    block = program.block_of(unpacking)
    statements = (each for each in program.ancestors(node) if isinstance(each, ast.stmt))
    beside = next((each for each in statements if each in block), None)
    if beside is None:
        return False
    between = block[block.index(beside) : block.index(unpacking)]  # empty where it has run
    return not any(isinstance(part, _LEAVES) for each in between for part in own_nodes(each))
