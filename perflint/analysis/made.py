"""Finds out how a tensor is made on the host of numbers alone, be it just where it is moved or before that."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perflint import torch_ops
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.links import Heat
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.values.numbers import is_option, numbers
from perflint.analysis.values.operations import Move, TorchCall, moves_first, operation
from perflint.analysis.values.operations import move as moves
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.source import Safety
from perflint.syntax.walk import LOOPS, elements_of, integer, name_called, own_nodes, path_of

_BY_SHAPE = frozenset({"expand_as", "view_as", "reshape_as"})
_COUNTING = frozenset({"builtins.range", "builtins.reversed"})
_OF_ARRAYS = frozenset(f"torch.{name}" for name in "from_numpy tensor as_tensor Tensor FloatTensor LongTensor".split())
_FOLLOWED = frozenset({"view", "random", "cast", "copying", "pointwise"})
_LOST = frozenset("to_host counting measuring move indexing updating replacing applying joining".split())
_SIZED = frozenset({"taking_sizes", "filling", "line"})
_KEYWORDS = frozenset("size fill_value n m start end step steps low high dtype requires_grad".split())


@dataclass(frozen=True)
class Made:
    """A tensor that `call` makes on the host; `is_plain`: only views of it are taken before it is moved.

    `is_apart`: it is made elsewhere than it is moved.
    """

    call: ast.Call
    name: str
    kind: str
    safety: Safety = Safety.EXACT
    is_plain: bool = True
    is_apart: bool = False


def moved_made(program: Program, call: ast.Call) -> tuple[Move, Made] | None:
    """The move by `call`, or by a helper that is given nothing else, and how what it moves is made."""
    moved = moves(program, call)
    if moved is None and (len(call.args) != 1 or call.keywords or not _may_only_move(program, call)):
        return None
    made = made_on_host(program, call.args[0] if moved is None else moved.tensor, call)
    if made is None:
        return None
    return moved or Move(call, call.args[0]), made


def _may_only_move(program: Program, call: ast.Call) -> bool:
    """Does a function take the argument of `call` to the device, and do nothing else?"""
    callee, given = program.callee(call), program.value(call.args[0])
    if callee is None or given.kind is not Kind.TENSOR or given.place is Place.DEVICE:
        return False
    return program.receiver(call.args[0], call, callee) is not None and moves_first(program, callee)


def made_on_host(program: Program, node: ast.expr, move: ast.Call, around: tuple[ast.expr, ...] = ()) -> Made | None:
    """How `node`, which `move` takes to the device, is made on the host of numbers alone; None for other tensors.

    Nor for what a loop carries: `around` are the expressions that are made of it.
    """
    if node in around:
        return None
    around = (*around, node)
    if isinstance(node, ast.Name) or (isinstance(node, ast.Call) and program.callee(node) is not None):
        return _made_apart(program, node, move, around)
    if isinstance(node, ast.UnaryOp):
        return _of_parts(program, [node.operand], move, around, Safety.EXACT)
    if isinstance(node, ast.Subscript):
        return _of_index(program, node, move, around)
    if isinstance(node, ast.BinOp | ast.Compare):
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
        exact = isinstance(node, ast.Compare) or isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
        return _of_parts(program, parts, move, around, Safety.EXACT if exact else Safety.ROUNDING)
    if isinstance(node, ast.Call) and (started := _started(program, node, move, around)):
        return started
    found = operation(program, node)
    if found is None or found.tensor is None or ("move" in found.traits and moves(program, node) is not None):
        return None
    if found.name == "scatter" and any(_is_fetched(each) for part in found.arguments for each in ast.walk(part)):
        scattered = _then(made_on_host(program, found.tensor, move, around), Safety.EXACT)
        return replace(scattered, is_apart=True) if scattered is not None else None  # to where the index lies
    if found.traits.isdisjoint(_FOLLOWED) and not _is_computed(found):
        return None
    if "pointwise" in found.traits and "random" not in found.traits:
        return _of_parts(program, [found.tensor, *found.arguments], move, around, Safety.ROUNDING)
    below = made_on_host(program, found.tensor, move, around)
    if "view" in found.traits:  # of which the arguments are sizes and axes
        return below
    if Kind.TENSOR in {program.value(each).kind for each in found.arguments} and found.name not in _BY_SHAPE:
        return None
    if found.traits.isdisjoint(_FOLLOWED):
        return _then(below, Safety.ROUNDING)
    return _then(below, Safety.BEHAVIOUR if "random" in found.traits else Safety.EXACT)


def _is_computed(found: TorchCall) -> bool:
    does = found.does
    return does.result == "tensor" and not (does.syncs or does.in_place) and found.traits.isdisjoint(_LOST)


def _started(program: Program, call: ast.Call, move: ast.Call, around: tuple[ast.expr, ...]) -> Made | None:
    name = program.qualified(call.func)
    if name in _OF_ARRAYS and _is_of_sizes(program, call.args[0] if len(call.args) == 1 else call):
        return Made(call, "", "constant")
    if name.startswith("torch.") and name.endswith("Tensor") and name.count(".") == 1:
        is_sized = len(call.args) > 1 or (call.args and _is_size(program, call.args[0]))  # several are sizes
        return Made(call, "", "constant") if is_sized else None
    drawn = program.value(call.func).owner if name_called(call) in ("sample", "rsample") else None
    if drawn is not None and drawn.name == "distribution" and drawn.place is Place.UNKNOWN:  # of numbers
        return Made(call, "", "random", Safety.BEHAVIOUR)
    if name.endswith(".Variable") and len(call.args) == 1:
        return made_on_host(program, call.args[0], move, around)
    if name == "torch.normal" and call.args:
        return _then(made_on_host(program, call.args[0], move, around), Safety.BEHAVIOUR)
    found = operation(program, call)
    if found is not None and "joining" in found.traits and len(call.args) > 0:
        return _joined(program, call.args[0], move, around)
    if found is None or not (kind := _kind(found)):
        return None
    sizes = [part for each in found.arguments for part in elements_of(each)]
    is_sized = {"sized", "taking_sizes"} <= found.traits or len(sizes) == 1
    nothing = is_sized and any(integer(each) == 0 for each in sizes)
    told = {each.arg for each in found.call.keywords} - _KEYWORDS  # where, or of which numbers
    safety = Safety.BEHAVIOUR if kind == "random" else Safety.EXACT
    return Made(found.call, found.name, kind, safety) if not nothing and not told else None


def _is_of_sizes(program: Program, node: ast.expr, around: tuple[ast.expr, ...] = ()) -> bool:
    """Is it an array of numpy's of constants, or counts, or computed of such alone: of sizes?"""
    if node in around:
        return False
    around = (*around, node)
    if isinstance(node, ast.Name):
        sources = program.get(Flow).assigned(node)
        is_written = any(True for each in sources for _ in program.get(Memory).writes_after(each, each))
        return bool(sources) and not is_written and all(_is_of_sizes(program, each, around) for each in sources)
    if isinstance(node, ast.BinOp):
        return _any_of_sizes(program, [node.left, node.right], around)
    if not isinstance(node, ast.Call):
        return False
    library, _, name = program.qualified(node.func).partition(".")
    if library == "numpy" and "." not in name:
        return _makes(name) or _any_of_sizes(
            program, [part for each in node.args for part in elements_of(each)], around
        )
    return (
        isinstance(node.func, ast.Attribute)
        and _reshapes(node.func.attr)
        and _is_of_sizes(program, node.func.value, around)
    )


