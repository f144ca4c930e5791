"""What can be done about a costly read: its fix, or what stands in the way and what to do by hand."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.heat.syncs import Sync, first_reads, hot_syncs, is_repeated
from perflint.analysis.ir.flow import Flow
from perflint.analysis.links import Heat, HotPlace
from perflint.analysis.memory.dispatch import is_scripted
from perflint.analysis.memory.library import ARRAYS
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import FUNCTIONS, LOOPS, TRIES, name_called, own_nodes, receiver_of
from perflint.transforms.accumulate import accumulation
from perflint.transforms.collected import slot_store
from perflint.transforms.deferral import deferral
from perflint.transforms.host_code import read_of
from perflint.transforms.listed import listed
from perflint.transforms.operations import ReplaceStatements, expression, new
from perflint.transforms.rewrite import Blocked, Rewrite, check_alone, of_torch, rewrite


@dataclass(frozen=True)
class Remedy:
    """A loop's fixes, its kind if proved to be another, and why; `blocked` says why there are none."""

    kind: str
    because: str
    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


@dataclass(frozen=True)
class TrainingStep:
    """A training step, at its backward pass, and the fix that makes it one CUDA graph; `blocked` says why not."""

    backward: ast.Call
    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


def remedies(program: Program) -> list[HostRead]:
    found = hot_syncs(program)
    first = list(first_reads(program, found))
    at_once = {sync: fix for sync in first if (fix := listed(program, sync, found))}  # gains whatever else waits
    reads = [_remedy(program, sync, found, at_once.get(sync)) for sync in first]
    of_loop: dict[HotPlace | None, list[HostRead]] = defaultdict(list)
    for read in reads:
        of_loop[program.hot_by(read.sync.node)].append(read)
    return [
        read if read.sync in at_once else _beside(program, read, of_loop[program.hot_by(read.sync.node)])
        for read in reads
    ]


def _remedy(program: Program, sync: Sync, found: list[Sync], fix: Fix | None) -> HostRead:
    repeats = [other for other in found if is_repeated(program, sync, other)]
    try:
        return HostRead(sync, tuple(repeats), (fix or _fix(program, sync, repeats),), "")
    except Blocked as reason:
        return HostRead(sync, tuple(repeats), (), str(reason) or _advice(program, sync))


def _fix(program: Program, sync: Sync, repeats: list[Sync]) -> Fix:
    fix = _asserted(program, sync) or _accumulation(program, sync)
    if fix is None:
        deferral(program, [sync])
    reported = [other for other in repeats if not _is_accumulated(program, other)]
    if fix is None:
        return deferral(program, [sync, *reported])
    return _together(fix, deferral(program, reported)) if reported else fix


def _asserted(program: Program, sync: Sync) -> Fix | None:
    """The fix by which the device tests what is asserted, where the message reads nothing more."""
    claim = program.parent(sync.node)
    if not isinstance(claim, ast.Assert) or claim.test is not sync.node or is_scripted(program):
        return None
    value = program.value(claim.test)
    is_caught = any(isinstance(each, TRIES) for each in program.ancestors(claim))
    if is_caught or not (value.kind is Kind.TENSOR and value.sure) or not _is_short(claim.msg):
        return None
    check_alone(program, claim)
    given = [claim.test] if claim.msg is None else [claim.test, claim.msg]
    test = expression("{f}({*given})", f=of_torch(program, "_assert_async", claim), given=given)
    title = "let the device test it, which fails later, with an error of CUDA for the whole process"
    return Fix(title, Safety.BEHAVIOUR, rewrite(program, ReplaceStatements((claim,), (new(ast.Expr(test)),))))


def _is_short(message: ast.expr | None) -> bool:
    """May a kernel be given the message?"""
    return message is None or (isinstance(text := getattr(message, "value", 0), str) and len(text.encode()) < _MESSAGE)


def _is_accumulated(program: Program, repeat: Sync) -> bool:
    try:
        is_accumulated = _accumulation(program, repeat) is not None
        if not is_accumulated:
            deferral(program, [repeat])
    except Blocked:
        line = program.source.position(repeat.start)[0]
        raise Blocked(f"line {line} reads the same value in every iteration: let both do so every few steps") from None
    return is_accumulated


