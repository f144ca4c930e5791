"""Traces the expressions in the body of a loop."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.program import torch_table
from perflint.program.dataflow import Call, Collected, Draft, TimeSlice
from perflint.program.indices import is_next, picks_one, place, starts_alike
from perflint.program.loop_calls import LISTS, VIEWS, is_metadata, makes_a_value, object_state, sort_of
from perflint.program.time_evidence import is_parameter
from perflint.program.time_header import Header, called
from perflint.program.trace import ARITHMETIC, CAT, CHOICE, INDEX, INVARIANT, MODEL, RESIZE, RNN, Trace, merged
from perflint.program.values import Kind
from perflint.program.walk import COMPREHENSIONS, path_of

if TYPE_CHECKING:
    from perflint.program import Program

_QUIET = frozenset(
    {"print", "info", "debug", "warning", "add_scalar", "set_postfix", "set_description", "write", "log"}
)


class Expressions:
    """Where each expression of one iteration comes from; the statements are `loop_body.Body`'s, which extends this."""

    def __init__(self, program: Program, header: Header, written: set[str]) -> None:
        self.program = program
        self.header = header
        self.written = written
        self.flow = Draft()
        self.env: dict[str, Trace] = {}
        self.slots: dict[str, list[tuple[str, Trace, bool]]] = {}  # by base: where it is written, what, and always?
        self.contents: dict[str, Trace] = {}  # by list: what this iteration put into it
        self.places: dict[str, set[str]] = {}  # by base: every place where the body writes it, "" for the whole
        self.conditional = 0  # depth of run-time tests around

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
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare) and self.program.value(node).kind is Kind.TENSOR:
            if parts.varies and not any(isinstance(each, ast.List) for each in ast.iter_child_nodes(node)):
                self.flow.operations.append(node)
            operands = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
            if any(self.program.value(each).kind is not Kind.TENSOR and self._is_index(each) for each in operands):
                self.flow.index_as_data = True
            return parts.through(ARITHMETIC)
        return parts.number()

    def _is_index(self, node: ast.expr) -> bool:
        return path_of(node) in self.header.indices

    # -- names

    def _path(self, node: ast.Name | ast.Attribute) -> Trace:
        if is_metadata(node):
            return INVARIANT
        path = path_of(node)
        if not path:
            assert isinstance(node, ast.Attribute)
            return self.trace(node.value)
        while path:
            if path in self.env:
                return self.env[path]
            if path in self.written and any(owner in self.env for owner in _owners(path)):
                return self.env[next(owner for owner in _owners(path) if owner in self.env)]
            if path in self.header.indices:
                return INDEX
            if path in self.written:
                return self._carried(path, node)
            path = path.rpartition(".")[0]
        return INVARIANT

    def _carried(self, path: str, node: ast.expr) -> Trace:
        self.flow.reads.setdefault(path, []).append(node)
        return merged((Trace(carried=frozenset({path})), self.contents.get(path, INVARIANT).number()))

    # -- subscripts

    def _subscript(self, node: ast.Subscript) -> Trace:
        index = self.trace(node.slice)
        base_path = path_of(node.value)
        plain = index.is_index and not index.carried and not index.slices
        own = any(self._is_index(part) for part in _parts(node.slice)) and not index.carried
        if own or (plain and picks_one(node.slice, self._is_indexed)):
            step = self._step(node, base_path)
            if step is not None:
                return step
        if self._is_other_key(node, base_path):
            return INVARIANT
        base = self.trace(node.value)
        if not base.varies:
            self.note_chunks(node.slice)
        constant = (
            node.slice.value if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int) else None
        )
        if constant is not None:
            definitions = frozenset((call, constant if part is None else part) for call, part in base.definitions)
            return base._replace(definitions=definitions)
        moved = base if isinstance(node.slice, ast.Slice) else base.number()
        return merged((moved, Trace(index.slices, index.carried, index.ops)))

    def _is_other_key(self, node: ast.Subscript, base: str) -> bool:
        """Is it an entry of a dictionary of which the loop writes other entries only?"""
        keys = self.places.get(base, set())
        return (
            isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
            and base not in self.env
            and bool(keys)
            and all(key[:1] in ("'", '"') for key in keys)
            and ast.unparse(node.slice) not in keys
        )

    def note_chunks(self, index: ast.expr) -> None:
        """Note that the loop takes, or fills, a range of steps at a time."""
        parts = _parts(index)
        self.flow.chunks |= any(isinstance(part, ast.Slice) and self._strides(part) for part in parts)

    def _strides(self, part: ast.Slice) -> bool:
        """Do both ends of a slice move with the loop, by more than one step?"""
        if part.lower is None or part.upper is None or is_next(part.lower, part.upper):
            return False
        ends = [self.trace(part.lower), self.trace(part.upper)]
        return all(end.is_index or end.slices or end.carried for end in ends)

    def _is_indexed(self, node: ast.expr) -> bool:
        return self.trace(node).is_index

    def _step(self, node: ast.Subscript, base_path: str) -> Trace | None:
        """The trace of `x[t]` where x is a sequence; None where it is something else."""
        kind = self.program.value(node.value).kind
        if kind is Kind.MODULE or self.program.value(node).kind is Kind.MODULE:
            self.flow.members = True
            return INVARIANT
        if kind in (Kind.NUMPY, Kind.MAPPING, Kind.STRING, Kind.DATASET):
            return INVARIANT
        if is_parameter(self.program, node.value):
            self.flow.members = True
            return INVARIANT
        written = self.slots.get(base_path)
        if written is not None:
            return self._written_step(node, base_path, written)
        if (self._is_made_here(node.value) and not self._is_only_replaced(base_path, node)) or self._depends(
            node.value
        ):
            return None
        text = base_path or ast.unparse(node.value)
        axis, offset = place(node, self.header.indices)
        self.flow.slices.append(TimeSlice(text, node, axis, offset, kind is Kind.TENSOR))
        return Trace(slices=frozenset({text}))

    def _is_made_here(self, node: ast.expr) -> bool:
        """Does the loop bind or change the sequence, or an object that it is a part of?"""
        path = self._root(node)
        while path:
            if path in self.env or path in self.written:
                return True
            path = path.rpartition(".")[0]
        return False

    def _is_only_replaced(self, base: str, node: ast.Subscript) -> bool:
        """Does the loop change the sequence at nothing but the step that it reads?"""
        places = self.places.get(base)
        return (
            places is not None
            and base not in self.env
            and all(starts_alike(each, ast.unparse(node.slice)) for each in places)
        )

    def _depends(self, node: ast.expr) -> bool:
        return not isinstance(node, ast.Name | ast.Attribute) and self.trace(node).varies

    def _written_step(self, node: ast.Subscript, base: str, written: list[tuple[str, Trace, bool]]) -> Trace:
        """A step of what the loop itself writes step by step."""
        text = ast.unparse(node.slice)
        for where, trace, always in reversed(written):
            if where == text or starts_alike(where, text):
                if always:
                    return trace
                self.flow.slices.append(TimeSlice(base, node, *place(node, self.header.indices), True))
                if trace.carried:
                    self.flow.forced.add(base)
                return merged((trace, Trace(slices=frozenset({base}))))
        if place(node, self.header.indices)[1] is None:
            self.flow.permuted.add(base)
        return self._carried(base, node)

    def _root(self, node: ast.expr) -> str:
        while isinstance(node, ast.Subscript | ast.Attribute) and not path_of(node):
            node = node.value
        return path_of(node)

    # -- calls

    def _call(self, node: ast.Call) -> Trace:
        if called(node) in _QUIET or is_metadata(node):
            return self._length(node)
        sort = sort_of(self.program, node)
        arguments = [(position, value, self.trace(value)) for position, value in enumerate(node.args)]
        arguments += [(-1, keyword.value, self.trace(keyword.value)) for keyword in node.keywords]
        grown = path_of(node.func.value) if isinstance(node.func, ast.Attribute) and called(node) in LISTS else ""
        if grown and arguments and not sort.launches:
            self.collect(grown, "append", node, merged(trace for _, _, trace in arguments))
            return INVARIANT
        owner = self._owner(node)
        given = merged([owner, *(trace for _, _, trace in arguments)])
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
        result = self._through_object(node, sort.model, result)
        direct = tuple((name, position) for position, value, trace in arguments for name in self._direct(value, trace))
        self.flow.calls.append(Call(node, sort, result, direct))
        if sort.launches and given.varies:
            self.flow.operations.append(node)
        if sort.view:
            inner = arguments[0][2] if self.program.value(node.func).kind is Kind.LIBRARY and arguments else owner
            return result._replace(definitions=inner.definitions)
        return result._replace(definitions=frozenset({(id(node), None)}))

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
            is_method = called(node) in LISTS | VIEWS or torch_table.method(called(node)) is not None
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

    def _through_object(self, node: ast.Call, model: bool, result: Trace) -> Trace:
        """Methods of the same object may carry state in its attributes."""
        callee = self.program.callee(node)
        if (
            callee is None
            or not model
            or not isinstance(node.func, ast.Attribute)
            or path_of(node.func.value) != "self"
        ):
            return result
        if self.program.value(node.func).kind is Kind.MODULE:
            return result
        for name in sorted(object_state(self.program, callee)):
            self.flow.reads.setdefault(name, []).append(node)
            result = merged((result, Trace(carried=frozenset({name}))))
            self.env[name] = result
        return result

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
        for given, own in ((one, other), (other, one)):
            if given.slices and not given.carried and own.carried and not self._tests_the_index(test):
                self.flow.forced.add(name or "?")
        return merged((one, other))

    def _tests_the_index(self, test: ast.expr) -> bool:
        """Does the test depend on nothing but the number of the iteration?"""
        names = {path_of(part) for part in ast.walk(test) if isinstance(part, ast.Name)}
        return bool(names & self.header.indices) and not any(
            isinstance(part, ast.Call) and not is_metadata(part) for part in ast.walk(test)
        )


def _owners(path: str) -> list[str]:
    """The objects that `a.b.c` is a part of: a.b and a."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]