def _makes(name: str) -> bool:
    entry = torch_ops.of_function(f"torch.{name}")
    is_sized = entry is not None and not entry.traits.isdisjoint(_SIZED)  # unlike numpy.asarray
    return entry is not None and is_sized and "factory" in entry.traits and "random" not in entry.traits


def _reshapes(method: str) -> bool:
    entry = torch_ops.of_method(method)
    return method == "astype" or (entry is not None and not entry.traits.isdisjoint(("view", "copying")))


def _any_of_sizes(program: Program, parts: list[ast.expr], around: tuple[ast.expr, ...]) -> bool:
    others = [each for each in parts if not _is_of_sizes(program, each, around)]
    return len(others) < len(parts) and all(program.value(each).kind is Kind.NUMBER for each in others)


def _joined(program: Program, parts: ast.expr, move: ast.Call, around: tuple[ast.expr, ...]) -> Made | None:
    each_of = [parts.elt] if isinstance(parts, ast.ListComp) else getattr(parts, "elts", ())
    first = _all_made(program, each_of, move, around)
    return replace(first, is_apart=True, is_plain=False) if first is not None else None


def _all_made(program: Program, parts: Sequence[ast.expr], move: ast.Call, around: tuple[ast.expr, ...]) -> Made | None:
    made = [made_on_host(program, each, move, around) for each in parts]
    return made[0] if made and None not in made else None


