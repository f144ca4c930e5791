"""Traces the data flow through the expressions of a loop body."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint import torch_ops
from perflint.analysis.loops.calls import LISTS, is_factory, is_metadata, keeps_numbers, makes_a_value, sort_of
from perflint.analysis.loops.dataflow import Call, CallSort, Collected
from perflint.analysis.loops.header import called
from perflint.analysis.loops.index import steps_taken
from perflint.analysis.loops.objects import object_state
from perflint.analysis.loops.steps import Steps
from perflint.analysis.loops.trace import (
    ARITHMETIC,
    CAT,
    CHOICE,
    INDEX,
    INVARIANT,
    MODEL,
    RESIZE,
    RNN,
    Trace,
    is_forced,
    merged,
)
from perflint.analysis.loops.writes import root_path
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import COMPREHENSIONS, path_of

_QUIET = frozenset(
    {"print", "info", "debug", "warning", "add_scalar", "set_postfix", "set_description", "write", "log"}
)


class Expressions(Steps):
    """Where each expression of one iteration comes from; the statements are `loop_body.Body`'s, which extends this."""

    def trace(self, node: ast.expr | None) -> Trace:
        """Where the value of `node` comes from."""
        if node is None or isinstance(node, ast.Constant | ast.Lambda):
            return INVARIANT
        if isinstance(node, ast.Name | ast.Attribute):
            return self._path(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.IfExp):
            self.trace(node.test)
            return self.meet(node.test, self.trace(node.body), self.trace(node.orelse), "")
        if isinstance(node, ast.NamedExpr):
            value = self.trace(node.value)
            self.env[node.target.id] = value
            return value
        if isinstance(node, COMPREHENSIONS):
            return self._comprehension(node)
        parts = merged(self.trace(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        if isinstance(node, ast.Tuple | ast.List | ast.Starred | ast.Await):
            return parts
        return self._arithmetic(node, parts)

    def _arithmetic(self, node: ast.expr, parts: Trace) -> Trace:
        kind = self.program.value(node).kind
        is_tensor = kind is Kind.TENSOR or (kind is Kind.UNKNOWN and bool(parts.slices & self.flow.proven))
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare) and is_tensor:
            if parts.varies and not any(isinstance(each, ast.List) for each in ast.iter_child_nodes(node)):
                self.flow.operations.append(node)
            operands = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
            if any(self.program.value(each).kind is not Kind.TENSOR and self._is_index(each) for each in operands):
                self.flow.index_as_data = True
            return parts.through(ARITHMETIC)
        return parts.number()

    # -- calls

    def _call(self, node: ast.Call) -> Trace:
        if (called(node) in _QUIET and self.program.value(node).kind is not Kind.TENSOR) or is_metadata(node):
            return self._length(node)
        if called(node) in ("narrow", "select") and (step := self.narrowed(node)) is not None:
            return step
        sort = sort_of(self.program, node)
        arguments = [(position, value, self.trace(value)) for position, value in enumerate(node.args)]
        arguments += [(-1, keyword.value, self.trace(keyword.value)) for keyword in node.keywords]
        grown = root_path(node.func.value) if isinstance(node.func, ast.Attribute) and called(node) in LISTS else ""
        if grown and arguments and not sort.launches and self._is_for_its_effect(node):
            self.collect(grown, "append", node, merged(trace for _, _, trace in arguments))
            return INVARIANT
        if sort.model:  # a name such as "step_1" is no data
            texts = {id(value) for _, value, _ in arguments if self.program.value(value).kind is Kind.STRING}
            arguments = [each for each in arguments if id(each[1]) not in texts]
        steps = steps_taken(self.program, node, self.header.indices)
        if steps is not None:
            self.flow.slices.extend(steps)
            arguments = [each for each in arguments if not self._is_index(each[1])]
            arguments.extend((-1, step.node, Trace(slices=frozenset({step.base}))) for step in steps)
        owner = self._owner(node)
        if sort.unsure and owner.varies and isinstance(node.func, ast.Attribute):
            sort = replace(sort, model=False)  # a method of what the loop makes, rather than of what stays
        given = merged([owner, *(trace for _, _, trace in arguments)])
        if is_factory(node):
            given = merged(trace for position, _, trace in arguments if position > 0)  # a size and a type are no data
        self._note_members(node, owner)
        function = self.program.value(node.func)
        if function.kind is Kind.LIBRARY and function.name.startswith("numpy."):
            self.flow.host |= given.slices
        if any(trace.is_index for _, _, trace in arguments) and (sort.model or makes_a_value(node)):
            self.flow.index_as_data = True
        ops = [
            name
            for name, has in (
                (MODEL, sort.model),
                (RNN, sort.rnn),
                (CHOICE, sort.choice),
                (CAT, sort.cat),
                (RESIZE, sort.resize),
                (ARITHMETIC, sort.launches),
            )
            if has
        ]
        result = given.through(*ops)
        result = self._through_object(node, sort, result)
        direct = tuple((name, position) for position, value, trace in arguments for name in self._direct(value, trace))
        self.flow.calls.append(Call(node, sort, result, direct))
        if sort.launches and given.varies:
            self.flow.operations.append(node)
        if sort.view:
            inner = arguments[0][2] if self.program.value(node.func).kind is Kind.LIBRARY and arguments else owner
            return result._replace(definitions=inner.definitions)
        return result._replace(definitions=frozenset({(id(node), None)}))

    def _is_for_its_effect(self, node: ast.Call) -> bool:
        """Is nothing done with what it returns, as nothing can be with what a list's methods return?"""
        return isinstance(self.program.parent(node), ast.Expr | ast.IfExp | ast.BoolOp | ast.ListComp)

    def _length(self, node: ast.Call) -> Trace:
        """`len(outputs)` of a list that the loop grows counts its iterations."""
        if (
            called(node) == "len"
            and node.args
            and any(each.name == path_of(node.args[0]) for each in self.flow.collected)
        ):
            return INDEX
        if (
            called(node) == "len"
            and node.args
            and path_of(node.args[0]) in self.written
            and path_of(node.args[0]) not in self.env
        ):
            return INDEX
        return INVARIANT

    def _owner(self, node: ast.Call) -> Trace:
        if not isinstance(node.func, ast.Attribute):
            return (
                self.trace(node.func) if not isinstance(node.func, ast.Name) else self.env.get(node.func.id, INVARIANT)
            )
        if (
            self.program.value(node.func.value).kind in (Kind.LIBRARY, Kind.MODULE)
            and path_of(node.func.value) not in self.env
        ):
            return INVARIANT
        return self.trace(node.func.value)

    def _note_members(self, node: ast.Call, owner: Trace) -> None:
        """Is what is called another one in each iteration?"""
        if "checkpoint" in called(node) and node.args and self.trace(node.args[0]).slices:
            self.flow.members = True  # the layer is handed to torch.utils.checkpoint
        if isinstance(node.func, ast.Attribute):
            value = self.program.value(node.func.value)
            root = self._root(node.func.value)
            is_object = value.kind in (Kind.MODULE, Kind.INSTANCE) or any(
                path_of(member) == root for member in self.header.members
            )
            is_method = (
                called(node) in LISTS or keeps_numbers(called(node)) or torch_ops.of_method(called(node)) is not None
            )
            if value.kind is Kind.UNKNOWN and root in self._elements() and not is_method:
                is_object = True  # an element with methods of its own is no step
            if is_object and owner.varies and not owner.carried:
                self.flow.members = True
        elif ((owner.is_index or owner.slices) and not owner.carried and not isinstance(node.func, ast.Call)) or (
            isinstance(node.func, ast.Call) and called(node.func) == "getattr" and owner.is_index
        ):
            self.flow.members = True

    def _elements(self) -> set[str]:
        return {path_of(each.target) for each in self.header.elements if not each.is_tensor}

    def _direct(self, value: ast.expr, trace: Trace) -> list[str]:
        """The carried names that an argument hands on as they are."""
        if isinstance(value, ast.Tuple | ast.List):
            return [name for part in value.elts for name in self._direct(part, trace)]
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant | ast.Name):
            if isinstance(value.slice, ast.Constant) and not isinstance(value.slice.value, int):
                return []
            if isinstance(value.slice, ast.Name) and self.trace(value.slice).slices:
                return []  # a key that the loop walks through
            return self._direct(value.value, trace)
        path = path_of(value)
        return [path] if path and path in trace.carried and path not in self.env else []

    def _through_object(self, node: ast.Call, sort: CallSort, result: Trace) -> Trace:
        """What is called may keep a state inside."""
        for name in sorted(self._kept_inside(node, sort)):
            self.flow.reads.setdefault(name, []).append(node)
            result = merged((result, Trace(carried=frozenset({name}))))
            self.env[name] = result
        return result

    def _kept_inside(self, node: ast.Call, sort: CallSort) -> set[str]:
        """What carries state from call to call: attributes, or the object where its file is another."""
        callee, path = self.program.callee(node), path_of(node.func)
        is_module = self.program.value(node.func).kind is Kind.MODULE
        if not sort.model and not sort.launches:
            return set()
        if callee is None:
            kept = {path} & self.prepared if sort.model and self._runs(node) else set[str]()
            self.flow.objects |= kept
            return kept
        if is_module and path:
            kept = {path + name.removeprefix("self") for name in object_state(self.program, callee)}
            self.flow.objects |= kept
            return kept
        is_method = isinstance(node.func, ast.Attribute) and path_of(node.func.value) == "self"
        return object_state(self.program, callee) if is_method else set()

    def _runs(self, node: ast.Call) -> bool:
        """May it be a step of an object's, rather than a note of something by name, as `with timer("load")` is?"""
        is_named = any(self.program.value(each).kind is Kind.STRING for each in node.args)
        return not is_named and not isinstance(self.program.parent(node), ast.withitem)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Trace:
        outer, self.env = self.env, dict(self.env)
        iterated = [self.trace(generator.iter) for generator in node.generators]
        for generator, trace in zip(node.generators, iterated, strict=True):
            for part in ast.walk(generator.target):
                if isinstance(part, ast.Name):
                    self.env[part.id] = trace
            for test in generator.ifs:
                self.trace(test)
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        result = merged(
            [self.trace(part) for part in parts] + [trace for trace in iterated if isinstance(node, ast.ListComp)]
        )
        self.env = outer
        return result

    # -- shared with the statements

    def collect(self, name: str, how: str, node: ast.AST, trace: Trace) -> None:
        """Note a result; in a list that this iteration made, it is a part of its value instead."""
        if name in self.env and how == "append":
            self.env[name] = merged((self.env[name], trace))
            return
        if how == "append":
            self.contents[name] = merged((self.contents.get(name, INVARIANT), trace))
        if not any(each.node is node and each.how == how for each in self.flow.collected):
            self.flow.collected.append(Collected(name, how, node, trace))

    def meet(self, test: ast.expr, one: Trace, other: Trace, name: str) -> Trace:
        """What comes out where two branches meet; notes a choice between what is given and what the loop made."""
        known = name if name in self.flow.reads else ""
        if not self._tests_the_index(test) and (is_forced(one, other, known) or is_forced(other, one, known)):
            self.flow.forced.add(name or "?")
        return merged((one, other))

    def _tests_the_index(self, test: ast.expr) -> bool:
        """Does the test depend on nothing but the number of the iteration?"""
        names = {path_of(part) for part in ast.walk(test) if isinstance(part, ast.Name)}
        return bool(names & self.header.indices) and not any(
            isinstance(part, ast.Call) and not is_metadata(part) for part in ast.walk(test)
        )
