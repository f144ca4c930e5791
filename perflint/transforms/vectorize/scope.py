"""What the lifting of one loop knows: the program, the shapes in it, and the values of the body's names so far."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.shapes import Shapes, axis_of
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, integer, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.names import Taken
from perflint.transforms.operations import derived
from perflint.transforms.template import assignment, reference
from perflint.transforms.vectorize.steps import Carried, Index, Layers, Lifted, Same, State, Steps

if TYPE_CHECKING:
    from perflint.analysis.program import Program


@dataclass(frozen=True)
class Lifter:
    """What lifts an expression, and the statements of a function that a body calls; both need this module."""

    expression: Callable[[Scope, ast.expr], Lifted]
    statements: Callable[[Scope, list[ast.stmt]], Iterator[ast.stmt]]


@dataclass(frozen=True)
class Facts:
    """What is known of the loop before anything of it is lifted."""

    program: Program
    loop: PlainLoop
    flow: Flow
    shapes: Shapes
    torch: str  # how the program calls it; empty where it does not
    inside: frozenset[ast.AST]  # the nodes of the loop
    bound_names: frozenset[str]  # those that the loop's function gives a value
    read_behind: frozenset[str]  # the names that the loop sets and code behind it reads
    handed_on: Mapping[str, ast.expr]  # what names are given at the end of a step
    lifter: Lifter


@dataclass(frozen=True)
class Draft:
    """What the new statements have come to so far; the loop and all functions that it calls add to the same one."""

    taken: Taken
    before: list[ast.stmt] = field(default_factory=list)  # statements that the next one needs in front of it
    changes: set[str] = field(default_factory=set)  # what becomes different besides rounding
    consumed: set[str] = field(default_factory=set)  # the states that RNNs were given
    shifted: set[str] = field(default_factory=set)  # the names that were read one step late
    final: set[str] = field(default_factory=set)  # what has its last value behind the new statements already
    outputs: dict[str, str] = field(default_factory=dict)  # the names of what Cells put out, by the path of their state
    below: dict[str, int] = field(default_factory=dict)  # along which axis a layer took them to be

    def outputs_of(self, path: str) -> str:
        """The name of the outputs of the Cell whose state is found under `path`."""
        if path not in self.outputs:
            plain = re.sub(r"\[[^\d\W]\w*\]|\W", "", path)  # `h` of `h[layer]`, `h0` of `h[0]`
            self.outputs[path] = self.taken.fresh(f"{plain}_steps")
        return self.outputs[path]


@dataclass(frozen=True)
class Callee:
    """How the names of a function that the loop's body calls are written in the loop's function."""

    depth: int  # of calls
    codes: dict[str, ast.expr] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)  # of the names that it gives a value itself


@dataclass(frozen=True)
class Layer:
    """A loop inside of a step, as over the layers of a stack, which counts by `index`: empty where it does not.

    It begins at `first`. `is_above`: the layer is known not to be the first one. `axis`: along which the layers put out
    their steps, where that is known.
    """

    index: str
    first: int = 0
    is_above: bool = False
    axis: int | None = None


@dataclass(frozen=True)
class Scope:
    """The values, by path, of what one function has given a value so far: the loop's, or one that its body calls.

    Where it is replaced with changes, both go on with the same `draft` and, unless they are changed, `values`.
    """

    facts: Facts
    draft: Draft
    assigned: frozenset[str]  # all paths that the loop gives a value
    targets: Mapping[str, Lifted] = field(default_factory=dict)  # what the loop's head alone gives a value
    values: dict[str, Lifted] = field(default_factory=dict)
    callee: Callee | None = None
    layer: Layer | None = None
    late: frozenset[ast.AST] = frozenset()  # the names that stand for what the step before left, wherever they are

    @property
    def program(self) -> Program:
        """The program that the loop is in."""
        return self.facts.program

    def lift(self, node: ast.expr) -> Lifted:
        """The value of `node` in all steps; raises Blocked."""
        return self.facts.lifter.expression(self, node)

    def lift_statements(self, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
        """The statements that take the place of those of a function that the loop's body calls; raises Blocked."""
        return self.facts.lifter.statements(self, statements)

    def read(self, node: ast.expr) -> Lifted | None:
        """The value of a variable, or an item of a list, that the body or the loop's head sets; None for any other."""
        place = place_of(node)
        if place in self.values and node not in self.late:
            return self.values[place]
        if place in self.assigned or (isinstance(node, ast.Subscript) and place and self._is_item(node)):
            return Carried(place)
        return None

    def _is_item(self, node: ast.Subscript) -> bool:
        """Is it the same item, in each step, of what the step before left?"""
        is_fixed = (integer(node.slice) or 0) >= 0 and isinstance(node.slice, ast.Constant)
        is_layer = self.layer is not None and isinstance(node.slice, ast.Name) and node.slice.id == self.layer.index
        base = self.read(node.value)
        return (is_fixed or is_layer) and isinstance(base, Carried) and base.path not in self.facts.handed_on

    def same(self, node: ast.expr) -> Same:
        """An expression in which nothing differs from step to step."""
        is_number = self.program.value(node).kind is Kind.NUMBER
        return Same(self.code(node), 0 if is_number else self.facts.shapes.shape(node).rank, is_number)

    def varies(self, node: ast.expr) -> bool:
        """Does `node` read anything that the loop gives a value?"""
        return any(
            isinstance(part, ast.Name | ast.Attribute) and not isinstance(self.read(part), Same | None)
            for part in ast.walk(node)
        )

    def code(self, node: ast.expr, parts: Mapping[ast.expr, ast.expr] | None = None) -> ast.expr:
        """`node` as the loop's function writes it, with other code for some `parts`."""
        return derived(node, {**self._renamed(node, parts or {}), **(parts or {})})

    def _renamed(self, node: ast.expr, parts: Mapping[ast.expr, ast.expr]) -> dict[ast.expr, ast.expr]:
        """The names of a called function, as the loop's function writes them."""
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
        """How the loop's function writes a name that is given a value here."""
        if self.callee is None:
            return name
        if name not in self.callee.own:
            self.callee.own[name] = self.draft.taken.fresh(name)
            self.callee.codes[name] = reference(self.callee.own[name])
        return self.callee.own[name]

    def bound(self, code: ast.expr) -> str:
        """A name for what `code` computes."""
        if isinstance(code, ast.Name):
            return code.id
        name = self.draft.taken.fresh("steps")
        self.draft.before.append(assignment(name, code))
        return name

    def starts(self, name: str) -> set[ast.AST]:
        """Where the variable gets the values that it has in front of the loop."""
        uses = (node for node in self.facts.inside if isinstance(node, ast.Name) and node.id == name)
        return {each for node in uses for each in self.facts.flow.definitions(node)} - self.facts.inside

    def start(self, name: ast.Name) -> ast.expr | None:
        """What the one assignment in front of the loop gives `name`; None where it comes from elsewhere, too."""
        starts = self.facts.flow.definitions(name) - self.facts.inside
        target = next(iter(starts)) if len(starts) == 1 else None
        statement = self.program.statement_of(target) if isinstance(target, ast.Name) else None
        return given_by(statement, target) if isinstance(statement, ast.Assign) and target is not None else None

    def is_length(self, count: ast.expr, base: ast.expr, axis: int) -> bool:
        """Is `count` how long `base` is along `axis`?"""
        size = self.facts.shapes.shape(base).size(axis)
        if size and self.facts.shapes.size(count) == size:
            return True
        measure = self.start(count) if isinstance(count, ast.Name) else count
        measured = axis_of(measure) if measure is not None else None
        return measured is not None and measured[1] == axis and self.is_same(measured[0], base)

    def is_same(self, one: ast.expr, other: ast.expr) -> bool:
        """Are both the same variable, given its value in the same place?"""
        if not isinstance(one, ast.Name) or not isinstance(other, ast.Name) or one.id != other.id:
            return False
        return self.facts.flow.definitions(one) == self.facts.flow.definitions(other) != frozenset()

    def rank(self, node: ast.expr) -> int | None:
        """How many axes the value of `node` has, where the program tells."""
        return self.facts.shapes.shape(node).rank


