"""Infers the rank of a tensor, and the sizes of its axes."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.shapes.calls import called, is_pair
from perflint.analysis.values.shapes.shape import NOTHING, Shape, integer, known, product, sizes_of, swapped
from perflint.analysis.values.shapes.unpacked import unpacked_rank
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import own_nodes, path_of

_SHOWN = 6  # so many axes of a tensor of unknown rank get a symbol, from either end
_DEPTH = 24


class Shapes:
    """Shapes of expressions and sizes of numbers in one program."""

    def __init__(self, program: Program) -> None:
        self._program, self.flow = program, program.get(Flow)
        self._known: dict[ast.AST, Shape] = {}
        self._depth = 0

    def shape(self, node: ast.expr) -> Shape:
        """What is known of the shape of a tensor."""
        if node in self._known:
            return self._known[node]
        if self._depth > _DEPTH:
            return NOTHING
        self._known[node] = self._opaque(node)  # for what depends on itself
        self._depth += 1
        shape = self._infer(node)
        self._depth -= 1
        if shape.rank is None:
            shape = self._completed(node, shape) if shape.first or shape.last else self._opaque(node)
        self._known[node] = shape
        return shape

    def size(self, node: ast.expr) -> str:
        """The symbol of a number."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        measured = axis_of(node)
        if measured is not None:
            return self.shape(measured[0]).size(measured[1])
        if isinstance(node, ast.Name):
            definitions = self.flow.definitions(node)
            if len(definitions) == 1:
                value = self.assigned(next(iter(definitions)))
                if isinstance(value, ast.expr) and not isinstance(value, ast.Call) and self._depth < _DEPTH:
                    self._depth += 1
                    size = self.size(value)
                    self._depth -= 1
                    return size
                if isinstance(value, tuple):
                    return self.shape(value[0]).size(value[1])
                if isinstance(value, ast.expr) and (measured := axis_of(value)) is not None:
                    return self.shape(measured[0]).size(measured[1])
        return self._symbol(node)

    def _symbol(self, node: ast.expr) -> str:
        """Equal for expressions of the same value, as far as that is plain."""
        if isinstance(node, ast.Name):
            definitions = self.flow.definitions(node)
            places = sorted((each.lineno, each.col_offset) for each in definitions)  # type: ignore[attr-defined]
            return f"{node.id}{places}"
        if path_of(node):
            return path_of(node)
        return f"({node.lineno}:{node.col_offset})"

    def _opaque(self, node: ast.expr) -> Shape:
        symbol = self._symbol(node)
        rank = unpacked_rank(self._program, self.flow, node)
        if rank is not None:
            return known(tuple(f"{symbol}.{axis}" for axis in range(rank)))
        return Shape(
            None,
            tuple(f"{symbol}.{axis}" for axis in range(_SHOWN)),
            tuple(f"{symbol}.{axis}" for axis in range(-_SHOWN, 0)),
        )

    def _completed(self, node: ast.expr, shape: Shape) -> Shape:
        """`shape` with the number of axes that its unpacking tells: `b, n, c = x.shape`."""
        rank = unpacked_rank(self._program, self.flow, node)
        if rank is None:
            return shape
        return known(tuple(shape.size(axis) or shape.size(axis - rank) for axis in range(rank)))

    def assigned(self, definition: ast.AST) -> ast.expr | tuple[ast.expr, int] | None:
        """What a name is assigned: an expression, or the n-th size of a tensor."""
        if isinstance(definition, ast.arg):
            return self._argument(definition)
        parent = self._program.parent(definition)
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            return parent.value
        if isinstance(parent, ast.Tuple):
            statement = self._program.parent(parent)
            position = next(i for i, each in enumerate(parent.elts) if each is definition)
            if isinstance(statement, ast.Assign):
                value = statement.value
                if isinstance(value, ast.Tuple) and len(value.elts) == len(parent.elts):
                    return value.elts[position]
                tensor = _sized(value)
                if tensor is not None and not any(isinstance(each, ast.Starred) for each in parent.elts[:position]):
                    return tensor, position
                if is_pair(self._program, value):
                    return value
                returned = self._returned_values(value) if isinstance(value, ast.Call) else []
                if (
                    len(returned) == 1
                    and isinstance(returned[0], ast.Tuple)
                    and len(returned[0].elts) == len(parent.elts)
                ):
                    return returned[0].elts[position]
        return None

    def _argument(self, parameter: ast.arg) -> ast.expr | None:
        """What the one call in this file hands to a parameter."""
        function = self._program.function_of(parameter) or self._program.parent(
            self._program.parent(parameter) or parameter
        )
        if not isinstance(function, ast.FunctionDef):
            return None
        sites = [site for site in self._program.call_sites(function) if isinstance(site, ast.Call)]
        if len(set(sites)) != 1 or self._program.callee(sites[0]) is not function:
            return None
        return self._program.arguments(sites[0], function).get(parameter.arg)

    def _infer(self, node: ast.expr) -> Shape:
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._indexed(node)
        if isinstance(node, ast.Call):
            return called(self, self._program, node)
        if isinstance(node, ast.UnaryOp):
            return self.shape(node.operand)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.MatMult):
                return product(self.shape(node.left), self.shape(node.right))
            return self.broadcast(node.left, node.right)
        if isinstance(node, ast.Compare):
            return self.broadcast(node.left, node.comparators[0])
        return NOTHING

    def _name(self, node: ast.Name) -> Shape:
        shapes = set()
        for definition in self.flow.definitions(node):
            value = self.assigned(definition)
            if not isinstance(value, ast.expr):
                return NOTHING
            shapes.add(self._seen_from(node, value, returned=not isinstance(definition, ast.arg)))
        return shapes.pop() if len(shapes) == 1 else NOTHING

    def _seen_from(self, node: ast.expr, value: ast.expr, *, returned: bool) -> Shape:
        """The shape of `value`, without sizes that mean nothing, or something else, where `node` stands."""
        shape = self.shape(value)
        here, there = self._program.function_of(node), self._program.function_of(value)
        if here is there or there is None:
            return shape
        home = self._program.class_of(there)
        of_self = home is not None and here is not None and self._program.class_of(here) is home
        first, last = (
            tuple(size if _is_known_outside(size, of_self=of_self, local=not returned) else "" for size in sizes)
            for sizes in (shape.first, shape.last)
        )
        return Shape(shape.rank, first, last)

    def returned(self, node: ast.Call) -> Shape | None:
        """The shape that a function of this file returns."""
        values = self._returned_values(node)
        shapes = {self._seen_from(node, value, returned=True) for value in values}
        shape = shapes.pop() if len(shapes) == 1 else NOTHING
        return shape if shape.rank is not None else None

    def _returned_values(self, node: ast.Call) -> list[ast.expr]:
        callee = self._program.callee(node)
        if not isinstance(callee, ast.FunctionDef) or callee.decorator_list or callee.name == "__init__":
            return []
        own = list(own_nodes(callee))
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own):
            return []
        returned = [each.value for each in own if isinstance(each, ast.Return)]
        return [each for each in returned if each is not None] if None not in returned else []

    def elements(self, node: ast.expr) -> list[ast.expr]:
        """Tensors of a list, of one shape as far as a concatenation or stack wants it: those in sight."""
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
        definitions = self.flow.definitions(node) if isinstance(node, ast.Name) else frozenset()
        found = []
        for definition in definitions:
            value = self.assigned(definition)
            if isinstance(value, ast.Tuple | ast.List | ast.ListComp | ast.BinOp):
                found += self.elements(value)
            for use in self.flow.bindings(node).uses.get(definition, []):
                call = self._program.parent(self._program.parent(use) or use)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
                    found += call.args[:1] if call.func.value is use else []
        return found

    def _attribute(self, node: ast.Attribute) -> Shape:
        if node.attr in ("data", "real") or (node.attr in ("values", "indices") and is_pair(self._program, node.value)):
            return self.shape(node.value)
        if node.attr in ("T", "mT"):
            return swapped(self.shape(node.value), -1, -2)
        if node.attr == "weight" and self._program.value(node.value).name in ("torch.nn.Embedding", "torch.nn.Linear"):
            return known(("", ""))
        function = self._program.function_of(node)
        owner = self._program.class_of(function) if function is not None else None
        if owner is None or path_of(node) != f"self.{node.attr}":
            return NOTHING
        values = [
            each.value for each in ast.walk(owner.node)
            if isinstance(each, ast.Assign) and any(path_of(target) == f"self.{node.attr}" for target in each.targets)
        ]  # fmt: skip
        values += [
            each.args[1] for each in ast.walk(owner.node)
            if isinstance(each, ast.Call) and path_of(each.func) == "self.register_buffer" and len(each.args) > 1
            and isinstance(each.args[0], ast.Constant) and each.args[0].value == node.attr
        ]  # fmt: skip
        return self.shape(values[0]) if len(values) == 1 else NOTHING

    def broadcast(self, left: ast.expr, right: ast.expr) -> Shape:
        """The shape of an elementwise result."""
        if self._program.value(right).kind is Kind.NUMBER or isinstance(right, ast.Constant):
            return self.shape(left)
        if self._program.value(left).kind is Kind.NUMBER or isinstance(left, ast.Constant):
            return self.shape(right)
        one, other = self.shape(left), self.shape(right)
        if one.rank is None or other.rank is None:
            return NOTHING
        sizes = []
        for axis in range(-max(one.rank, other.rank), 0):
            pair = {one.size(axis) if -axis <= one.rank else "1", other.size(axis) if -axis <= other.rank else "1"}
            rest = pair - {"1"}
            sizes.append("1" if not rest else rest.pop() if len(rest) == 1 else "")
        return known(tuple(sizes))

    def _indexed(self, node: ast.Subscript) -> Shape:
        shape = self.shape(node.value)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if is_pair(self._program, node.value):
            return shape
        if not all(_is_basic(index) or self._program.value(index).kind is Kind.NUMBER for index in indices):
            return NOTHING
        dots = next(
            (i for i, index in enumerate(indices) if isinstance(index, ast.Constant) and index.value is ...),
            len(indices),
        )
        front, taken = _walk(indices[:dots], shape.first)
        back, cut = _walk(indices[dots + 1 :][::-1], shape.last[::-1])
        if shape.rank is not None:
            return known((*front, *shape.first[taken : shape.rank - cut], *back[::-1]))
        if dots == len(indices):
            return Shape(None, (*front, *shape.first[taken:]), ())
        return Shape(None, (*front, *shape.first[taken:]), (*shape.last[: len(shape.last) - cut], *back[::-1]))

    def from_sizes(self, arguments: list[ast.expr], *, made: bool = False) -> Shape:
        """The shape that sizes ask for: one by one, in a tuple or list, or all those of another tensor.

        A single argument of which nothing is known is one size where a tensor is `made`.
        """
        if len(arguments) != 1 or isinstance(arguments[0], ast.Tuple | ast.List | ast.Starred):
            return self.expand(sizes_of(arguments)) if arguments else NOTHING
        like = _sized(arguments[0])
        if like is not None:
            return self.shape(like)
        return self.expand(arguments) if self._is_size(arguments[0], likely=made) else NOTHING

    def _is_size(self, node: ast.expr, *, likely: bool) -> bool:
        """Is it a number, or, where `likely` is enough, something unknown whose name doesn't speak of several?"""
        kind = self._program.value(node).kind
        if kind is not Kind.UNKNOWN or not likely:
            return kind is Kind.NUMBER or integer(node) is not None
        if isinstance(node, ast.BinOp):
            return self._is_size(node.left, likely=True) and self._is_size(node.right, likely=True)
        word = path_of(node).rpartition(".")[2]
        return word not in ("", "size", "sizes", "dims") and "shape" not in word

    def expand(self, sizes: list[ast.expr]) -> Shape:
        """The shape that a list of sizes asks for; -1 and what follows a star are unknown."""
        if any(isinstance(each, ast.Starred) for each in sizes):
            star = next(i for i, each in enumerate(sizes) if isinstance(each, ast.Starred))
            behind = sizes[star + 1 :] if not any(isinstance(each, ast.Starred) for each in sizes[star + 1 :]) else []
            return Shape(None, tuple(map(self.size, sizes[:star])), tuple(map(self.size, behind)))
        return known(tuple("" if _is_minus_one(each) else self.size(each) for each in sizes))