def _is_size(program: Program, node: ast.expr) -> bool:
    return program.value(node).kind is Kind.NUMBER or _is_shape(node)


def _is_shape(node: ast.expr) -> bool:
    """Is it `x.shape`, `x.size(0)`, or `x.size() + (n,)`?"""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_shape(node.left) or _is_shape(node.right)
    is_attribute = isinstance(node, ast.Attribute) and node.attr == "shape"
    return is_attribute or (isinstance(node, ast.Call) and name_called(node) == "size")


def _of_parts(
    program: Program, parts: list[ast.expr], move: ast.Call, around: tuple[ast.expr, ...], safety: Safety
) -> Made | None:
    """What is computed of `parts`, numbers but for tensors that are made on the host themselves."""
    unsure = [each for each in parts if program.value(each).kind is not Kind.NUMBER]
    first = _all_made(program, [each for each in unsure if not _counts(program, each)], move, around)
    return _then(replace(first, is_apart=first.is_apart or len(unsure) > 1), safety) if first is not None else None


def _of_index(program: Program, node: ast.Subscript, move: ast.Call, around: tuple[ast.expr, ...]) -> Made | None:
    below = made_on_host(program, node.value, move, around)
    if all(_is_basic(program, each) for each in elements_of(node.slice)):
        return below
    return _then(below, Safety.EXACT) if any(map(_is_fetched, ast.walk(node.slice))) else None


def _is_basic(program: Program, index: ast.expr) -> bool:
    return isinstance(index, ast.Slice | ast.Constant) or program.value(index).kind is Kind.NUMBER


