"""What is known about one file: its names, values, loops and heat, each computed by a pass when first asked for."""

from __future__ import annotations

import ast
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from perflint.analysis.links import (
    ALONE,
    Context,
    Effect,
    GradMode,
    GraphUse,
    Heat,
    HotCall,
    HotPlace,
    Likelihood,
    Manner,
    Says,
    Seen,
    Summary,
)
from perflint.analysis.loops.flow import LoopKind, TimeLoop
from perflint.analysis.values.classes import ClassInfo
from perflint.analysis.values.codes import PINNED, named_functions, targets_of
from perflint.analysis.values.execute import Executor
from perflint.analysis.values.hints import roles, says_of, starts_on_device, trains, usages
from perflint.analysis.values.values import ELSEWHERE, OR, UNKNOWN, Kind, Place, Value
from perflint.syntax.scopes import Bound, bind, defaults_of, is_of_class, is_static, parameters_of
from perflint.syntax.source import OF_TEXT, Module, holds_tests, is_main_guard
from perflint.syntax.walk import Function, Loop, name_called, own_nodes, path_of

Fact = TypeVar("Fact")
OfProgram = TypeVar("OfProgram", bound="Program")

_OF_TEXT = OF_TEXT | {"says", "is_test", "_names"}  # whatever the context
_REACHING = frozenset({Kind.LIBRARY, Kind.UNKNOWN, Kind.MODULE, Kind.METHOD})  # what is called in other files


@dataclass
class Asked:
    """What the analyses asked of other files: of functions, of bases of `modules`, and who runs the file how."""

    draws: set[str] = field(default_factory=set)
    effects: set[str] = field(default_factory=set)
    firsts: set[str] = field(default_factory=set)
    says: Says = Says.NOTHING
    edits: set[str] = field(default_factory=set)
    manners: dict[str, Manner] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)