def _accumulation(program: Program, sync: Sync) -> Fix | None:
    if (fix := slot_store(program, sync)) is not None:
        return fix
    try:
        return accumulation(program, sync)
    except Blocked as reason:
        if str(reason):
            raise
    return None  # the read is of another kind


def _together(one: Fix, other: Fix) -> Fix:
    assert isinstance(one.change, Rewrite) and isinstance(other.change, Rewrite)
    change = Rewrite(one.change.program, (*one.change.operations, *other.change.operations))
    return Fix(f"{one.title}; {other.title}", one.safety, change, other.requires)


_MESSAGE = 250  # bytes that the device keeps
_SHOWN = 5  # lines
_FEW = 1  # waits that a fix may leave: behind it, the host runs ahead until that one


class HostRead(NamedTuple):
    """A costly read with its fixes, or what blocks them; `repeats` read the value again."""

    sync: Sync
    repeats: tuple[Sync, ...]
    fixes: tuple[Fix, ...]
    blocked: str


def _beside(program: Program, read: HostRead, of_loop: Sequence[HostRead]) -> HostRead:
    """`read`, whose fixes say which waits `of_loop` stay, and aren't applied without effect.

    Where the host waits again before launching anything of weight, or several times more, nothing is gained until those
    waits go.
    """
    if not read.fixes:
        return read
    (fix,) = read.fixes
    others = [each for each in of_loop if each is not read]
    left = [each for each in others if not any(other.is_safe or other.requires == fix.requires for other in each.fixes)]
    near = [each for each in left if _is_near(program, read.sync, each.sync)]
    stuck = [each.sync for each in near if not each.fixes] or [
        each for each in _unknown(program, read.sync, of_loop) if _is_near(program, read.sync, each)
    ]
    costly = [each.sync for each in left if not each.fixes]
    is_little = fix.requires or len(costly) > _FEW or any(_is_deeper(program, read.sync, each) for each in costly)
    if stuck or (is_little and costly):
        gain, wait = ("nothing", stuck[0]) if stuck else ("little", costly[0])
        return read._replace(fixes=(), blocked=f"{gain} is gained while line {_line(program, wait)} waits, too")
    lesser = [each for each in others if any(other.safety is Safety.BEHAVIOUR for other in each.fixes)]
    if with_it := next((each.sync for each in lesser if _is_near(program, read.sync, each.sync)), None):
        told = f", which goes with line {_line(program, with_it)}"
        title = fix.title if fix.safety is Safety.BEHAVIOUR else f"{fix.title}{told}"
        fix = replace(fix, safety=Safety.BEHAVIOUR, title=title)  # to go with it
    if requires := next((other.requires for each in near for other in each.fixes if other.requires), ""):
        fix, left = replace(fix, requires=requires), [each for each in left if not each.fixes]
    return read._replace(fixes=(replace(fix, title=f"{fix.title}{_told(program, left)}"),))


def _told(program: Program, left: Sequence[HostRead]) -> str:
    if not left:
        return ""
    lines = list(dict.fromkeys(f"line {_line(program, each.sync)}" for each in left))
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    count = "another wait remains" if len(left) == 1 else f"{len(left)} other waits remain"
    return f"; {count}: {', '.join(lines[:_SHOWN])}{more}"


def _unknown(program: Program, read: Sync, reads: Sequence[HostRead]) -> Iterator[Sync]:
    known = {sync.node for each in reads for sync in (each.sync, *each.repeats)}
    block = program.block_of(program.statement_of(read.node))
    simple = (each for each in block if isinstance(each, ast.Assign | ast.AugAssign | ast.Expr))
    for node in (node for each in simple for node in own_nodes(each)):
        tensor = receiver_of(node, "item", "tolist")
        if not isinstance(node, ast.Call) or tensor is None or node.args or node in known:
            continue
        value = program.value(tensor)
        may_wait = value.kind in (Kind.UNKNOWN, Kind.TENSOR) and value.place is not Place.HOST
        if may_wait and ast.dump(tensor) != ast.dump(read.tensor):
            yield Sync(node, tensor, "item", *program.span(node), True)


def _is_deeper(program: Program, read: Sync, other: Sync) -> bool:
    own, inner = ([each for each in program.ancestors(sync.node) if isinstance(each, LOOPS)] for sync in (read, other))
    return bool(own) and own[0] in inner[1:]


def _line(program: Program, sync: Sync) -> int:
    return program.source.position(sync.start)[0]


