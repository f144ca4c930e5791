"""The evidence for a time axis: what a loop does in its steps, and what the names in its header suggest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.call_graph import is_abstract
from perflint.analysis.facts import Program
from perflint.analysis.loops.flow import ARITHMETIC, CHOICE, MODEL, RNN, Call, Header, LoopFlow, Trace
from perflint.analysis.loops.header import is_rest
from perflint.analysis.values.shape_rules import sized
from perflint.analysis.values.shapes import axis_of
from perflint.analysis.values.values import Kind, element_of
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import Loop, assigned_values, integer, name_called, own_nodes, path_of, receiver_of

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_GLUED = re.compile(r"^(?:num|n|max|mini|micro|multi|sub|up|down)?([a-z]{3,}?)(?:size|sz|num|idx|id)?$")
_PLURAL = re.compile(r"(?<=\w\w)(?:(?<=x|s|h)es|(?<!s)s)$")

TIME = frozenset({"len", "length", "seq", "sequence", "time", "timestep"})
OTHER_AXES = frozenset({"batch", "hop", "image", "iter", "layer", "order", "subdivision"})


def _counted(header: Header) -> set[str]:
    bounds = (part for bound in header.bounds for part in _sizes(bound))
    return {*header.indices, *(part.attr if isinstance(part, ast.Attribute) else part.id for part in bounds)}


def _walked(header: Header) -> set[str]:
    targets = (*(each.target for each in header.elements), *header.members)
    names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names | {each.base.rpartition(".")[2] for each in header.elements if _is_name(each.base)}


def _begins(node: ast.Call) -> bool:
    """Is it a method by the name of which a state begins anew: `net.init_hidden(batch)`, `cell.reset()`?"""
    return isinstance(node.func, ast.Attribute) and node.func.attr.startswith(("init_", "reset"))


def _is_name(base: str) -> bool:
    return base.replace(".", "").isidentifier()


def _words(name: str) -> set[str]:
    """The words of a name, also in the singular, and without what is glued to them: nlayers, batchsize."""
    plain = {word.lower() for word in _WORD.findall(name)}
    cores = plain | {match[1] for word in plain if (match := _GLUED.match(word))}
    return cores | {_PLURAL.sub("", word) for word in cores}


def any_of(names: Iterable[str], vocabulary: frozenset[str]) -> bool:
    return any(not vocabulary.isdisjoint(_words(name)) for name in names)


def _sizes(node: ast.expr) -> Iterator[ast.Name | ast.Attribute]:
    """The variables that a bound is computed from, not those whose size it is."""
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and path_of(node)):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from _sizes(node.left)
        yield from _sizes(node.right)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        yield node.value
    elif isinstance(node, ast.Call) and name_called(node) in ("int", "min", "max"):
        for argument in node.args:
            yield from _sizes(argument)


_DEPTH = 2  # functions through which a list of results is passed


@dataclass(frozen=True)
class Evidence:
    """What is known of `loop`, each computed once, when it is asked for.

    `states`: the loop-carried values that are computed from loop-carried ones, by name.
    """

    program: Program
    loop: Loop
    header: Header
    flow: LoopFlow
    states: dict[str, Trace]

    @property
    def scope(self) -> ast.AST:
        return self.program.scope_of(self.loop)

    # -- what goes in

    @cached_property
    def given(self) -> frozenset[str]:
        """The sequences of data, steps of which go into the states."""
        return self.flow.truth() - self.flow.host

    @cached_property
    def given_tensors(self) -> frozenset[str]:
        """Those that are tensors; lists of them where a carried tensor, or model's state, shows it."""
        if self.counts_time and self.has_carrier and self.replaced:
            return self.given
        return self.given & {each.base for each in self.flow.slices if each.is_tensor}

    # -- what is carried

    @cached_property
    def models(self) -> tuple[Call, ...]:
        return tuple(call for call in self.flow.calls if call.sort.model)

    @cached_property
    def entering(self) -> set[str]:
        return {name for call in self.models for name in call.trace.carried}

    @cached_property
    def computed(self) -> set[str]:
        return {name for name, end in self.states.items() if MODEL in end.ops}

    @cached_property
    def returned(self) -> set[str]:
        """The states that a model which was given them returns, as a cell does; no entries of dictionaries."""
        return {name for name in self.states if self.hands_back(name) and not self._is_keyed(name)}

    @cached_property
    def fed_back(self) -> set[str]:
        kept = [each for each in self.flow.collected if each.how in ("append", "slot", "yield", "cat")]
        results = {definition for each in kept for definition in each.trace.definitions}
        lists = {each.name for each in kept if each.how == "append"}
        fed = {name for name, end in self.states.items() if end.definitions & results}
        return fed - lists | lists & self.replaced

    @cached_property
    def refined(self) -> set[str]:
        """The states which are a whole sequence, of which each iteration chooses parts anew."""
        return {name for name, end in self.states.items() if CHOICE in end.ops and self.replaces_parts(name)}

    @cached_property
    def replaced(self) -> set[str]:
        """The states of which each iteration leaves nothing but what a model computed from them."""
        return {name for name in self.computed & self.entering if not self.flow.is_kept(name)}

    @cached_property
    def has_rnn(self) -> bool:
        return any(RNN in end.ops for end in self.states.values())

    @cached_property
    def has_carrier(self) -> bool:
        return any(not call.sort.unsure and call.trace.carried & set(self.states) for call in self.models)

    def hands_back(self, name: str) -> bool:
        taken = [call for call in self.models if any(given == name for given, _ in call.direct)]
        definitions = self.flow.ends[name].definitions
        return any(made == id(call.node) for call in taken for made, _ in definitions)

    def replaces_parts(self, name: str) -> bool:
        """Is the state a whole sequence, parts of which each iteration replaces?"""
        for read, parent in self._reads(name):
            if isinstance(parent, ast.Call) and name_called(parent) == "where" and read in parent.args[-2:]:
                return True
            if isinstance(parent, ast.Attribute) and parent.attr == "masked_scatter":
                return True
        return False

    def is_tensor(self, name: str) -> bool:
        """Is the state a tensor, or a list of them, as far as reads, or the steps it is made of, show?"""
        values = [self.program.value(read) for read, _ in self._reads(name)]
        kinds = {(element_of(each) if each.kind is Kind.SEQUENCE else each).kind for each in values}
        end = self.flow.ends[name]
        shown = ARITHMETIC in end.ops and end.slices & self.flow.proven
        return Kind.TENSOR in kinds or (bool(shown) and kinds <= {Kind.UNKNOWN, Kind.NUMBER})

    def reads_all_before(self, name: str) -> bool:
        """Is all read that was written so far, as by `x[: i + 1]`, which makes rows orthogonal?"""
        parts = [part for read in self._subscripts(name) for part in ast.walk(read.slice)]
        ends = [part.upper for part in parts if isinstance(part, ast.Slice) and part.lower is None and part.upper]
        return any(path_of(part) in self.header.indices for end in ends for part in ast.walk(end))

    def slides(self, name: str) -> bool:
        """Does each step move a window on, as `x = torch.cat([x[:, 1:], y], dim=1)` does?"""
        made = {call for call, part in self.flow.ends[name].definitions if part is None}
        for call in self.flow.calls:
            parts = call.node.args[0] if call.sort.cat and id(call.node) in made and call.node.args else None
            old = parts.elts[0] if isinstance(parts, ast.Tuple | ast.List) and len(parts.elts) == 2 else None
            if isinstance(old, ast.Subscript) and path_of(old.value) == name and is_rest(old.slice):
                return True
        return False

    def _is_keyed(self, name: str) -> bool:
        """Is it a dictionary: read by strings, or one that makes its own entries?"""
        if any(name_called(value) == "defaultdict" for value in assigned_values(self.scope, name)):
            return True
        return any(self.program.value(read.slice).kind is Kind.STRING for read in self._subscripts(name))

    def _reads(self, name: str) -> Iterator[tuple[ast.expr, ast.AST | None]]:
        return ((read, self.program.parent(read)) for read in self.flow.reads.get(name, ()))

    def _subscripts(self, name: str) -> Iterator[ast.Subscript]:
        return (parent for _, parent in self._reads(name) if isinstance(parent, ast.Subscript))

    # -- what comes out

    @cached_property
    def is_collected(self) -> bool:
        """Do results become one tensor: by slots, yields, a growing cat, or a stack after the loop?"""
        varying = [each for each in self.flow.collected if each.trace.varies]
        if any(each.how in ("slot", "cat", "yield") for each in varying):
            return True
        lists = {each.name for each in varying if each.how == "append"}
        return any(_joins(self.program, self.scope, name, _DEPTH) for name in lists)

    @cached_property
    def launches(self) -> bool:
        targets = (each.node.value for each in self.flow.collected if isinstance(each.node, ast.Subscript))
        nodes = (*(call.node for call in self.flow.calls), *targets)
        return bool(self.flow.operations) or any(self.program.value(node).kind is Kind.TENSOR for node in nodes)

    # -- what shows time

    @cached_property
    def counts_time(self) -> bool:
        return "t" in self.header.indices or any_of(_counted(self.header) - self.header.indices, TIME)

    @cached_property
    def is_prepended(self) -> bool:
        """Was what it iterates over built from its end, as returns are?"""
        bases = {each.base for each in self.flow.slices}
        values = [value for base in bases for value in assigned_values(self.scope, base)]
        names = bases | {part.id for value in values for part in ast.walk(value) if isinstance(part, ast.Name)}
        return any(path in names for path in map(_prepended, own_nodes(self.scope)))

    @cached_property
    def spans_sequence(self) -> bool:
        """Does it run over the whole of an axis of what it iterates over, backwards, or over time?"""
        if self.counts_time or self._runs_backwards:
            return True
        axes = {each.axis for each in self.flow.slices if each.axis is not None}
        return bool(axes.intersection(self._covered_axes()))

    @property
    def _runs_backwards(self) -> bool:
        calls = () if isinstance(self.loop, ast.While) else ast.walk(self.loop.iter)
        return any(name_called(part) == "reversed" for part in calls if isinstance(part, ast.Call))

    def _covered_axes(self) -> Iterator[int]:
        names = [path_of(part) for bound in self.header.bounds for part in _sizes(bound)]
        bounds = [self.loop.test] if isinstance(self.loop, ast.While) else [*self.header.bounds]
        bounds += [value for name in names for value in assigned_values(self.scope, name)]
        yield from (axis for bound in bounds for part in ast.walk(bound) if (axis := _sized_axis(part)) is not None)
        for node in own_nodes(self.scope):  # batch, length, width = x.shape
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and sized(node.value):
                yield from (axis for axis, part in enumerate(node.targets[0].elts) if path_of(part) in names)

    @cached_property
    def has_twin(self) -> bool:
        """Does another loop over time, of the class or file, hand the same models a state in the same place?"""
        handed, program = _handed(self.flow), self.program
        related = {*program.ancestors(self.loop), *ast.walk(self.loop)}
        others = (each for each in program.plain_loops() if each not in related) if handed else ()
        near = (each for each in others if program.class_around(each) is program.class_around(self.loop))
        return any(handed & _handed(other.flow) for each in near if (other := program.time_loop(each)))

    @cached_property
    def walks_columns(self) -> bool:
        return any(each.axis == 1 for each in self.flow.slices)

    # -- what speaks against

    @cached_property
    def computes(self) -> bool:
        """Does it compute more than tests, and numbers by which it picks from what is no tensor, such as letters?"""
        return not all(map(self._is_read, self.flow.operations))

    @property
    def is_captioned(self) -> bool:
        """Does it keep text beside what it computes, as pictures are shown with?"""
        calls = (each.node for each in self.flow.collected if isinstance(each.node, ast.Call))
        return any(self.program.value(part).kind is Kind.STRING for call in calls for part in call.args)

    def _is_read(self, node: ast.expr) -> bool:
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else []
        if any(torch_ops.does(name_called(each), "of_data") for each in operands):  # a copy of what the host has
            return not all(self.program.value(each).kind is Kind.TENSOR for each in operands)
        child: ast.AST = node
        for around in self.program.ancestors(node):
            if isinstance(around, ast.If | ast.IfExp) and child is around.test:
                return True
            if isinstance(around, ast.Subscript) and child is around.slice:
                return self.program.value(around.value).kind is not Kind.TENSOR
            if isinstance(around, ast.stmt):
                return False
            child = around
        return False

    @cached_property
    def keeper(self) -> str:
        """What is called and keeps a state.

        The function around sets that as it needs it, `self.decoder.h = zeros`, or `net.init_sequence()`; or a step has
        no other use for a module, or for a method that is left to subclasses; or tells it `t == 0`, which is first.
        """
        function = self.program.function_of(self.loop)
        calls = self.program.calls_in(function) if function is not None else ()
        near = [each for each in (function, *map(self.program.callee, calls)) if each is not None]
        stores = [part for each in near for part in own_nodes(each) if isinstance(part, ast.Attribute)]
        held = {path_of(each) for each in stores if isinstance(each.ctx, ast.Store)}
        held |= {path_of(each.func) for each in calls if _begins(each) and self._is_statement(each)}
        called = sorted(filter(None, (path_of(each.node.func) for each in self.models)))
        owners = (each.removesuffix(".forward") for each in called)
        found = next((each for each in owners if any(path.startswith(f"{each}.") for path in held)), "")
        return found or next((path_of(each.node.func) for each in self.models if self._keeps(each.node)), "")

    def _keeps(self, node: ast.Call) -> bool:
        tests = [each for each in arguments_of(node) if isinstance(each, ast.Compare)]
        if any(path_of(each.left) in self.header.indices for each in tests):
            return True
        callee = self.program.callee(node)
        is_module = self.program.value(node.func).kind is Kind.MODULE or (callee is not None and is_abstract(callee))
        return is_module and self._is_statement(node)

    def _is_statement(self, node: ast.Call) -> bool:
        return isinstance(self.program.parent(node), ast.Expr)

    @cached_property
    def resizes(self) -> bool:
        """Is a state interpolated to another size, as levels of a pyramid are, and no steps in time?"""
        names = ((torch_ops.canonical(self.program.qualified(call.node.func)), call) for call in self.flow.calls)
        return any(name == "interpolate" and call.trace.carried & self.states.keys() for name, call in names)

    @cached_property
    def counts_rounds(self) -> bool:
        return any_of(_counted(self.header), OTHER_AXES)

    @cached_property
    def takes_chunks(self) -> bool:
        """Does it stride over several steps at a time, other than to take single ones?"""
        if not self.header.strides:
            return False
        passes_its_place_on = any(call.trace.is_index for call in self.flow.calls)
        return self.flow.chunks or passes_its_place_on or not self.counts_time

    @cached_property
    def names_another_axis(self) -> bool:
        """Does the program call what it counts or walks batches, iterations or layers?"""
        parts = (each for each in self.flow.slices if not each.is_tensor)
        lists = {each.base.rpartition(".")[2] for each in parts if _is_name(each.base)}
        return any_of(_counted(self.header) | _walked(self.header) | lists, OTHER_AXES)

    def is_on_host(self, end: Trace) -> bool:
        """Do the given steps that go into it go to numpy, and to no model as they are?"""
        taken = (argument for call in self.models if call.trace.slices for argument in call.node.args)
        is_given = any(self.program.value(argument).kind is Kind.TENSOR for argument in taken)
        return bool(end.slices) and end.slices <= self.flow.host and not is_given


