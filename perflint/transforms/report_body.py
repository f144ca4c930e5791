"""The call of `later` by which output is shown when it has arrived: a function, and what it is given."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perflint import torch_ops
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import GradMode, Program
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of, receiver_of
from perflint.torch_ops import libraries
from perflint.transforms import host_code
from perflint.transforms.host_code import link_of, reads_device, tensor_read, writes_streams
from perflint.transforms.operations import Replace, again, in_rows, located, new, reference
from perflint.transforms.rewrite import Blocked, Taken, check_written, names_in, shown

_STRUCTURE = (ast.JoinedStr, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, ast.Starred)
_PURE = frozenset(
    f"builtins.{name}" for name in "round str int float abs max min sum format bool tuple list dict divmod".split()
)
_NUMERIC = re.compile(r".*[eEfFgGdn%]$")
_CODES = re.compile(r"%(?:\([^)]*\))?[-#0 +]*\d*(?:\.\d+)?([a-zA-Z%])")
_NUMBERS = frozenset("diouxXeEfFgG")
_CONVERSIONS = ("float", "int")
_WIDTH = 80  # of a text, from which on it has a line of its own


@dataclass(frozen=True)
class _Value:
    """A part of an output: the value of `node`, or what the method `read` of the tensor `base` gives for it later."""

    node: ast.expr
    base: ast.expr
    read: str = ""

    def given(self) -> ast.expr:
        base = again(self.base) if self.base is self.node else self.base
        return new(ast.Attribute(base, self.read, ast.Load())) if self.read else base

    @property
    def code(self) -> str:
        """The same for values that are the same."""
        return f"{ast.dump(self.base)}.{self.read}" if path_of(self.base) else str(id(self))


class ReportBody:
    """What `later` is given for `call`, where `changes` are made in the parts of that; raises Blocked.

    It is the function of `call` with its arguments, or, for a text that is made of them, a lambda; so is it for a log,
    which tells where it is called. Where a value that is no tensor may change, the runtime doesn't wait.
    """

    def __init__(self, program: Program, call: ast.Call) -> None:
        self.program, self._call = program, call
        self.changes: list[Replace] = []
        self.keywords = list[ast.keyword]()
        self._values: list[_Value] = []
        self._taken = Taken({*names_in(call)})
        self._implicit = program.get(host_code.implicit_reads)
        for node in ast.walk(call):
            if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Lambda):
                raise Blocked("it does more than output", node)
        owner = receiver_of(call)
        if owner is not None and not writes_streams(program, call) and not host_code.is_log(program, owner):
            self._bind(owner)
        self._arguments(call)
        self._check_order()
        self.given = self._as_it_is() or self._of_text() or self._of_names()

    # -- its forms

    def _as_it_is(self) -> list[ast.expr]:
        call, parts = self._call, [*self._call.args, *(each.value for each in self._call.keywords)]
        if host_code.is_leveled(call) or not self._hand_over(parts):
            return []
        self.keywords = call.keywords
        return [call.func, *call.args]

    def _of_text(self) -> list[ast.expr]:
        """A lambda for what the only text that is shown is made of; nothing for other calls."""
        call, text = self._call, self._call.args[0] if self._call.args else None
        name, given, filled = self._taken.fresh("values"), call.args[1:], list[ast.expr]()
        star: ast.expr = new(ast.Starred(reference(name), ast.Load()))
        several = new(ast.arguments([], [], new(ast.arg(name)), [], [], None, []))
        if isinstance(text, ast.Constant) and host_code.is_leveled(call):
            filled = [text, star]
        elif isinstance(text, ast.BinOp) and isinstance(text.right, ast.Tuple) and not given:
            given, filled = text.right.elts, [new(ast.BinOp(text.left, text.op, reference(name)))]
            if text.right.lineno == text.right.end_lineno:
                given, several = [text.right], new(ast.arguments([], [new(ast.arg(name))], None, [], [], None, []))
        elif isinstance(text, ast.Call) and _is_format(text.func) and not text.keywords and not given:
            given, filled = text.args, [new(ast.Call(text.func, [star], []))]
        parts = {node for part in given for node in ast.walk(part)}
        if not filled or not all(each.node in parts for each in self._values) or not self._hand_over(given):
            return []
        made = new(ast.Call(call.func, filled, call.keywords))
        is_long = call.col_offset + len(ast.unparse(made)) > _WIDTH
        return [new(ast.Lambda(several, in_rows(made, 1) if is_long else made)), *given]

    def _of_names(self) -> list[ast.expr]:
        """A lambda with a name for each value."""
        names, given = list[ast.arg](), list[ast.expr]()
        for code in dict.fromkeys(each.code for each in self._values):
            same = [each for each in self._values if each.code == code]
            name = self._fresh(same)
            names.append(new(ast.arg(name)))
            given.append(same[0].given())
            for each in same:
                if getattr(each.node, "id", "") != name:
                    self._replace(each.node, reference(name))
        return [new(ast.Lambda(new(ast.arguments([], names, None, [], [], None, [])), self._call)), *given]

    def _hand_over(self, parts: Sequence[ast.expr]) -> bool:
        """Put methods of tensors where `parts` read them, if nothing is computed with what they give."""
        if not all(map(self._is_placed, parts)):
            return False
        inside = {node for part in parts for node in ast.walk(part)}
        for each in self._values:
            if each.read and each.node in inside:
                self._replace(each.node, each.given())
        return True

    def _is_placed(self, node: ast.expr) -> bool:
        reads = {each.node for each in self._values if each.read}
        if node in reads or reads.isdisjoint(ast.walk(node)):
            return True
        children = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        return isinstance(node, ast.Tuple | ast.List | ast.Dict) and all(map(self._is_placed, children))

    def _replace(self, node: ast.expr, other: ast.expr) -> None:
        check_written(self.program, node)
        self.changes.append(Replace(node, located(other, node)))

    # -- the parts of the call

    def _arguments(self, call: ast.Call) -> None:
        codes = _codes(call.args[0]) if call.args and host_code.is_leveled(call) else []
        codes = ["f"] if receiver_of(call, "add_scalar") is not None else codes
        for number, argument in enumerate(call.args):
            self._part(argument, is_number=0 < number <= len(codes) and codes[number - 1] in _NUMBERS)
        for each in call.keywords:
            self._part(each.value, is_number=each.arg == "scalar_value")

    def _part(self, node: ast.expr, *, is_number: bool = False) -> None:
        """Note what `node` reads; `is_number`: it is shown in the format of a number."""
        base = tensor_read(self.program, node)
        if base is not None:
            self._read(node, base, is_number=is_number)
        elif isinstance(node, ast.Constant):
            return
        elif self._is_tensor(node):
            if not is_number:
                raise Blocked(f"{shown(self.program, node)} is shown as a tensor, which tells its device: use .item()")
            self._read(node, node, is_number=True)
        elif isinstance(node, ast.Name):
            self._bind(node)
        elif isinstance(node, ast.JoinedStr):
            self._formatted(node)
        elif self._is_structure(node):
            self._structure(node)
        elif self._reads(node):
            raise Blocked(f"{shown(self.program, node)} computes with the value")
        else:
            self._bind(node)

    def _structure(self, node: ast.expr) -> None:
        if isinstance(node, ast.Call):
            numbers = _fields(node)
            for number, argument in enumerate(node.args):
                self._part(argument, is_number=str(number) in numbers)
            for each in node.keywords:
                self._part(each.value, is_number=each.arg in numbers)
            return
        codes = _codes(node.left) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) else []
        if codes and isinstance(node, ast.BinOp):
            parts = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            for part, code in zip(parts, [*codes, *("s" for _ in parts)], strict=False):
                self._part(part, is_number=code in _NUMBERS)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._part(child)

    def _formatted(self, node: ast.JoinedStr) -> None:
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                parts = value.format_spec.values if isinstance(value.format_spec, ast.JoinedStr) else []
                last = parts[-1] if parts else None
                form = last.value if isinstance(last, ast.Constant) else ""
                is_number = value.conversion == -1 and isinstance(form, str) and bool(_NUMERIC.match(form))
                self._part(value.value, is_number=is_number)
                if isinstance(value.format_spec, ast.JoinedStr):
                    self._formatted(value.format_spec)

    def _is_structure(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            func = node.func
            is_format = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Constant)
            name = self.program.qualified(func)
            return (is_format or name in _PURE or name.startswith("math.")) and self._reads(node)
        return isinstance(node, _STRUCTURE)

    # -- reads

    def _read(self, node: ast.expr, base: ast.expr, *, is_number: bool) -> None:
        links = self._links(node)
        reads = [each for each in links if each in _CONVERSIONS or torch_ops.does(each, "to_host")]
        is_tensor = reads[:1] == ["cpu"]
        is_linked = {"detach", "data"} & {*links} or self.program.grad_mode(node, callers=False) is GradMode.OFF
        if is_tensor and not is_number and not is_linked:
            raise Blocked(f"{shown(self.program, node)} is shown as a tensor, which may tell its graph: detach it")
        is_read = not self.program.get(host_code.waiting_reads).isdisjoint(ast.walk(base))
        if is_read and not isinstance(base, ast.Name):
            raise Blocked(f"{shown(self.program, base)} is computed of a value that is read")
        is_whole = is_number and "int" not in links
        while not is_whole and links and links[0] in _CONVERSIONS and isinstance(node, ast.Call):
            node, links = node.args[0], links[1:]
        reads = [each for each in links if each in reads and each not in _CONVERSIONS]
        self._values.append(_Value(node, base, "item" if is_whole or not reads else reads[0]))

    def _links(self, node: ast.expr) -> list[str]:
        """How `node` is read of a tensor, the last first."""
        links = list[str]()
        while (link := link_of(self.program, node) or _listing(node)) is not None:
            links.append(link[0])
            node = link[1]
        return links

    def _is_tensor(self, node: ast.expr) -> bool:
        return node in self._implicit or (self.program.value(node).on_device and self.program.value(node).sure)

    def _reads(self, node: ast.AST) -> bool:
        return reads_device(self.program, node) or any(
            isinstance(each, ast.expr) and self._is_tensor(each) for each in ast.walk(node)
        )

    # -- values

    def _bind(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            is_fixed = self._is_fixed(node)
        elif isinstance(node, ast.GeneratorExp):
            raise Blocked(f"{shown(self.program, node)} can't be evaluated twice")
        else:
            is_fixed = self.program.qualified(node) in host_code.STREAMS or self._is_setting(node)
        if not is_fixed:
            self._values.append(_Value(node, node))

    def _fresh(self, same: Sequence[_Value]) -> str:
        """A name for what they are: that of what they are made of, where nothing else in the call has it."""
        name, inside = self._name(same[0].base), {part for each in same for part in ast.walk(each.node)}
        uses = {each for each in ast.walk(self._call) if isinstance(each, ast.Name) and each.id == name}
        if uses and uses <= inside:
            return name
        is_free = name.isidentifier() and not keyword.iskeyword(name) and not hasattr(builtins, name)
        return self._taken.fresh(name if is_free else "value")

    def _name(self, node: ast.expr) -> str:
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return key if isinstance(key, str) else self._name(node.value)
        if isinstance(node, ast.Call):
            func, name = node.func, self.program.qualified(node.func)
            if name == "builtins.len" and node.args:
                return "batches" if self.program.value(node.args[0]).kind is Kind.LOADER else "length"
            if name:
                return self._name(node.args[0]) if node.args else ""
            is_of_tensor = isinstance(func, ast.Attribute) and self.program.value(func.value).kind is Kind.TENSOR
            return self._name(func.value) if isinstance(func, ast.Attribute) and is_of_tensor else ""
        return str(getattr(node, "attr", getattr(node, "id", "")))

    def _check_order(self) -> None:
        """A tensor is read behind all that is evaluated, which mustn't change it."""
        for number, value in enumerate(self._values):
            behind = [node for each in self._values[number + 1 :] for node in ast.walk(each.node)]
            effects = [each for each in behind if self._may_do_more(each)] if value.read else []
            if not effects:
                continue
            points = self.program.get(Memory).points_to(self._call)
            places = points.of(value.base)
            if not points.is_known or any(each.node in effects and each.reaches(places) for each in points.writes):
                raise Blocked(f"it may change {shown(self.program, value.base)}", effects[0])

    def _may_do_more(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        found = operation(self.program, node)
        return bool(found.does.writes) if found else not libraries.is_pure(self.program.qualified(node.func))

    # -- what stays the same

    def _is_fixed(self, name: ast.Name) -> bool:
        flow = self.program.get(Flow)
        bindings = flow.graph(name).bindings.get(name.id) or flow.graph_of(self.program.tree).bindings.get(name.id, [])
        return bool(self.program.qualified(name)) and all(isinstance(each.node, ast.alias) for each in bindings)

    def _is_setting(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return False
        name, flow = node.value, self.program.get(Flow)
        graph = flow.graph_of(self.program.tree)
        if graph is not flow.graph(name) and name.id in flow.graph(name).bindings:
            return False
        bindings = graph.bindings.get(name.id, [])
        source = bindings[0].given if len(bindings) == 1 else None
        func = source.func if isinstance(source, ast.Call) else None
        if not isinstance(func, ast.Attribute) or func.attr != "parse_args":
            return False
        return all(
            self._only_asks(each) or each is bindings[0].node
            for each in self.program.of_type(ast.Name)
            if each.id == name.id
        )

    def _only_asks(self, name: ast.Name) -> bool:
        around = self.program.parent(name)
        if isinstance(around, ast.Attribute) and isinstance(around.ctx, ast.Load):
            call = self.program.parent(around)
            return not (isinstance(call, ast.Call) and call.func is around) and not around.attr.startswith("__")
        return self.program.call_of(around, "builtins.print") is not None


def _is_format(func: ast.expr) -> bool:
    return isinstance(func, ast.Attribute) and func.attr == "format" and isinstance(func.value, ast.Constant)


def _listing(node: ast.expr) -> tuple[str, ast.expr] | None:
    tensor = receiver_of(node, "tolist")
    return None if tensor is None else ("tolist", tensor)


def _codes(node: ast.expr) -> list[str]:
    template = node.value if isinstance(node, ast.Constant) else None
    return [code for code in _CODES.findall(template) if code != "%"] if isinstance(template, str) else []


def _fields(call: ast.Call) -> set[str]:
    text = getattr(getattr(call.func, "value", None), "value", "")
    return set(_numbered(str(text))) if _is_format(call.func) else set()


def _numbered(template: str) -> Iterator[str]:
    count = 0
    try:
        for _, name, form, conversion in string.Formatter().parse(template):
            if name is None:
                continue
            if not name:
                name, count = str(count), count + 1
            if form and _NUMERIC.match(form) and not conversion:
                yield name
    except ValueError:
        return
