"""Evidence for and against a time axis: inputs, loop-carried state, outputs, names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from perflint.analysis.facts import Program
from perflint.analysis.loops.calls import rnn_kind
from perflint.analysis.loops.dataflow import Call, LoopFlow
from perflint.analysis.loops.found import Header
from perflint.analysis.loops.header import called, read_header
from perflint.analysis.loops.indices import is_rest, place
from perflint.analysis.loops.state import is_carried_by_rnn, rnn_name, unseen_name
from perflint.analysis.loops.timeloops import naming
from perflint.analysis.loops.timeloops.collecting import is_collected
from perflint.analysis.loops.timeloops.exclusions import walks_objects
from perflint.analysis.loops.timeloops.extents import covers_an_axis, runs_backwards
from perflint.analysis.loops.timeloops.sequences import is_prepended, runs_along_time
from perflint.analysis.loops.timeloops.solvers import is_grid
from perflint.analysis.loops.timeloops.twins import has_twin
from perflint.analysis.loops.trace import ARITHMETIC, CHOICE, MODEL, RESIZE, RNN, Trace
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import Loop, PlainLoop, assigned_values, path_of


@dataclass(frozen=True)
class Evidence:
    """What is known of `loop`, each worked out once, when it is asked for.

    `states`: what each name hands on that is computed from what it was handed.
    """

    program: Program
    loop: Loop
    header: Header
    flow: LoopFlow
    states: dict[str, Trace]

    # -- what goes in

    @cached_property
    def given(self) -> frozenset[str]:
        """The sequences of data, steps of which go into the states."""
        grids = {each.base for each in self.flow.slices if is_grid(self.program, each)}
        return self.flow.truth() - grids - self.flow.host

    @cached_property
    def given_tensors(self) -> frozenset[str]:
        """Those that are tensors; lists of them where a tensor, or a model's state, that is carried shows it."""

        if self.counts_time and self.has_carrier and self.replaced:
            return self.given
        return self.given & {each.base for each in self.flow.slices if each.is_tensor}

    # -- what is carried

    @cached_property
    def models(self) -> tuple[Call, ...]:
        """The calls of what is, or may be, a model."""
        return tuple(call for call in self.flow.calls if call.sort.model)

    @cached_property
    def entering(self) -> set[str]:
        """What the iteration before left that goes into a model."""
        return {name for call in self.models for name in call.trace.carried}

    @cached_property
    def computed(self) -> set[str]:
        """The states that a model computes."""
        return {name for name, end in self.states.items() if MODEL in end.ops}

    @cached_property
    def returned(self) -> set[str]:
        """The states that a model which was given them returns, as a cell does; entries of a dictionary are none."""
        return {name for name in self.states if self.hands_back(name) and not self._is_keyed(name)}

    @cached_property
    def fed_back(self) -> set[str]:
        """The states that are also among the collected results."""
        kept = [each for each in self.flow.collected if each.how in ("append", "slot", "yield", "cat")]
        results = {definition for each in kept for definition in each.trace.definitions}
        slots = {each.name for each in kept if each.how == "slot" and MODEL in each.trace.ops}
        lists = {each.name for each in kept if each.how == "append"}
        fed = {name for name, end in self.states.items() if end.definitions & results or name in slots}
        return fed - lists | {name for name in lists & self.replaced if any(self._subscripts(name))}

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
        """Does an RNN compute a state?"""
        return any(RNN in end.ops for end in self.states.values())

    @cached_property
    def has_cell(self) -> bool:
        """Is one of torch's Cells called?"""
        return any(rnn_kind(self.program, call.node.func) == "rnn-cell" for call in self.flow.calls)

    @cached_property
    def has_carrier(self) -> bool:
        """Is a state handed to what is certainly a model?"""
        return any(not call.sort.unsure and call.trace.carried & set(self.states) for call in self.models)

    def hands_back(self, name: str) -> bool:
        """Is the state what a model that was given it returns, or keeps inside?"""
        if name in self.flow.objects:
            return bool(self.given_tensors) or not (self.flow.truth() or name.startswith("self."))
        taken = [call for call in self.models if any(given == name for given, _ in call.direct)]
        definitions = self.flow.ends[name].definitions
        return any(made == id(call.node) for call in taken for made, _ in definitions)

    def is_chosen_inside(self, name: str) -> bool:
        """Does one call choose, and give back both this state and another one that it was given?"""
        definitions = self.flow.ends[name].definitions
        for call in self.models:
            given = {each for each, _ in call.direct if (id(call.node), None) not in definitions}
            given &= self.flow.ends.keys()  # without names that the loop binds in another way, as by `with`
            parts = {each for each in given if any(key == id(call.node) for key, _ in self.flow.ends[each].definitions)}
            if call.sort.choice and self.counts_time and not call.trace.slices and {name} < parts:
                return True
        return False

    def replaces_parts(self, name: str) -> bool:
        """Is the state a whole sequence, parts of which each iteration replaces, rather than one step after another?"""
        for read, parent in self._reads(name):
            if isinstance(parent, ast.Call) and called(parent) == "where" and read in parent.args[-2:]:
                return True
            if isinstance(parent, ast.Attribute) and parent.attr == "masked_scatter":
                return True
        return False

    def is_tensor(self, name: str) -> bool:
        """Is the state a tensor, as far as its reads or the steps that it is computed from show?"""
        kinds = {self.program.value(read).kind for read, _ in self._reads(name)}
        end = self.flow.ends[name]
        shown = ARITHMETIC in end.ops and end.slices & self.flow.proven
        return Kind.TENSOR in kinds or (bool(shown) and kinds <= {Kind.UNKNOWN, Kind.NUMBER})

    def reads_all_before(self, name: str) -> bool:
        """Is everything read that was written so far, as `x[: i + 1]` is to make a row orthogonal to the others?"""
        parts = [part for read in self._subscripts(name) for part in ast.walk(read.slice)]
        prefixes = [part for part in parts if isinstance(part, ast.Slice) and part.lower is None]
        return any(part.upper is not None and self._mentions_index(part.upper) for part in prefixes)

    def reads_step_before(self, name: str) -> bool:
        """Is it a tensor with a step for each iteration, of which the last one is read, behind the batch axis?"""
        slots = {each.name for each in self.flow.collected if each.how == "slot"}
        places = (place(read, self.header.indices) for read in self._subscripts(name))
        return name in slots and any(axis is not None and axis >= 1 and offset == -1 for axis, offset in places)

    def lengthens(self, name: str) -> bool:
        """Is it all that a model gave, and one piece more: `x = torch.cat([start, y], dim=1)`?"""
        return any(
            path_of(part) and path_of(part) not in self.flow.ends for parts in self._joined(name) for part in parts
        )

    def slides(self, name: str) -> bool:
        """Does each step move a window on, as `x = torch.cat([x[:, 1:], y], dim=1)` does?"""
        olds = [parts[0] for parts in self._joined(name)]
        return any(isinstance(old, ast.Subscript) and path_of(old.value) == name and is_rest(old.slice) for old in olds)

    def _mentions_index(self, node: ast.expr) -> bool:
        return any(path_of(part) in self.header.indices for part in ast.walk(node) if isinstance(part, ast.Name))

    def _joined(self, name: str) -> Iterator[list[ast.expr]]:
        """The two parts of which it is a cat."""
        made = {call for call, part in self.flow.ends[name].definitions if part is None}
        for call in self.flow.calls:
            parts = call.node.args[0] if call.sort.cat and id(call.node) in made and call.node.args else None
            if isinstance(parts, ast.Tuple | ast.List) and len(parts.elts) == 2:
                yield parts.elts

    def _is_keyed(self, name: str) -> bool:
        """Is it a dictionary: read by keys that are strings, or one that makes its own entries?"""
        scope = self.program.function_of(self.loop) or self.program.tree
        if any(called(value) == "defaultdict" for value in assigned_values(scope, name)):
            return True
        return any(self.program.value(read.slice).kind is Kind.STRING for read in self._subscripts(name))

    def _reads(self, name: str) -> Iterator[tuple[ast.expr, ast.AST | None]]:
        return ((read, self.program.parent(read)) for read in self.flow.reads.get(name, ()))

    def _subscripts(self, name: str) -> Iterator[ast.Subscript]:
        return (parent for _, parent in self._reads(name) if isinstance(parent, ast.Subscript))

    # -- what carries it

    @property
    def carrier(self) -> str:
        """How the program calls the module that carries the state."""
        return rnn_name(self.flow)

    @property
    def unseen_carrier(self) -> str:
        """How the program calls what carries the state, where the file does not define it."""
        return unseen_name(self.program, self.flow)

    def is_carried_by_rnn(self, name: str) -> bool:
        """Is it the state of an RNN and nothing else?"""
        return is_carried_by_rnn(self.program, self.flow, name)

    # -- what comes out

    @cached_property
    def is_collected(self) -> bool:
        """Do the steps' results become one tensor?"""
        return is_collected(self.program, self.loop, self.flow)

    @cached_property
    def launches(self) -> bool:
        """Does something in the loop certainly give a tensor, or write into one?"""
        targets = (each.node.value for each in self.flow.collected if isinstance(each.node, ast.Subscript))
        nodes = (*(call.node for call in self.flow.calls), *targets)
        return bool(self.flow.operations) or any(self.program.value(node).kind is Kind.TENSOR for node in nodes)

    @cached_property
    def writes_columns(self) -> bool:
        """Is what a model gives written behind the batch's axis, where the number of the iteration says?"""
        slots = [each for each in self.flow.collected if each.how == "slot" and MODEL in each.trace.ops]
        nodes = (each.node for each in slots if isinstance(each.node, ast.Subscript))
        return any((place(node, self.header.indices)[0] or 0) >= 1 for node in nodes)

    def only_adds_up(self, name: str) -> bool:
        """Is what the models give only ever added to the state?"""
        return any(each.name == name and each.how == "sum" for each in self.flow.collected)

    # -- what shows time

    @cached_property
    def counts_time(self) -> bool:
        """Does the program call what it counts steps of time?"""
        return naming.counts_time(self.header)

    @cached_property
    def is_prepended(self) -> bool:
        """Was what it walks through built from its end?"""
        return any(is_prepended(self.program, self.loop, each.base) for each in self.flow.slices)

    @cached_property
    def is_named_time(self) -> bool:
        """Does the program call what it walks through time, or build it from its end?"""
        return self.counts_time or self.is_prepended

    @cached_property
    def spans_sequence(self) -> bool:
        """Does the loop run over the whole of an axis of what it walks through, backwards over it, or over time?"""
        if self.is_named_time or runs_backwards(self.loop):
            return True
        return covers_an_axis(self.program, self.loop, self.header, self.flow)

    @cached_property
    def runs_along_time(self) -> bool:
        """Is one of the axes that it walks time by where the tensor comes from?"""
        return any(runs_along_time(self.program, self.loop, each) for each in self.flow.slices)

    @cached_property
    def walks_tensors(self) -> bool:
        """Is something that it walks through surely a tensor?"""
        return any(each.is_tensor for each in self.flow.slices)

    @cached_property
    def has_twin(self) -> bool:
        """Does a loop over time elsewhere hand the same models a state?"""
        return has_twin(self.program, self.loop, self.flow)

    @cached_property
    def walks_columns(self) -> bool:
        """Does it walk the axis behind the batch's?"""
        return any(each.axis == 1 for each in self.flow.slices)

    # -- what speaks against

    @cached_property
    def counts_rounds(self) -> bool:
        """Does the program call what it counts batches, iterations of an optimisation or layers?"""
        return naming.counts_rounds(self.header)

    @cached_property
    def takes_chunks(self) -> bool:
        """Does it stride over several steps at a time, other than to take single ones of them?"""
        if not self.header.strides:
            return False
        hands_on_its_place = any(call.trace.is_index for call in self.flow.calls)
        return self.flow.chunks or hands_on_its_place or not (self.counts_time or self.runs_along_time)

    @cached_property
    def names_another_axis(self) -> bool:
        """Does the program call what it counts or walks through batches, iterations or layers?"""
        return naming.names_another_axis(self.header, self.flow)

    @cached_property
    def walks_objects(self) -> bool:
        """Are the elements that it walks through objects with attributes of their own?"""
        return walks_objects(self.loop, self.header)

    @cached_property
    def is_within_time(self) -> bool:
        """Does it stand in a loop that counts time?"""
        around = [each for each in self.program.ancestors(self.loop) if isinstance(each, PlainLoop)]
        inside = [each for each in around if self.program.function_of(each) is self.program.function_of(self.loop)]
        return any(naming.counts_time(read_header(self.program, each)) for each in inside)

    @cached_property
    def is_resized(self) -> bool:
        """Does a state change its size, as feature maps do from scale to scale?"""
        return any(RESIZE in end.ops for end in self.states.values())

    def is_on_host(self, end: Trace) -> bool:
        """Do the given steps that go into it go to numpy, and to no model as they are?"""
        taken = (argument for call in self.models if call.trace.slices for argument in call.node.args)
        is_given = any(self.program.value(argument).kind is Kind.TENSOR for argument in taken)
        return bool(end.slices) and end.slices <= self.flow.host and not is_given