def _is_near(program: Program, read: Sync, other: Sync) -> bool:
    own, statement = program.statement_of(read.node), program.statement_of(other.node)
    block = program.block_of(statement)
    around = next((each for each in (own, *program.ancestors(own)) if each in block), None)
    if around is None or program.function_of(own) is not program.function_of(statement):
        return False
    start, end = sorted((read.end, other.end))
    first, last = sorted((block.index(statement), block.index(around)))
    nodes = (node for each in block[first : last + 1] for node in ast.walk(each))
    work = (node for node in nodes if isinstance(node, ast.Call | ast.For | ast.While) and _is_work(program, node))
    return not any(start < program.span(node)[1] < end for node in work)


def _is_work(program: Program, node: ast.Call | ast.For | ast.While) -> bool:
    if not isinstance(node, ast.Call):
        return True
    if program.qualified(node.func):
        return False
    method = program.value(node.func)
    return method.owner is None or method.owner.kind is not Kind.TENSOR or method.name == "backward"


_PRINTERS = frozenset(
    "print info debug warning write log set_postfix set_description set_postfix_str set_description_str add_scalar"
    " add_scalars log_dict".split()
)
_METERS = frozenset({"update", "append", "update_state"})
_COMPUTING = frozenset({"torch", "numpy", "cupy", "scipy"})  # their log() reports nothing
_TO_TEXT = frozenset({"builtins.str", "builtins.repr", "builtins.format"})
_DECIDES = "the value decides what runs next: test it every few steps, or use torch.where"
_PRINTED = "the value is printed in every iteration: print every few steps, or after the loop"
_TEXT = "the value becomes text in every iteration: format it where it is shown, every few steps or after the loop"
_COMBINED = "a tensor is computed from the number: compute it from the tensor, and all of it stays on the device"
_KEPT = "keeps the number: put the detached tensor there, and read it where it is shown"
_INDEX = "Python needs the index on the host: keep the sizes there from the start"
_SUBSCRIPT = "Python needs the index on the host: copy all that the loop needs in front of it, once, by `.tolist()`"
_SELECTED = "the size of the result depends on the mask: torch.where, or a product with the mask, keeps the size"
_MANY = "the size of the result depends on the values: use a mask, or torch.where with three arguments"
_UNKNOWN_MATH = "torch has no such function: compute it from the tensors on the device, or every few steps"
_SILENT = {  # reads that nobody wrote down as such
    "mask": _SELECTED,
    "masked_select": _SELECTED,
    "nonzero": _MANY,
    "argwhere": _MANY,
    "if": _DECIDES,
    "max": "torch.max of the tensor, or of stacked ones, stays on the device",
    "min": "torch.min of the tensor, or of stacked ones, stays on the device",
    "index": _INDEX,
    "writer": "the value is written in every iteration: write it every few steps, or after the loop",
    "list": "torch.stack puts tensors together on the device",
    "unique": "the number of values depends on the data, and the host has to wait for it",
    "unique_consecutive": "the number of values depends on the data, and the host has to wait for it",
}
_BUILTINS = {
    **dict.fromkeys(
        ("abs", "round", "sum", "pow", "divmod"), "torch has a function for this, which computes on the device"
    ),
    "range": _INDEX,
    "max": _SILENT["max"],
    "min": _SILENT["min"],
}


def _advice(program: Program, sync: Sync) -> str:
    if not sync.explicit and sync.kind in _SILENT:
        return _SILENT[sync.kind]
    if not sync.explicit and sync.kind == "print":
        return _of_text(program, sync.node)
    if not sync.explicit and sync.kind == "math" and isinstance(sync.node, ast.Call):
        return _of_math(program, sync.node)
    top = read_of(program, sync).top
    return (
        _of_value(program, sync, top)
        or _of_variable(program, sync, top)
        or f"Python computes with the value: {_instead(sync)}"
    )