def _joins(program: Program, scope: ast.AST, name: str, depth: int) -> bool:
    for call in (node for node in own_nodes(scope) if isinstance(node, ast.Call)):
        given = [each for each in call.args if name in map(path_of, ast.walk(each))]
        if given and (name_called(call) == "pad_sequence" or torch_ops.does(name_called(call), "joining")):
            return True
        callee = program.callee(call) if given and depth else None
        bound = program.arguments(call, callee).given if callee is not None else {}
        parameters = [each for each, value in bound.items() if value in given and path_of(value) == name]
        if callee is not None and any(_joins(program, callee, each, depth - 1) for each in parameters):
            return True
    return False


def _prepended(node: ast.AST) -> str:
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    prepended = receiver_of(node, "appendleft", *(["insert"] if integer(node.args[0]) == 0 else []))
    return path_of(prepended) if prepended is not None else ""


def _handed(flow: LoopFlow) -> set[tuple[str, int]]:
    models = [call for call in flow.calls if call.sort.model and path_of(call.node.func)]
    return {(path_of(call.node.func), position) for call in models for _, position in call.direct}


def _sized_axis(node: ast.AST) -> int | None:
    measured = axis_of(node) if isinstance(node, ast.expr) else None
    return 0 if name_called(node) == "numel" else measured[1] if measured is not None else None
