"""The function that reports later what output shows: its parameters, and what it reads by other names."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import string
from collections.abc import Iterator, Sequence

from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import GradMode, Program
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of, receiver_of
from perflint.torch_ops import libraries
from perflint.transforms import host_code
from perflint.transforms.host_code import reads_device, tensor_read, writes_streams
from perflint.transforms.operations import Replace, again, located, reference
from perflint.transforms.rewrite import Blocked, Taken, check_written, names_in, shown

_STRUCTURE = (ast.JoinedStr, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, ast.Starred)
_PURE = frozenset(
    f"builtins.{name}" for name in "round str int float abs max min sum format bool tuple list dict divmod".split()
)
_NUMERIC = re.compile(r".*[eEfFgGdn%]$")
_CODES = re.compile(r"%(?:\([^)]*\))?[-#0 +]*\d*(?:\.\d+)?([a-zA-Z%])")
_NUMBERS = frozenset("diouxXeEfFgG")


class ReportBody:
    """The parameters of the function that the calls of `run` become, and what changes in it; raises Blocked.

    `tensors` are copied, by name; `bound` is what else the call reads that may be another thing later: numbers, strings
    and the like, which the runtime makes sure of.
    """

    def __init__(self, program: Program, run: Sequence[ast.Expr]) -> None:
        self.program, self.calls = program, [each.value for each in run if isinstance(each.value, ast.Call)]
        self.tensors: dict[str, ast.expr] = {}
        self.bound: dict[str, ast.expr] = {}
        self.changes: list[Replace] = []
        self._copied: list[ast.expr] = []  # of the program: what `tensors` are given
        self._evaluated: list[ast.expr] = []  # and what is bound
        self._taken = Taken({name for each in self.calls for name in names_in(each)})
        self._given: dict[str, str] = {}  # the names of what was evaluated, by its code
        self._implicit = program.get(host_code.implicit_reads)
        for call in self.calls:
            self._call(call)
        for name in self.tensors.keys() & self.bound.keys():
            raise Blocked(f"`{name}` is shown as a tensor, too, which tells its device")
        self._check_order()

    # -- the parts of the calls

    def _call(self, call: ast.Call) -> None:
        for node in ast.walk(call):
            if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Lambda):
                raise Blocked("it does more than output", node)
        owner = receiver_of(call)
        if owner is not None and not writes_streams(self.program, call) and not host_code.is_log(self.program, owner):
            self._bind(owner)
        self._arguments(call)

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
            if not is_number and self._keeps_graph(node):
                raise Blocked(f"{shown(self.program, node)} is shown as a tensor, which may tell its graph: detach it")
            self._tensor(base)
        elif isinstance(node, ast.Constant):
            return
        elif self._is_tensor(node):
            if not is_number:
                raise Blocked(f"{shown(self.program, node)} is shown as a tensor, which tells its device: use .item()")
            self._tensor(node)
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

    def _keeps_graph(self, node: ast.expr) -> bool:
        links = list[str]()
        while (link := host_code.link_of(self.program, node)) is not None:
            links.append(link[0])
            node = link[1]
        is_tensor = bool(links) and not {"item", "numpy", "float", "int"} & {*links}
        quiet = self.program.grad_mode(node, callers=False) is GradMode.OFF
        return is_tensor and not {"detach", "data"} & {*links} and not quiet

    def _is_tensor(self, node: ast.expr) -> bool:
        return node in self._implicit or (self.program.value(node).on_device and self.program.value(node).sure)

    def _reads(self, node: ast.AST) -> bool:
        return reads_device(self.program, node) or any(
            isinstance(each, ast.expr) and self._is_tensor(each) for each in ast.walk(node)
        )

    # -- parameters

    def _tensor(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            self.tensors[node.id] = node
            self._copied.append(node)
        elif not self.program.get(host_code.waiting_reads).isdisjoint(ast.walk(node)):
            raise Blocked(f"{shown(self.program, node)} is computed of a value that is read")
        else:
            self.tensors[self._replaced(node)] = again(node)
            self._copied.append(node)

    def _bind(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            if not self._is_fixed(node):
                self.bound[node.id] = node
        elif isinstance(node, ast.GeneratorExp):
            raise Blocked(f"{shown(self.program, node)} can't be evaluated twice")
        elif self.program.qualified(node) not in host_code.STREAMS and not self._is_setting(node):
            self.bound[self._replaced(node)] = again(node)
            self._evaluated.append(node)

    def _replaced(self, node: ast.expr) -> str:
        code = ast.dump(node)
        name = self._given.get(code, "") if path_of(node) else ""
        if not name:
            name = self._given[code] = self._fresh(node)
        check_written(self.program, node)
        self.changes.append(Replace(node, located(reference(name), node)))
        return name

    def _fresh(self, node: ast.expr) -> str:
        """A name for what `node` gives: that of what it is made of, where nothing else in the call has it."""
        name = self._name(node)
        parts = (each for call in self.calls for each in ast.walk(call))
        uses = {each for each in parts if isinstance(each, ast.Name) and each.id == name}
        if uses and uses.issubset(ast.walk(node)):
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
        is_run = len(self.calls) > 1  # of which nothing is reported before all is evaluated
        early = [*self._evaluated, *(self._copied if is_run else ())]
        effects = [each for value in early for each in ast.walk(value) if self._may_do_more(each)]
        if not effects:
            return
        if is_run:
            raise Blocked("it would run before what is reported first", effects[0])
        points = self.program.get(Memory).points_to(self.calls[0])
        for tensor in self._copied:
            if any(map(self._may_do_more, ast.walk(tensor))):
                raise Blocked(f"{shown(self.program, tensor)} would run after other calls", effects[0])
            places = points.of(tensor)
            if not points.is_known or any(each.node in effects and each.reaches(places) for each in points.writes):
                raise Blocked(f"it may change {shown(self.program, tensor)}", effects[0])

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


def _codes(node: ast.expr) -> list[str]:
    template = node.value if isinstance(node, ast.Constant) else None
    return [code for code in _CODES.findall(template) if code != "%"] if isinstance(template, str) else []


def _fields(call: ast.Call) -> set[str]:
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "format" or not isinstance(func.value, ast.Constant):
        return set()
    return set(_numbered(str(func.value.value)))


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
