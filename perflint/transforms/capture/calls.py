"""What a call inside of a captured function may be: one that computes on the device, and does nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perflint import torch_ops
from perflint.analysis.call_graph import is_abstract
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.memory.dispatch import Modules
from perflint.analysis.memory.roles import FILLS, HOLDS, TAKES
from perflint.analysis.program import Program
from perflint.analysis.values.values import ELSEWHERE, Kind, Place, Value
from perflint.syntax.scopes import keyword_of
from perflint.syntax.walk import FUNCTIONS, elements_of
from perflint.transforms.aliases import is_own
from perflint.transforms.rewrite import Blocked, shown

MODES = frozenset(  # of torch, which a program switches on around its code
    "torch.no_grad torch.inference_mode torch.enable_grad torch.set_grad_enabled torch.autocast torch.amp.autocast"
    " torch.cuda.amp.autocast torch.autograd.no_grad".split()
)
_BUILTINS = frozenset(
    "range len enumerate zip reversed isinstance hasattr getattr callable int float bool str list tuple dict set min"
    " max sum abs round any all sorted slice type super map filter repr".split()
)
_RUNNING = frozenset({"map", "filter"})  # what they are given first
_ERRORS = ("Error", "Exception", "Warning")
_OTHER_RESULTS = frozenset({"list", "str", "none", "numpy", "other"})  # than tensors, and what describes them
_CHANGES = FILLS | TAKES
_READS = HOLDS | {"index", "count"}
_COMPUTES = frozenset(
    "torch._assert_async torch.autograd.Variable torch.nn.utils.rnn.pad_sequence einops.rearrange einops.repeat"
    " einops.reduce einops.einsum".split()
)
_DESCRIBES = frozenset(f"torch.{name}" for name in "is_tensor device Size finfo cuda.is_available".split())
_READING = frozenset(  # masks and lengths, whether the device is there, or how large its input is
    f"torch.nn.{name}"
    for name in "Transformer TransformerEncoder TransformerDecoder CTCLoss AdaptiveLogSoftmaxWithLoss".split()
    + "SyncBatchNorm functional.ctc_loss functional.embedding_bag".split()
) | {"torch.ctc_loss"}
_STORAGE = frozenset({"set_", "resize_"})  # they exchange the memory itself
_LATER = "do that when the loop is over"
_APART = "do that in a function of its own, before this one or after it"
_BY_HAND = (
    "if it only computes on the device, decorate the function by hand, with `cuda_graph` of perflint.runtime.graphs, "
    "or a training step with `graphed_step`"
)
_REFUSED = {
    "torch.distributions": "checks its arguments on the host: compute it by functions of torch",
    "torch.nn.utils.rnn": "needs the lengths on the host: pad and mask instead",
    "torch.autograd": "computes gradients itself: leave that to the caller",
    "torch.cuda": "speaks to the device itself: leave that to the caller",
    "torch.jit": "is compiled: call what it was made of",
}


def entry_of(program: Program, node: ast.Call) -> torch_ops.Operation | None:
    value = program.value(node.func)
    entry = torch_ops.of_function(value.name) if value.kind is Kind.LIBRARY else None
    if value.kind is not Kind.LIBRARY and isinstance(node.func, ast.Attribute):
        entry = torch_ops.of_method(node.func.attr)
    if entry is None:
        return None
    named = {each.arg: _table_kind(program, each.value) for each in node.keywords if each.arg}
    return entry.select([_table_kind(program, each) for each in node.args], named)


def _table_kind(program: Program, node: ast.expr) -> str:
    kinds = {Kind.TENSOR: torch_ops.TENSOR, Kind.NUMBER: torch_ops.NUMBER, Kind.NONE: torch_ops.NONE}
    return kinds.get(program.value(node).kind, torch_ops.OTHER)


def called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def argument_names(region: ast.AST) -> set[str]:
    arguments = ast.walk(region.args) if isinstance(region, FUNCTIONS) else ()
    return {node.arg for node in arguments if isinstance(node, ast.arg)}


Body = ast.FunctionDef | ast.Lambda


def check_call(program: Program, node: ast.Call, region: ast.AST, strict: bool) -> tuple[Body, ...]:
    """The functions of this file that a call may run; raises Blocked where a graph would not hold the call."""
    callee, value = program.callee(node), program.value(node.func)
    if value.kind is Kind.CLASS:
        raise Blocked(f"it makes a new {shown(program, node.func)}: make it once, where the model is made", node)
    bodies = [callee] if isinstance(callee, Body) else _bodies(program, node, value)
    functions = tuple(each for each in bodies if isinstance(each, Body))
    if any(map(is_abstract, functions)):
        raise Blocked(f"what {shown(program, node.func)} does is left to subclasses: capture it in one of those", node)
    if callee in functions:
        return functions
    if any(keyword.arg in ("out", "inplace", None) for keyword in node.keywords):  # None: any of `**options`
        raise Blocked(f"{shown(program, node)} changes something in place: let it give a new tensor", node)
    if bodies:
        for name in (each for each in bodies if isinstance(each, str) and each.startswith("torch.")):
            _module(program, node, name.removesuffix(".forward"), strict)
    elif value.kind is Kind.MODULE and not _is_replaced(program, node.func):
        _module(program, node, value.name, strict)
    elif value.kind is Kind.LIBRARY:
        _library(program, node, value.name)
    elif isinstance(node.func, ast.Attribute):
        _method(program, node, node.func, region)
    else:
        raise Blocked(f"it isn't known whether a graph can capture {shown(program, node.func)}: {_BY_HAND}", node)
    return functions


def _is_replaced(program: Program, func: ast.expr) -> bool:
    is_entry = isinstance(func, ast.Attribute) and program.value(func.value).name == "torch.nn.ModuleDict"
    return is_entry and program.get(Modules).builders(func) == [None]


def _bodies(program: Program, node: ast.Call, value: Value) -> Sequence[Body | str]:
    """What a call of no plain function runs: bodies of modules, what only computes elsewhere.

    Empty where one of them is not known.
    """
    if value.kind is Kind.LIBRARY and value.name.partition(".")[0] not in ELSEWHERE:
        return [value.name] if program.computes_elsewhere(value.name) else ()
    is_module = value.kind in (Kind.MODULE, Kind.UNKNOWN)
    if not (is_module or value.kind is Kind.METHOD) or value.name.startswith("torch."):
        return ()
    bodies = program.get(Modules).bodies(node)
    names = [each for each in bodies if isinstance(each, str)]
    of_torch = [each for each in names if each.startswith("torch.nn.") and is_module]
    if program.get(_built_in_place) and of_torch:
        return ()
    return bodies if all(each in of_torch or program.computes_elsewhere(each) for each in names) else ()


def _module(program: Program, node: ast.Call, name: str, strict: bool) -> None:
    kind = torch_ops.class_kind(name) if name else None
    if name in _READING or ".Lazy" in name:
        raise Blocked(f"{shown(program, node.func)} may need values on the host: {_BY_HAND}", node)
    if kind is None or (kind == "container" and not name.endswith("Sequential")):
        raise Blocked(f"it isn't known whether a graph can capture {shown(program, node.func)}: {_BY_HAND}", node)
    if strict and "BatchNorm" in name:
        reason = "may count what is dropped, while training: use a norm without statistics, such as LayerNorm"
        raise Blocked(f"{shown(program, node.func)} {reason}", node)


def _library(program: Program, node: ast.Call, name: str) -> None:
    head, _, rest = name.partition(".")
    if head == "builtins":
        if rest not in _BUILTINS and not rest.endswith(_ERRORS):
            raise Blocked(f"`{rest}` does more than compute: {_LATER}", node)
        _check_handed_over(program, node, rest)
        return
    if head in ("random", "numpy") and "random" in name:
        reason = "draws a random number on the host: draw by torch, and use `torch.where`"
        raise Blocked(f"{shown(program, node)} {reason}", node)
    if name in _COMPUTES | _DESCRIBES | MODES or head in ("math", "typing") or torch_ops.class_kind(name) == "loss":
        return
    if head != "torch":
        raise Blocked(f"{shown(program, node.func)} does more than compute on the device: {_APART}", node)
    for prefix, reason in _REFUSED.items():
        if name.startswith(f"{prefix}."):
            raise Blocked(f"{shown(program, node.func)} {reason}", node)
    _function(program, node, name)


def _check_handed_over(program: Program, node: ast.Call, builtin: str) -> None:
    given = keyword_of(node, "key") or (node.args[0] if node.args and builtin in _RUNNING else None)
    if not (given is None or isinstance(given, ast.Lambda | ast.Constant)):
        raise Blocked(f"it isn't known what {shown(program, given)} does, which `{builtin}` calls: {_APART}", node)


def _function(program: Program, node: ast.Call, name: str) -> None:
    entry = torch_ops.of_function(name)
    if entry is None or entry.result in _OTHER_RESULTS:
        raise Blocked(f"{shown(program, node.func)} does more than compute: {_APART}", node)
    if name in _READING:
        raise Blocked(f"{shown(program, node.func)} may need values on the host: {_BY_HAND}", node)
    if entry.does("of_data") or (entry.does("factory") and entry.shares):
        raise Blocked(f"{shown(program, node)} copies from the host: make it once, where the model is made", node)
    if entry.does("factory") and not _is_on_device(node):
        raise Blocked(f"{shown(program, node)} is made on the host: give it a `device`", node)
    _check_size(program, node)


def works_in_place(program: Program, call: ast.Call) -> bool:
    value = program.value(call.func)
    if value.kind is not Kind.MODULE:
        return False
    names = program.get(_built_in_place)
    return value.name in names or (bool(names) and torch_ops.class_kind(value.name) == "container")


def _built_in_place(program: Program) -> frozenset[str]:
    built = ((program.qualified(each.func), each) for each in program.of_type(ast.Call))
    known = ((name, each, torch_ops.of_forward(name)) for name, each in built if name)
    return frozenset(
        name for name, each, operation in known
        if operation is not None and any(argument.happens(each) for argument in operation.writes)
    )  # fmt: skip


def _check_size(program: Program, node: ast.Call) -> None:
    entry = entry_of(program, node)
    if entry is not None and entry.does("sized") and any(is_tensor(program, each) for each in _sizes(entry, node)):
        raise Blocked(f"{shown(program, node)} reads a tensor on the host: use `torch.where`, or a number", node)
    if entry is not None and entry.syncs:
        raise Blocked(f"the size of {shown(program, node)} depends on data: keep all of it, and a mask", node)


def _sizes(entry: torch_ops.Operation, call: ast.Call) -> Iterator[ast.expr]:
    given = call.args[1:] if entry.does("like") else call.args
    for each in (*given, *(each.value for each in call.keywords)):
        yield from elements_of(each)


def is_tensor(program: Program, node: ast.expr) -> bool:
    return not is_metadata(node) and program.value(node).kind is Kind.TENSOR


def _is_on_device(node: ast.Call) -> bool:
    device = keyword_of(node, "device")
    named = device.args[0] if isinstance(device, ast.Call) and device.args else device
    return device is not None and not (isinstance(named, ast.Constant) and named.value in (None, "cpu"))


def _method(program: Program, node: ast.Call, func: ast.Attribute, region: ast.AST) -> None:
    name, owner = func.attr, program.value(func.value)
    if owner.kind is Kind.STRING:
        return
    if owner.kind in (Kind.SEQUENCE, Kind.MAPPING) or (owner.is_blank and name in _CHANGES):
        if name not in _READS and not (name in _CHANGES and is_own(program, region, func.value)):
            reason = "is changed, which a replay would not do: return it, and let the caller do that"
            raise Blocked(f"{shown(program, func.value)} {reason}", node)
        return
    entry = torch_ops.of_method(name)
    if name == "flatten_parameters":
        raise Blocked(f"{shown(program, func)} moves weights in memory: call it once, where the model is made", node)
    if (owner.kind is not Kind.TENSOR and not owner.is_blank) or entry is None:
        raise Blocked(f"it isn't known whether a graph can capture {shown(program, func)}: {_BY_HAND}", node)
    if entry.traits & {"move", "to_device", "to_host"} and not _stays(program, node, func, region):
        moved = f"is read on the host: {_LATER}"
        if not entry.does("to_host"):
            moved = "may be copied to the device: let the caller do that"
        raise Blocked(f"{shown(program, node)} {moved}", node)
    changes_itself = name in _STORAGE or (name.endswith("_") and not entry.writes)
    converts = name == "type" and len(node.args) == 1 and _is_type(program, node.args[0])
    if entry.does("of_data") or changes_itself or (entry.result in _OTHER_RESULTS and not converts):
        raise Blocked(f"{shown(program, node)} does more than compute on the device: {_APART}", node)
    _check_size(program, node)


def _stays(program: Program, node: ast.Call, func: ast.Attribute, region: ast.AST) -> bool:
    if not torch_ops.does(func.attr, "to_device"):
        return False
    owner, root = program.value(func.value), func.value
    is_argument = isinstance(root, ast.Name) and root.id in argument_names(region)
    if owner.on_device and owner.sure and not is_argument:
        return program.value(node).place is not Place.HOST
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "dtype")]
    whole = len(given) == len(node.args) + sum(keyword.arg != "memory_format" for keyword in node.keywords)
    follows = [each for each in given if owner.place is not Place.HOST and is_tensor(program, each)]
    return bool(given) and whole and all(each in follows or _is_type(program, each) for each in given)


def _is_type(program: Program, node: ast.expr) -> bool:
    name = program.qualified(node)
    if isinstance(node, ast.Attribute) and node.attr == "dtype":
        return True
    if isinstance(node, ast.Name) and not name:
        made = program.get(Flow).graph(node).definitions(node)
        given = [each.given if isinstance(each, Definition) else None for each in made]
        return bool(given) and all(isinstance(each, ast.Attribute) and each.attr == "dtype" for each in given)
    return name.startswith("torch.") and name.islower() and "." not in name.removeprefix("torch.")