def _is_fetched(node: ast.AST) -> bool:
    """Is it `x.cpu()`, or `x.to("cpu")`?"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    given = node.args[0] if node.args else None
    is_to_host = node.func.attr == "to" and isinstance(given, ast.Constant) and given.value == "cpu"
    return is_to_host or (node.func.attr == "cpu" and given is None)


def _counts(program: Program, node: ast.AST, around: tuple[ast.AST, ...] = ()) -> bool:
    """Is it likely a number: a whole quotient, what is made of such, or what a loop counts down?"""
    if node in around:
        return False
    if isinstance(node, ast.For):
        zipped = program.call_of(node.iter, "builtins.zip")
        return all(program.call_of(each, *_COUNTING) for each in (zipped.args if zipped else [node.iter]))
    if program.value(node).kind is Kind.NUMBER or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)):
        return True
    sources: list[ast.AST] = []
    if isinstance(node, ast.Attribute):
        return _is_setting(program, node)
    if isinstance(node, ast.Name):
        sources = program.get(Origins).of(node)
    elif isinstance(node, ast.UnaryOp | ast.BinOp):
        sources = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
    return bool(sources) and all(_counts(program, each, (*around, node)) for each in sources)


def _is_setting(program: Program, node: ast.Attribute) -> bool:
    """Is it an option, or what an object was told when it was made, and no tensor as far as is known?"""
    is_own = path_of(node.value) == "self" and program.value(node).kind in (Kind.UNKNOWN, Kind.METHOD)
    kept = [each for each in program.get(Origins).of(node) if each is not node] if is_own else []
    told = [isinstance(each, ast.arg) or (isinstance(each, ast.expr) and is_option(program, each)) for each in kept]
    return is_option(program, node) or (bool(told) and all(told))


def _made_apart(program: Program, node: ast.expr, move: ast.Call, around: tuple[ast.expr, ...]) -> Made | None:
    """What is made elsewhere, in every step as well, and filled with nothing but numbers before `move`."""
    sources = _assigned(program, node) if isinstance(node, ast.Name) else program.get(Origins).of(node)
    found = [each for each in sources if isinstance(each, ast.expr) and each is not node]
    made = [made_on_host(program, each, move, around) for each in found]
    first = next(filter(None, made), None)
    are_made = all(one or _is_table(program, each) for one, each in zip(made, found, strict=True))
    if first is None or len(made) != len(sources) or not are_made:
        return None
    for source in sources:
        is_before = program.heat(source) is Heat.ONCE and program.heat(move) is not Heat.ONCE
        if is_before or _is_filled(program, source, move):
            return None
    if isinstance(node, ast.Name) and _is_handed_on(program, node, move):
        return None
    return replace(first, is_apart=True)


def _assigned(program: Program, name: ast.Name) -> list[ast.expr]:
    """The expressions that the variable may hold there, but for None, or what is given in its place."""
    values = [each for each in program.get(Flow).graph(name).definitions(name) if not _is_left_out(program, each)]
    definitions = [each for each in values if isinstance(each, Definition) and each.updates is None]
    found = [each.source for each in definitions if each.source is not None and not each.steps]
    return found if len(found) == len(values) else []


def _is_left_out(program: Program, value: object) -> bool:
    """Is it None, which nobody moves, or a parameter that is None unless it is given?"""
    node = value.node if isinstance(value, Definition) else None
    default = program.default(node) if isinstance(node, ast.arg) else getattr(value, "source", None)
    return isinstance(default, ast.Constant) and default.value is None


def _is_table(program: Program, node: ast.expr) -> bool:
    is_made = isinstance(node, ast.Call) and program.qualified(node.func).lower().endswith("tensor")
    return is_made and isinstance(node, ast.Call) and bool(node.args) and numbers(program, node.args[0]) is not None


def _is_filled(program: Program, source: ast.AST, move: ast.Call) -> bool:
    """Is what `source` makes written to before `move`, or in the function that makes it?"""
    writes = program.get(Memory).writes_after(source, source) if isinstance(source, ast.expr) else ()
    own = {*ast.walk(move)}  # such as `.random_(10)` in front of it
    nodes = [each.node for each in writes if each.node not in own and not _puts_number(program, each.node)]
    if program.tree in nodes:  # the place is too large for that
        return _is_written_by_name(program, source)
    if program.function_of(source) is not program.function_of(move):
        return bool(nodes)
    graph = program.get(Flow).graph(move)
    return any(program.stands_before(each, move) and graph.reaches(each, move, source) for each in nodes)


def _is_written_by_name(program: Program, source: ast.AST) -> bool:
    """Does code write to the variable that holds what `source` makes, or is that kept elsewhere?"""
    statement = program.statement_of(source)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return True
    for use in program.get(Flow).graph(target).uses.get(target, ()):
        around = program.parent(use)
        if isinstance(around, ast.Subscript) and isinstance(around.ctx, ast.Store):
            return True
        if isinstance(around, ast.Attribute) and torch_ops.writes_in_place(around.attr):
            return True
    return False


def _puts_number(program: Program, node: ast.AST) -> bool:
    """Is it `x[:, 0] = 1`, not in a loop of its own?"""
    if node is program.tree:
        return False
    statement = program.statement_of(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    parts = [part for each in targets if isinstance(each, ast.Subscript) for part in elements_of(each.slice)]
    is_number = isinstance(statement, ast.Assign) and program.value(statement.value).kind is Kind.NUMBER
    is_loop = isinstance(program.parent(statement), LOOPS)
    return bool(parts) and is_number and not is_loop and all(_is_basic(program, each) for each in parts)


def _is_handed_on(program: Program, name: ast.Name, move: ast.Call) -> bool:
    """Is the variable given, before `move`, to a function that is none of torch's, which may fill it?"""
    scope, flow = program.scope_of(name), program.get(Flow)
    for call in own_nodes(scope):
        if isinstance(call, ast.Call) and program.stands_before(call, move) and operation(program, call) is None:
            given = (each for each in call.args if isinstance(each, ast.Name) and each.id == name.id)
            if any(not flow.definitions(each).isdisjoint(flow.definitions(name)) for each in given):
                return True
    return False


def _kind(found: TorchCall) -> str:
    if "factory" not in found.traits or found.traits.isdisjoint(_SIZED):
        return ""
    if "random" in found.traits:
        return "random"
    return "range" if "line" in found.traits else "constant"


def _then(below: Made | None, safety: Safety) -> Made | None:
    """What is made of it by an operation which gives, on the device, what `safety` promises."""
    if below is None:
        return None
    worst = max(below.safety, safety, key=list(Safety).index)
    return replace(below, safety=worst, kind="random" if worst is Safety.BEHAVIOUR else below.kind, is_plain=False)
