"""What is known while one loop is vectorized: the program, its IR, and the values of the body's names so far."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Graph, sources_of
from perflint.analysis.program import Program
from perflint.analysis.values.shape_rules import given_to_torch
from perflint.analysis.values.shapes import Shapes, axis_of
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import local_names
from perflint.syntax.walk import FUNCTIONS, PlainLoop, integer, own_nodes, path_of, receiver_of
from perflint.transforms.operations import assignment, derived, reference, standing_for
from perflint.transforms.rewrite import Blocked, Taken, name_of_torch, taken_around
from perflint.transforms.vectorize.values import Batched, Carried, Induction, Invariant, State, Value

_CLOSED = (*FUNCTIONS, ast.ClassDef, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)


@dataclass(frozen=True)
class Facts:
    """What is known of the loop before anything of it is vectorized.

    `torch` is what the program calls it, empty where it does not; `inside` are the nodes of the loop; `bound_names` the
    names that its function gives a value; `live_out` those that it sets and code after it reads; `shifted` is what
    names are given at the end of a step out of given sequences alone: loop-carried shifted inputs. `lift` gives the
    value of an expression.
    """

    program: Program
    loop: PlainLoop
    torch: str
    inside: Set[ast.AST]
    bound_names: frozenset[str]
    live_out: frozenset[str]
    shifted: Mapping[str, ast.expr]
    lift: Callable[[Scope, ast.expr], Value]


@dataclass(frozen=True)
class Appended:
    """A list called `path` that gets one tensor in each step."""

    path: str
    statement: ast.stmt
    value: Batched


@dataclass(frozen=True)
class Draft:
    """What the new statements have come to so far; the loop and all functions that it calls add to the same one.

    `before` are statements that the next one needs before it; `changes` what becomes different besides rounding;
    `oddities` what few would write by hand;
    `consumed` the states that RNNs were given; `shifted` the names that were read one step late; `final` what has its
    last value after the new statements already; `outputs` the names of what Cells put out, by the path of their state;
    `lists` are the lists of results, `unread` the variables from before the loop that its steps need no more.
    """

    taken: Taken
    before: list[ast.stmt] = field(default_factory=list)
    changes: set[str] = field(default_factory=set)
    oddities: set[str] = field(default_factory=set)
    consumed: set[str] = field(default_factory=set)
    shifted: set[str] = field(default_factory=set)
    final: set[str] = field(default_factory=set)
    outputs: dict[str, str] = field(default_factory=dict)
    lists: list[Appended] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)

    def outputs_of(self, path: str) -> str:
        if path not in self.outputs:
            self.outputs[path] = self.taken.fresh(f"{path}_steps")
        return self.outputs[path]


@dataclass(frozen=True)
class Callee:
    """How the names of a function that the body calls, `depth` calls deep, are written in the loop's function.

    `own` are those of the names that it gives a value itself.
    """

    depth: int
    codes: dict[str, ast.expr] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """The `new` statements that take the place of an old one."""

    statement: ast.stmt
    new: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class Scope:
    """The values, by path, of what one function has given a value so far: the loop's, or one that its body calls.

    `assigned` are all paths that the loop gives a value, `targets` what its head alone does. Where it is
    replaced with changes, both go on with the same `draft` and `values`.
    """

    facts: Facts
    draft: Draft
    assigned: frozenset[str]
    targets: Mapping[str, Value] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    callee: Callee | None = None

    @property
    def program(self) -> Program:
        return self.facts.program

    @property
    def depth(self) -> int:
        return self.callee.depth if self.callee is not None else 0

    @property
    def flow(self) -> Flow:
        return self.program.get(Flow)

    @property
    def graph(self) -> Graph:
        return self.flow.graph(self.facts.loop)

    def lift(self, node: ast.expr) -> Value:
        return self.facts.lift(self, node)

    def tensor(self, node: ast.expr, at: ast.AST | None = None) -> Batched | Invariant:
        """The value of `node`, a tensor that is known in every step; raises Blocked."""
        return tensor(self.lift(node), at or node)

    def read(self, node: ast.expr) -> Value | None:
        """The value of a variable that the body or the loop's head sets; None for any other."""
        path = path_of(node)
        return self.values.get(path, Carried(path) if path in self.assigned else None)

    def varies(self, *nodes: ast.expr) -> bool:
        """Does one of them read anything that the loop sets?"""
        return any(
            isinstance(part, ast.Name | ast.Attribute) and not isinstance(self.read(part), Invariant | None)
            for node in nodes
            for part in ast.walk(node)
        )

    def code(self, node: ast.expr, parts: Mapping[ast.expr, ast.expr] | None = None) -> ast.expr:
        """`node` as the loop's function writes it, with other code for some `parts`."""
        return derived(node, {**self._renamed(node, parts or {}), **(parts or {})})

    def _renamed(self, node: ast.expr, parts: Mapping[ast.expr, ast.expr]) -> dict[ast.expr, ast.expr]:
        if self.callee is None:
            return {}
        gone = {part for each in parts for part in ast.walk(each)}
        found: dict[ast.expr, ast.expr] = {}
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part not in gone:
                if part.id in self.callee.codes:
                    found[part] = self.callee.codes[part.id]
                elif part.id in self.facts.bound_names:
                    raise Blocked(f"`{part.id}` is another variable in the function that is called", part)
        return found

    def local(self, name: str) -> str:
        if self.callee is None:
            return name
        if name not in self.callee.own:
            self.callee.own[name] = self.draft.taken.fresh(name)
            self.callee.codes[name] = reference(self.callee.own[name])
        return self.callee.own[name]

    def bound(self, code: ast.expr, name: str = "steps") -> str:
        if isinstance(code, ast.Name):
            return code.id
        name = self.draft.taken.fresh(name)
        self.draft.before.append(assignment(name, code))
        return name

    # -- the loop's variables

    def starts(self, name: str) -> list[Definition]:
        uses = (node for node in self.facts.inside if isinstance(node, ast.Name) and node.id == name)
        return [*dict.fromkeys(each for use in uses for each in self._in_front(use))]

    def entering(self, name: str) -> list[ast.expr | None]:
        return [each.given for each in self.starts(name)] or [None]

    def start(self, name: ast.Name) -> ast.expr | None:
        """What the only assignment before the loop gives `name`."""
        starts = self._in_front(name)
        return starts.pop().given if len(starts) == 1 else None

    def _in_front(self, name: ast.Name) -> list[Definition]:
        value = self.flow.graph(name).read(name)
        made = (each for each in sources_of(value) if isinstance(each, Definition)) if value is not None else ()
        return [each for each in made if each.node not in self.facts.inside]

    def uses(self, name: str) -> list[ast.Name]:
        around = self.program.function_of(self.facts.loop) or self.program.tree
        return [node for node in own_nodes(around) if isinstance(node, ast.Name) and node.id == name]

    def is_given_to_torch(self, node: ast.expr) -> bool:
        """Is it a variable that a function of torch gets, whenever the loop runs, which takes nothing but tensors?"""
        value = self.flow.graph(node).value(node) if isinstance(node, ast.Name) else None
        uses = value.uses if value is not None and self.program.value(node).kind is Kind.UNKNOWN else ()
        return any(given_to_torch(self.program, use, node) is not None for use in uses)

    # -- shapes

    def rank(self, node: ast.expr) -> int | None:
        return self.program.get(Shapes).shape(node).rank

    def is_length(self, count: ast.expr, base: ast.expr, axis: int) -> bool:
        shapes = self.program.get(Shapes)
        size = shapes.shape(base).size(axis)
        if size and shapes.size(count) == size:
            return True
        measure = self.start(count) if isinstance(count, ast.Name) else count
        measured = axis_of(measure) if measure is not None else None
        return measured is not None and measured[1] == axis and self.is_same(measured[0], base)

    def is_same(self, one: ast.expr, other: ast.expr) -> bool:
        if not isinstance(one, ast.Name) or not isinstance(other, ast.Name) or one.id != other.id:
            return False
        return self.flow.definitions(one) == self.flow.definitions(other) != frozenset()

    def invariant(self, node: ast.expr) -> Invariant:
        is_number = self.program.value(node).kind is Kind.NUMBER
        return Invariant(self.code(node), 0 if is_number else self.rank(node), is_number)