def place_of(node: ast.AST) -> str:
    """The path of a variable, or of an item of a list: `h[i]`, `h[0]`; empty for all else."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Constant | ast.BinOp):
        base = place_of(node.value)
        return f"{base}[{ast.unparse(node.slice)}]" if base else ""
    return path_of(node)


def root_of(path: str) -> str:
    """The variable that a path begins with."""
    return re.split(r"\W", path)[0]


def given_by(statement: ast.Assign, name: ast.AST) -> ast.expr | None:
    """What `statement` gives to `name`; None where that is not in sight."""
    target, value = statement.targets[0], statement.value
    if len(statement.targets) > 1:
        return None
    if target is name:
        return value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return next((given for part, given in zip(target.elts, value.elts, strict=True) if part is name), None)
    return None


def counter(scope: Scope, node: ast.expr) -> Index | None:
    """`node` as the loop's counter, plus or minus a constant."""
    if isinstance(node, ast.Name):
        value = scope.read(node)
        return value if isinstance(value, Index) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = counter(scope, node.left), integer(node.right)
        if left is not None and right is not None:
            offset = left.offset + (right if isinstance(node.op, ast.Add) else -right)
            return replace(left, offset=offset)
    return None


def tensor(value: Lifted, node: ast.expr) -> Steps | Same:
    """`value` where it is a tensor that is known in every step; raises Blocked."""
    if isinstance(value, State) and value.is_output and value.outputs is not None:
        return value.outputs
    if isinstance(value, Steps | Same):
        return value
    if isinstance(value, Carried):
        raise Blocked(f"the step needs `{value.path}` of the step before", node)
    if isinstance(value, Index):
        raise Blocked("the number of the step is used as data", node)
    if isinstance(value, Layers):
        raise Blocked("the states of all layers are read together", node)
    raise Blocked("the RNN's state of each step is not among its outputs", node)
