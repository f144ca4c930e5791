"""Infers the rank of tensors and the sizes of their axes, by their SSA definitions and by what is done to them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Value, sources_of
from perflint.analysis.values.operations import WRAPPERS, given, operation, returned
from perflint.analysis.values.shape import NOTHING, Shape, axes_for, either, known, product
from perflint.analysis.values.shape_rules import ShapeRules, as_many_axes, sized, tested_rank, unpacked_rank
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import TRIES, elements_of, integer, nodes_below, path_of, reachable, receiver_of

_SHOWN = 6  # so many axes of a tensor of unknown rank get a symbol, from either end
_DEPTH = 48


class Shapes(ShapeRules):
    """Shapes of expressions and sizes of numbers in one program."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._flow = program.get(Flow)
        self._known: dict[ast.AST, Shape] = {}
        self._depth = 0
        self._asked = set[ast.expr]()  # what else has the rank of a tensor, while it is looked into

    def shape(self, node: ast.expr) -> Shape:
        if node in self._known:
            return self._known[node]
        if self._depth > _DEPTH:
            return NOTHING
        self._known[node] = self._opaque(node)  # for what depends on itself
        self._depth += 1
        shape = self._infer(node)
        self._depth -= 1
        if shape.rank is None:
            least = max(shape.least, self._needed(node))
            shape = self._completed(node, shape) if shape.first or shape.last else self._opaque(node)
            shape = shape.at_least(least)
        self._known[node] = shape
        return shape

    def least(self, node: ast.expr) -> int:
        return self.shape(node).least

    def size(self, node: ast.expr) -> str:
        last, measured = self._counted(node)
        if measured is not None:
            return self.shape(measured[0]).size(measured[1])
        return str(last.value) if isinstance(last, ast.Constant) else self._symbol(last)

    def measured(self, node: ast.expr) -> tuple[ast.expr, int] | None:
        return self._counted(node)[1]

    def _counted(self, node: ast.expr) -> tuple[ast.expr, tuple[ast.expr, int] | None]:
        """The expression that a number is, behind names, with the tensor and axis of which it is the size."""
        measured, definitions = axis_of(node), self._definitions(node)
        if measured is not None or len(definitions) != 1:
            return node, measured
        (definition,) = definitions
        measured = self._measured(definition)
        value = self._assigned(definition) if measured is None else None
        if value is None or isinstance(value, ast.Call) or self._depth >= _DEPTH:
            return node, measured
        self._depth += 1
        found = self._counted(value)
        self._depth -= 1
        return found

    def _rank(self, node: ast.expr) -> int | None:
        """The rank by what unpacks the sizes of this very value, or by a test that it has passed."""
        uses = self._uses(node) if isinstance(node, ast.Name) else ()
        rank = unpacked_rank(self.program, node, uses)
        rank = rank if rank is not None else tested_rank(self.program, node, uses)
        return rank if rank is not None else self._rank_beside(node, uses)

    def _rank_beside(self, node: ast.expr, uses: Sequence[ast.expr]) -> int | None:
        for use in uses:
            other = as_many_axes(self.program, use, node)
            if other is None or other in self._asked:
                continue
            self._asked.add(other)
            rank = self.shape(other).rank
            self._asked.remove(other)
            if rank is not None:
                return rank
        return None

    def _symbol(self, node: ast.expr) -> str:
        """Equal for expressions of the same value, as far as that is plain."""
        if isinstance(node, ast.Name):
            places = sorted((each.lineno, each.col_offset) for each in self._flow.definitions(node))  # type: ignore[attr-defined]
            return f"{node.id}{places}"
        if isinstance(node, ast.BinOp):
            return f"({self.size(node.left)} {type(node.op).__name__} {self.size(node.right)})"
        return path_of(node) or f"({node.lineno}:{node.col_offset})"

    def _opaque(self, node: ast.expr) -> Shape:
        symbol, rank = self._symbol(node), self._rank(node)
        if rank is not None:
            return known(tuple(f"{symbol}.{axis}" for axis in range(rank)))
        axes = range(-_SHOWN, _SHOWN)
        sizes = tuple(f"{symbol}.{axis}" for axis in axes)
        return Shape(None, sizes[_SHOWN:], sizes[:_SHOWN])

    def _completed(self, node: ast.expr, shape: Shape) -> Shape:
        """`shape` with the number of axes that its unpacking tells: `b, n, c = x.shape`."""
        rank = self._rank(node)
        if rank is None:
            return shape
        return known(tuple(shape.size(axis) or shape.size(axis - rank) for axis in range(rank)))

    # -- where tensors and sizes come from

    def _definitions(self, node: ast.expr) -> Sequence[Value]:
        """What may reach a name; a path on which it isn't bound ends where it is read."""
        value = self._flow.graph(node).value(node) if isinstance(node, ast.Name) else None
        found = list(dict.fromkeys(sources_of(value))) if value is not None else []
        return [each for each in found if isinstance(each, Definition)] or found

    def _assigned(self, value: Value) -> ast.expr | None:
        if not isinstance(value, Definition):
            return None
        if isinstance(value.node, ast.arg):
            return self._argument(value.node)
        if value.source is None or not value.steps or value.updates is not None:
            return None if value.updates is not None else value.source
        if len(value.steps) > 1 or not isinstance(value.steps[0], int):
            return None
        if self.is_pair(value.source):
            return value.source
        items = given(self.program, value)
        return items[0] if len(items) == 1 else None

    def _measured(self, value: Value) -> tuple[ast.expr, int] | None:
        if not isinstance(value, Definition) or value.source is None or value.updates is not None:
            return None
        if not value.steps:
            return axis_of(value.source)
        tensor, axis = sized(value.source), value.steps[0]
        return (tensor, axis) if tensor is not None and isinstance(axis, int) and len(value.steps) == 1 else None

    def _argument(self, parameter: ast.arg) -> ast.expr | None:
        sites = self.program.given(parameter)
        return sites[0][1] if len(sites) == 1 else None

    def _infer(self, node: ast.expr) -> Shape:
        if isinstance(node, ast.Name):
            return either({self._of_value(node, each) for each in self._definitions(node)})
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._indexed(node)
        if isinstance(node, ast.Call):
            handed = handed_back(self.program, node)
            if handed is not None:
                return self.shape(handed)
            shape = either({self._seen_from(node, each, returned=True) for each in returned(self.program, node)})
            return shape if shape.rank is not None else self.of_call(node).at_least(shape.least)
        if isinstance(node, ast.UnaryOp):
            return self.shape(node.operand)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.MatMult):
                return product(self.shape(node.left), self.shape(node.right))
            return self.broadcast(node.left, node.right)
        return self.broadcast(node.left, node.comparators[0]) if isinstance(node, ast.Compare) else NOTHING

    def _of_value(self, node: ast.Name, value: Value) -> Shape:
        """The shape of what may reach a name: by what it is assigned, or by what unpacks its sizes on the way."""
        given = None if self._is_reshaped else self._assigned(value)
        shape = NOTHING if given is None else self._seen_from(node, given, returned=not _is_parameter(value))
        if shape.rank is not None or self._flow.graph(node).value(node) is value:  # whose sizes have symbols
            return shape
        rank = unpacked_rank(self.program, node, value.uses)
        return shape if rank is None else known(("",) * rank)

    def _seen_from(self, node: ast.expr, value: ast.expr, *, returned: bool) -> Shape:
        """The shape of `value`, without sizes that mean nothing, or something else, where `node` stands."""
        shape = self.shape(value)
        here, there = self.program.function_of(node), self.program.function_of(value)
        if here is there or there is None:
            return shape
        home = self.program.class_of(there)
        of_self = home is not None and self.program.class_of(here) is home
        return shape.with_sizes(
            lambda size: (
                size.isdigit()
                or (not returned and ("[" in size or "(" in size))
                or (of_self and size.lstrip("x").startswith("self."))
            )
        )

    def elements(self, node: ast.expr) -> list[ast.expr]:
        if self._depth > _DEPTH:
            return []  # a list that is made of itself
        self._depth += 1
        found = self._elements(node)
        self._depth -= 1
        return found

    def _elements(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.Tuple | ast.List):
            return [each for each in node.elts if not isinstance(each, ast.Starred)]
        if isinstance(node, ast.ListComp):
            return [node.elt]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.elements(node.left)
        found = []
        for definition in self._definitions(node):
            value = self._assigned(definition)
            if isinstance(value, ast.Tuple | ast.List | ast.ListComp | ast.BinOp):
                found += self.elements(value)
            uses = self._flow.graph(node).uses if isinstance(definition, Definition) else {}
            for use in uses.get(definition.node, []) if isinstance(definition, Definition) else ():
                call = self.program.parent(self.program.parent(use) or use)
                if isinstance(call, ast.Call) and receiver_of(call, "append") is use:
                    found += call.args[:1]
        return found

    def _attribute(self, node: ast.Attribute) -> Shape:
        if node.attr in ("data", "real") or (node.attr in ("values", "indices") and self.is_pair(node.value)):
            return self.shape(node.value)
        if node.attr in ("T", "mT"):
            return self.shape(node.value).swapped(-1, -2)
        if node.attr == "weight" and self.program.value(node.value).name in ("torch.nn.Embedding", "torch.nn.Linear"):
            return known(("", ""))
        owner = self.program.class_of(self.program.function_of(node))
        path = f"self.{node.attr}"
        if owner is None or path_of(node) != path:
            return NOTHING
        values = []
        for each in nodes_below(owner.node):
            if isinstance(each, ast.Assign) and any(path_of(target) == path for target in each.targets):
                values.append(each.value)
            elif isinstance(each, ast.Call) and path_of(each.func) == "self.register_buffer" and len(each.args) > 1:
                values += each.args[1:2] if getattr(each.args[0], "value", None) == node.attr else []
        return self.shape(values[0]) if len(values) == 1 else NOTHING

    def _indexed(self, node: ast.Subscript) -> Shape:
        shape = self.shape(node.value)
        if self.is_pair(node.value):
            return shape
        indices = elements_of(node.slice)
        if not all(_is_basic(index) or self._is_number(index) for index in indices):
            return NOTHING
        dots = next((at for at, each in enumerate(indices) if _is(each, ...)), len(indices))
        front, taken = _walk(indices[:dots], shape.first)
        back, cut = _walk(indices[dots + 1 :][::-1], shape.last[::-1])
        if shape.rank is not None:
            return known((*front, *shape.first[taken : shape.rank - cut], *back[::-1]))
        least = max(shape.least - taken - cut, 0) + len(front) + len(back)
        if dots == len(indices):
            return Shape(None, (*front, *shape.first[taken:]), (), least)
        last = (*shape.last[: len(shape.last) - cut], *back[::-1])
        return Shape(None, (*front, *shape.first[taken:]), last, least)

    def _is_number(self, node: ast.expr) -> bool:
        return integer(node) is not None or self.program.value(node).kind is Kind.NUMBER

    # -- what is done to a tensor

    def _uses(self, node: ast.expr) -> Sequence[ast.expr]:
        value = self._flow.graph(node).value(node) if isinstance(node, ast.Name) else None
        return value.uses if value is not None and value.uses else [node]

    def _needed(self, node: ast.expr) -> int:
        """The axes that the uses of a value need, but under conditions that need not hold for `node`."""
        around = set(self.program.ancestors(node))
        tried = (ast.If, ast.IfExp, *TRIES)
        return max(
            (
                self._required(use)
                for use in self._uses(node)
                if use is node or not any(isinstance(a, tried) and a not in around for a in self.program.ancestors(use))
            ),
            default=0,
        )

    def _required(self, use: ast.expr) -> int:
        parent = self.program.parent(use)
        if isinstance(parent, ast.Subscript) and parent.value is use:
            return sum(isinstance(each, ast.Slice) or self._is_number(each) for each in elements_of(parent.slice))
        if not isinstance(parent, ast.Attribute):
            return 0
        around = self.program.parent(parent)
        if parent.attr == "shape" and isinstance(around, ast.Subscript):
            axis = integer(around.slice)
            return axes_for(axis) if axis is not None else 0
        if not isinstance(around, ast.Call) or around.func is not parent:
            return 0
        if parent.attr in ("bmm", "baddbmm"):
            return 3
        if parent.attr == "permute" and len(around.args) > 1:
            return len(around.args)
        does = torch_ops.of_method(parent.attr)
        if does is None or does.name == "unsqueeze":  # which counts the axes of its result
            return 0
        axes = around.args[:2] if does.name == "transpose" else does.dim.of(around) if does.dim else ()
        return max((axes_for(axis) for each in axes if (axis := integer(each)) is not None), default=0)