def scope_of(program: Program, loop: PlainLoop, lift: Callable[[Scope, ast.expr], Value]) -> Scope:
    """The scope in which `loop` is vectorized, its head still to be read; raises Blocked."""
    inside = dict.fromkeys(own_nodes(loop)).keys()
    if found := [node for node in own_nodes(loop) if isinstance(node, _CLOSED)]:
        raise Blocked("other code may run in each step", found[0])
    around, graph = program.function_of(loop), program.get(Flow).graph(loop)
    stored = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if shared := sorted(stored & (graph.shared | graph.captured.keys())):
        raise Blocked(f"`{shared[0]}` is a global variable, or a function defined here uses it", loop)
    facts = Facts(
        program=program,
        loop=loop,
        torch=name_of_torch(program),
        inside=inside,
        bound_names=frozenset(local_names(around) if around is not None else ()),
        live_out=frozenset(graph.live_out(loop)),
        shifted=shifted_inputs(loop),
        lift=lift,
    )
    return Scope(facts, Draft(taken_around(program, loop)), frozenset(written_paths(loop)))


def counter(scope: Scope, node: ast.expr) -> Induction | None:
    """`node` as the induction variable, plus or minus a constant."""
    if isinstance(node, ast.Name):
        value = scope.read(node)
        return value if isinstance(value, Induction) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = counter(scope, node.left), integer(node.right)
        if left is not None and right is not None:
            offset = left.offset + (right if isinstance(node.op, ast.Add) else -right)
            return replace(left, offset=offset)
    return None


