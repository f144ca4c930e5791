"""Traces what iterating over a value asks for iterators in turn: what it wraps, takes out of containers, or holds."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from perflint.analysis.data.origins import Origins, parts_of
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import handed_on
from perflint.syntax.walk import COMPREHENSIONS, method_of, name_called, receiver_of

WRAPS = re.compile(
    r"builtins\.(iter|next|list|tuple|set|enumerate|zip|map|filter|reversed|sorted)|tqdm\b.*|itertools\.\w+"
    r"|rich\.progress\.track|.*\.(prepare|tqdm|trange|setup_dataloaders|prepare_data_loader|MpDeviceLoader|ParallelLoader)"
)
_WRAPPING_METHODS = frozenset({"prepare", "setup_dataloaders", "tqdm", "track"})
_MAPPINGS = frozenset({"builtins.dict", "collections.OrderedDict"})
_NO_LOADERS = frozenset({Kind.TENSOR, Kind.NUMBER, Kind.STRING, Kind.NUMPY, Kind.NONE, Kind.MODULE})

_Wanted = tuple[ast.AST, bool]  # a node, and whether what it holds is meant, at any depth


class Iteration:
    """What is iterated over with the values of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)

    def reached(self, node: ast.AST, *, held: bool = False) -> Iterator[tuple[ast.AST, bool, bool]]:
        """The origins of what is asked for iterators with `node`, or with what it holds.

        Each with whether what that holds is meant, and whether nothing further is behind it.
        """
        stack: list[_Wanted] = [(node, held)]
        seen = set(stack)
        while stack:
            wanted, is_held = stack.pop()
            value = self._program.value(wanted)
            if not is_held and value.kind is Kind.LOADER and value.node is not None:
                yield value.node, False, True
                continue
            for origin in self._origins.of(wanted):
                parts = list(self._sources(origin, is_held))
                yield origin, is_held, not parts
                stack += [part for part in parts if part not in seen]
                seen.update(parts)

    def walks(self, made: ast.AST) -> list[ast.AST]:
        """What may ask what the call `made` makes for an iterator: loops, comprehensions, `iter`, `yield from`, `*`."""
        return self._walks[made]

    @cached_property
    def _walks(self) -> defaultdict[ast.AST, list[ast.AST]]:
        """The walks over what is made, by where it is made."""
        found: defaultdict[ast.AST, list[ast.AST]] = defaultdict(list)
        for walk, walked in self._walked():
            for origin in dict.fromkeys(each for each, held, _ in self.reached(walked) if not held):
                found[origin].append(walk)
        return found

    def _walked(self) -> Iterator[tuple[ast.AST, ast.expr]]:
        """Each walk, with what it walks."""
        for loop in self._program.of_type(ast.For):
            yield loop, loop.iter
        for made in self._program.of_type(*COMPREHENSIONS):
            generators: list[ast.comprehension] = made.generators  # type: ignore[attr-defined]
            yield from ((made, each.iter) for each in generators)
        for each in self._program.of_type(ast.YieldFrom):
            yield each, each.value
        for call in self._program.of_type(ast.Call):
            name = self._program.qualified(call.func) if call.args else ""
            if name == "builtins.iter" or (name == "builtins.next" and isinstance(call.args[0], ast.Call)):
                yield call, call.args[0]
            yield from ((call, each.value) for each in call.args if isinstance(each, ast.Starred))

    def _sources(self, origin: ast.AST, is_held: bool) -> Iterator[_Wanted]:
        """What `origin` is made of, as far as it may be a loader, or hold one."""
        if isinstance(origin, ast.Subscript | ast.Starred):
            yield origin.value, True
        elif isinstance(origin, ast.For | ast.AsyncFor | ast.comprehension):  # its target
            yield origin.iter, True
        elif isinstance(origin, ast.Call):
            yield from self._sources_of_call(origin, is_held)
        if is_held:
            for each in (*parts_of(origin), *self._put_in.get(origin, ())):
                yield each, False
                yield each, True

    def _sources_of_call(self, call: ast.Call, is_held: bool) -> Iterator[_Wanted]:
        name = name_of(self._program, call)
        owner = receiver_of(call)
        method = name_called(call) if owner is not None else ""
        callee = self._program.callee(call)
        handed = self._program.arguments(call, callee).get(handed_on(callee)) if callee is not None else None
        has_iterator = method_of(self._program.value(call.func).node, "__iter__") is not None
        if name == "builtins.next":  # takes an item out
            yield from ((argument, True) for argument in call.args)
        elif handed is not None:
            yield handed, is_held
        elif WRAPS.fullmatch(name) or method in _WRAPPING_METHODS or has_iterator:
            yield from ((argument, is_held) for argument in call.args)
        elif is_held and name in _MAPPINGS:
            yield from ((argument, True) for argument in call.args)
            yield from ((keyword.value, False) for keyword in call.keywords)
        elif owner is not None and (method in ("get", "next", "pop") or (is_held and method in ("items", "values"))):
            yield owner, True

    @cached_property
    def _put_in(self) -> dict[ast.AST, list[ast.expr]]:
        """What is put into each container after its making, by where it is made."""
        put: defaultdict[ast.AST, list[ast.expr]] = defaultdict(list)
        for assignment in self._program.of_type(ast.Assign):
            for target in assignment.targets:
                if isinstance(target, ast.Subscript):
                    self._put(put, target.value, assignment.value)
        for call in self._program.of_type(ast.Call):
            if (container := receiver_of(call, "append")) is not None and len(call.args) == 1:
                self._put(put, container, call.args[0])
        return put

    def _put(self, put: dict[ast.AST, list[ast.expr]], container: ast.expr, value: ast.expr) -> None:
        if self._program.value(value).kind not in _NO_LOADERS:
            for origin in self._origins.of(container):
                put[origin].append(value)


def name_of(program: Program, call: ast.Call) -> str:
    """The qualified name of what is called, also where it is imported by a star."""
    return program.qualified(call.func) or program.value(call.func).name