def axis_of(node: ast.expr) -> tuple[ast.expr, int] | None:
    """`x` and the axis of `x.shape[0]`, `x.size(0)`, `x.size()[0]`, `len(x)`."""
    if isinstance(node, ast.Call) and node.args and (sized_by := receiver_of(node, "size")) is not None:
        axis, tensor = integer(node.args[0]), sized_by
    elif isinstance(node, ast.Subscript) and (of := sized(node.value)) is not None:
        axis, tensor = integer(node.slice), of
    elif isinstance(node, ast.Call) and path_of(node.func) == "len" and len(node.args) == 1:
        axis, tensor = 0, node.args[0]
    else:
        return None
    return None if axis is None else (tensor, axis)


def _is_parameter(value: Value) -> bool:
    return isinstance(value, Definition) and isinstance(value.node, ast.arg)


def _is(node: ast.expr, constant: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is constant


def _walk(indices: list[ast.expr], sizes: tuple[str, ...]) -> tuple[list[str], int]:
    """The sizes that basic indices leave, and how many axes they take."""
    left, axis = [], 0
    for index in indices:
        if _is(index, None):
            left.append("1")
        elif isinstance(index, ast.Slice):
            whole = index.lower is None and index.upper is None and index.step is None
            left.append("1" if _is_single(index) else sizes[axis] if whole and axis < len(sizes) else "")
            axis += 1
        else:
            axis += 1
    return left, axis


def _is_single(index: ast.Slice) -> bool:
    """Does the slice take one element: `3:4` or `-1:`?"""
    lower, upper = 0 if index.lower is None else integer(index.lower), integer(index.upper)
    if index.step is not None or lower is None:
        return False
    return (index.upper is None and lower == -1) or (upper is not None and upper - lower == 1 and upper != 0)


def _is_basic(index: ast.expr) -> bool:
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    return isinstance(index, ast.Slice) or (
        isinstance(index, ast.Constant) and (index.value in (None, ...) or isinstance(index.value, int))
    )


def gathers(program: Program, node: ast.Subscript) -> bool:
    """Does it copy the elements of a tensor that others name? One of no axes gives a view."""
    base = program.value(node.value)
    is_tensor = base.kind is Kind.TENSOR and base.sure
    return is_tensor and any(_is_index(program, each) for each in elements_of(node.slice))


def _is_index(program: Program, node: ast.expr) -> bool:
    return program.value(node).kind is Kind.TENSOR and bool(program.get(Shapes).shape(node).rank)


def handed_back(program: Program, node: ast.Call) -> ast.expr | None:
    """The argument whose numbers a function of this file gives back as they are: `def cuda(x): return x.cuda()`."""
    callee, results = program.callee(node), returned(program, node)
    if callee is None or not results:
        return None
    graph = program.get(Flow).graph(results[0])

    def from_what(each: ast.expr | Value) -> list[ast.expr | Value]:
        if isinstance(each, ast.Name):
            return [*graph.definitions(each)]
        if isinstance(each, Definition):
            return [each.given] if each.given is not None else []
        if isinstance(each, ast.IfExp):
            return [each.body, each.orelse]
        kept = _kept(program, each) if isinstance(each, ast.expr) else None
        return [kept] if kept is not None else []

    first: list[ast.expr | Value] = [*results]
    ends = [each for each in reachable(first, from_what) if not from_what(each)]
    names = {each.name if isinstance(each, Definition) and isinstance(each.node, ast.arg) else "" for each in ends}
    return program.arguments(node, callee).given.get(names.pop()) if len(names) == 1 else None


def _kept(program: Program, node: ast.expr) -> ast.expr | None:
    """The tensor that a call gives back with the same numbers on the same axes."""
    if isinstance(node, ast.Call) and program.qualified(node.func) in WRAPPERS:
        return node.args[0] if node.args else None
    found = operation(program, node)
    is_same = found is not None and found.does.does("keeping") and found.does.does("same_shape")
    return found.tensor if found is not None and is_same else None