class Program(Module, ABC):
    """One file with all that is known about it. A pass is what makes something of a Program: a function or a class.

    A pass that needs another calls `get`; those that depend on each other, the methods of `perflint.analysis.program`.
    """

    def __init__(self, text: str, context: Context = ALONE, tree: ast.Module | None = None) -> None:
        super().__init__(text, tree)
        self._context = context
        self.asked = Asked()
        self._known: dict[Callable[..., Any], Any] = {}

    def in_context(self: OfProgram, context: Context) -> OfProgram:
        """The same program in a context, with what its text alone has told of it."""
        program = type(self)(self.text, context, self.tree)
        vars(program).update({name: each for name, each in vars(self).items() if name in _OF_TEXT})
        program._known = {each: known for each, known in self._known.items() if each in (usages, roles)}
        return program

    def with_statements(self: OfProgram, old: ast.stmt, new: Sequence[ast.stmt]) -> OfProgram:
        """The program as if `new` statements, which have places in the text, stood where `old` does."""
        child: ast.AST = old
        instead: list[Any] = list(new)
        for around in self.ancestors(old):
            made: Any = copy.copy(around)
            for name, block in ast.iter_fields(around):
                if isinstance(block, list) and child in block:
                    at = block.index(child)
                    setattr(made, name, [*block[:at], *instead, *block[at + 1 :]])
            child, instead = around, [made]
        program = type(self)(self.text, self._context, instead[0])
        program.asked = self.asked
        return program

    def get(self: OfProgram, work_out: Callable[[OfProgram], Fact]) -> Fact:
        """What the pass `work_out` finds in this program, computed when it is first asked for."""
        if work_out not in self._known:
            self._known[work_out] = work_out(self)
        fact: Fact = self._known[work_out]
        return fact

    def seen_in(self, function: ast.AST | None) -> dict[str, Seen]:
        """What a run has seen in the variables of a function, or of the module."""
        name = getattr(function, "name", "<module>")
        return {each.name: each for each in self._context.seen if each.function == name}

    @property
    def is_given_pinned(self) -> bool:
        """Do other files give its functions, or does it get from theirs, loaders whose batches lie in pinned memory?"""
        given = (code for call in self._context.calls for code in (call.positional, *dict(call.keywords).values()))
        return any(PINNED in code for code in (*given, *(each.returns for each in self._context.summaries)))

    # -- values

    @cached_property
    def says(self) -> Says:
        return says_of(self)

    @property
    def is_host_only(self) -> bool:
        """Do its tensors all live on the host: by what the programs say that it is part of, or else by what it says?

        That is a script, with all that it imports, which trains or evaluates and never speaks of a device. A file that
        is passed model, optimizer and data, and builds none of them, can't tell by itself: others may have moved those.
        """
        on_host = self._context.on_host
        return self.says.stays_on_host if on_host is None else on_host

    @property
    def may_use_device(self) -> bool:
        """Does the file, or a program that it is part of, speak of a device?"""
        return self._context.on_host is False or Says.DEVICE in self.says or self.is_said(Says.DEVICE)

    def is_tried_out(self, node: ast.AST) -> bool:
        """Is it run by the file itself, which stays on the host whatever others do with its functions and classes?"""
        return self.says.stays_on_host and self.function_of(node) is None

    @property
    def is_of_host(self) -> bool:
        """Do whole programs of several files tell that they never leave the host?"""
        return self._context.on_host is True

    def is_said(self, says: Says) -> bool:
        """Does the file, or a program that imports it, say so of all that it imports?"""
        self.asked.says |= says
        return says in self.says | self._context.told

    def is_edited_elsewhere(self, attribute: str) -> bool:
        """Do programs that import it bind or change an attribute of that name, perhaps of an object of its classes?"""
        self.asked.edits.add(attribute)
        return attribute in self._context.edited

    @cached_property
    def is_test(self) -> bool:
        """Does it hold tests of other programs, which run each thing but once?"""
        return "def test_" in self.text and holds_tests(self.tree, is_script=self.is_script)

    @cached_property
    def _facts(self) -> Executor:
        executor = Executor(
            default_place=Place.HOST if self.is_host_only else Place.DEVICE,
            default_device_set=starts_on_device(self),
        )
        executor.usages = self.get(usages)
        executor.roles = self.get(roles)
        executor.stays_home = self.is_host_only or (self._context.on_host is None and Says.SCRIPT in self.says)
        executor.calls = self._context.calls
        executor.rebound = self._context.rebound
        executor.summaries = {summary.target: summary for summary in self._context.summaries}
        executor.is_demo = any(map(is_main_guard, self.tree.body)) and not trains(self)
        executor.run(self.tree)
        return executor

    def value(self, node: ast.AST) -> Value:
        return self._facts.values.get(node, UNKNOWN)

    def qualified(self, node: ast.AST) -> str:
        """The qualified name of what `node` refers to in a library, such as "torch.cat"; empty if it is none."""
        value = self.value(node)
        return value.name if value.kind is Kind.LIBRARY else ""

    def call_of(self, node: ast.AST | None, *names: str) -> ast.Call | None:
        """`node`, if it calls what has one of these qualified names in a library."""
        return node if isinstance(node, ast.Call) and self.qualified(node.func) in names else None

    def callee(self, node: ast.AST) -> Function | None:
        info = self._facts.callees.get(node)
        return info.node if info is not None else None

    def arguments(self, call: ast.Call, callee: Function) -> Bound:
        """What `call` gives the parameters of `callee`, a function of this file, besides the object of a method."""
        return bind(call, callee, skipped=self.is_bound(call, callee))

    def receiver(self, argument: ast.expr, call: ast.Call, callee: Function) -> ast.arg | None:
        """The parameter of `callee`, a function of this file, for which `call` gives the argument."""
        given = self.arguments(call, callee).given
        return next((each for each in parameters_of(callee) if given.get(each.arg) is argument), None)

    def is_bound(self, call: ast.Call, callee: Function) -> bool:
        """Is `callee`, a function of this file, given an object, or its class, without an argument for it?"""
        owner = self.value(call.func).owner
        is_method = self.class_of(callee) is not None and not is_static(callee)
        return is_method and (owner is None or owner.kind is not Kind.CLASS or is_of_class(callee))

    def object_of(self, call: ast.Call, callee: Function) -> ast.expr:
        """What stands in `call`, for which `is_bound` holds, for the object that `callee` is given."""
        is_named = isinstance(call.func, ast.Attribute) and call.func.attr == getattr(callee, "name", "")
        return call.func.value if is_named and isinstance(call.func, ast.Attribute) else call.func

    def returned(self, function: Function) -> Value | None:
        """What a function of this file gives; None where it returns nothing."""
        info = self._facts.functions.get(function)
        return info.returns if info is not None else None

    def targets(self, node: ast.Call) -> tuple[str, ...]:
        """What a call may reach in other files, as this file names it."""
        callee = self.value(node.func)
        if callee.kind not in _REACHING or (callee.kind is Kind.LIBRARY and callee.name.partition(".")[0] in ELSEWHERE):
            return ()
        owner = callee.owner.node if callee.owner is not None else None
        found = targets_of(callee, self.base_names(owner) if isinstance(owner, ast.ClassDef) else (), node)
        classes = callee.name.split(OR) if callee.kind is Kind.UNKNOWN and callee.name else ()
        is_made = any(each.rpartition(".")[2] == name_called(node) for each in classes)
        return tuple(each for each in found if is_made or each not in classes)  # nobody builds an object anew

    def summaries(self, node: ast.Call, others: Iterable[str] = ()) -> Iterator[Summary]:
        """The summaries of the functions of other files that a call may reach, by its own targets and `others`."""
        if self._context.summaries:
            yield from filter(None, map(self._facts.summaries.get, (*self.targets(node), *others)))

    def differentiates_elsewhere(self, targets: Iterable[str]) -> Likelihood | None:
        """Does one of the functions of other files, named as in `targets`, differentiate? None where none has told."""
        told = (each.differentiates for each in self._told(targets))
        return max((each for each in told if each is not None), default=None)

    def records_elsewhere(self, targets: Collection[str]) -> bool:
        """Do the functions of other files, named as in `targets`, run modules and record gradients in all of them?"""
        found = self._told(targets)
        return len(found) == len(targets) > 0 and all(each.records for each in found)

    def drops_elsewhere(self, node: ast.Call) -> bool:
        """Does a call run a function of another file that lets go of the graph of its first argument?"""
        self.asked.firsts.update(self.targets(node))
        return bool(found := [*self.summaries(node)]) and all(each.drops for each in found)

    def counts_elsewhere(self, node: ast.Call) -> bool:
        """Does a call run a method of another file that only adds up what it is given in attributes of its object?"""
        return bool(found := self._told(self.targets(node))) and all(each.counts for each in found)

    @property
    def may_drop_elsewhere(self) -> bool:
        return any(each.drops for each in self._context.summaries)

    def computes_elsewhere(self, target: str) -> bool:
        """Does the function of another file, or the method of a module there, only compute on the device?"""
        return any(each.computes for each in self._told([target]))

    def _told(self, targets: Iterable[str]) -> list[Summary]:
        """The summaries with the effects of functions of other files, of those that are known."""
        self.asked.effects.update(targets := [*targets])
        return [*filter(None, map(self._facts.summaries.get, targets))] if self._context.summaries else []

    def is_called(self, function: Function | None, manner: Manner) -> bool:
        """Do other files call `function` in this manner?"""
        name = self._names.get(function) if function is not None else None
        if name is not None:
            self.asked.manners[name] = self.asked.manners.get(name, Manner.PLAIN) | manner
        return any(name == called and manners & manner for called, manners in self._context.manners)

    @cached_property
    def _names(self) -> dict[ast.AST, str]:
        return {node: name for name, node in named_functions(self.tree)}

    @cached_property
    def trains_elsewhere(self) -> bool:
        return any(summary.trains or summary.repeats for summary in self._context.summaries)

    def call_sites(self, function: Function | None) -> Sequence[ast.Call]:
        """The calls in this file that run `function`, those that hand it to something included; none of the module."""
        info = self._facts.functions.get(function) if function is not None else None
        return info.call_sites if info is not None else ()

    def calls(self, site: ast.Call, function: Function | None) -> bool:
        """Does a call that runs `function` do so itself, or as a method overrides another, rather than hand it over?"""
        callee = self.callee(site)
        if callee is None or function is None:
            return False
        owner, base = self.class_of(function), self.class_of(callee)
        is_derived = owner is not None and any(each is base for each in owner.lineage())
        return callee is function or (is_derived and getattr(callee, "name", "") == getattr(function, "name", None))

    def default(self, parameter: ast.arg) -> ast.expr | None:
        function = self.function_of(parameter)
        return defaults_of(function).get(parameter.arg) if function is not None else None

    def given(self, parameter: ast.arg) -> list[tuple[ast.Call, ast.expr | None]]:
        """The calls in this file that run the function of `parameter`, with what each gives for it, if known."""
        function = self.function_of(parameter)
        return [
            (site, self.arguments(site, function).get(parameter.arg) if self.calls(site, function) else None)
            for site in self.call_sites(function)
            if function is not None
        ]

    def class_of(self, function: Function | None) -> ClassInfo | None:
        info = self._facts.functions.get(function) if function is not None else None
        return info.owner if info is not None else None

    def is_module(self, owner: ClassInfo) -> bool:
        """Does the class derive from a module's: by its bases, or as its objects hold modules or do what those can?"""
        bases = [each for each in owner.lineage() if each.kind]
        if not all(each.is_guess for each in bases) or not bases:
            return owner.is_a("module")
        if any(each.acts_as_module() for each in owner.lineage()):
            return True
        self.asked.modules.update(each.node.name for each in bases)
        return any(each.node.name in self._context.modules for each in bases)

    def lineage(self, node: ast.AST | None) -> list[ast.ClassDef]:
        """A class and its bases in this file, the nearest first; nothing for what is no class."""
        info = self._facts.classes.get(node) if isinstance(node, ast.ClassDef) else None
        return [*dict.fromkeys(each.node for each in info.lineage())] if info is not None else []

    def base_names(self, node: ast.ClassDef) -> tuple[str, ...]:
        """The qualified names of the bases of a class; of one that this file defines, its name after an @."""
        info = self._facts.classes.get(node)
        return (*info.base_names, *(f"@{base.node.name}" for base in info.bases)) if info is not None else ()

    def call_from_outside(self, function: Function) -> HotCall | None:
        """The hottest call of `function` by the hot code of other files."""
        info = self._facts.functions.get(function)
        return info.outside if info is not None else None

    # -- loops and heat

    @abstractmethod
    def is_cold(self, function: Function) -> bool:
        """Does nothing in this file say that `function` runs often?"""

    @abstractmethod
    def loop_kind(self, loop: Loop) -> LoopKind:
        """What one iteration of `loop` is."""

    @abstractmethod
    def time_loop(self, loop: Loop) -> TimeLoop | None:
        """What is known of `loop` as a loop over time, if it is one."""

    @abstractmethod
    def trains_once(self, function: Function) -> bool:
        """Does a call of `function` do one step of training, rather than an epoch of them?"""

    @abstractmethod
    def trains_in(self, node: ast.AST) -> bool:
        """Is `node` a call that trains, by itself or in the function that it reaches?"""

    @abstractmethod
    def heat(self, node: ast.AST) -> Heat:
        """How often `node` runs."""

    @abstractmethod
    def hot_loop(self, node: ast.AST) -> ast.AST | None:
        """The loop of the same function that makes `node` hot; None where it is hot through a call, or not hot."""

    @abstractmethod
    def hot_by(self, node: ast.AST) -> HotPlace | None:
        """The loop, here or around a call, that makes `node` hot, or what is called in every step; None if nothing."""

    def counts(self, loop: ast.AST, path: str) -> bool:
        """Does `loop` count its iterations in the variable, or attribute, called `path`?"""
        if isinstance(loop, ast.For):
            target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
            if path_of(target) == path and self.value(target).kind is Kind.NUMBER:
                return True
        return any(
            isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)) and path_of(node.target) == path
            and self.value(node.value).kind in (Kind.NUMBER, Kind.UNKNOWN)
            for node in own_nodes(loop)
        )  # fmt: skip

    # -- gradients

    @abstractmethod
    def grad_mode(self, node: ast.AST, *, callers: bool = True) -> GradMode:
        """Whether gradients are recorded where `node` runs: by its function, and with `callers` by known ones.

        UNKNOWN where callers disagree, or a framework, another file or a value may switch them off.
        """

    @abstractmethod
    def effects(self, node: ast.AST, effect: Effect) -> list[ast.AST]:
        """The nodes with `effect`, of those that running `node` may reach in this file."""

    @abstractmethod
    def training_modes(self, node: ast.AST) -> dict[str, bool]:
        """Whether each module whose mode is known, by its path, is in training mode when `node` runs."""

    @abstractmethod
    def is_frozen(self, module: ast.AST) -> bool:
        """May the file have switched off the gradients of the parameters of `module`, by its last name?"""

    @abstractmethod
    def graph_uses(self, place: ast.AST) -> list[GraphUse]:
        """Who differentiates, or may, what an expression, statement or function computes, as far as this file tells."""
