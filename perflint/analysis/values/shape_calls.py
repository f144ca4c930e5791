"""The shapes that torch's functions and methods give."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.rank_keeping import keeps_rank
from perflint.analysis.values.shape import NOTHING, Shape, Sizing, known, product, sizes_of, swapped
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import integer


def _keeps_shape(name: str) -> bool:
    return name in ("Variable", "Parameter") or torch_ops.does(name, "same_shape")


def _reduces(name: str) -> bool:
    return name == "median" or torch_ops.does(name, "reduction")


def _takes_sizes(name: str) -> bool:
    """Is it a function that is given nothing but sizes, one by one?"""
    operation = torch_ops.of_function(f"torch.{name}")
    return operation is not None and operation.name != "full" and operation.does("sized") and operation.does("factory")


def _joins(qualified: str) -> bool:
    operation = torch_ops.of_function(qualified)
    return operation is not None and operation.does("joining")


def called(shapes: Sizing, program: Program, node: ast.Call) -> Shape:
    """What is known of the shape of a call's result."""
    name, receiver, arguments = _operation(program, node)
    if receiver is None:
        return _made(shapes, name, node) if name else shapes.returned(node) or _of_module(shapes, program, node)
    if _keeps_shape(name):
        return shapes.shape(receiver)
    if name in ("sort", "topk"):
        return _sorted(shapes, shapes.shape(receiver), name, node, arguments)
    if _reduces(name):
        return _reduced(shapes.shape(receiver), node, arguments)
    if name in _LAYOUTS:
        return _LAYOUTS[name](shapes, shapes.shape(receiver), arguments)
    entry = torch_ops.of_method(name)
    if entry is not None and "pointwise" in entry.traits:
        tensors = [each for each in arguments if program.value(each).kind is Kind.TENSOR]
        if not tensors:
            return shapes.shape(receiver)
        return (
            shapes.broadcast(receiver, tensors[0])
            if len(tensors) == 1 and not entry.in_place
            else shapes.shape(receiver)
        )
    return NOTHING


def is_pair(program: Program, node: ast.expr) -> bool:
    """Is it `x.max(dim)` or `x.topk(k)`, values and indices, each of the shape that the call is said to have?"""
    if not isinstance(node, ast.Call):
        return False
    name, receiver, arguments = _operation(program, node)
    always = name in ("sort", "topk")
    return receiver is not None and (always or (torch_ops.does(name, "pairing") and bool(arguments or node.keywords)))


def _operation(program: Program, node: ast.Call) -> tuple[str, ast.expr | None, list[ast.expr]]:
    """Name, tensor and further arguments, be it a method or torch's function of that name."""
    qualified = program.qualified(node.func)
    if qualified:
        name = qualified.rpartition(".")[2]
        takes_tensor = name in _LAYOUTS or _keeps_shape(name) or torch_ops.of_method(name) is not None
        if qualified.startswith("torch") and takes_tensor and node.args and not _joins(qualified):
            return name, node.args[0], node.args[1:]
        return (qualified if qualified.startswith("torch") else ""), None, node.args
    is_module = program.value(node.func).kind is Kind.MODULE
    if isinstance(node.func, ast.Attribute) and not is_module and program.callee(node) is None:
        return node.func.attr, node.func.value, node.args
    return "", None, node.args


def _made(shapes: Sizing, qualified: str, node: ast.Call) -> Shape:
    name = qualified.rpartition(".")[2]
    if torch_ops.does(name, "line"):
        return known((shapes.size(node.args[0]) if name == "arange" and len(node.args) == 1 else "",))
    if _takes_sizes(name) or name in ("FloatTensor", "LongTensor", "Tensor"):
        return shapes.from_sizes(node.args, made=True) if _takes_sizes(name) or len(node.args) > 1 else NOTHING
    if name == "randint":
        return _drawn(shapes, node)
    if name == "full":
        return shapes.from_sizes(node.args[:1], made=True)
    if name == "eye" and node.args:
        return known((shapes.size(node.args[0]), shapes.size(node.args[min(1, len(node.args) - 1)])))
    if name in ("tensor", "as_tensor") and node.args and isinstance(node.args[0], ast.List):
        return _nested(node.args[0])
    if _joins(qualified) and node.args:
        return _joined(shapes, name, node)
    return NOTHING