def _of_value(program: Program, sync: Sync, value: ast.expr) -> str:
    child: ast.AST = value
    for parent in program.ancestors(child):
        if isinstance(parent, ast.FormattedValue):
            return _of_text(program, parent)
        if isinstance(parent, ast.BinOp) and program.value(parent).kind is Kind.STRING:
            return _of_text(program, parent)
        if isinstance(parent, ast.BinOp | ast.Compare) and program.value(parent).kind is Kind.TENSOR:
            return _COMBINED
        if isinstance(parent, ast.Call) and child is not parent.func:
            return _of_call(program, sync, parent)
        if isinstance(parent, ast.Return):
            return "the function returns the number: return the tensor, and read it where it is reported"
        if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert) and child is parent.test:
            return _DECIDES
        if isinstance(parent, ast.Slice):
            return _INDEX
        if isinstance(parent, ast.Subscript) and child is parent.slice:
            return _SUBSCRIPT
        if isinstance(parent, (ast.stmt, *FUNCTIONS)):
            break
        child = parent
    is_kept = isinstance(program.parent(value), ast.Dict | ast.List) and _is_number(sync)
    return f"a dict or list {_KEPT}" if is_kept else ""


def _of_variable(program: Program, sync: Sync, value: ast.expr) -> str:
    statement = program.statement_of(value)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is value else None
    if isinstance(target, ast.Subscript | ast.Attribute):
        return f"`{ast.unparse(target)}` {_KEPT}"
    if not isinstance(target, ast.Name):
        return ""
    uses = sorted(program.get(Flow).graph(target).uses.get(target, ()), key=lambda use: (use.lineno, use.col_offset))
    hot = [use for use in uses if program.heat(use) is not Heat.ONCE]
    if uses and not hot:
        return f"only line {uses[0].lineno} uses `{target.id}`, now and then: read it there"
    told = ((use.lineno, _of_value(program, sync, use)) for use in hot)
    line, said = next(((line, said) for line, said in told if said), (0, ""))
    if said:
        return f"line {line}: {said}"
    if not hot:
        return ""
    return f"line {hot[0].lineno} computes with `{target.id}`: {_instead(sync)}"


def _is_number(sync: Sync) -> bool:
    return sync.kind in ("item", "float", "int", "bool")


def _instead(sync: Sync) -> str:
    if _is_number(sync):
        read = "`.item()`" if sync.kind == "item" else f"`{sync.kind}(...)`"
        return f"leave out {read}, so that this is done on the device, and read its result after the loop"
    return "compute on the device with torch's functions and copy the result, or copy everything once after the loop"


def _of_call(program: Program, sync: Sync, call: ast.Call) -> str:
    name, qualified = name_called(call), program.qualified(call.func)
    head, _, rest = qualified.partition(".")
    what = "a copy on the host" if sync.kind != "item" and torch_ops.does(sync.kind, "to_host") else "a Python number"
    if head in ("math", "cmath"):
        return _of_math(program, call)
    if _reports(program, call):
        return "the value is reported in every iteration: report every few steps, or after the loop"
    if qualified in _TO_TEXT or (name == "format" and _owner(program, call) is Kind.STRING):
        return _of_text(program, call)
    if head == "builtins":
        return _BUILTINS.get(rest, "")
    if _is_meter(program, call):
        return f"`{ast.unparse(call.func)}` gets {what}: pass the detached tensor, and convert it where it is reported"
    return f"`{ast.unparse(call.func)}` gets {what} in every iteration: pass the tensor, if it accepts one"


def _of_math(program: Program, call: ast.Call) -> str:
    name = program.qualified(call.func).rpartition(".")[2]
    known = torch_ops.of_function(f"torch.{name}") is not None
    return f"`torch.{name}` does the same on the device: give it the tensor" if known else _UNKNOWN_MATH


def _of_text(program: Program, node: ast.AST) -> str:
    for each in (node, *program.ancestors(node)):
        if isinstance(each, ast.Call) and _reports(program, each):
            return _PRINTED
        if isinstance(each, (ast.stmt, *FUNCTIONS)):
            break
    return _TEXT


def _reports(program: Program, call: ast.Call) -> bool:
    head = program.qualified(call.func).partition(".")[0]
    if name_called(call) not in _PRINTERS or program.callee(call) is not None:
        return False
    return head not in _COMPUTING and _owner(program, call) not in ARRAYS


def _is_meter(program: Program, call: ast.Call) -> bool:
    of_set = name_called(call) == "update" and _owner(program, call) is Kind.SEQUENCE
    return name_called(call) in _METERS and not program.qualified(call.func) and not of_set


def _owner(program: Program, call: ast.Call) -> Kind:
    owner = receiver_of(call)
    return program.value(owner).kind if owner is not None else Kind.UNKNOWN
