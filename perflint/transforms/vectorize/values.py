"""The values of a loop's body in all steps at once, and how their time axis moves."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from perflint.transforms.operations import expression, new, same_code

MANY = 99


@dataclass(frozen=True)
class Invariant:
    """A loop-invariant value; `rank` is None where the number of axes is unknown."""

    code: ast.expr
    rank: int | None = None
    is_number: bool = False


@dataclass(frozen=True)
class Batched:
    """A tensor that differs between steps: `code` holds all of them along `axis`, the time axis.

    One step has `least` to `most` axes. Where it is `kept`, a step has `axis`, of size 1 (`x[:, t : t + 1]`); otherwise
    it lacks it (`x[:, t]`). Steps `of` the same have equally many axes. `own`: computed, no view of older memory;
    `dense`: contiguous; `fresh`: nothing else holds its memory, and no gradient needs it, so that it may be written to.
    """

    code: ast.expr
    axis: int
    least: int
    most: int = MANY
    kept: bool = False
    dense: bool = False
    own: bool = False
    fresh: bool = False
    of: str = ""

    @property
    def axes_after(self) -> int:
        return self.least - self.axis - (1 if self.kept else 0)

    @property
    def rank(self) -> int | None:
        return self.least if self.least == self.most else None

    def with_axes(self, more: int, code: ast.expr) -> Batched:
        least, most = self.least + more, min(self.most + more, MANY)
        return replace(self, code=code, least=least, most=most, dense=False, fresh=False, of="")

    def computed(self, code: ast.expr, *, dense: bool = False, fresh: bool = False) -> Batched:
        return replace(self, code=code, dense=dense, own=True, fresh=fresh)

    def narrowed(self, least: int, most: int = MANY) -> Batched:
        return replace(self, least=max(self.least, least), most=min(self.most, most))

    def named(self, code: ast.expr) -> Batched:
        return replace(self, code=code, fresh=False)

    def at(self, axis: int) -> Batched:
        if axis == self.axis:
            return self
        assert not self.kept
        return replace(self, code=moved(self.code, self.axis, axis), axis=axis, dense=False)

    def in_front(self) -> Batched:
        if not self.kept:
            return self.at(0)
        return replace(self, code=moved(self.code, self.axis, 0) if self.axis else self.code).loosened(0)

    def loosened(self, axis: int | None = None) -> Batched:
        """The same value, its axis of size 1 apart from the time axis, now at `axis`."""
        if not self.kept:
            return self
        code = expression("{x}.unsqueeze({axis})", x=self.code, axis=self.axis + 1)
        return replace(self, code=code, axis=self.axis if axis is None else axis, kept=False, dense=False)

    def squeezed(self) -> Batched:
        if not self.kept:
            return self
        return replace(self.with_axes(-1, self.code), kept=False, dense=self.dense, fresh=self.fresh)

    def unsqueezed(self, axis: int) -> Batched:
        """One step with one more axis of size 1, `axis`, along which the steps are."""
        there = self.at(axis)
        return replace(there.with_axes(1, there.code), kept=True, dense=there.dense, fresh=there.fresh)


@dataclass(frozen=True)
class Induction:
    """The induction variable, from `first` to before `stop`, plus `offset`.

    `end` is the expression that `stop` was written from, if the loop's head has one.
    """

    first: ast.expr
    stop: ast.expr
    offset: int = 0
    end: ast.expr | None = None


@dataclass(frozen=True)
class Carried:
    """What the step before left under `path`."""

    path: str


@dataclass(frozen=True)
class State:
    """The state that an RNN left: `outputs` are all steps' states, as a Cell's output.

    `last` is a Cell's state after the last step, if there is one.
    """

    path: str
    outputs: Batched | None = None
    last: ast.expr | None = None


@dataclass(frozen=True)
class Parts:
    items: tuple[Value, ...]


Value = Invariant | Batched | Induction | Carried | State | Parts


def written(value: Invariant | Batched) -> str:
    return ast.unparse(value.code)


def is_named(code: ast.expr, name: str) -> bool:
    return isinstance(code, ast.Name) and code.id == name


def moved(code: ast.expr, source: int, target: int) -> ast.expr:
    if {source, target} == {0, 1}:
        there = back = "{x}.transpose(0, 1)"
    else:
        there, back = f"{{x}}.movedim({source}, {target})", f"{{x}}.movedim({target}, {source})"
    if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
        undone = code.func.value
        if same_code(code, expression(back, x=undone)):
            return undone
    return expression(there, x=code)


def picked(code: ast.expr, axis: int, item: ast.expr) -> ast.expr:
    return indexed(code, [*(new(ast.Slice()) for _ in range(axis)), item])


def indexed(code: ast.expr, items: list[ast.expr], *, whole: bool = False) -> ast.expr:
    while items and not whole and is_full(items[-1]):
        items = items[:-1]
    if not items:
        return code
    index = items[0] if len(items) == 1 else new(ast.Tuple(items, ast.Load()))
    return new(ast.Subscript(code, index, ast.Load()))


def is_full(item: ast.expr) -> bool:
    return isinstance(item, ast.Slice) and item.lower is None and item.upper is None and item.step is None
