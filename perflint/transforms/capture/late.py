"""Tells what of a training step the host may do after its graph: reports, counts, lists and meters."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perflint import torch_ops
from perflint.analysis.data.origins import Origins
from perflint.analysis.heat.rarity import CLOCKS
from perflint.analysis.heat.syncs import LATER, storage_of
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import INTEGER, number_kind
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.scopes import arguments_of, bind
from perflint.syntax.walk import own_nodes, path_of, receiver_of, root_of, variables_in
from perflint.transforms.capture.calls import entry_of
from perflint.transforms.capture.step_obstacles import is_model
from perflint.transforms.host_code import PURE, is_differentiated_once, is_meters, is_output, item_of, raising
from perflint.transforms.rewrite import Blocked

_TIMES = CLOCKS | {"datetime.timedelta", *(f"time.{name}" for name in "ctime strftime localtime gmtime".split())}
_HOST_MATH = ("math.", "numpy.")
_GROWS = frozenset({"append", "extend"})
_FIXED = (Kind.NUMBER, Kind.STRING, Kind.TENSOR, Kind.LIBRARY, Kind.FUNCTION)  # what no call of the host fills
_TEXTS = frozenset({"__str__", "__repr__", "__format__", "extra_repr"})
_OF_WEIGHTS = frozenset("parameters named_parameters state_dict weight bias grad".split())
_COPIES = frozenset({"builtins.list", "builtins.tuple", "builtins.dict"})
_LEAVES_OR_WAITS = (ast.Lambda, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


@dataclass(frozen=True)
class Late:
    """A statement that goes after the step, where it reads tensors.

    It reads by `reads`, calls of `.item()` on what the step computes, or such tensors; and computes with its `terms`.
    """

    statement: ast.stmt
    reads: tuple[ast.expr, ...]
    terms: tuple[ast.Name, ...] = ()

    @property
    def read(self) -> list[ast.expr]:
        return [storage_of(item_of(each) or each) for each in self.reads]

    @property
    def tensors(self) -> list[ast.expr]:
        return [*self.read, *self.terms]

    @property
    def nodes(self) -> list[ast.AST]:
        inside = {node for each in self.reads for node in own_nodes(each)}
        return [each for each in own_nodes(self.statement) if each not in inside]

    def may_raise(self, program: Program) -> bool:
        calls = (each for each in self.nodes if isinstance(each, ast.Call))
        return raising(program, self.nodes) is not None or any(map(program.counts_elsewhere, calls))


def late(program: Program, statement: ast.stmt) -> Late | None:
    """The statement as one that may go after the step; None unless it is the host's alone.

    Raises Blocked where it shows what the step changes later.
    """
    if shown := next((each for each in own_nodes(statement) if _shows_weights(program, each)), None):
        if isinstance(statement, ast.If):
            raise Blocked("it reads what the step changes after that: read it behind the step", shown)
        return None
    if isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign):
        found = _deferred(program, statement) or _simple(program, statement)
        if found is not None or not isinstance(statement, ast.Expr):
            return found
    return _report(program, statement) if isinstance(statement, ast.If | ast.Expr) else None


def _shows_weights(program: Program, node: ast.AST) -> bool:
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    if isinstance(node, ast.Name) and is_of_weights(program, node):
        return not is_metadata(node)
    owner = program.value(node).node
    bases = program.lineage(owner) if isinstance(owner, ast.ClassDef) else ()
    texts = (each for base in bases for each in base.body if getattr(each, "name", "") in _TEXTS)
    parts = [each for text in texts for each in ast.walk(text) if isinstance(each, ast.Attribute)]
    return any(each.attr in _OF_WEIGHTS or program.value(each).kind is Kind.MODULE for each in parts)


def is_of_weights(program: Program, node: ast.expr) -> bool:
    return any(_is_of_weights(program, each) for each in program.get(Origins).of(node))


def _is_of_weights(program: Program, source: ast.AST) -> bool:
    while (copy := program.call_of(source, *_COPIES)) is not None and copy.args:
        source = copy.args[0]
    return getattr(source.func if isinstance(source, ast.Call) else source, "attr", "") in _OF_WEIGHTS


def _is_for_each(statement: ast.stmt, reads: Iterable[ast.AST]) -> bool:
    generators = (each for each in ast.walk(statement) if isinstance(each, ast.comprehension))
    own = {name for each in generators for name in variables_in(each.target)}
    return any(isinstance(part, ast.Name) and part.id in own for each in reads for part in ast.walk(each))


def _deferred(program: Program, statement: ast.stmt) -> Late | None:
    call = program.call_of(statement.value, LATER) if isinstance(statement, ast.Expr) else None
    if call is None or not call.args:
        return None
    report, *values = call.args
    values += [each.value for each in call.keywords]
    terms = list[ast.Name]()
    for each in values:  # and what is added to them
        tensor = each.value if isinstance(each, ast.Attribute) and torch_ops.does(each.attr, "to_host") else each
        if isinstance(each, ast.Tuple):
            values += each.elts
        elif isinstance(each, ast.Call) and program.qualified(each.func) == "builtins.len":
            values += each.args
        elif isinstance(tensor, ast.Name):
            terms += [tensor] if tensor is not each or _is_tensor(program, tensor) else []
        elif not isinstance(each, ast.Constant) and not (isinstance(each, ast.Attribute) and _is_steady(program, each)):
            return None
    return Late(statement, (), tuple(terms)) if isinstance(report, ast.Lambda) or path_of(report) else None


def _simple(program: Program, statement: ast.Expr | ast.Assign | ast.AugAssign) -> Late | None:
    if not _sets_names(statement):
        return None
    kept = _kept(program, statement)
    terms = tuple(each for each in kept if isinstance(each, ast.Name))
    reads = [each for each in own_nodes(statement) if isinstance(each, ast.expr) and _is_read(program, each)]
    reads += [each for each in kept if each not in terms]
    inside = {node for each in reads for node in own_nodes(each)}
    rest = [node for node in own_nodes(statement) if node not in inside]
    if _is_for_each(statement, reads) or not (reads or terms or _counts(program, statement)):
        return None
    for node in rest:
        if isinstance(node, _LEAVES_OR_WAITS) or (isinstance(node, ast.Attribute) and not _is_steady(program, node)):
            return None
        if isinstance(node, ast.Call) and not (_is_of_host(program, node) or storage_of(node) in kept):
            return None
        if (
            isinstance(node, ast.Name)
            and node not in terms
            and isinstance(node.ctx, ast.Load)
            and _is_tensor(program, node)
        ):
            return None
    return Late(statement, tuple(reads), terms)


def _report(program: Program, statement: ast.If | ast.Expr) -> Late | None:
    nodes = list(own_nodes(statement))
    statements = [each for each in nodes if isinstance(each, ast.stmt)]
    simple = [each for each in statements if not isinstance(each, ast.If | ast.Pass)]
    if not any(isinstance(each, ast.Call) and is_output(program, each) for each in nodes):
        return None
    for each in simple:
        if not isinstance(each, ast.Expr | ast.Assign | ast.AugAssign) or not _sets_names(each):
            return None
    graph, inside, terms = program.get(Flow).graph(statement), set(nodes), list[ast.Name]()
    operands = {each for node in nodes for each in _operands(program, node)}
    for node in nodes:
        if isinstance(node, _LEAVES_OR_WAITS):
            return None
        if isinstance(node, ast.Call) and not _is_of_report(program, node):
            return None
        if isinstance(node, ast.Attribute) and not _is_steady(program, node):
            return None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            given = graph.definitions(node)
            if not (_is_tensor(program, node) or node in operands or _may_be_weight(program, node, given)):
                continue
            if not all(isinstance(each, Definition) and each.node in inside for each in given):
                terms.append(node)
    return Late(statement, (), tuple(terms))


def _is_of_report(program: Program, call: ast.Call) -> bool:
    if _is_of_host(program, call) or program.qualified(call.func) in _TIMES:
        return True
    entry = entry_of(program, call) if program.callee(call) is None else None
    return entry is not None and not (entry.does("random") or any(True for each in entry.writes for _ in each.of(call)))


def _is_steady(program: Program, node: ast.Attribute) -> bool:
    around = program.parent(node)
    if isinstance(around, ast.Call) and around.func is node:
        return True
    operation = torch_ops.of_attribute(node.attr)
    if operation is not None and program.value(node.value).kind in (Kind.TENSOR, Kind.UNKNOWN):
        return node.attr != "grad" and isinstance(node.value, ast.Name)
    if node.attr == "param_groups" and program.value(node.value).kind is Kind.OPTIMIZER:
        group = program.parent(node)  # of which a step changes the parameters alone
        key = program.parent(group) if isinstance(group, ast.Subscript) else None
        return isinstance(key, ast.Subscript) and program.value(key.slice).literal == "lr"
    is_buffer = program.value(node.value).kind is Kind.MODULE and node.attr in program.get(_fixed_buffers)
    return is_buffer or program.value(node).kind is Kind.LIBRARY or is_setting(program, node)


def _fixed_buffers(program: Program) -> frozenset[str]:
    registered = (each for each in program.of_type(ast.Call) if receiver_of(each, "register_buffer") is not None)
    names = {each.args[0].value for each in registered if each.args and isinstance(each.args[0], ast.Constant)}
    uses = [each for each in program.of_type(ast.Attribute) if each.attr in names]
    others = {each.attr for each in uses if not _is_computed_with(program, each)}
    return frozenset(map(str, names - others)) if "buffers(" not in program.text else frozenset()


def _is_computed_with(program: Program, node: ast.expr) -> bool:
    around = program.parent(node)
    if isinstance(around, ast.Subscript) and isinstance(around.ctx, ast.Load):
        return _is_computed_with(program, around)
    if isinstance(around, ast.Attribute):
        entry = torch_ops.of_method(around.attr)
        return entry is not None and not (entry.in_place or entry.does("view") or entry.does("keeping"))
    return isinstance(around, ast.BinOp | ast.Compare)


def is_setting(program: Program, node: ast.Attribute) -> bool:
    """May it be a number or text in an attribute of an object that is no module, which may count calls?"""
    value = program.value(node)
    counts = program.value(node.value).kind is Kind.MODULE or is_model(program, node.value)
    owner = value.owner if value.kind is Kind.METHOD else None
    is_part = owner is not None and owner.kind is Kind.METHOD  # as in `self.args.epochs`
    may_be = (value.is_blank or is_part) and node.attr not in program.get(_optimized)
    return bool(path_of(node)) and not counts and (value.kind in (Kind.NUMBER, Kind.STRING) or may_be)


def _optimized(program: Program) -> frozenset[str]:
    made = [each for each in program.of_type(ast.Call) if program.value(each).kind is Kind.OPTIMIZER]
    given = [bind(each, ("params",)).get("params") for each in made]
    nodes = (node for each in given if each is not None for node in ast.walk(each))
    return frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute))


def changed_by(program: Program, late: Late) -> set[str]:
    parts: list[ast.expr] = [each.target for each in late.nodes if isinstance(each, ast.AugAssign)]
    for call in (node for node in late.nodes if isinstance(node, ast.Call)):
        func, name = call.func, program.qualified(call.func)
        is_pure = name in PURE or name in _TIMES or name == LATER or name.startswith("math.")
        if not is_pure and not is_metadata(call) and not (late.terms and entry_of(program, call)):
            is_method = isinstance(func, ast.Attribute) and torch_ops.of_method(func.attr) is None
            parts += [func.value] if is_method and isinstance(func, ast.Attribute) else []
            parts += () if is_output(program, call) else [*call.args, *(each.value for each in call.keywords)]
    names = (node for each in parts for node in ast.walk(each) if isinstance(node, ast.Name))
    return {each.id for each in names if program.value(each).kind not in _FIXED}


def only_reads(program: Program, name: ast.Name) -> bool:
    node: ast.expr = name
    while True:
        around = program.parent(node)
        call = program.parent(around) if isinstance(around, ast.Attribute) else None
        entry = torch_ops.of_method(around.attr) if isinstance(around, ast.Attribute) else None
        if not isinstance(call, ast.Call) or entry is None or entry.in_place:
            break
        if not (entry.does("view") or entry.does("keeping")):
            return True
        node = call
    if isinstance(around, ast.AugAssign):
        return program.value(around.target).kind in (Kind.NUMBER, Kind.TENSOR)
    is_shown = isinstance(around, ast.Call) and (is_output(program, around) or program.qualified(around.func) in PURE)
    return is_shown or isinstance(around, ast.BinOp | ast.Compare | ast.FormattedValue)


def is_private(program: Program, name: ast.Name) -> bool:
    graph = program.get(Flow).graph(name)
    uses = [each for each in graph.values if isinstance(each, ast.Name) and each.id == name.id]
    is_own = name.id not in graph.shared and name.id not in graph.captured
    return is_own and bool(uses) and all(_keeps_private(program, each) for each in uses)


def _keeps_private(program: Program, name: ast.Name) -> bool:
    around = program.parent(name)
    if isinstance(around, ast.Assign):
        return around.targets == [name] and isinstance(around.value, ast.List)
    if isinstance(around, ast.Attribute):
        call = program.parent(around)
        return around.attr in _GROWS and isinstance(call, ast.Call) and call.func is around
    if isinstance(around, ast.Call):
        function, given = program.qualified(around.func), [*around.args, *around.keywords]
        return (function in PURE and len(given) == 1) or function.startswith("numpy.")
    return isinstance(around, ast.AugAssign) and around.target is name


def _kept(program: Program, statement: ast.stmt) -> list[ast.expr]:
    """What `total += loss.detach() * n`, `losses.append(loss.detach())` or a meter keeps."""
    found = list[ast.expr]()
    meter = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(meter, ast.Call) and is_meters(program, meter) and is_differentiated_once(program):
        return [each for each in arguments_of(meter) if _is_kept(program, each)]
    if isinstance(statement, ast.Expr) and receiver_of(call := statement.value, "append") is not None:
        given = call.args if isinstance(call, ast.Call) else []
        found = [each for each in given if len(given) == 1 and _has_no_graph(program, each)]
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        factors = [statement.value]
        for each in factors:
            factors += [each.left, each.right] if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult) else []
        found = [each for each in factors if isinstance(storage_of(each), ast.Name) or _has_no_graph(program, each)]
    target = getattr(getattr(statement, "target", None), "id", "")
    bases = [each for each in map(storage_of, found) if program.value(each).kind is Kind.TENSOR]
    return bases if not any(isinstance(each, ast.Name) and each.id == target for each in bases) else []


def _is_kept(program: Program, node: ast.expr) -> bool:
    value = program.value(node)
    is_tensor = value.kind is Kind.TENSOR and value.place is not Place.HOST and not is_metadata(node)
    return is_tensor and not any(_is_read(program, each) for each in own_nodes(node))


def _has_no_graph(program: Program, node: ast.expr) -> bool:
    links = set(own_nodes(node)) - set(own_nodes(storage_of(node)))
    names = {each.attr for each in links if isinstance(each, ast.Attribute)}
    is_cut = bool(names & {"detach", "data"}) and not any(each.endswith("_") for each in names)
    return is_cut or number_kind(program, node) == INTEGER


def _is_read(program: Program, node: ast.AST) -> bool:
    tensor = item_of(node)
    return (
        tensor is not None
        and isinstance(node, ast.Call)
        and not node.args
        and program.value(tensor).kind is Kind.TENSOR
    )


def _may_be_weight(program: Program, name: ast.Name, given: Iterable[object]) -> bool:
    is_other_name = any(isinstance(each, Definition) and isinstance(each.source, ast.Attribute) for each in given)
    return program.value(name).is_blank and is_other_name


def _operands(program: Program, node: ast.AST) -> Iterator[ast.Name]:
    if not isinstance(node, ast.Call) or is_metadata(node) or entry_of(program, node) is None:
        return
    for each in (receiver_of(node), *arguments_of(node)):
        root = root_of(each) if each is not None else None
        if isinstance(root, ast.Name) and program.value(root).kind not in _FIXED:
            yield root


def _sets_names(statement: ast.Expr | ast.Assign | ast.AugAssign) -> bool:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return all(each is None or isinstance(each, ast.Name) for each in targets)


def _counts(program: Program, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.AugAssign):
        return program.value(statement.target).kind in (Kind.NUMBER, Kind.STRING)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _is_tensor(program: Program, name: ast.Name) -> bool:
    value, around = program.value(name), program.parent(name)
    if isinstance(around, ast.Attribute) and is_metadata(around):
        return False
    call = program.parent(around) if around is not None else None
    measured = program.call_of(around, "builtins.len") or (isinstance(call, ast.Call) and is_metadata(call))
    return value.kind is Kind.TENSOR and value.place is not Place.HOST and not measured


def _is_of_host(program: Program, call: ast.Call) -> bool:
    name, func = program.qualified(call.func), call.func
    if name in PURE or is_output(program, call) or is_metadata(call):
        return True
    if name.startswith(_HOST_MATH) and "random" not in name:
        return True
    if not isinstance(func, ast.Attribute):
        return False
    owner = program.value(func.value)
    if owner.kind is Kind.STRING:
        return True
    return is_meters(program, call) or (
        program.callee(call) is None and func.attr in _GROWS and owner.kind is Kind.SEQUENCE
    )