def _drawn(shapes: Sizing, node: ast.Call) -> Shape:
    """The shape of `randint(low, high, size)`, of which `low` may be left out and `size` be named."""
    sizes = [each.value for each in node.keywords if each.arg == "size"] or node.args[1:][-1:]
    return shapes.expand(sizes[0].elts) if sizes and isinstance(sizes[0], ast.Tuple | ast.List) else NOTHING


def _joined(shapes: Sizing, name: str, node: ast.Call) -> Shape:
    """The shape of a concatenation or stack: but for the joined axis it is that of any part."""
    dims = [each.value for each in node.keywords if each.arg in ("dim", "axis")] or node.args[1:2]
    axis = integer(dims[0]) if dims else 0
    parts = [shapes.shape(each) for each in shapes.elements(node.args[0])]
    ranks = {part.rank for part in parts if part.rank is not None}
    if not parts or len(ranks) != 1 or torch_ops.canonical(f"torch.{name}") not in ("cat", "stack"):
        return known(("",) * ranks.pop()) if len(ranks) == 1 and name != "stack" else NOTHING
    rank = ranks.pop()
    same = [max({part.size(i) for part in parts if part.rank}, key=_worth) for i in range(rank)]
    if axis is None or not -rank - (name == "stack") <= axis < rank + (name == "stack"):
        return known(("",) * (rank + (name == "stack")))
    if name == "stack":
        same.insert(axis if axis >= 0 else axis + rank + 1, "")
    else:
        same[axis] = ""
    return known(tuple(same))


def _worth(size: str) -> tuple[bool, bool, str]:
    """Orders what is known of one size: a 1 says the most."""
    return size == "1", bool(size), size


def _nested(node: ast.List) -> Shape:
    sizes = [str(len(node.elts))]
    inner: ast.expr = node
    while isinstance(inner, ast.List) and inner.elts and isinstance(inner.elts[0], ast.List):
        inner = inner.elts[0]
        sizes.append(str(len(inner.elts)))
    numbers = isinstance(inner, ast.List) and all(isinstance(each, ast.Constant | ast.UnaryOp) for each in inner.elts)
    return known(tuple(sizes)) if numbers else NOTHING


def _of_module(shapes: Sizing, program: Program, node: ast.Call) -> Shape:
    module = program.value(node.func)
    if module.kind is not Kind.MODULE or not module.sure or len(node.args) != 1:
        return NOTHING
    shape = shapes.shape(node.args[0])
    if module.name == "torch.nn.Linear":
        return known((*shape.first[:-1], "")) if shape.rank else Shape(None, shape.first[:2], ())
    if module.name == "torch.nn.Embedding" and shape.rank is not None:
        return known((*shape.first, ""))
    if shape.rank is not None and keeps_rank(module):
        return known(("",) * shape.rank)
    return NOTHING


def _reduced(shape: Shape, node: ast.Call, arguments: list[ast.expr]) -> Shape:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    dims = keywords.get("dim", keywords.get("axis", arguments[0] if arguments else None))
    kept = keywords.get("keepdim", keywords.get("keepdims", arguments[1] if len(arguments) > 1 else None))
    axis = integer(dims)
    if axis is None:
        return NOTHING
    if isinstance(kept, ast.Constant) and kept.value is True:
        return _replaced(shape, axis, ("1",))
    dropped = kept is None or (isinstance(kept, ast.Constant) and kept.value is False)
    return _replaced(shape, axis, ()) if dropped else NOTHING


def _replaced(shape: Shape, axis: int, sizes: tuple[str, ...]) -> Shape:
    """`shape` with one axis replaced by others."""
    if shape.rank is not None:
        if not -shape.rank <= axis < shape.rank:
            return NOTHING
        axis %= shape.rank
        return known((*shape.first[:axis], *sizes, *shape.first[axis + 1 :]))
    if axis >= 0:
        padded = (*shape.first, *[""] * axis)
        return Shape(None, (*padded[:axis], *sizes, *padded[axis + 1 :]), ())
    padded = (*[""] * -axis, *shape.last)
    cut = len(padded) + axis
    return Shape(None, (), (*padded[:cut], *sizes, *padded[cut + 1 :]))