def tensor(value: Value, node: ast.AST) -> Batched | Invariant:
    if isinstance(value, State) and value.outputs is not None:
        return value.outputs
    if isinstance(value, Batched | Invariant):
        return value
    if isinstance(value, Carried):
        raise Blocked(f"the step needs `{value.path}` of the step before", node)
    if isinstance(value, Induction):
        raise Blocked("the number of the step is used as data", node)
    raise Blocked("the RNN's state of each step is not among its outputs", node)


def placed(lines: Iterable[Line]) -> list[ast.stmt]:
    """The new statements, with the comments of those they stand for."""
    found: list[ast.stmt] = []
    for line in lines:
        for position, each in enumerate(line.new):
            if not position:
                standing_for(each, line.statement, alone=len(line.new) == 1)
            found.append(each)
    return found


def root_of(path: str) -> str:
    return re.split(r"\W", path)[0]


def appended(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """The list that `node` appends to, and what: `outs.append(x)` or `outs += [x]`; None of any other statement."""
    call = node.value if isinstance(node, ast.Expr) else None
    if (appending := receiver_of(call, "append")) is not None and isinstance(call, ast.Call):
        path = path_of(appending)
        if path and len(call.args) == 1 and not call.keywords:
            return path, call.args[0]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, ast.List):
        path = path_of(node.target)
        if path and len(node.value.elts) == 1:
            return path, node.value.elts[0]
    return None


def written_paths(loop: PlainLoop) -> Iterator[str]:
    """The paths to which the loop may give a value, or an item."""
    for node in own_nodes(loop):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if path := path_of(node.value if isinstance(node, ast.Subscript) else node):
                yield path
        elif isinstance(node, ast.stmt) and (kept := appended(node)) is not None:
            yield kept[0]


def shifted_inputs(loop: PlainLoop) -> dict[str, ast.expr]:
    """The names that the body sets once, out of given sequences alone, with those values."""
    stored = [node.id for each in loop.body for node in own_nodes(each) if _is_store(node)]
    found = (node for node in loop.body if isinstance(node, ast.Assign) and len(node.targets) == 1)
    return {
        target.id: node.value
        for node in found
        if _is_store(target := node.targets[0]) and stored.count(target.id) == 1
        and not any(isinstance(part, ast.Name) and part.id in stored for part in ast.walk(node.value))
    }  # fmt: skip


def _is_store(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