def _walk(indices: list[ast.expr], sizes: tuple[str, ...]) -> tuple[list[str], int]:
    """The sizes that basic indices leave, and how many axes they take."""
    left, axis = [], 0
    for index in indices:
        if isinstance(index, ast.Constant) and index.value is None:
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


def _is_minus_one(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def _is_known_outside(size: str, *, of_self: bool, local: bool) -> bool:
    """Does a size say the same in another function? What is `local` to one call is, in functions that it calls."""
    if size.isdigit():
        return True
    return (local and ("[" in size or "(" in size)) or (of_self and size.lstrip("x").startswith("self."))


def _sized(node: ast.expr) -> ast.expr | None:
    """`x` of `x.shape` or `x.size()`."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
        and not node.args
    ):
        return node.func.value
    return node.value if isinstance(node, ast.Attribute) and node.attr == "shape" else None


def axis_of(node: ast.expr) -> tuple[ast.expr, int] | None:
    """`x` and the axis of `x.shape[0]`, `x.size(0)`, `x.size()[0]`, `len(x)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and node.args:
        axis, tensor = integer(node.args[0]), node.func.value
    elif isinstance(node, ast.Subscript) and (sized := _sized(node.value)) is not None:
        axis, tensor = integer(node.slice), sized
    elif isinstance(node, ast.Call) and path_of(node.func) == "len" and len(node.args) == 1:
        axis, tensor = 0, node.args[0]
    else:
        return None
    return None if axis is None else (tensor, axis)