def _unsqueezed(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    axis = integer(arguments[0]) if arguments else None
    if axis is None:
        return NOTHING
    if shape.rank is not None:
        axis = axis if axis >= 0 else axis + shape.rank + 1
        return known((*shape.first[:axis], "1", *shape.first[axis:]))
    if axis >= 0:
        padded = (*shape.first, *[""] * axis)
        return Shape(None, (*padded[:axis], "1", *padded[axis:]), shape.last if axis == 0 else ())
    cut = len(shape.last) + axis + 1
    padded = shape.last if cut >= 0 else (*[""] * -cut, *shape.last)
    cut = max(cut, 0)
    return Shape(None, (), (*padded[:cut], "1", *padded[cut:]))


def _squeezed(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    axis = integer(arguments[0]) if arguments else None
    return NOTHING if axis is None or shape.size(axis) != "1" else _replaced(shape, axis, ())


def _transposed(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    one, other = (integer(each) for each in arguments) if len(arguments) == 2 else (None, None)
    return NOTHING if one is None or other is None else swapped(shape, one, other)


def _turned(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return swapped(shape, 0, 1) if shape.rank == 2 else NOTHING


def _permuted(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    axes = [integer(each) for each in sizes_of(arguments)]
    if any(axis is None for axis in axes):
        return NOTHING
    return known(tuple(shape.size(axis) for axis in axes if axis is not None))


def _viewed(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return shapes.from_sizes(arguments)


def _expanded(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return _viewed(shapes, shape, arguments)


def _expanded_as(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return shapes.shape(arguments[0]) if arguments else NOTHING


def _repeated(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    """A count other than 1 gives the symbol of that count with a cross in front: its multiple, of whatever size."""
    counts = sizes_of(arguments)
    if any(isinstance(each, ast.Starred) for each in counts) or (
        len(counts) == 1 and counts is arguments and integer(counts[0]) is None
    ):
        return NOTHING
    full = shape.rank is None or shape.rank == len(counts)
    sizes = []
    for position, count in enumerate(counts):
        size = shape.size(position - len(counts)) or (shape.size(position) if full else "")
        sizes.append(size if integer(count) == 1 else f"x{shapes.size(count)}")
    return known(tuple(sizes))


def _flattened(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return NOTHING if arguments else known(("",))


def _sorted(shapes: Sizing, shape: Shape, name: str, node: ast.Call, arguments: list[ast.expr]) -> Shape:
    if name == "sort":
        return shape
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    axis = integer(keywords.get("dim", arguments[1] if len(arguments) > 1 else ast.Constant(-1)))
    count = keywords.get("k", arguments[0] if arguments else None)
    return NOTHING if axis is None or count is None else _replaced(shape, axis, (shapes.size(count),))


def _gathered(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return shapes.shape(arguments[1]) if len(arguments) > 1 else NOTHING


def _filled(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return shapes.from_sizes(arguments[:1], made=True)


def _multiplied(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    other = shapes.shape(arguments[0]) if arguments else NOTHING
    return product(shape, other)


def _batched(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return known((shape.size(0), shape.size(1), shapes.shape(arguments[0]).size(2))) if arguments else NOTHING


def _matrix(shapes: Sizing, shape: Shape, arguments: list[ast.expr]) -> Shape:
    return known((shape.size(0), shapes.shape(arguments[0]).size(1))) if arguments else NOTHING


_LAYOUTS = {
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "transpose": _transposed,
    "swapaxes": _transposed,
    "t": _turned,
    "permute": _permuted,
    "view": _viewed,
    "reshape": _viewed,
    "expand": _expanded,
    "expand_as": _expanded_as,
    "repeat": _repeated,
    "flatten": _flattened,
    "bmm": _batched,
    "mm": _matrix,
    "matmul": _multiplied,
    "gather": _gathered,
    "new_zeros": _viewed,
    "new_ones": _viewed,
    "new_empty": _viewed,
    "new_full": _filled,
}
